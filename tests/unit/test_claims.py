"""Registered claims: what a scenario claims before its first job, and what the report makes of it."""

import io

import numpy as np
import pytest
from rounds import Rounds

from bench_common.errors import ScenarioError, StatsFileError
from bench_common.stats.reader import StatsFile
from bench_master.reports import ReportSource, report_named
from bench_master.scenario.claims import digest_of, registered
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source

SCENARIO = """\
name: claims
engines: [runc, crun, docker]
repeats: 10
job:
  operations: [run, remove]
  container: {image: weighbridge/base}
claims:
"""
CLAIM = "  - {treatment: {engine: crun}, against: {engine: runc}, is: faster by 10%}\n"


def load(claims=CLAIM, text=SCENARIO):
    """Load the scenario with these claims."""
    return parse_scenario(Source("claims.yaml", text + claims))


def problems(claims, text=SCENARIO):
    """Return the problems of a scenario with these claims."""
    with pytest.raises(ScenarioError) as caught:
        load(claims, text)
    return [str(one) for one in caught.value.problems]


def test_claim_has_all_labels_measure_and_rounds():
    """A claim that names two engines is of their treatments, by the primary measure, after all repeats."""
    (claim,) = load().claims
    assert (claim.treatment["engine"], claim.against["engine"]) == ("crun", "runc")
    assert (claim.measure, claim.says, claim.rounds) == ("job.p50", "faster by 10%", 10)


def test_digest_changes_with_each_part_of_a_claim():
    """Whoever changes a word, a side, the measure, the rounds or the margin gets another digest."""
    found = {
        registered(load(claims).claims, margin)["sha256"]
        for claims in (
            CLAIM,
            CLAIM.replace("10%", "11%"),
            CLAIM.replace("engine: runc", "engine: docker"),
            CLAIM.replace("}\n", ", measure: job.p95}\n"),
            CLAIM.replace("}\n", ", rounds: 8}\n"),
        )
        for margin in (None, 0.05)
    }
    assert len(found) == 10
    assert registered(load().claims, None) == registered(load().claims, None)


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        (CLAIM.replace("faster", "fastr"), "'is': 'fastr by 10%': unknown word 'fastr' (did you mean 'faster'?)"),
        (CLAIM.replace("crun}", "crum}"), "claims.yaml:8:17: no treatment matches 'treatment' engine=crum (did"),
        (CLAIM.replace("is:", "say:"), "unknown key 'say' in the claim"),
        (CLAIM.replace("treatment", "treatmet"), "claims.yaml:8:6: unknown key 'treatmet' in the claim (did"),
        (CLAIM.replace("runc", "crun"), "'against' is"),
        (CLAIM.replace("}\n", ", measure: job.p9x}\n"), "'p9x' is no measure of a duration"),
        (CLAIM.replace("}\n", ", rounds: 11}\n"), "'rounds' is 11, and 'repeats' is 10: give at most so many"),
        (CLAIM.replace("}\n", ", rounds: 5}\n"), "'5': expected a whole number, at least 6"),
        (CLAIM.replace("faster by 10%", "engine=crun faster"), "leave engine=crun out: 'treatment' says"),
        (CLAIM + CLAIM, "claims.yaml:9:5: claim 2 is claim 1 once more: remove one"),
        (CLAIM + CLAIM.replace("}\n", ", rounds: 8}\n"), "claim 1 judges the same comparison by 10 rounds"),
    ],
)  # fmt: skip
def test_bad_claim_is_named_with_its_place(claims, expected):
    """A claim that nothing can decide is an error with file, line and column, the value, and what was expected."""
    found = problems(claims)
    assert any(expected in one for one in found), found


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("repeats: 10", "repeats: 5", "a claim needs at least 6 rounds, and 'repeats' is 5"),
        ("repeats: 10", "repeats: {until: verdict}", "give 'repeats: N' in place of 'until: verdict'"),
        ("repeats: 10", "repeats: 10\norder: blocked", "'order: blocked' carries no verdict"),
        (
            "repeats: 10",
            "repeats: 10\nmatrix: {concurrency: [1, 2]}",
            "means 2 treatments: add the label concurrency",
        ),
    ],
)
def test_claim_that_the_design_cannot_decide_is_an_error(old, new, expected):
    """Too few rounds, rounds without a fixed number, blocks and two treatments for one are told before the run."""
    found = problems(CLAIM, SCENARIO.replace(old, new))
    assert any(expected in one for one in found), found


def test_profile_of_few_rounds_claims_nothing():
    """A small scale sets an empty list in place of claims that its rounds cannot decide."""
    text = SCENARIO.replace("repeats: 10", "repeats: 10\nprofiles: {small: {repeats: 2, claims: []}}")
    assert load(text=text).claims
    assert load(text=text.replace("repeats: 10", "scale: small\nrepeats: 10", 1)).claims == ()


