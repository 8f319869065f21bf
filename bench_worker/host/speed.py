"""The speed of this host at one moment: a fixed amount of work, some 50 ms of one CPU, timed before each trial.

Two hosts whose properties agree may still differ, and one host may change its speed without changing a property:
throttling, a busy neighbour of a virtual machine, another process. Only work that is always the same shows it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from time import monotonic_ns, thread_time_ns
from typing import Final

_CHUNK: Final = bytes(64 * 1024)
"""Fits the cache next to the CPU, so that the memory's speed does not count."""
_CHUNKS: Final = 950
"""Never to be changed: figures of other releases would no longer compare."""


@dataclass(frozen=True, slots=True)
class SpeedReading:
    """How long the fixed work took."""

    time_ns: int
    """When it ended, CLOCK_MONOTONIC."""
    wall_ns: int
    """How long it took; a CPU that was shared with others makes it longer."""
    cpu_ns: int
    """How much CPU time it took; a slower CPU makes it longer."""


def measure_speed() -> SpeedReading:
    """Do the fixed work and time it. It runs on the calling thread and blocks it."""
    digest = hashlib.blake2b()
    began_ns, cpu_ns = monotonic_ns(), thread_time_ns()
    for _ in range(_CHUNKS):
        digest.update(_CHUNK)
    cpu_ns = thread_time_ns() - cpu_ns
    ended_ns = monotonic_ns()
    return SpeedReading(ended_ns, ended_ns - began_ns, cpu_ns)
