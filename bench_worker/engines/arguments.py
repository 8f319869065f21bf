"""Reads the arguments of verbs that arrive as text: signals and CPU lists. Pure."""

from __future__ import annotations

import re
import signal

from bench_common.errors import did_you_mean

_CPU_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")


def parse_signal(text: str) -> signal.Signals:
    """Return the signal that ``SIGKILL``, ``KILL`` or ``9`` names; raise `ValueError` with the nearest spelling."""
    word = text.strip().upper()
    names = {member.name: member for member in signal.Signals}
    if word.isdecimal() and int(word) in {int(member) for member in signal.Signals}:
        return signal.Signals(int(word))
    found = names.get(word) or names.get(f"SIG{word}")
    if found is None:
        raise ValueError(f"unknown signal {text!r}{did_you_mean(word, names)}; expected one such as SIGTERM")
    return found


def parse_cpuset(text: str) -> frozenset[int]:
    """Return the CPU numbers of a list such as ``0-1,4``; raise `ValueError` for anything else."""
    cpus: set[int] = set()
    for part in text.split(","):
        match = _CPU_RANGE.fullmatch(part.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ValueError(f"cpuset {text!r}: {part.strip()!r} is no CPU number or range; expected such as '0-1,4'")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)