def test_against_takes_the_other_labels_from_the_treatment():
    """With several values of a matrix the baseline of a claim is the one that differs in nothing else."""
    claim = CLAIM.replace("engine: crun", "engine: crun, concurrency: 2")
    (found,) = load(claim, SCENARIO.replace("repeats: 10", "repeats: 10\nmatrix: {concurrency: [1, 2]}")).claims
    assert (found.against["engine"], found.against["concurrency"]) == ("runc", 2)


# -- reports --------------------------------------------------------------------------------------------------


def claim(b, a, says, measure="job.p50", rounds=10):
    """Make a claim as the header has it."""
    return {"treatment": {"engine": b}, "against": {"engine": a}, "measure": measure, "says": says, "rounds": rounds}


def header_claims(*claims, margin=None, **changes):
    """Make the entry of a header."""
    return {"sha256": digest_of(claims, margin), "margin": margin, "registered": list(claims)} | changes


def noisy(rng, factor=1.0, rounds=10, noise=0.01):
    """Draw the trials of a treatment."""
    return list(factor * np.exp(noise * rng.standard_normal(rounds)))


def write(path, *claims, engines=("docker", "podman", "crun"), factors=(1.0, 0.8, 1.0), rounds=10, seed=1, **changes):
    """Write a run with these claims; each side takes so many times as long."""
    rng = np.random.default_rng(seed)
    sides = [noisy(rng, factor, rounds) for factor in factors]
    return Rounds(path, engines, claims=header_claims(*claims, **changes)).write(*sides)


KEPT = claim("podman", "docker", "faster by 10%")
BROKEN = claim("podman", "docker", "slower by 5%")
UNDECIDED = claim("podman", "docker", "faster by 25%")


def test_report_says_of_each_claim_what_became_of_it(tmp_path):
    """A treatment 25 % faster keeps 'faster by 10%', breaks 'slower by 5%', and leaves open 'faster by 25%'."""
    verdicts = write(tmp_path / "run.stats", KEPT, BROKEN, UNDECIDED).verdicts()
    assert [one.state for one in verdicts.claims.claims] == ["kept", "broken", "undecided"]
    assert [one.exit_code for one in verdicts.claims.claims] == [0, 1, 4]
    assert verdicts.answer.startswith("Claims: 1 kept, 1 broken, 1 undecided. Faster than docker")


def test_claims_are_the_family_and_the_rest_is_exploratory(tmp_path):
    """Of two comparisons one is claimed: its interval is that of a single comparison, the other's is exploratory."""
    run = write(tmp_path / "run.stats", KEPT)
    claimed, other = run.verdicts().comparisons
    assert (claimed.b, claimed.exploratory, other.b, other.exploratory) == (
        "engine=podman", False, "engine=crun", True,
    )  # fmt: skip
    family = run.verdicts().family
    assert (family.comparisons, family.exploratory) == (1, 1)
    alone = write(tmp_path / "alone.stats", engines=("docker", "podman"), factors=(1.0, 0.8)).only()
    assert (claimed.low, claimed.high) == (alone.low, alone.high)
    without = write(tmp_path / "without.stats").verdicts().comparisons[0]
    assert without.high - without.low > claimed.high - claimed.low


def test_claim_between_two_treatments_of_which_none_is_the_baseline(tmp_path):
    """A claim may be about any two treatments: it has a comparison of its own."""
    verdicts = write(tmp_path / "run.stats", claim("podman", "crun", "faster by 10%")).verdicts()
    assert [(one.a, one.b, one.exploratory) for one in verdicts.comparisons] == [
        ("engine=crun", "engine=podman", False),
        ("engine=docker", "engine=podman", True),
        ("engine=docker", "engine=crun", True),
    ]
    assert verdicts.claims.claims[0].state == "kept"
    assert verdicts.comparisons[0].name == "podman"


def test_claim_about_another_measure_is_judged_by_it(tmp_path):
    """Jobs of 1 s with a tail that is longer on one side: the claim about p95 is kept, the median is the same."""
    rng = np.random.default_rng(3)

    def trial(tail):
        jobs = np.exp(0.01 * rng.standard_normal(200))
        jobs[:40] *= tail
        return list(jobs)

    run = Rounds(tmp_path / "run.stats", claims=header_claims(claim("podman", "docker", "slower by 50%", "job.p95")))
    verdicts = run.write([trial(2) for _ in range(10)], [trial(4) for _ in range(10)]).verdicts()
    assert [one.state for one in verdicts.claims.claims] == ["kept"]
    tail, median = verdicts.comparisons
    assert (tail.measure, tail.exploratory, tail.verdict) == ("job.p95", False, "slower")
    assert (median.measure, median.exploratory, median.verdict) == ("job.p50", True, "same")


