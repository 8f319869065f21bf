"""Tells the master before a run which engines are usable here, and what its containers need and this host lacks.

A worker may have started days ago, so it probes its engines again when a run is requested.
"""

from __future__ import annotations

import logging
import os
import shutil
from time import monotonic
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import asdict

from bench_common.errors import EngineUnavailable, WeighbridgeError
from bench_common.host_info import EngineInfo
from bench_worker.engines.base import EngineOptions
from bench_worker.engines.registry import engine_classes, probe_all
from workloads.registry import debian_packages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from bench_common.requirements import Requirement
    from bench_worker.engines.base import Engine, EngineStatus

log = logging.getLogger(__name__)

TIMEOUT_S: Final = 30.0
"""Timeout of each call of an engine, in seconds."""
SERVER_DIRECTORIES: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")
PROBE_MAX_AGE_S: Final = 10.0
"""A usable engine is not probed again within this time, in seconds."""


class EngineCatalog:
    """The engines that a worker offers (`only`; None: every one), each with the status of its last probe.

    `probe(names)` returns the status of engines, `clock()` returns seconds.
    """

    def __init__(
        self,
        only: Collection[str] | None = None,
        probe: Callable[[Collection[str] | None], Iterable[EngineStatus]] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._only = only
        self._probe = probe or _probe_engines
        self._clock = clock
        self._probed_s = 0.0
        self.statuses: dict[str, EngineInfo] = {}

    def probe(self) -> dict[str, EngineInfo]:
        """Probe all engines; return their statuses by name."""
        self._probed_s = self._clock()
        self.statuses = {status.name: _engine_info(status) for status in self._probe(self._only)}
        return self.statuses

    def refresh(self, names: Iterable[str]) -> dict[str, EngineInfo]:
        """Return the statuses of the offered ones of these engines; probe those with an old or a bad status."""
        offered = [name for name in names if name in self.statuses]
        fresh = self._clock() - self._probed_s < PROBE_MAX_AGE_S
        stale = [name for name in offered if not (fresh and self.statuses[name]["usable"])]
        if stale:
            self.statuses |= {status.name: _engine_info(status) for status in self._probe(stale)}
        return {name: self.statuses[name] for name in offered}


def _probe_engines(names: Collection[str] | None) -> list[EngineStatus]:
    return probe_all(engine_classes(names))


def _engine_info(status: EngineStatus) -> EngineInfo:
    """Return a status as it travels; an engine with a status that no master accepts is unusable."""
    try:
        return msgspec.convert({**asdict(status), "details": dict(status.details)}, EngineInfo)
    except msgspec.ValidationError as error:
        return EngineInfo(name=status.name, usable=False, reason=f"its status is malformed: {error}")


def _find_program(program: str) -> str | None:
    """Return where a server's program is; servers are in directories that a user's PATH may lack."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *SERVER_DIRECTORIES]))


def _missing_program(engine: str, program: str) -> str:
    package = debian_packages().get(program, program)
    return f"engine {engine}: the service's program {program} is not installed here: apt-get install {package}"


class PreflightChecker:
    """Checks what containers need of their engines. The engines stay open until `close`: opening them takes time."""

    def __init__(self, worker_id: str, open_engine: Callable[[str, EngineOptions], Engine]) -> None:
        self._worker_id = worker_id
        self._open_engine = open_engine
        self._opened: dict[str, Engine] = {}

    def find_missing(self, needs: Iterable[Requirement]) -> list[str]:
        """Return what is missing, one reason each; an engine that cannot be asked is a reason, too."""
        reasons: dict[str, None] = {}
        by_engine: dict[str, list[Requirement]] = {}
        for need in needs:
            if need.program is None:
                by_engine.setdefault(need.engine, []).append(need)
            elif _find_program(need.program) is None:
                reasons[_missing_program(need.engine, need.program)] = None
        for name, wanted in by_engine.items():
            try:
                engine = self._engine(name)
                for need in wanted:
                    missing = engine.missing(need.settings)
                    reasons |= dict.fromkeys(f"engine {name}: {reason}" for reason in missing)
            except WeighbridgeError as error:
                prefix = "" if isinstance(error, EngineUnavailable) else f"engine {name}: "
                reasons[f"{prefix}{error}"] = None
            except Exception as error:  # a third-party engine may raise anything; the master gets a reply
                log.exception("engine %s cannot check what it has", name)
                reasons[f"engine {name}: {type(error).__name__}: {error}"] = None
        return list(reasons)

    def close(self) -> None:
        """Close the engines."""
        opened, self._opened = self._opened, {}
        for engine in opened.values():
            engine.close()

    def _engine(self, name: str) -> Engine:
        if name not in self._opened:
            options = EngineOptions("", self._worker_id, slots=1, timeout_s=TIMEOUT_S)
            self._opened[name] = self._open_engine(name, options)
        return self._opened[name]
