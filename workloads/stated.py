"""What a tool's own output says of how it was run: parameters, and the version where versions are not comparable.

Of outputs that were taken elsewhere nothing else is known. It keeps runs apart that must not be averaged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench_common.treatment import Scalar

    Patterns = Mapping[str, tuple[str, Callable[[str], Scalar]]]

_SIZE: Final = re.compile(r"(\d{1,15})(?:\.0+)? ?([KMGT]?)(?:i?B|b)?", re.ASCII)


def stated_in(text: str, patterns: Patterns) -> dict[str, Scalar]:
    """Return what the first line that matches each pattern says, by name; `patterns` have a group and its reading.

    What is not there, or is nothing that the reading knows, is left out.
    """
    found: dict[str, Scalar] = {}
    lines = [line.strip(" \t\r\0") for line in text.splitlines()]
    for name, (pattern, read) in patterns.items():
        compiled = re.compile(pattern, re.ASCII)
        match = next((match for line in lines if (match := compiled.fullmatch(line))), None)
        if match is not None:
            try:
                found[name] = read(match[1])
            except (ValueError, KeyError):
                continue
    return found


def size(text: str) -> int:
    """Return the bytes that a tool's ``16KiB``, ``16Kb`` or ``1K`` stands for, all of them by 1024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    return int(match[1]) << 10 * " KMGT".index(match[2] or " ")
