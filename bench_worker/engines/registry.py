"""Finds engines through entry points, so that a third party adds one from a package of its own."""

from __future__ import annotations

import logging
import threading
import time
from functools import cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from bench_common import load_entry, registered
from bench_common.cli import check_choice
from bench_common.engine_traits import (
    ENGINES_GROUP,
    TRAITS_GROUP,
    EngineLabel,
    engine_labels,
    engine_names,
    engine_traits,
)
from bench_common.errors import EngineUnavailable
from bench_common.safe_text import shorten
from bench_worker.engines.base import PROBE_S, DaemonProcesses, Engine, EngineStatus
from bench_worker.leases import record_engine_use
from bench_worker.program_digest import program_details

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from bench_worker.engines.base import EngineOptions
    from bench_worker.images.build import ImageStore

PROBE_TIMEOUT_S: Final = PROBE_S + 5.0
"""Of all probes together, which run side by side: longer than one answer may take, so that each says itself what is
wrong."""
SAID_AFTER_S: Final = 2.0
log = logging.getLogger(__name__)

_VERSION_CHARS: Final = 100
_REASON_CHARS: Final = 500


class BrokenEngine(Struct, frozen=True):
    """An engine that is registered and cannot be loaded."""

    name: str
    reason: str
    """Why it cannot be loaded."""


def load_entries(points: Iterable[EntryPoint]) -> dict[str, type[Engine] | BrokenEngine]:
    """Load each entry point; one that fails to load, or is not an engine, becomes a `BrokenEngine`."""
    return {point.name: _load(point) for point in sorted(points, key=lambda point: point.name)}


def engine_classes(
    only: Collection[str] | None = None, labels: Iterable[EngineLabel] = ()
) -> dict[str, type[Engine] | BrokenEngine]:
    """Return the engines by name, registered ones and labels: those in `only` (None: every one), and only they load.

    `labels` are further ones than those of this process, which they replace where they have the same name.
    """
    points = registered(ENGINES_GROUP)
    found = load_entries(point for point in points if only is None or point.name in only)
    known = {one.label: one for one in (*engine_labels(), *labels)}
    return found | {name: labelled_engine(one) for name, one in known.items() if only is None or name in only}


@cache
def labelled_engine(label: EngineLabel) -> type[Engine] | BrokenEngine:
    """Return the class of an engine at the place of a label, under the label's name."""
    loaded = load_entries(point for point in registered(ENGINES_GROUP) if point.name == label.kind)
    engine = loaded.get(label.kind, BrokenEngine(label.label, f"there is no engine {label.kind!r}"))
    if isinstance(engine, BrokenEngine):
        return BrokenEngine(label.label, engine.reason)
    if not label.place:
        return BrokenEngine(label.label, f"it has no place: --engine {label}:PROGRAM, or :ADDRESS")
    # Engines of one store list the same leftovers: two addresses are two stores.
    own = {"name": label.label, "kind": label.kind, "place": label.place, "__module__": engine.__module__}
    if engine.store:
        own["store"] = f"{engine.store} at {label.place}"
    return type(engine.__name__, (engine,), own)


