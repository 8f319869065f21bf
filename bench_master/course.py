"""The course that a run took: in which order its trials really ran, and where it was resumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bench_common.set_aside import RESUMED
from bench_master.table import counted


class Course:
    """Follows the events of a run whose planned trials are `trials`: [treatment, block, is warm-up] each."""

    def __init__(self, trials: Sequence[Sequence[Any]]) -> None:
        self._blocks = [trial[1] for trial in trials]
        self._parts: list[list[int]] = [[]]
        self.resumes: list[dict[str, Any]] = []

    def add(self, event: Mapping[str, Any]) -> None:
        """Take in an event; those of trials that were begun anew are not to be among them."""
        trial = event.get("trial")
        if event.get("kind") == RESUMED:
            gap_ns, again = event.get("gap_ns"), event.get("again")
            self.resumes.append(
                {
                    "at": event.get("at"),
                    "ended": event.get("ended"),
                    "gap_s": gap_ns / 1e9 if isinstance(gap_ns, int) else None,
                    "whole": event.get("whole"),
                    "again": list(again) if isinstance(again, list) else [],
                }
            )
            self._parts.append([])
        elif event.get("kind") == "trial-begin" and isinstance(trial, int) and 0 <= trial < len(self._blocks):
            self._parts[-1].append(trial)

    def realised(self) -> dict[str, Any]:
        """Return how the order that the trials ran in relates to the planned one.

        `late` are the trials that ran after one that was planned behind them, `split_blocks` the blocks of which
        some trials ran before and some after the run was resumed.
        """
        late, furthest = [], -1
        for trial in (trial for part in self._parts for trial in part):
            if trial < furthest:
                late.append(trial)
            furthest = max(furthest, trial)
        seen: set[Any] = set()
        split: set[Any] = set()
        for part in self._parts:
            blocks = {self._blocks[trial] for trial in part}
            split |= blocks & seen
            seen |= blocks
        return {"as_planned": not late, "late": late, "split_blocks": sorted(split)}

    def warnings(self) -> list[str]:
        """Return what a reader of the figures must know of the course."""
        realised = self.realised()
        found = []
        if realised["split_blocks"]:
            numbers = ", ".join(map(str, realised["split_blocks"][:10]))
            blocks = counted(len(realised["split_blocks"]), "block")
            found.append(
                f"the run was resumed {counted(len(self.resumes), 'time')}, without its warm-up; {blocks} ran partly "
                f"before and partly after that: {numbers}"
            )
        if realised["late"]:
            found.append(
                f"{counted(len(realised['late']), 'trial')} did not run in the planned order, but after the run was "
                "resumed: what changed with time is not shared by their block"
            )
        return found
