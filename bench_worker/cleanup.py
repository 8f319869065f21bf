"""Removes the leftovers of runs in all engines: only what has Weighbridge's label, and no live run's unless named.

A run is alive while a worker holds its lease, or while the process is alive that the label of a leftover names. Where
neither is seen, and the process may be where it cannot be seen from here, the leftover stays and is named.

It may run at any time, several at once, again and again: a leftover that no longer exists counts as removed.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

import gevent
import gevent.pool
from msgspec import Struct, field

from bench_common.errors import InfrastructureError, WeighbridgeError
from bench_common.host_settings import PATTERNS
from bench_common.records import KEEP_RUN_PREFIX
from bench_worker.engines.base import EngineOptions, Leftover, container_prefix
from bench_worker.engines.cost_group import remove_groups
from bench_worker.engines.registry import BrokenEngine, engine_classes
from bench_worker.host.setting_switch import records_directory
from bench_worker.host.settings import restore_abandoned
from bench_worker.leases import delete_records, live_runs, recorded_uses
from bench_worker.owner import OwnerJudge, State

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from bench_common.engine_traits import EngineLabel
    from bench_worker.engines.base import Engine
    from bench_worker.leases import EngineUse

log = logging.getLogger(__name__)

PARALLEL_REMOVALS: Final = 4
"""Leftovers of one kind that are removed at the same time; more do not make an engine faster."""
TIMEOUT_S: Final = 30.0
"""Timeout of each removal, in seconds."""
YOUNG_S: Final = 60.0
"""What carries no label of a process, and is younger than this, may still be in the making; in seconds."""

ResultT = TypeVar("ResultT")

CleanupStatus: TypeAlias = Literal["removed", "listed", "kept", "failed"]
"""What happened to a leftover; `listed` is for dry runs."""


class CleanupFailure(Struct, frozen=True):
    """A leftover that could not be removed, or an engine that could not list its own."""

    engine: str
    leftover: Leftover | None
    """The leftover; None: the engine could not list them."""
    reason: str

    def __str__(self) -> str:
        what = f"{self.leftover.what} {self.leftover.name}: " if self.leftover else ""
        return f"{self.engine}: {what}{self.reason}"


class CleanupResult(Struct):
    """What a clean-up did."""

    removed: list[Leftover] = field(default_factory=list)
    listed: list[Leftover] = field(default_factory=list)
    """Found in a dry run, which removes nothing."""
    kept: list[Leftover] = field(default_factory=list)
    """Kept: their run is alive, or may be, or has ``--keep``."""
    unproved: dict[str, str] = field(default_factory=dict)
    """The runs of which something was kept because nobody can say from here whether they are alive, and why."""
    failed: list[CleanupFailure] = field(default_factory=list)
    """Not removed, and engines that could not list their leftovers."""


def usable_engines(only: Collection[str] | None = None, labels: Iterable[EngineLabel] = ()) -> list[Engine]:
    """Return the engines in `only` (None: every one) that can be opened here, opened.

    `labels` are known besides those of this process. The caller closes them.
    """
    options = EngineOptions(run_id="", worker_id="", slots=PARALLEL_REMOVALS, timeout_s=TIMEOUT_S)

    def opened(name: str, engine: type[Engine] | BrokenEngine) -> Engine | None:
        if isinstance(engine, BrokenEngine):
            return None
        try:
            candidate = engine(options)
            candidate.open()
        except WeighbridgeError as error:
            log.debug("engine %s is excluded from the clean-up: %s", name, error)
        except Exception:  # a third-party engine may raise anything; clean-up goes on with the others
            log.exception("engine %s is excluded from the clean-up", name)
        else:
            return candidate
        return None

    return [engine for engine in _in_parallel(opened, engine_classes(only, labels).items()) if engine is not None]


def find_leftovers(
    engines: Iterable[Engine], run_id: str | None = None, worker_id: str | None = None
) -> tuple[list[Leftover], list[CleanupFailure]]:
    """Return the labelled leftovers in the order of their removal, and the engines that could not list theirs.

    A leftover that two engines with the same store list is returned once, as the first one's.
    """

    def leftovers_of(engine: Engine) -> tuple[Engine, list[Leftover] | CleanupFailure]:
        try:
            return engine, list(engine.leftovers(run_id, worker_id))
        except WeighbridgeError as error:
            return engine, CleanupFailure(engine.name, None, str(error))
        except Exception as error:  # as above
            log.exception("engine %s cannot list its leftovers", engine.name)
            return engine, CleanupFailure(engine.name, None, f"{type(error).__name__}: {error}")

    found: dict[tuple[str, str, str], Leftover] = {}
    failed: list[CleanupFailure] = []
    for engine, result in _in_parallel(leftovers_of, ((engine,) for engine in engines)):
        if isinstance(result, CleanupFailure):
            failed.append(result)
            continue
        for leftover in result:
            found.setdefault((engine.store or engine.name, leftover.what, leftover.identity), leftover)
    return list(found.values()), failed


def clean_up_all(
    engines: Sequence[Engine] | None = None,
    *,
    run_id: str | None = None,
    worker_id: str | None = None,
    on_result: Callable[[Leftover, CleanupStatus, str], None] | None = None,
    dry_run: bool = False,
) -> CleanupResult:
    """Remove the leftovers of one run or of all, of one worker or of all.

    The leftovers of a named run are removed even while it is alive; without a name, live runs are kept. `engines` are
    open ones (None: open every usable one for this call). `on_result` gets each leftover at once, with its status and
    why it still exists. `dry_run` removes nothing. Settings of the host that nobody needs any more are put back, too.
    """
    with _open_engines(None, recorded_uses(run_id)) if engines is None else nullcontext(engines) as chosen:
        cleaned = _clean_up(chosen, run_id, worker_id, on_result, dry_run=dry_run, spare_kept=False)
    _restore_settings(cleaned, run_id, on_result, dry_run=dry_run)
    if run_id is not None and worker_id is None and not dry_run:
        remove_groups(container_prefix(run_id))
    return cleaned


def clean_up_run(run_id: str, worker_id: str | None = None) -> CleanupResult:
    """Remove what a run, or one worker of it, left in the engines that it used; the records of use stay.

    The run may be alive. A used engine that does not open is a failure: its leftovers are not known.
    """
    uses = recorded_uses(run_id)
    used = {use.engine for use in uses}
    with _open_engines(used, uses) as engines:
        cleaned = _clean_up(engines, run_id, worker_id, None, dry_run=False, spare_kept=False)
    later = f"bench-worker --cleanup-containers --run {run_id}"
    reason = f"the engine does not answer, so its leftovers are not known; clean up later with: {later}"
    unavailable = used - {engine.name for engine in engines}
    cleaned.failed += [CleanupFailure(name, None, reason) for name in sorted(unavailable)]
    _restore_settings(cleaned, run_id)
    return cleaned


def forget_run(run_id: str) -> None:
    """Delete the records of use of a run of which nothing is left here; those of processes that may be alive stay.

    The next worker on this host then asks no engine about it, which may be gone for good by then.
    """
    judge = OwnerJudge()
    uses = recorded_uses(run_id)
    over = [use for use in uses if use.process and judge.judge(use.process).state is State.DEAD]
    delete_records(over)
    if over:
        remove_groups(container_prefix(run_id))


def clean_up_dead_runs() -> CleanupResult:
    """Remove what finished runs left in the engines that they used, and delete their records of use.

    Leftovers of live runs, and of runs with ``--keep``, stay; an engine that only live runs use is not even loaded.
    A record is deleted when nothing of its run is left, and its process is known to have ended. An engine that does
    not open is no failure here: nobody named it.
    """
    recorded = recorded_uses()
    alive, judge = live_runs(), OwnerJudge()
    uses = [use for use in recorded if use.run_id not in alive and judge.judge(use.process).state is not State.ALIVE]
    cleaned = CleanupResult()
    for some in _one_place_each(uses):
        _clean_up_some(some, judge, cleaned)
    _restore_settings(cleaned)
    return cleaned


def _one_place_each(uses: Iterable[EngineUse]) -> list[list[EngineUse]]:
    """Return the uses in groups in which no label is at two places: engines are known by their names."""
    groups: list[tuple[dict[str, str], list[EngineUse]]] = []
    for use in uses:
        name, place = _place_of(use)
        group = next((one for one in groups if one[0].get(name, place) == place), None)
        if group is None:
            groups.append(group := ({}, []))
        group[0][name] = place
        group[1].append(use)
    return [some for _, some in groups] or [[]]


def _clean_up_some(uses: Sequence[EngineUse], judge: OwnerJudge, result: CleanupResult) -> None:
    """Do this for the engines of some uses; add what came of it to the `result`."""
    with _open_engines({use.engine for use in uses}, uses) as engines:
        cleaned = _clean_up(engines, None, None, None, dry_run=False, spare_kept=True)
    for name in ("removed", "listed", "kept", "failed"):
        getattr(result, name).extend(getattr(cleaned, name))
    # Of engines with one store the first lists for all, so a leftover of a run keeps all records of the run.
    silent = {failure.engine for failure in cleaned.failed if failure.leftover is None}
    asked = {(engine.name, engine.place) for engine in engines if engine.name not in silent}
    unfinished = live_runs() | {leftover.run_id for leftover in cleaned.kept}
    unfinished |= {failure.leftover.run_id for failure in cleaned.failed if failure.leftover is not None}
    over = [use for use in uses if not use.process or judge.judge(use.process).state is State.DEAD]
    finished = [use for use in over if _place_of(use) in asked and use.run_id not in unfinished]
    delete_records(finished)
    # A worker that was killed between two operations left one whose container is gone.
    for run_id in dict.fromkeys(use.run_id for use in finished):
        remove_groups(container_prefix(run_id))


def _place_of(use: EngineUse) -> tuple[str, str]:
    return use.engine, "" if use.label is None else use.label.place


@contextmanager
def _open_engines(only: Collection[str] | None, uses: Iterable[EngineUse]) -> Iterator[list[Engine]]:
    """Open the usable engines for the time of the context; none is probed where `only` is empty.

    What their labels stand for is in `uses`; of a label that was at several places, one is opened.
    """
    labels = {use.label for use in uses if use.label is not None}
    engines = usable_engines(only, sorted(labels, key=str)) if only is None or only else []
    try:
        yield engines
    finally:
        for engine in engines:
            engine.close()


def _clean_up(
    engines: Sequence[Engine],
    run_id: str | None,
    worker_id: str | None,
    on_result: Callable[[Leftover, CleanupStatus, str], None] | None,
    *,
    dry_run: bool,
    spare_kept: bool,
) -> CleanupResult:
    by_name = {engine.name: engine for engine in engines}
    found, failed = find_leftovers(engines, run_id, worker_id)
    cleaned = CleanupResult(failed=failed)
    # After listing the leftovers, not before: see `live_runs`.
    alive = _life_signs(found, cleaned.unproved) if run_id is None else {}

    def remove(leftover: Leftover) -> None:
        status: CleanupStatus
        reason = ""
        if reason := alive.get((leftover.run_id, leftover.owner), ""):
            status = "kept"
            cleaned.kept.append(leftover)
        elif spare_kept and leftover.run_id.startswith(KEEP_RUN_PREFIX):
            status, reason = "kept", f"run {leftover.run_id} keeps it (--keep)"
            cleaned.kept.append(leftover)
        elif dry_run:
            status, reason = "listed", "a dry run removes nothing"
            cleaned.listed.append(leftover)
        elif reason := _remove_leftover(by_name[leftover.engine], leftover):
            status = "failed"
            cleaned.failed.append(CleanupFailure(leftover.engine, leftover, reason))
        else:
            status = "removed"
            cleaned.removed.append(leftover)
        if on_result is not None:
            on_result(leftover, status, reason)

    # One kind after the other, in the engines' own order: a volume is removed after the container that uses it.
    for kind in dict.fromkeys((leftover.engine, leftover.what) for leftover in found):
        pool = gevent.pool.Pool(PARALLEL_REMOVALS)
        for leftover in found:
            if (leftover.engine, leftover.what) == kind:
                pool.spawn(remove, leftover)
        pool.join(raise_error=True)
    return cleaned


def _restore_settings(
    cleaned: CleanupResult,
    run_id: str | None = None,
    on_result: Callable[[Leftover, CleanupStatus, str], None] | None = None,
    *,
    dry_run: bool = False,
) -> None:
    """Put back the settings of this host that runs have changed and nobody needs; add them to a result."""
    try:
        found = restore_abandoned(records_directory(), run_id=run_id, dry_run=dry_run)
    except (OSError, InfrastructureError) as error:
        log.debug("no settings of this host are put back: %s", error)
        return
    for one in found:
        leftover = Leftover("host", "setting", PATTERNS.get(one.name, f"/{one.name}"), one.name, one.run_id)
        status: CleanupStatus = "failed" if one.problem else "listed" if dry_run else "removed"
        if one.problem:
            cleaned.failed.append(CleanupFailure("host", leftover, one.problem))
        else:
            (cleaned.listed if dry_run else cleaned.removed).append(leftover)
        if on_result is not None:
            on_result(leftover, status, one.problem or ("a dry run removes nothing" if dry_run else ""))


def _life_signs(found: Iterable[Leftover], unproved: dict[str, str]) -> dict[tuple[str, str], str]:
    """Return why leftovers are kept, by their run and process; those of dead runs are left out.

    The runs that may be alive, as far as is known here, are added to `unproved`.
    """
    held, judge = live_runs(), OwnerJudge()
    signs: dict[tuple[str, str], str] = {}
    youngest: dict[str, float] = {}
    for leftover in found:
        run, process = leftover.run_id, leftover.owner
        if not process:
            age_s = YOUNG_S if leftover.age_s is None else leftover.age_s
            youngest[run] = min(age_s, youngest.get(run, YOUNG_S))
        if run in held:
            signs[run, process] = f"run {run} is alive on this host"
        elif process and (judgement := judge.judge(process)).state is not State.DEAD:
            signs[run, process] = judgement.reason
            if judgement.state is State.UNKNOWN:
                unproved[run] = judgement.reason
                signs[run, process] += f"; clean up there, or remove it in any case with --run {run}"
    # What names no process goes with what does, of the same run.
    others = {run: sign for (run, process), sign in signs.items() if process}
    for run, age_s in youngest.items():
        if run in others:
            signs.setdefault((run, ""), others[run])
        elif age_s < YOUNG_S:
            signs.setdefault(
                (run, ""), f"it was made just now, and does not say by which process; --run {run} removes it"
            )
    return signs


def _in_parallel(call: Callable[..., ResultT], each: Iterable[tuple[Any, ...]]) -> list[ResultT]:
    """Return the results of `call` for each row of arguments, in their order; all calls run at the same time."""
    waiting = [gevent.spawn(call, *arguments) for arguments in each]
    gevent.joinall(waiting, raise_error=True)
    return [cast("ResultT", greenlet.value) for greenlet in waiting]


def _remove_leftover(engine: Engine, leftover: Leftover) -> str:
    try:
        engine.discard(leftover)
    except WeighbridgeError as error:
        return str(error)
    except Exception as error:  # as above
        log.exception("%s %s could not be removed", leftover.what, leftover.name)
        return f"{type(error).__name__}: {error}"
    return ""