def probe_all(engines: dict[str, type[Engine] | BrokenEngine] | None = None) -> list[EngineStatus]:
    """Return the status of every engine, sorted by name; probes run at once, for `PROBE_TIMEOUT_S` at most."""
    found = engine_classes() if engines is None else engines
    statuses: dict[str, EngineStatus] = {}

    def ask(name: str, engine: type[Engine] | BrokenEngine) -> None:
        statuses[name] = _probe(name, engine)

    # Threads are greenlets in the patched program and real ones elsewhere; a probe that hangs is left behind.
    threads = [threading.Thread(target=ask, args=item, daemon=True) for item in found.items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PROBE_TIMEOUT_S
    said = time.monotonic() + SAID_AFTER_S
    for thread in threads:
        thread.join(max(0.0, said - time.monotonic()))
    if waiting := sorted(found.keys() - statuses.keys()):
        log.warning("waiting for an answer of %s, %g s at most", ", ".join(waiting), PROBE_TIMEOUT_S)
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    silent = f"its probe did not answer within {PROBE_TIMEOUT_S:g} s"
    return [
        statuses.get(name)
        or EngineStatus(name, usable=False, reason=silent, advice="check whether its service hangs")
        for name in sorted(found)
    ]


def open_engine(name: str, options: EngineOptions) -> Engine:
    """Return the engine of that name, opened.

    Its use by a run is recorded before, for clean-up. Raises `UsageError`, with the nearest right spelling, for an
    unknown name, `EngineUnavailable` for an engine that is broken or cannot be reached, and `InfrastructureError`
    where the use cannot be recorded.
    """
    engine = engine_classes({check_choice(name, engine_names(), what="engine")})[name]
    if isinstance(engine, BrokenEngine):
        raise EngineUnavailable(f"engine {name!r} cannot be loaded: {engine.reason}")
    if options.run_id:
        record_engine_use(options.run_id, name, next((one for one in engine_labels() if one.label == name), None))
    opened = engine(options)
    opened.open()
    return opened


def open_image_store() -> ImageStore:
    """Connect to the first engine, by name, that builds images; raise `EngineUnavailable` where none can."""
    for engine in engine_classes().values():
        store = None if isinstance(engine, BrokenEngine) or engine.place else engine.image_store()
        if store is not None:
            return store
    raise EngineUnavailable("no registered engine builds images; reinstall Weighbridge, whose engine docker does")


def daemon_processes(name: str) -> DaemonProcesses | None:
    """Return the processes that an engine declares as its own; None if it declares nothing or is not installed."""
    engine = engine_classes({name}).get(name)
    return None if engine is None or isinstance(engine, BrokenEngine) else engine.daemon_processes()


def daemon_names(names: Iterable[str]) -> frozenset[str]:
    """Return what the own processes of some engines are called: daemons, helpers, shims."""
    found = frozenset[str]()
    for name in names:
        side = daemon_processes(name)
        if side is not None:
            found |= side.names | side.shims | frozenset((*side.roots, *(one.name for one in side.companion_daemons)))
    return found


def _load(point: EntryPoint) -> type[Engine] | BrokenEngine:
    try:
        loaded = load_entry(point)
    except Exception as error:  # noqa: BLE001  somebody else's module may raise anything when imported
        return BrokenEngine(point.name, f"{point.value}: {type(error).__name__}: {error}")
    if not (isinstance(loaded, type) and issubclass(loaded, Engine)):
        return BrokenEngine(point.name, f"{point.value} is not a subclass of {Engine.__module__}.Engine")
    missing = sorted(loaded.__abstractmethods__)
    if missing:
        return BrokenEngine(point.name, f"{point.value} does not define {', '.join(missing)}")
    if getattr(loaded, "name", None) != point.name:
        return BrokenEngine(point.name, f"{point.value} has the name {getattr(loaded, 'name', None)!r}")
    if loaded.inapplicable != engine_traits(point.name).inapplicable:
        return BrokenEngine(
            point.name, f"{point.value}: `inapplicable` differs from the traits that {TRAITS_GROUP!r} has for it"
        )
    return loaded


def _probe(name: str, engine: type[Engine] | BrokenEngine) -> EngineStatus:
    if isinstance(engine, BrokenEngine):
        return EngineStatus(
            name, usable=False, reason=engine.reason, advice="repair or uninstall the package that registers it"
        )
    try:
        status = engine.probe()
        details = {**status.details, **program_details(engine.program_of(status))}
        services = engine.address is not Engine.address
        # What a program says of itself may be of any length.
        said = {"version": shorten(status.version, _VERSION_CHARS), "reason": shorten(status.reason, _REASON_CHARS)}
        return replace(status, kind=engine.kind or name, details=details, runs_services=services, **said)
    except Exception as error:  # noqa: BLE001  a third party's probe must not end the question
        text = f"its probe failed: {type(error).__name__}: {error}"
        return EngineStatus(name, usable=False, reason=text, advice="report it to the author of the engine")
