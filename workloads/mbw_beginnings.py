"""Where runs of mbw begin in a log of many.

A run may begin with the help, with what it allocates, or (``mbw -q``) with its first row, and each of these may as
well stand within one that has begun before. Which it is, the line above tells.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from workloads.mbw_output import METHODS

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS: Final = tuple(
    (kind, re.compile(pattern, re.ASCII))
    for kind, pattern in (
        ("version", r"mbw memory benchmark v\d.*"),
        ("usage", r"Usage: mbw \[.*"),
        ("helped", r"The default is to run all tests available\."),
        ("process", r"process \d{1,5} of \d{1,5}"),
        ("header", r"Long uses \d+ bytes\..*|Using \d+ bytes as blocks .*|Getting down to business\.\.\..*"),
        ("sums", r"Starting test on \d{1,5} cores"),
        ("row", rf"(?:\d{{1,9}}|AVG)[\t ]+Method: (?:{'|'.join(METHODS)})[\t ].*"),
    )
)
_FIRST: Final = {
    "version": re.compile(r".*"),
    "usage": re.compile(r".*"),
    "process": re.compile(r"process 1 of .*"),
    "header": re.compile(r"Long uses .*"),
    "sums": re.compile(r".*"),
    "row": re.compile(r"0[\t ].*"),
}
"""What a line of each kind looks like that can be a run's first."""
_WITHIN: Final = {
    "usage": ("version",),
    "process": ("helped",),
    "header": ("helped", "process"),
    "row": ("helped", "process", "header"),
}
"""What stands above a line of each kind that is within a run."""


def beginnings(lines: Sequence[str]) -> list[int]:
    """Return the places, from 0, of the lines that a run begins with."""
    places = []
    above, method_above = "", ""
    for at, line in enumerate(lines):
        text = line.strip(" \t\r\0\ufeff")
        if not text:
            continue
        kind = next((kind for kind, pattern in _KINDS if pattern.fullmatch(text)), "")
        method = text.split()[2] if kind == "row" else ""
        within = above in _WITHIN.get(kind, ()) or _follows(method, method_above)
        if kind in _FIRST and _FIRST[kind].fullmatch(text) and not within:
            places.append(at)
        above, method_above = kind, method
    return places


def _follows(method: str, above: str) -> bool:
    """Say whether rows of one method stand below those of another in one run."""
    return bool(method and above) and METHODS.index(method) > METHODS.index(above)
