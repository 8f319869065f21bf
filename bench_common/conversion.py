"""Turns a number of one unit into another of its kind: what a threshold says into what a figure is in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TIME_UNITS: Final[Mapping[str, float]] = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0
}  # fmt: skip
"""Seconds in each unit of time."""

SIZE_UNITS: Final[Mapping[str, float]] = {
    "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
    "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40,
}  # fmt: skip
"""Bytes in each unit of size, with the names of IEC 80000-13; a bare letter is not one, for it has two meanings."""


def conversion(written: str, own: str) -> float | None:
    """Return what turns a number in unit `written` into unit `own`; None where nothing does.

    An empty `written` is `own`. Rates (``MiB/s``) convert like what they are rates of.
    """
    if not written or written == own or (written, own) == ("jobs/s", "/s"):
        return 1.0
    rate = "/s" if written.endswith("/s") and own.endswith("/s") else ""
    left, right = written.removesuffix(rate), own.removesuffix(rate)
    for units in (TIME_UNITS, SIZE_UNITS):
        if left in units and right in units:
            return units[left] / units[right]
    return None
