"""The plan as text, for a dry run: treatments, trials, jobs, order, time, notes.

Jobs and time depend on how many workers take the jobs of each treatment, estimated here before any has joined as a
run decides it: the workers of its environment, without those that host a service for its jobs. Pure.
"""

from __future__ import annotations

import itertools
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from bench_common.requirements import matches_worker, services_hosted_by
from bench_common.units import format_duration
from bench_master.formatting import align_table, format_span, page_width, plural
from bench_master.plan import estimate_seconds, host_notes, look_ahead_note
from bench_master.scenario.claims import claim_text, registration_text
from bench_master.scenario.master_part import master_parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench_common.treatment import Treatment
    from bench_master.plan import Plan
    from bench_master.scenario.model import Scenario


class ExpectedWorker(Struct, frozen=True):
    """A worker that will join."""

    worker_id: str = ""
    """Empty where unknown."""
    environment: str = ""
    """Empty where unknown."""


def named_environments(treatments: Sequence[Treatment]) -> frozenset[str]:
    """Return the environments that the treatments name."""
    return frozenset(one.environment for one in treatments if one.environment is not None)


def job_worker_counts(treatments: Sequence[Treatment], workers: Sequence[ExpectedWorker]) -> tuple[int, ...]:
    """Return how many of the workers take jobs of each treatment, at least one.

    Workers of unknown environment are divided evenly among the environments that the treatments name.
    """
    environments = named_environments(treatments)
    return tuple(_job_worker_count(treatment, workers, environments) for treatment in treatments)


def _job_worker_count(treatment: Treatment, workers: Sequence[ExpectedWorker], environments: frozenset[str]) -> int:
    service_hosts = [one for one in workers if services_hosted_by(treatment, one.worker_id, one.environment)]
    near = [one for one in workers if one.environment and treatment.environment in (None, one.environment)]
    free = [one for one in near if one not in service_hosts]
    unknown = sum(not one.environment and one not in service_hosts for one in workers)
    # A placement that matches no known worker takes one of the unknown ones.
    far = set(treatment.placement.values()) - environments
    unknown_hosts = sum(
        not any(matches_worker(place, one.worker_id, one.environment) for one in workers) for place in far
    )
    share = max(0, unknown - unknown_hosts) // (len(environments) if treatment.environment else 1)
    return max(1, len(free) + share or len(near))


_HEAD: Final = 13
MAX_TREATMENTS_SHOWN: Final = 40
MAX_ROUNDS_SHOWN: Final = 8


def render_plan(scenario: Scenario, plan: Plan, workers: Sequence[ExpectedWorker], *, look_ahead: bool = True) -> str:
    """Return the plan as text as wide as the page, ending in a newline; `workers` are those that will join."""
    takers = job_worker_counts(plan.treatments, workers)
    head = _head(scenario, plan, workers, takers, look_ahead=look_ahead)
    lines = [*head, "", *_treatments(plan, takers), "", *_order(plan)]
    notes = (*scenario.notes, *host_notes(plan.treatments))
    if notes:
        lines += ["", "Notes", *(line for note in notes for line in _wrap("  - ", note))]
    return "\n".join(lines) + "\n"


def _head(
    scenario: Scenario, plan: Plan, workers: Sequence[ExpectedWorker], takers: Sequence[int], *, look_ahead: bool
) -> Iterator[str]:
    yield from _field("Scenario", scenario.name)
    yield from _field("", scenario.path)
    if scenario.description:
        yield from _field("", scenario.description)
    measured = sum(not trial.warmup for trial in plan.trials)
    warmup = len(plan.trials) - measured
    counts = [plan.job_count(trial, takers[trial.treatment]) for trial in plan.trials]
    jobs = sum(count or 0 for count in counts)
    timed = sum(count is None for count in counts)
    trials = plural(measured, "trial") + (f" and {plural(warmup, 'warm-up trial')}" if warmup else "")
    yield from _field("Size", f"{plural(len(plan.treatments), 'treatment')}, {trials}, {_jobs(jobs, timed)}")
    yield from _of_kinds(plan)
    yield from _field("Workers", _workers(plan, workers, takers))
    yield from _field("Order", f"{plan.order}, seed {plan.seed}")
    yield from _field("Look-ahead", _look_ahead(plan, allowed=look_ahead))
    seconds, assumptions = estimate_seconds(plan, takers)
    if scenario.settle_s:
        yield from _field("Settle", f"{format_duration(scenario.settle_s)} after each trial")
        seconds += scenario.settle_s * (len(plan.trials) - 1)
    rule = scenario.until_verdict
    if rule is not None:
        text = f"until every comparison is settled, at most {rule.at_most}"
        budget = "" if rule.budget_s is None else f", for {format_duration(rule.budget_s)}"
        yield from _field("Rounds", f"{text}{budget}: a look after each, from the fifth on")
    about = format_span(seconds)
    if rule is not None and rule.budget_s is not None and rule.budget_s < seconds:
        about = f"{format_span(rule.budget_s)} and the round that is running then"
    yield from _field("Time", f"{'at most ' if rule else ''}about {about}{', if:' if assumptions else ''}")
    for assumption in assumptions:
        yield from _wrap(" " * _HEAD + "- ", assumption)
    for threshold in scenario.thresholds:
        yield from _field("Threshold", threshold)
    for claim in scenario.claims:
        yield from _field("Claim", claim_text(claim))
    if scenario.claims:
        yield from _field("", registration_text(scenario.claims, scenario.margin))


