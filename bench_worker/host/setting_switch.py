"""Settings of this host, as each treatment of a run wants them: switched between trials, and put back at the end.

A guard, a process of its own, sets them and puts them back even if this one is killed (see `settings_guard`).
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gevent.lock import RLock

from bench_common.directories import state_directory
from bench_common.host_settings import chosen
from bench_worker.host.guard_process import GuardFailed, GuardProcess
from bench_worker.host.settings import RECORDS, SettingError, current, restore_abandoned
from bench_worker.leases import live_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

SET_TIMEOUT_S: Final = 60.0
"""How long setting may take: some settings make the kernel rearrange memory."""
RESTORE_TIMEOUT_S: Final = 60.0
"""How long putting back may take."""


def records_directory() -> Path:
    """Return the directory of this user's records of settings; raise `InfrastructureError` where none can be made."""
    return state_directory(RECORDS, readable=True)


class SettingSwitch:
    """The settings of one run on this worker; `warn` gets what the report must mention."""

    def __init__(self, run_id: str, warn: Callable[[str], None] = log.warning) -> None:
        self._run_id = run_id
        self._warn = warn
        self._told = False
        self._lock = RLock()
        self._guard: GuardProcess | None = None
        self._names: dict[str, None] = {}
        self._applied: dict[str, str | None] = {}

    def know(self, settings: Mapping[str, str]) -> None:
        """Note the settings of a treatment: others of the run need them as they were."""
        self._names |= dict.fromkeys(settings)

    def differs(self, settings: Mapping[str, str]) -> bool:
        """Return whether `apply` would have something to do."""
        return self._wanted(settings) != self._applied

    def apply(self, settings: Mapping[str, str]) -> None:
        """Set these, and what else the run sets as it was before; raise `SettingError`."""
        with self._lock:
            wanted = self._wanted(settings)
            if wanted == self._applied:
                return
            self._note_changes()
            # The new one before the old one ends: what both have is not put back in between.
            guard = _set(self._run_id, wanted)
            before, self._guard, self._applied = self._guard, guard, wanted
            self._note_neighbours()
            if before is not None:
                _put_back(before)

    def release(self) -> None:
        """Put all settings back as they were; raise `SettingError` where some could not be. Twice does nothing."""
        with self._lock:
            self._note_changes()
            guard, self._guard, self._applied = self._guard, None, {}
            if guard is not None:
                _put_back(guard)

    def _note_changes(self) -> None:
        """Tell of settings that somebody else has changed since they were set: trials ran under other values."""
        for name, value in self._applied.items():
            with suppress(SettingError):
                found = current(name)
                if value is not None and found != chosen(value):
                    changed = f"host setting {name} was changed to {found!r} by somebody else"
                    self._warn(f"{changed} while trials ran with {value!r}")

    def _note_neighbours(self) -> None:
        """Tell of other runs on this host, whose jobs run under the settings of this one; once is enough."""
        others = sorted(live_runs() - {self._run_id})
        if others and not self._told:
            self._told = True
            self._warn(
                "host settings were changed while other runs were alive on this host, and their jobs ran under them, "
                f"too: {', '.join(others)}"
            )

    def _wanted(self, settings: Mapping[str, str]) -> dict[str, str | None]:
        return {**dict.fromkeys(self._names), **settings}


def _set(run_id: str, settings: Mapping[str, str | None]) -> GuardProcess:
    arguments = (str(records_directory()), run_id, json.dumps(settings))
    try:
        return GuardProcess(
            "bench_worker.host.settings_guard", arguments, prefix="weighbridge-settings-", timeout_s=SET_TIMEOUT_S
        )
    except GuardFailed as error:
        raise SettingError(str(error) or "host settings cannot be changed: it takes too long") from error


def _put_back(guard: GuardProcess) -> None:
    status, words = guard.release(RESTORE_TIMEOUT_S)
    if status is not None and status < 0:
        # Somebody killed it: what it had to put back is nobody's now.
        words = "; ".join(one.problem for one in restore_abandoned(records_directory()) if one.problem)
    elif status == 0:
        return
    if words or status is None:
        raise SettingError(words or "host settings were not put back in time: see bench-master cleanup-containers")
