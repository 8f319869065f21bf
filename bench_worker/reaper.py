"""Removes what runs left behind, over all engines: only what carries Weighbridge's label, never a live run's unasked.

It may be called at any time, several at once, again and again: what is gone already counts as removed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

import gevent
import gevent.pool

from bench_common.errors import WeighbridgeError
from bench_common.records import KEPT_PREFIX
from bench_worker.engines.base import EngineOptions
from bench_worker.engines.registry import BrokenEngine, engine_classes
from bench_worker.lease import RunLease, live_runs
from bench_worker.used_engines import forget, uses

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from bench_worker.engines.base import Engine, Leftover

__all__ = [
    "Failure",
    "RunLease",
    "Sweep",
    "discard_all",
    "discard_noted",
    "leftovers",
    "live_runs",
    "usable_engines",
]

log = logging.getLogger(__name__)

AT_ONCE: Final = 4
"""Leftovers of one kind that are removed at the same time; an engine gets no faster beyond a few."""
TIMEOUT_S: Final = 30.0
"""For each single removal."""


Given = TypeVar("Given")

Verdict: TypeAlias = Literal["removed", "listed", "kept", "failed"]
"""What became of a leftover; `listed` is for dry runs."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What could not be removed (None: an engine could not even be asked), and why."""

    engine: str
    leftover: Leftover | None
    reason: str

    def __str__(self) -> str:
        what = f"{self.leftover.what} {self.leftover.name}: " if self.leftover else ""
        return f"{self.engine}: {what}{self.reason}"


@dataclass(slots=True)
class Sweep:
    """What a clean-up did: removed (or, in a dry run, only listed), kept because their run is alive, and failed."""

    removed: list[Leftover] = field(default_factory=list)
    listed: list[Leftover] = field(default_factory=list)
    kept: list[Leftover] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)


def usable_engines(only: Collection[str] | None = None) -> list[Engine]:
    """Return the registered engines in `only` (None: every one) that can be opened here, opened.

    The caller closes them.
    """
    options = EngineOptions(run_id="", worker_id="", slots=AT_ONCE, timeout_s=TIMEOUT_S)

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

    return [engine for engine in _side_by_side(opened, engine_classes(only).items()) if engine is not None]


def leftovers(
    engines: Iterable[Engine], run_id: str | None = None, worker_id: str | None = None
) -> tuple[list[Leftover], list[Failure]]:
    """Return what carries the label, in the order in which it has to go, and the engines that could not say.

    What two engines list that share a store is returned once, as the first one's.
    """

    def told(engine: Engine) -> tuple[Engine, list[Leftover] | Failure]:
        try:
            return engine, list(engine.leftovers(run_id, worker_id))
        except WeighbridgeError as error:
            return engine, Failure(engine.name, None, str(error))
        except Exception as error:  # as above
            log.exception("engine %s cannot say what is left", engine.name)
            return engine, Failure(engine.name, None, f"{type(error).__name__}: {error}")

    found: dict[tuple[str, str, str], Leftover] = {}
    failed: list[Failure] = []
    for engine, answer in _side_by_side(told, ((engine,) for engine in engines)):
        if isinstance(answer, Failure):
            failed.append(answer)
            continue
        for leftover in answer:
            found.setdefault((engine.store or engine.name, leftover.what, leftover.identity), leftover)
    return list(found.values()), failed


def discard_all(
    engines: Sequence[Engine] | None = None,
    *,
    run_id: str | None = None,
    worker_id: str | None = None,
    told: Callable[[Leftover, Verdict, str], None] | None = None,
    dry_run: bool = False,
    spare_kept: bool = False,
) -> Sweep:
    """Remove what carries the label: of one run or of all, of one worker or of all.

    A run that is named is swept even while it is alive; without a name, live runs are kept. `engines` are opened ones
    (None: every usable one, for the time of the call). `told` hears of each leftover at once: its verdict, and why it
    is still there. With `dry_run` nothing is touched, with `spare_kept`
    nothing of a run that was told to keep its containers.
    """
    own = usable_engines() if engines is None else None
    try:
        chosen = own if own is not None else engines or ()
        return _sweep(chosen, run_id, worker_id, told, dry_run=dry_run, spare_kept=spare_kept)
    finally:
        for engine in own or ():
            engine.close()


