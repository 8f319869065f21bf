"""Builders of verdicts, for tests of what is made of them."""

from msgspec.structs import replace

from bench_master.analysis.answer import make_answer
from bench_master.analysis.verdict_types import (
    ComparisonReport,
    DesignReport,
    EnvironmentReport,
    FamilyReport,
    FlagReport,
    GateReport,
    PropertyReport,
    RunChecksReport,
    VerdictsReport,
)
from bench_master.verdicts.reasons import Code, because

LOOKED_FOR = ("drift", "steps", "carry-over", "late clock", "other kernel or engine versions")


def comparison(name, verdict, ratio, low, high, **known):
    """Build the verdict on an engine against docker; what is not given is as in a good run of 20 rounds."""
    labels = known.pop("labels", {"environment": "local", "engine": name, "job": "lifecycle"})
    base = ComparisonReport(
        a="environment=local engine=docker job=lifecycle",
        b=" ".join(f"{key}={value}" for key, value in labels.items()),
        name=name, group="", labels=labels, measure="job.p50", unit="s", direction="lower", verdict=verdict,
        reasons=(), ratio=ratio, low=low, high=high, scale="ratio", confidence=0.95, rounds=20, lost=0, p=0.004,
        mde=0.014, tipping=0.0, more_rounds=None, band=None, a_value=0.307,
        b_value=None if ratio is None else 0.307 * ratio, jobs_per_trial=30.0, effective_jobs=2.3, per_round=(),
        per_host=(), quantiles=(), flags=(),
    )  # fmt: skip
    return replace(base, **known)


def said(text):
    """Build a reason whose sentence is a text."""
    return because(Code.UNUSABLE_RUN, kind="unreadable", detail=text)


def flag(text, level="warning", where="", kind="regimes"):
    """Build what the diagnosis found."""
    return FlagReport(kind=kind, where=where, level=level, p=0.001, size=0.21, reason=said(text))


def engine_verdicts(**known):
    """Build the verdicts on four engines against docker, as the specification shows them."""
    found = (
        comparison("podman", "slower", 1.21, 1.182, 1.239, flags=(
            flag("2 of 600 jobs failed; the verdict stands.", where="podman"),
        )),
        comparison("crun", "same", 1.005, 0.991, 1.02),
        comparison("native", "faster", 1 / 79.6, 1 / 83.0, 1 / 76.1),
        comparison("runsc", "inconclusive", 0.977, 0.941, 1.013, more_rounds=14,
                   reasons=(because(Code.NOT_ENOUGH_EVIDENCE),)),
    )  # fmt: skip
    base = VerdictsReport(
        format="weighbridge-verdicts", version=1, answer="",
        question="Engines against docker: job time (p50 of a trial), margin 3 %",
        family=FamilyReport(alpha=0.05, comparisons=4, margin=0.03, control="bonferroni-interval"),
        design=DesignReport(
            grade="A", limits=(), order="interleaved", seed=932375141, rounds=20,
            scope="on host blade-1, in this run", unit="round", stopping=None,
        ),
        comparisons=found,
        runs=RunChecksReport(
            flags=(flag("the machine changed speed (two levels, 1.21x apart, 7 changes between them): ratios "
                        "within a round hold, single values do not."),),
            looked_for=LOOKED_FOR, noise_floor=comparison("docker", "same", 0.998, 0.985, 1.011),
        ),
        environment=EnvironmentReport(differences=()), archive=None, refused=(), gates=(), exit_code=0,
    )  # fmt: skip
    built = replace(base, **known)
    return replace(built, answer=known.get("answer") or answer_of(built.comparisons))


def answer_of(comparisons, archive=None):
    """Return the answer of comparisons whose baselines' titles are their labels."""
    labels = {each.a: dict(part.split("=", 1) for part in each.a.split() if "=" in part) for each in comparisons}
    verdicts = VerdictsReport(
        question="", family=FamilyReport(0.05, 1, 0.03, ""), comparisons=comparisons, archive=archive,
        design=DesignReport(grade="A", limits=(), scope="", unit="round"),
    )  # fmt: skip
    return make_answer(verdicts, labels)


def refused_verdicts():
    """Build the refusal of a study whose two sides ran on different machines, one after the other."""
    labels = {"environment": "hypervisor", "engine": "native", "job": "cpu"}
    one = comparison(
        "hypervisor", "refused", 0.864, 0.8639, 0.8641, labels=labels, measure="events_per_second", unit="1/s",
        direction="higher", a="environment=bare-metal engine=native job=cpu", tipping=0.136, a_value=2000.0,
        b_value=1728.0, reasons=(
            said("not interleaved"), said("6 properties differ besides the treatment (cpu_governor ...)"),
        ),
    )  # fmt: skip
    return engine_verdicts(
        comparisons=(one,), refused=("not interleaved",),
        question="Environments against bare-metal: events per second, margin 3 %",
        design=DesignReport(
            grade="D", limits=(said("not interleaved"),), order="blocked", seed=None, rounds=25,
            scope="on hosts a and b, in this run", unit="round", stopping=None,
        ),
        environment=EnvironmentReport(differences=(
            PropertyReport("cpu_governor", {"bare-metal": "performance", "hypervisor": "powersave"}, "refusal"),
        )),
        gates=(GateReport('--fail-on "slower by 5%"', "undecided", "", "refused: it cannot be judged", 4),),
        exit_code=4,
    )  # fmt: skip
