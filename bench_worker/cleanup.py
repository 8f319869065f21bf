"""Removes the leftovers of runs in all engines: only what has Weighbridge's label, and no live run's unless named.

It may run at any time, several at once, again and again: a leftover that no longer exists counts as removed.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

import gevent
import gevent.pool
from msgspec import Struct, field

from bench_common.errors import WeighbridgeError
from bench_common.records import KEEP_RUN_PREFIX
from bench_worker.engines.base import EngineOptions
from bench_worker.engines.registry import BrokenEngine, engine_classes
from bench_worker.leases import delete_records, live_runs, recorded_uses

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from bench_worker.engines.base import Engine, Leftover

log = logging.getLogger(__name__)

PARALLEL_REMOVALS: Final = 4
"""Leftovers of one kind that are removed at the same time; more do not make an engine faster."""
TIMEOUT_S: Final = 30.0
"""Timeout of each removal, in seconds."""


ResultT = TypeVar("ResultT")

CleanupStatus: TypeAlias = Literal["removed", "listed", "kept", "failed"]
"""What happened to a leftover; `listed` is for dry runs."""


class CleanupFailure(Struct, frozen=True):
    """A leftover that could not be removed, or an engine that could not list its own."""

    engine: str
    """The engine."""
    leftover: Leftover | None
    """The leftover; None: the engine could not list them."""
    reason: str
    """Why."""

    def __str__(self) -> str:
        what = f"{self.leftover.what} {self.leftover.name}: " if self.leftover else ""
        return f"{self.engine}: {what}{self.reason}"


class CleanupResult(Struct):
    """What a clean-up did."""

    removed: list[Leftover] = field(default_factory=list)
    """Removed."""
    listed: list[Leftover] = field(default_factory=list)
    """Found in a dry run, which removes nothing."""
    kept: list[Leftover] = field(default_factory=list)
    """Kept: their run is alive, or has ``--keep``."""
    failed: list[CleanupFailure] = field(default_factory=list)
    """Not removed, and engines that could not list their leftovers."""


def usable_engines(only: Collection[str] | None = None) -> list[Engine]:
    """Return the registered engines in `only` (None: every one) that can be opened here, opened.

    The caller closes them.
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

    return [engine for engine in _in_parallel(opened, engine_classes(only).items()) if engine is not None]


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
    why it still exists. `dry_run` removes nothing.
    """
    with _open_engines() if engines is None else nullcontext(engines) as chosen:
        return _clean_up(chosen, run_id, worker_id, on_result, dry_run=dry_run, spare_kept=False)


def clean_up_run(run_id: str, worker_id: str | None = None) -> CleanupResult:
    """Remove what a run, or one worker of it, left in the engines that it used; the records of use stay.

    The run may be alive. A used engine that does not open is a failure: its leftovers are not known.
    """
    used = {use.engine for use in recorded_uses(run_id)}
    with _open_engines(used) as engines:
        cleaned = _clean_up(engines, run_id, worker_id, None, dry_run=False, spare_kept=False)
    later = f"bench-worker --cleanup-containers --run {run_id}"
    reason = f"the engine does not answer, so its leftovers are not known; clean up later with: {later}"
    unavailable = used - {engine.name for engine in engines}
    cleaned.failed += [CleanupFailure(name, None, reason) for name in sorted(unavailable)]
    return cleaned


def clean_up_dead_runs() -> CleanupResult:
    """Remove what finished runs left in the engines that they used, and delete their records of use.

    Leftovers of live runs, and of runs with ``--keep``, stay; an engine that only live runs use is not even loaded.
    A record is deleted when nothing of its run is left. An engine that does not open is no failure here: nobody named
    it.
    """
    alive = live_runs()
    uses = [use for use in recorded_uses() if use.run_id not in alive]
    with _open_engines({use.engine for use in uses}) as engines:
        cleaned = _clean_up(engines, None, None, None, dry_run=False, spare_kept=True)
    # Of engines with one store the first lists for all, so a leftover of a run keeps all records of the run.
    silent = {failure.engine for failure in cleaned.failed if failure.leftover is None}
    asked = {engine.name for engine in engines} - silent
    unfinished = live_runs() | {leftover.run_id for leftover in cleaned.kept}
    unfinished |= {failure.leftover.run_id for failure in cleaned.failed if failure.leftover is not None}
    delete_records(use for use in uses if use.engine in asked and use.run_id not in unfinished)
    return cleaned


@contextmanager
def _open_engines(only: Collection[str] | None = None) -> Iterator[list[Engine]]:
    """Open the usable engines for the time of the context; none is probed where `only` is empty."""
    engines = usable_engines(only) if only is None or only else []
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
    # After listing the leftovers, not before: see `live_runs`.
    alive = live_runs() if run_id is None else frozenset[str]()
    cleaned = CleanupResult(failed=failed)

    def remove(leftover: Leftover) -> None:
        status: CleanupStatus
        reason = ""
        if leftover.run_id in alive:
            status, reason = "kept", f"run {leftover.run_id} is alive on this host"
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
