"""Figures that say more of the harness than of what it measured: they are refused, in every format."""

import csv
import io

import pytest
from builders import write_report
from rounds import Rounds

from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import build_document
from bench_master.verdicts.reasons import Code

SLOW = [0.010, 0.0101, 0.0099, 0.0102, 0.0098, 0.01, 0.0101, 0.01, 0.0099, 0.01]
SLOWER = [1.2 * one for one in SLOW]
"""A hundred jobs a second and 83, one after the other, two in flight."""


def codes(comparison):
    return [reason.code for reason in comparison.reasons]


def built(path, *sides, wire=None, **known):
    return Rounds(path / "run.stats.gz", wire=wire or {"concurrency": 1}, **known.pop("changes", {})).write(
        *sides, **known
    )


@pytest.mark.parametrize(
    ("ceiling", "word"), [(130.0, "slower"), (126.0, "slower"), (124.0, "refused"), (101.0, "refused")]
)
def test_a_rate_within_a_fifth_of_the_harness_own_is_refused(tmp_path, ceiling, word):
    """With the treatment that is nearer, its rate and the ceiling."""
    found = built(tmp_path, SLOW, SLOWER, ceilings={0: ceiling, 1: ceiling}).only()
    assert found.verdict == word
    if word == "refused":
        (reason,) = found.reasons
        assert reason.code == Code.LIMITED_BY_HARNESS
        assert (reason.data["treatment"], reason.data["ceiling_per_s"]) == ("engine=docker", ceiling)
        assert reason.data["rate_per_s"] == pytest.approx(100, rel=0.02)
        assert f"of the {ceiling:.0f} that the harness itself can do here (no-op)" in reason.sentence()


def test_the_time_of_a_job_counts_as_the_rate_of_as_many_jobs_in_flight(tmp_path):
    """Its jobs end one after the other, which is no more than 100 a second; four at once could be 400."""
    sides = (SLOW, SLOWER)
    assert built(tmp_path, *sides, wire={"concurrency": 4}, ceilings={0: 600.0}).only().verdict == "slower"
    (tmp_path / "run.stats.gz").unlink()
    found = built(tmp_path, *sides, wire={"concurrency": 4}, ceilings={0: 450.0}).only()
    assert codes(found) == [Code.LIMITED_BY_HARNESS]
    assert found.reasons[0].data["rate_per_s"] == pytest.approx(400, rel=0.02)


def test_a_score_of_a_guest_is_not_limited_by_the_harness(tmp_path):
    """It measures itself; how often it is started says nothing of it."""
    scores = [[100.0 + place for place in range(10)], [80.0 + place for place in range(10)]]
    run = built(tmp_path, SLOW, SLOWER, metrics=scores, ceilings={0: 100.0, 1: 100.0}, used=[(0.5, 0.0)] * 2)
    assert run.only().measure == "events_per_second"
    assert run.only().verdict == "slower"


@pytest.mark.parametrize("rate", [90.0, 120.0])
def test_in_an_open_system_the_rate_that_was_asked_for_counts(tmp_path, rate):
    """Arrivals that the harness cannot make are not offered, whatever the rate of what ended is."""
    load = {"rate_per_s": rate, "process": "constant"}
    wire = {"concurrency": 1, "open_load": load, "primary": "response.p50"}
    document = build_document(StatsFile(built(tmp_path, SLOW, SLOWER, wire=wire, ceilings={0: 140.0}).path))
    (found,) = document.verdicts.comparisons
    assert found.measure == "response.p50"
    assert codes(found) == ([Code.LIMITED_BY_HARNESS] if rate >= 0.8 * 140.0 else [])
    assert document.treatments[0].harness.rate_per_s == pytest.approx(max(rate, 100), rel=0.02)


@pytest.mark.parametrize(
    ("used", "word"),
    [((0.25, 0.02), "refused"), ((0.15, 0.02), "slower"), ((0.25, 0.30), "slower"), ((0.25, 0.25), "slower")],
)
def test_cpu_time_that_jobs_lacked_and_the_harness_took_is_refused(tmp_path, used, word):
    """Where its share is larger than the difference, 20 %, and than what was idle."""
    run = built(tmp_path, SLOW, SLOWER, wire={"concurrency": 2}, used=[used, (0.0, 1.0)])
    assert run.only().verdict == word
    if word == "refused":
        (reason,) = run.only().reasons
        assert reason.code == Code.HARNESS_CPU
        assert (reason.data["share"], reason.data["idle"]) == pytest.approx(used)
        assert reason.data["difference"] == pytest.approx(0.2)


