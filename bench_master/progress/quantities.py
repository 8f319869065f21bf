"""How durations, counts and rates read on the screen: three digits are enough to follow a run."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


def duration(seconds: float | None) -> str:
    """Return a latency such as ``1.23 s``, ``45.6 ms`` or ``789 us``; ``-`` for None."""
    if seconds is None:
        return "-"
    if seconds <= 0:
        return "0 s"
    # From 999.5 on, three digits would be rounded up to a fourth: take the next unit.
    scale, unit = next((pair for pair in _UNITS if seconds >= pair[0] * 0.9995), _UNITS[-1])
    return f"{three_digits(seconds / scale)} {unit}"


def clock(seconds: float | None) -> str:
    """Return a span of the run such as ``0:42`` or ``1:02:03``; ``-:--`` for None."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def three_digits(value: float) -> str:
    """Return a number of 0 or more with about three digits, and whole from 100 on: ``0.12``, ``9.83``, ``1,234``."""
    for digits, limit in ((2, 9.995), (1, 99.95)):
        if value < limit:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def one_line(text: str) -> str:
    """Return `text` as one line that cannot steer a terminal: an engine's message may hold any characters at all."""
    return printable(" ".join(text.split()))


def printable(text: str) -> str:
    """Return `text`, lines and indentation kept, with everything that could steer a terminal written out."""
    lines = text.expandtabs().splitlines()
    return "\n".join("".join(c if c.isprintable() else repr(c)[1:-1] for c in line) for line in lines)
