"""Ranges in names: ``blade[01-16]`` is sixteen hosts, ``rack[1-2]n[1,3]`` four. Widths are kept: 01, 02, ... 16."""

from __future__ import annotations

import itertools
import re
from typing import Final

MAX_NAMES: Final = 4096
"""How many names one text may stand for."""

_RANGE: Final = re.compile(r"\[([0-9,-]*)\]")
_SPAN: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def has_range(text: str) -> bool:
    """Return whether a text has a range in it."""
    return _RANGE.search(text) is not None


def expand(text: str) -> list[str]:
    """Return the names that a text stands for, in order; the text itself where it has no range.

    Raises `ValueError` with what is wrong with a range, and for more than `MAX_NAMES` names.
    """
    parts = _RANGE.split(text)
    # Every second part is what stood in brackets.
    choices = [_numbers(part) if place % 2 else [part] for place, part in enumerate(parts)]
    count = 1
    for choice in choices:
        count *= len(choice)
    if count > MAX_NAMES:
        raise ValueError(f"{text!r} stands for {count} names, and {MAX_NAMES} is the most")
    return ["".join(words) for words in itertools.product(*choices)]


def _numbers(inside: str) -> list[str]:
    found: list[str] = []
    for span in inside.split(","):
        match = _SPAN.fullmatch(span)
        if match is None:
            raise ValueError(f"range [{inside}]: expected numbers and spans of them, such as [1-4,7], not {span!r}")
        first, last = match[1], match[2] or match[1]
        low, high = int(first), int(last)
        if high < low:
            raise ValueError(f"range [{inside}] runs backwards: write [{last}-{first}]")
        if high - low >= MAX_NAMES:
            raise ValueError(f"range [{inside}] stands for more than {MAX_NAMES} names")
        padded = len(first) if first.startswith("0") else 0
        found += [str(number).zfill(padded) for number in range(low, high + 1)]
    return found
