"""Turns a number of one unit into another of its kind: what a threshold says into what a figure is in."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

TIME_UNITS: Final[Mapping[str, Fraction]] = {
    "ns": Fraction("1e-9"),
    "us": Fraction("1e-6"),
    "µs": Fraction("1e-6"),
    "ms": Fraction("1e-3"),
    "s": Fraction(1),
    "m": Fraction(60),
    "min": Fraction(60),
    "h": Fraction(3600),
}
"""Seconds in each unit of time."""

SIZE_UNITS: Final[Mapping[str, Fraction]] = {
    "B": Fraction(1),
    **{f"{letter}B": Fraction(1000**power) for power, letter in enumerate("kMGT", start=1)},
    **{f"{letter}iB": Fraction(1024**power) for power, letter in enumerate("KMGT", start=1)},
}
"""Bytes in each unit of size, with the names of IEC 80000-13; a bare letter is not one, for it has two meanings."""


def conversion(written: str, own: str) -> Fraction | None:
    """Return what turns a number in unit `written` into unit `own`; None where nothing does.

    It is exact, so that ``== 3ns`` can be true of 3 ns. An empty `written` is `own`. Rates (``MiB/s``) convert like
    what they are rates of.
    """
    if not written or written == own or (written, own) == ("jobs/s", "/s"):
        return Fraction(1)
    rate = "/s" if written.endswith("/s") and own.endswith("/s") else ""
    left, right = written.removesuffix(rate), own.removesuffix(rate)
    for units in (TIME_UNITS, SIZE_UNITS):
        if left in units and right in units:
            return units[left] / units[right]
    return None
