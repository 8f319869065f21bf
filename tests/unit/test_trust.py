"""How far a report can be trusted, in one word: the same in every format, from what the report tells anyhow."""

import pytest
from builders import lifecycle_run
from msgspec.structs import replace
from verdict_builders import comparison, engine_verdicts, flag, said

from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import build_document
from bench_master.analysis.trust import judge_trust
from bench_master.analysis.verdict_types import PropertyReport
from bench_master.verdicts.reasons import Code, because


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The stats file of a small run."""
    return lifecycle_run(tmp_path_factory.mktemp("trust") / "run.stats.gz")


@pytest.fixture(scope="module")
def calm(path):
    """The document of a run in which nothing was found."""
    document = build_document(StatsFile(path))
    done = [replace(one, jobs=replace(one.jobs, done=max(1, one.jobs.done), failed=0)) for one in document.treatments]
    return replace(document, warnings=[], incomplete=[], damage=None, treatments=done, verdicts=quiet())


def quiet(**known):
    """Return verdicts with a good design and no finding."""
    found = [comparison("crun", "same", 1.0, 0.99, 1.01), comparison("podman", "slower", 1.2, 1.1, 1.3)]
    known = {"comparisons": found, **known}
    verdicts = engine_verdicts(comparisons=known.pop("comparisons"))
    design = replace(verdicts.design, **known.pop("design", {"grade": "A", "limits": ()}))
    runs = replace(verdicts.runs, flags=known.pop("flags", ()))
    environment = replace(verdicts.environment, differences=known.pop("differences", ()))
    return replace(verdicts, design=design, runs=runs, environment=environment)


def test_where_nothing_was_found_trust_is_good_without_a_reason(calm):
    """A verdict that found nothing is trusted as one that found something."""
    assert judge_trust(calm).sentence == "Trust: good."
    open_one = comparison("runsc", "inconclusive", 1.0, 0.9, 1.1, reasons=(because(Code.NOT_ENOUGH_EVIDENCE),))
    assert judge_trust(replace(calm, verdicts=quiet(comparisons=[open_one]))).word == "good"


def refused(name):
    """Return a refused comparison."""
    return comparison(name, "refused", 1.2, None, None, reasons=(said("other hosts"),))


CASES = {
    "a warning of the run": (lambda one: replace(one, warnings=["worker w0 was lost"]), "fair, worker w0 was lost."),
    "a warning with a clause in parentheses": (
        lambda one: replace(
            one,
            warnings=["vm changed speed (a step of +26.5 %; its CPUs did): no ratio holds without drawn rounds"],
        ),
        "fair, vm changed speed (a step of +26.5 %; its CPUs did).",
    ),
    "a warning whose parentheses are too long for a line": (
        lambda one: replace(
            one,
            warnings=[
                f"vm changed speed (a step of +59.5 % after the 19th trial; {'others used its CPUs, ' * 5}): no"
            ],
        ),
        "fair, vm changed speed.",
    ),
    "missing jobs": (
        lambda one: replace(one, incomplete=["the run was interrupted"], run_state="incomplete"),
        "fair, the run is incomplete, the run was interrupted.",
    ),
    "damage": (lambda one: replace(one, damage="bad checksum"), "poor, the stats file is damaged."),
    "nothing was executed": (
        lambda one: replace(one, run=replace(one.run, noop=True)),
        "poor, nothing was executed.",
    ),
    "a weak design": (
        lambda one: replace(one, verdicts=quiet(design={"grade": "B", "limits": (said("one host"),)})),
        f"fair, {said('one host').sentence()}.",
    ),
    "a design that allows no word": (
        lambda one: replace(one, verdicts=quiet(design={"grade": "D", "limits": (said("no order"),)})),
        f"poor, {said('no order').sentence()}.",
    ),
    "what the diagnosis warns of": (
        lambda one: replace(one, verdicts=quiet(flags=(flag("two levels"),))),
        f"fair, {said('two levels').sentence()}.",
    ),
    "what it refuses words for": (
        lambda one: replace(one, verdicts=quiet(flags=(flag("two levels", "refusal"),))),
        f"poor, {said('two levels').sentence()}.",
    ),
    "what it only notes": (lambda one: replace(one, verdicts=quiet(flags=(flag("fine", "note"),))), "good."),
    "one word of two is refused": (
        lambda one: replace(
            one, verdicts=quiet(comparisons=[refused("crun"), comparison("podman", "slower", 1.2, 1.1, 1.3)])
        ),
        f"fair, crun: {said('other hosts').sentence()}.",
    ),
    "all words are refused": (
        lambda one: replace(one, verdicts=quiet(comparisons=[refused("crun")])),
        f"poor, {said('other hosts').sentence()}.",
    ),
    "all words are refused for the same reason": (
        lambda one: replace(one, verdicts=quiet(comparisons=[refused("crun"), refused("podman")])),
        f"poor, {said('other hosts').sentence()}.",
    ),
    "sides differ": (
        lambda one: replace(
            one, verdicts=quiet(differences=(PropertyReport("kernel", {"a": "1", "b": "2"}, "warning"),))
        ),
        "fair, 1 property differs besides the treatment.",
    ),
    "sides differ as they should": (
        lambda one: replace(
            one, verdicts=quiet(differences=(PropertyReport("kernel", {"a": "1", "b": "2"}, "treatment"),))
        ),
        "good.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_word_follows_from_what_was_found(calm, case):
    """With the gravest reason in short."""
    change, words = CASES[case]
    assert judge_trust(change(calm)).sentence == f"Trust: {words}"


def test_a_treatment_without_a_job_makes_it_poor_and_failed_jobs_fair(calm):
    """What failed has no time, and what is left may be the lucky ones."""
    first, *others = calm.treatments
    barren = replace(first, jobs=replace(first.jobs, done=0))
    assert judge_trust(replace(calm, treatments=[barren, *others])).word == "poor"
    some = replace(first, jobs=replace(first.jobs, failed=2))
    judged = judge_trust(replace(calm, treatments=[some, *others], verdicts=None))
    assert (judged.word, judged.reason.partition(" of ")[0]) == ("fair", "2")


def test_the_gravest_reason_is_named_and_the_others_are_counted(calm):
    """Its first clause alone: all of it is among the warnings."""
    noisy = replace(
        calm,
        warnings=["host vm was fully busy in 9 of 18 trials (3, 6, 10): mostly python", "worker w0 was lost"],
        verdicts=quiet(flags=(flag("two levels", "refusal"),)),
    )
    assert judge_trust(noisy).others == 2
    assert judge_trust(noisy).word == "poor"
    fair = judge_trust(replace(noisy, verdicts=quiet()))
    assert fair.sentence == "Trust: fair, host vm was fully busy in 9 of 18 trials (1 more below)."
