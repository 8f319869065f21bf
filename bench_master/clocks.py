"""Whether the hosts' clocks went like the master's while each trial lasted, by the readings at its begin and its end.

A host's own time of a trial is the master's bracket and what its clock gained on the master's. Where the two disagree
by more than both readings' bounds and any drift allow, the clock was set, or stood still as that of a virtual machine
does that is stopped: what the host measured meanwhile is not to be believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench_common.clock import drifted_ns
from bench_common.set_aside import RESUMED
from bench_master.table import counted


@dataclass(frozen=True, slots=True)
class Reading:
    """How far a host's clock was ahead of the master's at an instant of the master's (ns)."""

    at_ns: int
    offset_ns: int
    bound_ns: int


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A trial (or what came right after it) in which a host's clock gained `gained_ns`, more than it can."""

    worker: int
    trial: int
    bracket_ns: int
    gained_ns: int
    allowed_ns: int


class Clocks:
    """Follows the events of a run."""

    def __init__(self) -> None:
        self.disagreements: list[Disagreement] = []
        self.bounds: dict[int, int] = {}
        """The largest bound at which each worker's clock was read, in ns."""
        self._last: dict[int, Reading] = {}
        self._trial: int | None = None

    def add(self, event: Mapping[str, Any]) -> None:
        """Take in an event; what is malformed is passed over."""
        kind, at_ns, trial = event.get("kind"), event.get("at_ns"), event.get("trial")
        if kind == RESUMED:
            self._last.clear()
        elif kind in ("worker-joined", "worker-back"):
            # Another boot may be another clock.
            self._last.pop(event.get("worker", -1), None)
        if kind not in ("trial-begin", "trial-end") or not isinstance(at_ns, int) or not isinstance(trial, int):
            return
        for reading in event.get("clocks") or ():
            if isinstance(reading, list) and len(reading) == 3 and all(isinstance(value, int) for value in reading):  # noqa: PLR2004
                worker, offset_ns, bound_ns = reading
                # What is only seen when a trial begins happened right after the one before it.
                of = self._trial if kind == "trial-begin" and self._trial is not None else trial
                self._read(worker, of, Reading(at_ns, offset_ns, bound_ns))
        self._trial = trial

    def _read(self, worker: int, trial: int, new: Reading) -> None:
        self.bounds[worker] = max(self.bounds.get(worker, 0), new.bound_ns)
        old = self._last.get(worker)
        self._last[worker] = new
        if old is None:
            return
        bracket_ns, gained_ns = new.at_ns - old.at_ns, new.offset_ns - old.offset_ns
        allowed_ns = old.bound_ns + new.bound_ns + drifted_ns(bracket_ns)
        if abs(gained_ns) > allowed_ns:
            self.disagreements.append(Disagreement(worker, trial, bracket_ns, gained_ns, allowed_ns))

    def document(self, worker: int) -> dict[str, Any]:
        """Return what a report says of one host's clock."""
        bound_ns = self.bounds.get(worker)
        return {
            "bound_max_s": None if bound_ns is None else bound_ns / 1e9,
            "disagreements": [
                {
                    "trial": found.trial,
                    "bracket_s": found.bracket_ns / 1e9,
                    "own_s": (found.bracket_ns + found.gained_ns) / 1e9,
                    "allowed_s": found.allowed_ns / 1e9,
                }
                for found in self.disagreements
                if found.worker == worker
            ],
        }

    def warnings(self, names: Mapping[int, str]) -> list[str]:
        """Return a warning for each host whose clock disagreed with the master's; `names` are the workers'."""
        found = []
        for worker in sorted({one.worker for one in self.disagreements}):
            theirs = [one for one in self.disagreements if one.worker == worker]
            worst = max(theirs, key=lambda one: abs(one.gained_ns))
            found.append(
                f"the clock of {names.get(worker, f'worker {worker}')} disagreed with the master's in "
                f"{counted(len(theirs), 'trial')}, at worst in trial {worst.trial}: it counted "
                f"{(worst.bracket_ns + worst.gained_ns) / 1e9:.3f} s where the master counted "
                f"{worst.bracket_ns / 1e9:.3f} s (give or take {worst.allowed_ns / 1e9:.3f} s): a virtual machine "
                "that was stopped, or a clock that was set; do not believe what it measured then"
            )
        return found