def discard_noted(*, run_id: str | None = None, worker_id: str | None = None) -> Sweep:
    """Remove what carries the label from the engines that are noted as used: by one run, or by any.

    An engine that a named run has used and that cannot be asked is a failure: what is left there is not known.
    Unasked, that is for all runs, it spares live runs and those that were told to keep their containers, and clears
    the notes away of which nothing is left.
    """
    noted = uses(run_id)
    engines = usable_engines({use.engine for use in noted}) if noted else []
    try:
        sweep = _sweep(engines, run_id, worker_id, None, dry_run=False, spare_kept=run_id is None)
    finally:
        for engine in engines:
            engine.close()
    if run_id is not None:
        away = {use.engine for use in noted} - {engine.name for engine in engines}
        later = f"bench-worker --cleanup-containers --run {run_id}"
        reason = f"it does not answer, so what is left there is not known; later: {later}"
        sweep.failed += [Failure(name, None, reason) for name in sorted(away)]
    else:
        # Of engines of one store the first speaks for all, so what is left of a run keeps all its notes.
        deaf = {failure.engine for failure in sweep.failed if failure.leftover is None}
        asked = {engine.name for engine in engines} - deaf
        going_on = live_runs() | {leftover.run_id for leftover in sweep.kept}
        going_on |= {failure.leftover.run_id for failure in sweep.failed if failure.leftover is not None}
        forget(use for use in noted if use.engine in asked and use.run_id not in going_on)
    return sweep


def _sweep(
    engines: Sequence[Engine],
    run_id: str | None,
    worker_id: str | None,
    told: Callable[[Leftover, Verdict, str], None] | None,
    *,
    dry_run: bool,
    spare_kept: bool,
) -> Sweep:
    by_name = {engine.name: engine for engine in engines}
    found, failed = leftovers(engines, run_id, worker_id)
    # After the list was made, not before: see `live_runs`.
    alive = live_runs() if run_id is None else frozenset[str]()
    sweep = Sweep(failed=failed)

    def discard(leftover: Leftover) -> None:
        verdict: Verdict
        reason = ""
        if leftover.run_id in alive:
            verdict, reason = "kept", f"run {leftover.run_id} is alive on this host"
            sweep.kept.append(leftover)
        elif spare_kept and leftover.run_id.startswith(KEPT_PREFIX):
            verdict, reason = "kept", f"run {leftover.run_id} was told to keep it"
            sweep.kept.append(leftover)
        elif dry_run:
            verdict, reason = "listed", "a dry run touches nothing"
            sweep.listed.append(leftover)
        elif reason := _discard(by_name[leftover.engine], leftover):
            verdict = "failed"
            sweep.failed.append(Failure(leftover.engine, leftover, reason))
        else:
            verdict = "removed"
            sweep.removed.append(leftover)
        if told is not None:
            told(leftover, verdict, reason)

    # Kind after kind, in the engines' own order: a volume cannot go before the container that uses it.
    for kind in dict.fromkeys((leftover.engine, leftover.what) for leftover in found):
        crew = gevent.pool.Pool(AT_ONCE)
        for leftover in found:
            if (leftover.engine, leftover.what) == kind:
                crew.spawn(discard, leftover)
        crew.join(raise_error=True)
    return sweep


def _side_by_side(ask: Callable[..., Given], each: Iterable[tuple[Any, ...]]) -> list[Given]:
    """Return what `ask` gives for each row of arguments, in their order: engines are waited for all at once."""
    waiting = [gevent.spawn(ask, *arguments) for arguments in each]
    gevent.joinall(waiting, raise_error=True)
    return [cast("Given", asked.value) for asked in waiting]


def _discard(engine: Engine, leftover: Leftover) -> str:
    try:
        engine.discard(leftover)
    except WeighbridgeError as error:
        return str(error)
    except Exception as error:  # as above
        log.exception("%s %s could not be removed", leftover.what, leftover.name)
        return f"{type(error).__name__}: {error}"
    return ""
