"""What ends the packing of a host: a condition such as ``memory < 10%``, looked at after each container.

::

    memory < 10%      memory that is available, of all of it (or a size: memory < 512MiB)
    swap > 64MiB      swap that is in use (or a share of all of it)
    cpu < 5%          CPU time that was idle since the container before, of all CPUs'
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from bench_common.errors import did_you_mean
from bench_common.units import format_size, parse_size

FORM: Final = "a condition such as 'memory < 10%', 'memory < 512MiB', 'swap > 64MiB' or 'cpu < 5%'"

_SIGNS: Final = {"memory": "<", "swap": ">", "cpu": "<"}
_SPLIT: Final = re.compile(r"\s*(?P<what>[a-z_]+)\s*(?P<sign>[<>=]+)\s*(?P<value>\S.*?)\s*")
_PERCENT: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%")


@dataclass(frozen=True, slots=True)
class HostState:
    """What conditions are about: bytes, and the share (0..100) of CPU time that was idle since the last look."""

    memory_total: int
    memory_available: int
    swap_total: int
    swap_used: int
    cpu_idle_percent: float


@dataclass(frozen=True, slots=True)
class Until:
    """A condition taken apart: `what` is beyond `limit`, in percent or (not `percent`) bytes."""

    what: str
    limit: float
    percent: bool

    def __str__(self) -> str:
        limit = f"{self.limit:g}%" if self.percent else format_size(int(self.limit))
        return f"{self.what} {_SIGNS[self.what]} {limit}"

    def reached(self, state: HostState) -> str | None:
        """Return why it holds, such as ``9.84% of memory available``; None where it does not."""
        if self.what == "cpu":
            share = state.cpu_idle_percent
            return f"{share:.2f}% of CPU time idle" if share < self.limit else None
        memory = self.what == "memory"
        amount = state.memory_available if memory else state.swap_used
        total = state.memory_total if memory else state.swap_total
        measured = 100.0 * amount / total if self.percent and total else 0.0 if self.percent else float(amount)
        shown = f"{measured:.2f}% of {self.what}" if self.percent else f"{format_size(amount)} of {self.what}"
        if memory:
            return f"{shown} available" if measured < self.limit else None
        return f"{shown} used" if measured > self.limit else None


def parse_until(text: str) -> Until:
    """Take a condition apart; raise `ValueError` saying what is wrong and what was expected."""
    match = _SPLIT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r}: expected {FORM}")
    what, sign, value = match["what"], match["sign"], match["value"]
    if what not in _SIGNS:
        raise ValueError(f"{text!r}: {what!r} cannot be watched{did_you_mean(what, _SIGNS)}; expected {FORM}")
    if sign != _SIGNS[what]:
        raise ValueError(f"{text!r}: a host is full when {what} {_SIGNS[what]} something; expected {FORM}")
    percent = _PERCENT.fullmatch(value)
    if percent is not None:
        limit = float(percent[1])
        if not 0 < limit < 100:  # noqa: PLR2004
            raise ValueError(f"{text!r}: {value} is no share between 0% and 100%")
        return Until(what, limit, percent=True)
    if what == "cpu":
        raise ValueError(f"{text!r}: {value!r} is no share of CPU time, such as 5%")
    try:
        return Until(what, float(parse_size(value)), percent=False)
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}") from error
