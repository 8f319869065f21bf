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
from bench_common.host_info import DIGEST_DETAIL, IMAGE_DETAIL, PROGRAM_DETAIL, SEVERAL, EngineInfo
from bench_common.requirements import SettingProblem
from bench_worker.engines.base import EngineOptions
from bench_worker.engines.registry import engine_classes, probe_all
from bench_worker.host.setting_switch import records_directory
from bench_worker.host.settings import try_values, unusable_reason
from bench_worker.program_digest import DIGEST, PROGRAM, program_details
from bench_workloads.registry import debian_packages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from bench_common.requirements import Requirement, SettingNeed
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


def find_setting_problems(needs: Iterable[SettingNeed], allowed: Collection[str]) -> list[SettingProblem]:
    """Return the settings of this host that cannot be what is asked, one reason each; they are tried, and put back.

    What is not `allowed` is left alone: the master knows that from the hello.
    """
    found = []
    for need in needs:
        if need.name not in allowed:
            continue
        prefix = f"host setting {need.name}: "
        try:
            reason = unusable_reason(need.name)
            problem = ("", reason) if reason else try_values(records_directory(), need.name, need.values)
        except (OSError, WeighbridgeError) as error:
            problem = ("", str(error))
        if problem is not None:
            found.append(SettingProblem(need.name, problem[0], problem[1].removeprefix(prefix)))
    return found


class PreflightChecker:
    """Checks what containers need of their engines. The engines stay open until `close`: opening them takes time."""

    def __init__(
        self,
        worker_id: str,
        open_engine: Callable[[str, EngineOptions], Engine],
        *,
        allow_foreign: bool = False,
    ) -> None:
        self._worker_id = worker_id
        self._allow_foreign = allow_foreign
        self._open_engine = open_engine
        self._opened: dict[str, Engine] = {}
        self.images: dict[str, dict[str, str]] = {}
        """Of each engine asked, the digests of the images that were found, by name."""
        self.programs: dict[str, dict[str, str]] = {}
        """Of each engine asked, as details of its status: the files that its jobs run, and what surrounds these."""
        self.forbidden: dict[str, None] = {}
        """What of others the containers would use without consent, by the last questions."""
        self.absent: dict[str, str] = {}
        """Why images lack a program that their containers begin with, by the last questions: reason and program."""

    def find_missing(self, needs: Iterable[Requirement]) -> list[str]:
        """Return what is missing, one reason each; an engine that cannot be asked is a reason, too."""
        reasons: dict[str, None] = {}
        by_engine: dict[str, list[Requirement]] = {}
        for need in needs:
            if need.command is not None:
                self._note_program(need, need.command)
                if not need.compared:
                    continue
            if need.program is None:
                by_engine.setdefault(need.engine, []).append(need)
            elif _find_program(need.program) is None:
                reasons[_missing_program(need.engine, need.program)] = None
        for name, wanted in by_engine.items():
            try:
                engine = self._engine(name)
                for need in wanted:
                    reasons |= dict.fromkeys(f"engine {name}: {reason}" for reason in self._ask(engine, name, need))
            except WeighbridgeError as error:
                prefix = "" if isinstance(error, EngineUnavailable) else f"engine {name}: "
                reasons[f"{prefix}{error}"] = None
            except Exception as error:  # a third-party engine may raise anything; the master gets a reply
                log.exception("engine %s cannot check what it has", name)
                reasons[f"engine {name}: {type(error).__name__}: {error}"] = None
        return list(reasons)

    def _ask(self, engine: Engine, name: str, need: Requirement) -> list[str]:
        """Return what an engine lacks for one need; note what is forbidden, which image it is, what is not in it."""
        settings = need.settings
        self.forbidden |= dict.fromkeys(f"engine {name}: {one}" for one in engine.forbidden(settings))
        missing = engine.missing(settings)
        if missing:
            return missing
        if settings.image and (digest := engine.image_digest(settings)):
            self.images.setdefault(name, {})[settings.image] = digest
        if need.starts is not None and (reason := engine.absent_program(settings, need.starts)):
            self.absent[f"engine {name}: {reason}"] = need.starts.program
        elif need.compared:
            self._note(name, engine.surroundings(settings, need.starts))
        return []

    def _note_program(self, need: Requirement, command: str) -> None:
        """Note which file a command is; one that is not there says nothing: a job may make it."""
        place = os.path.join(need.directory or "", command) if "/" in command else command  # noqa: PTH118
        details = program_details(shutil.which(place, path=need.search_path) or "")
        if details:
            named = {PROGRAM_DETAIL: details[PROGRAM], DIGEST_DETAIL: details[DIGEST]}
            self._note(need.engine, {f"{prefix}{command}": detail for prefix, detail in named.items()})

    def _note(self, engine: str, details: Mapping[str, str]) -> None:
        """Note details of an engine's status; the same name on another PATH, or in another image, is another file."""
        found = self.programs.setdefault(engine, {})
        for name, detail in details.items():
            known = found.get(name, "").split(SEVERAL)
            found[name] = SEVERAL.join(dict.fromkeys((*filter(None, known), detail)))

    def with_digests(self, engines: Mapping[str, EngineInfo]) -> dict[str, EngineInfo]:
        """Return statuses of engines with the digests of images and jobs' programs among the details."""
        found = {name: EngineInfo(**status) for name, status in engines.items()}
        for name, status in found.items():
            digests = {f"{IMAGE_DETAIL}{image}": digest for image, digest in self.images.get(name, {}).items()}
            digests |= self.programs.get(name, {})
            if digests:
                status["details"] = {**status.get("details", {}), **digests}
        return found

    def close(self) -> None:
        """Close the engines; what was found of images and programs may change from now on."""
        self.images.clear()
        self.programs.clear()
        self.forbidden.clear()
        self.absent.clear()
        opened, self._opened = self._opened, {}
        for engine in opened.values():
            engine.close()

    def _engine(self, name: str) -> Engine:
        if name not in self._opened:
            options = EngineOptions("", self._worker_id, 1, TIMEOUT_S, allow_foreign=self._allow_foreign)
            self._opened[name] = self._open_engine(name, options)
        return self._opened[name]
