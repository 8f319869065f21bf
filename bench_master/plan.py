"""The plan of a run: all trials of all treatments, in an order that the seed decides. Making it touches nothing.

A block is a round: round 3 of one treatment belongs beside round 3 of all others, whatever the order, so that an
analysis can pair them. Warm-up rounds come first and are numbered with the rest.

The host ceiling is the rate at which this machine runs ``true`` as a plain process, measured before the treatments
with their numbers of jobs and of jobs in flight. No engine can be faster; it includes Weighbridge's own overhead.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from bench_common.engine_traits import baseline_engine, engine_traits
from bench_common.job_rules import rules_of
from bench_common.treatment import ContainerSettings, Lifecycle, Operation, Scalar, Treatment
from bench_common.units import format_duration
from bench_workloads.script import job_script, preparation_script, shares_container

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from bench_master.scenario.model import Order, Scenario

JOB: Final = "(host-ceiling)"
"""The label of the host ceiling's job. No job of a scenario can have this label."""

CEILING_TRIALS: Final = 10
"""Trials of a host ceiling at most, where the treatments go on until their verdicts are settled."""
_COMMAND: Final = ("true",)
_LIFECYCLE: Final = Lifecycle(tuple(Operation(kind, kind) for kind in ("run", "wait", "remove")))