def _workers(plan: Plan, workers: Sequence[ExpectedWorker], takers: Sequence[int]) -> str:
    total, fewest, most = len(workers), min(takers), max(takers)
    if total == 1:
        return "1, so jobs and time are for one worker"
    if fewest == total:
        return str(total)
    span = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    text = f"{total}; jobs and time assume that {span} of them take part in each treatment"
    environments = len(named_environments(plan.treatments))
    reasons = [f"there are {environments} environments"] if environments > 1 else []
    if any(one.placement for one in plan.treatments):
        reasons.append("a worker that hosts a service takes no jobs that use it")
    return f"{text}: {', and '.join(reasons)}" if reasons else text


def _look_ahead(plan: Plan, *, allowed: bool) -> str:
    if not allowed:
        return "off, as requested: a worker never holds more jobs than it runs"
    note = look_ahead_note(plan.treatments)
    return note.removeprefix("look-ahead is ") if note else "on: if jobs are short, some more wait at each worker"


def _of_kinds(plan: Plan) -> Iterator[str]:
    """Yield what each kind of job from a package says of its treatments; equal treatments are told once."""
    for part in master_parts().values():
        told: dict[tuple[str, ...], list[int]] = {}
        for one in plan.treatments:
            if part.owns(one):
                told.setdefault(part.plan_lines(one), []).append(one.index)
        name = part.plan_title
        for lines, treatments in itertools.islice(told.items(), MAX_ROUNDS_SHOWN):
            where = "" if len(told) == 1 else f" (treatments {', '.join(map(str, treatments))})"
            for line in lines:
                yield from _field(name, f"{line}{where}")
                name = ""
        if len(told) > MAX_ROUNDS_SHOWN:
            yield from _field("", f"... and {len(told) - MAX_ROUNDS_SHOWN} more mixes")


def _jobs(jobs: int, timed: int) -> str:
    if not timed:
        return plural(jobs, "job")
    return (f"{plural(jobs, 'job')} and " if jobs else "") + f"all that fit into {plural(timed, 'timed trial')}"


def _treatments(plan: Plan, takers: Sequence[int]) -> Iterator[str]:
    shown = plan.treatments[:MAX_TREATMENTS_SHOWN]
    keys = list(dict.fromkeys(key for treatment in shown for key in treatment.labels))
    trials = Counter((trial.treatment, trial.warmup) for trial in plan.trials)
    sizes = [
        (
            str(trials[one.index, False]),
            str(trials[one.index, True]),
            _per_trial(one, takers[one.index]),
            f"{one.concurrency}",
        )
        for one in shown
    ]
    titles = ("trials", "warm-up", "jobs/trial", "in flight")
    columns = [(str(one.index), *(_format_label(one, key) for key in keys)) for one in shown]
    rows = [(*left, *right) for left, right in zip(columns, sizes, strict=True)]
    lines = align_table(("#", *keys, *titles), rows, right=("#", *titles))
    if max(map(len, lines)) <= page_width():
        yield from lines
    else:
        for one, size in zip(shown, sizes, strict=True):
            counts = ", ".join(f"{title} {count}" for title, count in zip(titles, size, strict=True))
            yield from _wrap(f"{one.index:>3}  ", f"{one.title}  ({counts})")
    if len(shown) < len(plan.treatments):
        yield f"... and {len(plan.treatments) - len(shown)} more treatments"


def _format_label(treatment: Treatment, key: str) -> str:
    value = treatment.labels.get(key, "-")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _per_trial(treatment: Treatment, workers: int) -> str:
    if treatment.run_seconds is not None:
        return f"for {format_duration(treatment.run_seconds)}"
    if treatment.operation_count is not None:
        return str(treatment.operation_count)
    return str((treatment.iterations or 0) * treatment.concurrency * workers)


def _order(plan: Plan) -> Iterator[str]:
    yield "Trials in order, by the numbers above; each line is a round, w: a warm-up round"
    rounds: Sequence[tuple[tuple[int, bool], str]] = [
        (key, " ".join(str(trial.treatment) for trial in trials))
        for key, trials in itertools.groupby(plan.trials, key=lambda trial: (trial.block, trial.warmup))
    ]
    if plan.order == "blocked":
        yield from _wrap("  ", _runs(plan))
        return
    for (block, warmup), treatments in rounds[:MAX_ROUNDS_SHOWN]:
        text = textwrap.shorten(treatments, width=3 * (page_width() - 8), placeholder=" ...")
        yield from _wrap(f"{block + 1:>5}{'w' if warmup else ' '}  ", text)
    if len(rounds) > MAX_ROUNDS_SHOWN:
        yield f"  ... and {len(rounds) - MAX_ROUNDS_SHOWN} more rounds"


def _runs(plan: Plan) -> str:
    runs = [(key, len(list(group))) for key, group in itertools.groupby(trial.treatment for trial in plan.trials)]
    text = ", ".join(f"{treatment} x {count}" for treatment, count in runs)
    return textwrap.shorten(text, width=5 * page_width(), placeholder=" ...")


def _field(name: str, text: str) -> list[str]:
    return _wrap(f"{name:<{_HEAD}}", text)


def _wrap(head: str, text: str) -> list[str]:
    return textwrap.wrap(text, page_width(), initial_indent=head, subsequent_indent=" " * len(head)) or [
        head.rstrip()
    ]