def test_same_needs_a_harness_that_takes_less_than_the_margin(tmp_path):
    """No difference is less than any share; what *same* claims is the margin."""
    same = [one * (1.004 if place % 2 else 0.996) for place, one in enumerate(SLOW)]
    run = built(tmp_path, SLOW, same, wire={"concurrency": 2}, used=[(0.04, 0.0), (0.04, 0.0)])
    assert run.only(margin=0.05).verdict == "same"
    assert codes(run.only(margin=0.03)) == [Code.HARNESS_CPU]


def test_a_job_that_runs_alone_shares_no_cpu_with_its_own_hand_out(tmp_path):
    """Between two jobs the harness has the CPU, and during a job it has nothing to do."""
    run = built(tmp_path, SLOW, SLOWER, used=[(0.5, 0.0), (0.5, 0.0)])
    assert run.only().verdict == "slower"
    alone = {"concurrency": 1, "primary": "jobs_per_s"}
    (tmp_path / "run.stats.gz").unlink()
    assert codes(built(tmp_path, SLOW, SLOWER, wire=alone, used=[(0.5, 0.0)] * 2).only()) == [Code.HARNESS_CPU]


def test_a_noop_run_is_refused_for_what_it_is(tmp_path):
    """It measures the harness and nothing else, so that it is near the ceiling is no news."""
    found = built(tmp_path, SLOW, SLOWER, ceilings={0: 100.0}, changes={"noop": True}).only()
    assert codes(found) == [Code.NOOP]


def test_damaged_ceilings_are_ignored_and_the_last_one_counts(tmp_path):
    """A resumed run has one from each part."""
    run = built(tmp_path, SLOW, SLOWER, ceilings={0: -1.0, 1: 500.0, 7: 100.0})
    first, second = build_document(StatsFile(run.path)).treatments
    assert first.harness is None
    assert second.harness.ceiling_per_s == 500.0
    assert second.harness.cpu_share is None
    assert run.only().verdict == "slower"


def test_every_format_says_so(tmp_path):
    """The ceiling beside the rate, its share, and the refusal with its values."""
    run = built(tmp_path, SLOW, SLOWER, ceilings={0: 110.0, 1: 110.0}, used=[(0.5, 0.3)] * 2)
    texts = {}
    for name in ("text", "markdown", "html", "json", "csv"):
        out = io.StringIO()
        write_report(run.path, out, name)
        texts[name] = " ".join(out.getvalue().split())
        assert "limited by the harness: engine=docker asks for" in texts[name].replace("\\", ""), name
    assert "harness's own: no-op, 2026-01-02" in texts["text"]
    assert "110" in texts["text"]
    assert "of the harness's own" in texts["markdown"]
    assert '"code":"limited-by-harness"' in texts["json"].replace(" ", "")
    assert "What the harness itself can do here" in texts["html"]
    out.seek(0)
    for row in csv.DictReader(out):
        assert (row["harness_ceiling"], row["harness_ceiling_per_s"], row["harness_cpu_share"]) == (
            "no-op",
            "110.0",
            "0.5",
        )


def test_a_ceiling_that_was_measured_beside_others_says_so_in_every_format(tmp_path):
    """Neighbours make it too low, so the reader knows that it may be; those of a quiet machine are no news."""
    for name, told in (("busy", {"others": 0.4, "quiet": False}), ("quiet", {"others": 0.04, "quiet": True})):
        run = Rounds(tmp_path / f"{name}.stats.gz").write(SLOW, SLOWER, ceilings={0: 110.0, 1: 110.0}, told=told)
        (reason,) = run.only().reasons
        others = 0.4 if name == "busy" else None
        assert reason.data["others"] == others
        text, document = io.StringIO(), build_document(StatsFile(run.path))
        assert document.treatments[0].harness.others_share == others
        write_report(run.path, text, "text")
        shown = " ".join(text.getvalue().split())
        for part in ("others had 40 % of the CPUs meanwhile", "beside others with 40.0% of the CPUs"):
            assert (part in shown) == (name == "busy")


def test_a_gate_on_such_a_verdict_cannot_be_judged(tmp_path):
    """As with any other refusal: exit code 4."""
    run = built(tmp_path, SLOW, SLOWER, ceilings={0: 110.0})
    verdicts = run.verdicts(fail_on=("slower by 5%",))
    assert (verdicts.exit_code, verdicts.gates[0].state) == (4, "undecided")


def test_a_single_treatment_is_warned_about(tmp_path):
    """There is no verdict to refuse; the figure is what it is, and has its reason beside it."""
    path = (
        Rounds(tmp_path / "run.stats.gz", ("docker",), wire={"concurrency": 1}).write(SLOW, ceilings={0: 110.0}).path
    )
    (warning,) = [one for one in build_document(StatsFile(path)).warnings if "harness" in one]
    assert warning.startswith("limited by the harness: engine=docker asks for 100")