def test_rounds_after_the_registered_ones_do_not_count(tmp_path):
    """A claim about 10 rounds is judged by the first 10 of 20, in which nothing differs yet."""
    rng = np.random.default_rng(4)
    a = noisy(rng, 1.0, 20)
    b = [*noisy(rng, 1.0, 10), *noisy(rng, 0.5, 10)]
    run = Rounds(tmp_path / "run.stats", claims=header_claims(claim("podman", "docker", "slower by 10%")))
    verdicts = run.write(a, b).verdicts()
    assert verdicts.comparisons[0].rounds == 10


def test_claim_is_undecided_until_its_rounds_ran(tmp_path):
    """8 of 10 registered rounds decide nothing, however clear: who stops early must not choose the answer."""
    verdicts = write(tmp_path / "run.stats", KEPT, rounds=8, factors=(1.0, 0.5, 1.0)).verdicts()
    (found,) = verdicts.claims.claims
    assert (found.state, found.exit_code) == ("undecided", 3)
    assert found.text == "8 of 10 registered rounds ran: resume the run, or add rounds with --more"


def test_claims_that_were_changed_after_the_run_decide_nothing(tmp_path):
    """A digest that is not that of the claims leaves each of them undecided, and says why."""
    verdicts = write(tmp_path / "run.stats", KEPT, sha256="0" * 64).verdicts()
    assert not verdicts.claims.intact
    assert [one.state for one in verdicts.claims.claims] == ["undecided"]
    assert "the file was changed" in verdicts.claims.claims[0].text


@pytest.mark.parametrize(
    "change", [{"margin": -1.0}, {"registered": [claim("podman", "docker", "faster", rounds=0)]}]
)
def test_malformed_claims_are_in_no_stats_file(tmp_path, change):
    """A header whose claims no run can have is refused in words, by the check that writers and readers share."""
    run = Rounds(tmp_path / "run.stats", claims=header_claims(KEPT) | change)
    with pytest.raises(StatsFileError, match="claims"):
        run.write([1.0] * 10, [0.5] * 10)


def test_margin_of_the_command_line_moves_no_claim(tmp_path):
    """'same' means within the registered margin, whatever --margin says afterwards."""
    run = write(tmp_path / "run.stats", claim("crun", "docker", "same"), factors=(1.0, 0.8, 1.01), margin=0.05)
    assert run.verdicts().claims.claims[0].state == "kept"
    assert run.verdicts(margin=0.001).claims.claims[0].state == "kept"


def test_noop_run_judges_no_claim(tmp_path):
    """What a no-op run measures is the harness."""
    run = Rounds(tmp_path / "run.stats", noop=True, claims=header_claims(KEPT)).write([1.0] * 10, [0.5] * 10)
    verdicts = run.verdicts()
    assert verdicts is None or verdicts.claims is None


@pytest.mark.parametrize("name", ["text", "markdown", "html", "json", "junit", "github", "openmetrics"])
def test_formats_tell_kept_broken_and_undecided(tmp_path, name):
    """Every format that people and build servers read has each claim with its state."""
    run = write(tmp_path / "run.stats", KEPT, BROKEN, UNDECIDED)
    source = ReportSource(StatsFile(run.path))
    out = io.StringIO()
    report_named(name).write(source, out)
    text = out.getvalue()
    expected = {
        "text": ("kept       engine=podman against engine=docker", "BROKEN", "UNDECIDED", "sha256", "exploratory"),
        "markdown": ("- KEPT claim", "- BROKEN claim", "- UNDECIDED claim", "sha256 "),
        "html": (">kept<", ">BROKEN<", ">UNDECIDED<", "sha256 "),
        "json": ('"state": "kept"', '"state": "broken"', '"state": "undecided"', '"sha256"'),
        "junit": ('classname="weighbridge.claims"', '<failure type="broken"', '<error type="undecided"'),
        "github": ("- KEPT claim", "- BROKEN claim", "- UNDECIDED claim"),
        "openmetrics": ('state="kept"', 'state="broken"', "weighbridge_claims"),
    }[name]
    for one in expected:
        assert one in text, text
    assert source.exit_code() == 1


def test_one_claim_among_five_treatments_sees_what_four_comparisons_miss(tmp_path):
    """An effect of 1.2 noises of a round is seen more often as the only claim than as one of four comparisons."""
    seen = {"claimed": 0, "one of four": 0}
    engines = tuple(f"e{place}" for place in range(5))
    factors = (1.0, float(np.exp(0.017)), 1.0, 1.0, 1.0)
    for seed in range(12):
        for name in seen:
            rng = np.random.default_rng(seed)
            sides = [noisy(rng, factor) for factor in factors]
            entry = {"claims": header_claims(claim("e1", "e0", "slower"), margin=0.001)} if name == "claimed" else {}
            run = Rounds(tmp_path / f"{seed}{name}.stats", engines, verdicts={"margin": 0.001}, **entry).write(*sides)
            found = next(one for one in run.verdicts().comparisons if one.b == "engine=e1")
            seen[name] += found.verdict == "slower"
    assert seen["claimed"] >= seen["one of four"] + 2, seen