def host_ceilings(
    treatments: Sequence[Treatment], repeats: Sequence[int], warmup: Sequence[int]
) -> tuple[tuple[Treatment, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the host ceilings of a plan's treatments with their repeats and warm-ups.

    There is one for each environment, concurrency and trial size of the treatments, with the most repeats of any of
    them. Their indices follow those of the treatments.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, one in enumerate(treatments):
        if not one.job.uses_engine:
            continue  # it runs no processes
        key = (one.environment, one.concurrency, one.iterations, one.operation_count, one.run_seconds)
        groups.setdefault(key, []).append(place)
    varying = _varying_labels(list(groups))
    engine, ceilings = baseline_engine(), list[Treatment]()
    for key, places in groups.items():
        environment, concurrency, iterations, operation_count, run_seconds = key
        labels: dict[str, Scalar] = {} if environment is None else {"environment": environment}
        labels |= {"engine": engine, "job": JOB}
        labels |= {name: key[place] for name, place in varying.items() if key[place] is not None}
        ceilings.append(
            Treatment(
                index=len(treatments) + len(ceilings),
                labels=labels,
                environment=environment,
                engine=engine,
                job=_LIFECYCLE,
                container=ContainerSettings(command=_COMMAND),
                concurrency=concurrency,
                iterations=iterations,
                operation_count=operation_count,
                run_seconds=run_seconds,
                timeout_s=max(treatments[place].timeout_s for place in places),
            )
        )
    counts = [tuple(max(row[place] for place in places) for places in groups.values()) for row in (repeats, warmup)]
    return tuple(ceilings), counts[0], counts[1]


def _varying_labels(keys: Sequence[tuple[Any, ...]]) -> dict[str, int]:
    """Return the labels, besides the environment, in which the ceilings differ, with their places in the keys."""
    names = ("concurrency", "iterations", "operation_count", "run_seconds")
    return {name: place for place, name in enumerate(names, 1) if len({key[place] for key in keys}) > 1}


def is_host_ceiling(labels: Mapping[str, Any]) -> bool:
    """Return whether a treatment with these labels is a host ceiling."""
    return labels.get("job") == JOB


DEFAULT_OPERATION_S: Final = 0.1
"""The assumed duration of an operation, in seconds: a container engine's order of magnitude."""


class Trial(Struct, frozen=True):
    """One independent measurement of a treatment."""

    index: int
    """Its index in the plan."""
    treatment: int
    """The index of its treatment."""
    block: int
    """Its round, from 0; warm-up rounds come first."""
    warmup: bool
    """Whether its results are left out of all figures."""


class Plan(Struct, frozen=True):
    """All trials of a run in order. The same scenario and seed give an equal plan."""

    treatments: tuple[Treatment, ...]
    """The scenario's treatments, then its host ceilings."""
    trials: tuple[Trial, ...]
    """In the order in which they run."""
    order: Order
    """How they were ordered: ``interleaved``, ``as-written`` or ``blocked``."""
    seed: int
    setting_places: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Where the scenario gives a host setting a value: ``FILE:LINE:COLUMN`` by name and value."""
    command_places: Mapping[str, str] = field(default_factory=dict)
    """Where the scenario first has a command of this program: ``FILE:LINE:COLUMN``."""
    primary: tuple[str, ...] = ()
    """The primary measure of each of the scenario's treatments, by its index."""

    def job_count(self, trial: Trial, workers: int) -> int | None:
        """Return how many jobs a trial has when `workers` workers share it; None where time alone ends it."""
        treatment = self.treatments[trial.treatment]
        if treatment.iterations is not None:
            return treatment.iterations * treatment.concurrency * workers
        return treatment.operation_count


def allows_look_ahead(treatment: Treatment) -> bool:
    """Whether jobs of a treatment may wait at a worker while those in front of them run.

    They may not in four cases: a guest benchmark is a measurement by itself, a trial by time assigns jobs only while
    time is left, a job that arrives at a rate waits for its instant, and packed containers wait for each other.
    """
    by_itself = rules_of(treatment).by_itself
    return not by_itself and treatment.run_seconds is None and treatment.open_load is None


def look_ahead_note(treatments: Sequence[Treatment]) -> str | None:
    """Return which treatments have no look-ahead, and why; None if all have it."""
    without = sum(not allows_look_ahead(treatment) for treatment in treatments)
    if not without:
        return None
    where = "" if without == len(treatments) else f" for {without} of {len(treatments)} treatments"
    if all(treatment.open_load is not None for treatment in treatments if not allows_look_ahead(treatment)):
        return f"look-ahead is off{where}: jobs that arrive at a rate wait for their instants"
    return f"look-ahead is off{where}: guest benchmarks, packing and trials by time get their jobs one by one"


def host_notes(treatments: Sequence[Treatment]) -> list[str]:
    """Return what is done to the hosts for the treatments: what is dropped before jobs, and what is set."""
    found: dict[str, None] = {}
    for one in treatments:
        steps = (
            ("the image is removed and fetched again", one.drops_image),
            ("the host's page cache is dropped (sync, then drop_caches 3)", one.drops_page_cache),
        )
        what = ", then ".join(text for text, wanted in steps if wanted)
        if what:
            found[f"cold: {one.cold}: before each job, outside its time, {what}"] = None
    settings: dict[str, dict[str, None]] = {}
    for one in treatments:
        for name, value in one.host.items():
            settings.setdefault(name, {})[value] = None
    for name, values in settings.items():
        found[f"host setting {name} is {' or '.join(values)} while trials run, and as before afterwards"] = None
    return list(found)


def make_plan(scenario: Scenario, seed: int) -> Plan:
    """Return the plan of a scenario; `seed` fixes every random choice in it.

    ``interleaved``: each round has every treatment once, shuffled. ``as-written``: the same rounds, not shuffled.
    ``blocked``: all trials of one treatment, then all of the next, as written. A treatment with fewer repeats than
    others is in the first rounds only. Host ceilings, if the scenario asks for them, run first; their treatments
    follow the others in the list, so that those keep their indices.
    """
    placed = list(_rounds(scenario.repeats, scenario.warmup))
    if scenario.order == "blocked":
        placed.sort(key=lambda one: one[1])
    elif scenario.order == "interleaved":
        placed = _shuffle_rounds(placed, seed)
    treatments = scenario.treatments
    if scenario.host_ceiling:
        # A run until its verdicts are settled may have many rounds; the ceiling is known sooner.
        most = None if scenario.until_verdict is None else CEILING_TRIALS
        ceilings, repeats, warmup = host_ceilings(
            treatments, [min(count, most or count) for count in scenario.repeats], scenario.warmup
        )
        first = ((block, len(treatments) + ceiling, warm) for block, ceiling, warm in _rounds(repeats, warmup))
        placed, treatments = [*first, *placed], (*treatments, *ceilings)
    treatments = tuple(_with_layout(one, seed) for one in treatments)
    trials = tuple(Trial(index, treatment, block, warmup) for index, (block, treatment, warmup) in enumerate(placed))
    return Plan(
        treatments, trials, scenario.order, seed, scenario.setting_places, scenario.command_places, scenario.primary
    )


def _with_layout(treatment: Treatment, seed: int) -> Treatment:
    """Return a treatment whose plain processes have a layout by this seed in each trial."""
    if treatment.layout != "drawn" or not engine_traits(treatment.engine).runs_on_host:
        return treatment
    return replace(treatment, layout_seed=seed)


def more_rounds(scenario: Scenario, plan: Plan, rounds: int) -> list[Trial]:
    """Return the trials of so many rounds that follow those of a plan of the scenario, drawn by the same seed.

    All treatments must have the same number of repeats.
    """
    compared = len(scenario.treatments)
    last = max(trial.block for trial in plan.trials if trial.treatment < compared)
    repeats = (last + 1 - max(scenario.warmup) + rounds,) * compared
    longer = make_plan(replace(scenario, host_ceiling=False, repeats=repeats), plan.seed)
    added = [trial for trial in longer.trials if trial.block > last]
    return [replace(trial, index=len(plan.trials) + place) for place, trial in enumerate(added)]


def _rounds(repeats: Sequence[int], warmup: Sequence[int]) -> Iterator[tuple[int, int, bool]]:
    """Yield (round, treatment, whether it is a warm-up), round by round, as written within each."""
    warmups = max(warmup, default=0)
    for number in range(warmups + max(repeats, default=0)):
        for treatment, (warm, measured) in enumerate(zip(warmup, repeats, strict=True)):
            if number < warmups:
                if number < warm:
                    yield number, treatment, True
            elif number - warmups < measured:
                yield number, treatment, False


def _shuffle_rounds(placed: list[tuple[int, int, bool]], seed: int) -> list[tuple[int, int, bool]]:
    """Return the trials, each round shuffled. `random()` gives the same numbers in all versions of Python."""
    draw = random.Random(seed)  # noqa: S311  an order is drawn, no secret
    keyed = [(block, draw.random(), treatment, warmup) for block, treatment, warmup in placed]
    return [(block, treatment, warmup) for block, _, treatment, warmup in sorted(keyed)]


def estimate_seconds(plan: Plan, workers: Sequence[int]) -> tuple[float, list[str]]:
    """Return about how long the plan takes, in seconds, and the assumptions behind it.

    `workers` is the number of workers that take part in each treatment.
    """
    assumptions: dict[str, None] = {}
    per_trial = [
        _trial_seconds(treatment, count, assumptions)
        for treatment, count in zip(plan.treatments, workers, strict=True)
    ]
    once = (
        _operation_seconds(operation, plan.treatments[index], assumptions)
        for index in sorted({trial.treatment for trial in plan.trials})
        for operation in preparation_script(plan.treatments[index])
    )
    return sum(once) + sum(per_trial[trial.treatment] for trial in plan.trials), list(assumptions)


def _trial_seconds(treatment: Treatment, workers: int, assumptions: dict[str, None]) -> float:
    if treatment.run_seconds is not None:
        return treatment.run_seconds
    if treatment.open_load is not None and treatment.operation_count is not None:
        return treatment.operation_count / treatment.open_load.rate_per_s
    rounds: float = treatment.iterations or 0
    if treatment.operation_count is not None:
        rounds = math.ceil(treatment.operation_count / (treatment.concurrency * max(1, workers)))
    whole = rules_of(treatment).job_estimate()
    if whole is not None:
        assumptions |= {whole.assumption: None} if whole.assumption else {}
        return rounds * whole.seconds
    each = sum(_operation_seconds(one, treatment, assumptions) for one in job_script(treatment) if one.kind != "hold")
    if treatment.is_packing:
        held = sum(one.seconds or 0.0 for one in job_script(treatment) if one.kind == "hold")
        return rounds * (treatment.concurrency * each + held)
    return rounds * each


def _operation_seconds(operation: Operation, treatment: Treatment, assumptions: dict[str, None]) -> float:
    if operation.kind == "sleep":
        return operation.seconds or 0.0
    assumptions[
        f"an operation takes about {format_duration(DEFAULT_OPERATION_S)}, also while others are in flight"
    ] = None
    if operation.kind == "stop":
        assumptions["'stop' never waits for the end of its grace period"] = None
    own = rules_of(treatment).estimate(operation)
    if own is not None:
        assumptions |= {own.assumption: None} if own.assumption else {}
        return DEFAULT_OPERATION_S + own.seconds
    if operation.kind in {"wait", "exec"}:
        assumptions[f"the commands of '{operation.kind}' end at once"] = None
    return DEFAULT_OPERATION_S


def needed_disk_bytes(scenario: Scenario) -> int:
    """Return about how much disk the jobs of a scenario take at once, in bytes, besides the images.

    What is prepared once stays until the end of the run, so that of all treatments counts; treatments of an engine
    that prepare the same in a shared container count once.
    """
    kept: dict[Hashable, int] = {}
    passing = [0]
    for one in scenario.treatments:
        script = preparation_script(one)
        if not script:
            passing.append(rules_of(one).disk_bytes())
        else:
            key = (one.environment, one.engine, script) if shares_container(one) else one.index
            kept[key] = max(rules_of(one).disk_bytes(), kept.get(key, 0))
    return sum(kept.values()) + max(passing)
