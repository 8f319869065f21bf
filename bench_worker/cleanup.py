"""Removes what runs left behind, over all engines: only what carries Weighbridge's label, never a live run's unasked.

It may be called at any time, several at once, again and again: what is gone already counts as removed.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

import gevent
import gevent.pool

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
"""Leftovers of one kind that are removed at the same time; an engine gets no faster beyond a few."""
TIMEOUT_S: Final = 30.0
"""For each single removal."""


ResultT = TypeVar("ResultT")

CleanupStatus: TypeAlias = Literal["removed", "listed", "kept", "failed"]
"""What became of a leftover; `listed` is for dry runs."""


@dataclass(frozen=True, slots=True)
class CleanupFailure:
    """What could not be removed (None: an engine could not even be asked), and why."""

    engine: str
    leftover: Leftover | None
    reason: str

    def __str__(self) -> str:
        what = f"{self.leftover.what} {self.leftover.name}: " if self.leftover else ""
        return f"{self.engine}: {what}{self.reason}"


@dataclass(slots=True)
class CleanupResult:
    """What a clean-up did: removed (or, in a dry run, only listed), kept because their run is alive, and failed."""

    removed: list[Leftover] = field(default_factory=list)
    listed: list[Leftover] = field(default_factory=list)
    kept: list[Leftover] = field(default_factory=list)
    failed: list[CleanupFailure] = field(default_factory=list)


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
            log.debug("engine %s is left out of the clean-up: %s", name, error)
        except Exception:  # an engine may be anybody's; its faults must not keep the others from being cleaned up
            log.exception("engine %s is left out of the clean-up", name)
        else:
            return candidate
        return None

    return [engine for engine in _in_parallel(opened, engine_classes(only).items()) if engine is not None]


def find_leftovers(
    engines: Iterable[Engine], run_id: str | None = None, worker_id: str | None = None
) -> tuple[list[Leftover], list[CleanupFailure]]:
    """Return what carries the label, in the order in which it has to go, and the engines that could not say.

    What two engines list that share a store is returned once, as the first one's.
    """

    def told(engine: Engine) -> tuple[Engine, list[Leftover] | CleanupFailure]:
        try:
            return engine, list(engine.leftovers(run_id, worker_id))
        except WeighbridgeError as error:
            return engine, CleanupFailure(engine.name, None, str(error))
        except Exception as error:  # as above
            log.exception("engine %s cannot say what is left", engine.name)
            return engine, CleanupFailure(engine.name, None, f"{type(error).__name__}: {error}")

    found: dict[tuple[str, str, str], Leftover] = {}
    failed: list[CleanupFailure] = []
    for engine, answer in _in_parallel(told, ((engine,) for engine in engines)):
        if isinstance(answer, CleanupFailure):
            failed.append(answer)
            continue
        for leftover in answer:
            found.setdefault((engine.store or engine.name, leftover.what, leftover.identity), leftover)
    return list(found.values()), failed


def clean_up_all(
    engines: Sequence[Engine] | None = None,
    *,
    run_id: str | None = None,
    worker_id: str | None = None,
    told: Callable[[Leftover, CleanupStatus, str], None] | None = None,
    dry_run: bool = False,
) -> CleanupResult:
    """Remove what carries the label: of one run or of all, of one worker or of all.

    A run that is named is swept even while it is alive; without a name, live runs are kept. `engines` are opened ones
    (None: every usable one, for the time of the call). `told` hears of each leftover at once: its verdict, and why it
    is still there. With `dry_run` nothing is touched.
    """
    with _open_engines() if engines is None else nullcontext(engines) as chosen:
        return _clean_up(chosen, run_id, worker_id, told, dry_run=dry_run, spare_kept=False)


def clean_up_run(run_id: str, worker_id: str | None = None) -> CleanupResult:
    """Remove what a run, or one worker of it, left in the engines that it is noted to have used; the notes stay.

    It may be alive. An engine of these that cannot be asked is a failure: what is left there is not known.
    """
    noted = {use.engine for use in recorded_uses(run_id)}
    with _open_engines(noted) as engines:
        sweep = _clean_up(engines, run_id, worker_id, None, dry_run=False, spare_kept=False)
    later = f"bench-worker --cleanup-containers --run {run_id}"
    reason = f"it does not answer, so what is left there is not known; later: {later}"
    away = noted - {engine.name for engine in engines}
    sweep.failed += [CleanupFailure(name, None, reason) for name in sorted(away)]
    return sweep


def clean_up_dead_runs() -> CleanupResult:
    """Remove what runs that are over left in the engines that are noted as used, and clear such notes away.

    What belongs to live runs, and to those that were told to keep their containers, is spared. A note goes when
    nothing more of its run is there; nobody asked for an engine that cannot be asked, so that is no failure.
    """
    noted = recorded_uses()
    with _open_engines({use.engine for use in noted}) as engines:
        sweep = _clean_up(engines, None, None, None, dry_run=False, spare_kept=True)
    # Of engines of one store the first speaks for all, so what is left of a run keeps all its notes.
    deaf = {failure.engine for failure in sweep.failed if failure.leftover is None}
    asked = {engine.name for engine in engines} - deaf
    going_on = live_runs() | {leftover.run_id for leftover in sweep.kept}
    going_on |= {failure.leftover.run_id for failure in sweep.failed if failure.leftover is not None}
    delete_records(use for use in noted if use.engine in asked and use.run_id not in going_on)
    return sweep


@contextmanager
def _open_engines(only: Collection[str] | None = None) -> Iterator[list[Engine]]:
    """Give the usable engines, for as long as they are needed; none is looked for where `only` names none."""
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
    told: Callable[[Leftover, CleanupStatus, str], None] | None,
    *,
    dry_run: bool,
    spare_kept: bool,
) -> CleanupResult:
    by_name = {engine.name: engine for engine in engines}
    found, failed = find_leftovers(engines, run_id, worker_id)
    # After the list was made, not before: see `live_runs`.
    alive = live_runs() if run_id is None else frozenset[str]()
    sweep = CleanupResult(failed=failed)

    def discard(leftover: Leftover) -> None:
        verdict: CleanupStatus
        reason = ""
        if leftover.run_id in alive:
            verdict, reason = "kept", f"run {leftover.run_id} is alive on this host"
            sweep.kept.append(leftover)
        elif spare_kept and leftover.run_id.startswith(KEEP_RUN_PREFIX):
            verdict, reason = "kept", f"run {leftover.run_id} keeps it (--keep)"
            sweep.kept.append(leftover)
        elif dry_run:
            verdict, reason = "listed", "a dry run touches nothing"
            sweep.listed.append(leftover)
        elif reason := _remove_leftover(by_name[leftover.engine], leftover):
            verdict = "failed"
            sweep.failed.append(CleanupFailure(leftover.engine, leftover, reason))
        else:
            verdict = "removed"
            sweep.removed.append(leftover)
        if told is not None:
            told(leftover, verdict, reason)

    # Kind after kind, in the engines' own order: a volume cannot go before the container that uses it.
    for kind in dict.fromkeys((leftover.engine, leftover.what) for leftover in found):
        crew = gevent.pool.Pool(PARALLEL_REMOVALS)
        for leftover in found:
            if (leftover.engine, leftover.what) == kind:
                crew.spawn(discard, leftover)
        crew.join(raise_error=True)
    return sweep


def _in_parallel(ask: Callable[..., ResultT], each: Iterable[tuple[Any, ...]]) -> list[ResultT]:
    """Return what `ask` gives for each row of arguments, in their order: engines are waited for all at once."""
    waiting = [gevent.spawn(ask, *arguments) for arguments in each]
    gevent.joinall(waiting, raise_error=True)
    return [cast("ResultT", asked.value) for asked in waiting]


def _remove_leftover(engine: Engine, leftover: Leftover) -> str:
    try:
        engine.discard(leftover)
    except WeighbridgeError as error:
        return str(error)
    except Exception as error:  # as above
        log.exception("%s %s could not be removed", leftover.what, leftover.name)
        return f"{type(error).__name__}: {error}"
    return ""
