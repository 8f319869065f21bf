"""The memory layout of plain processes: drawn for each trial, so that a lucky one cannot look like a difference.

Where a program's stack and strings lie depends on the size of its environment and on the length of its paths, and
some programs are faster at some places. Both sides of a comparison draw from the same distribution.
"""

from __future__ import annotations

import random
from typing import Final, Literal, TypeAlias

from msgspec import Struct

Layout: TypeAlias = Literal["drawn", "fixed"]
LAYOUTS: Final[tuple[Layout, ...]] = ("drawn", "fixed")
"""Whether the layout of plain processes is drawn for each trial."""
MAX_ENVIRONMENT_BYTES: Final = 4095
"""A page of memory less one byte: any place of the stack within a page is as likely as any other."""
MAX_PATH_CHARS: Final = 15
"""Few enough for a socket below the working directory, whose path has at most 107 characters."""


class DrawnLayout(Struct, frozen=True):
    """What is added to the processes of one trial."""

    environment_bytes: int = 0
    """Characters of the variable ``WEIGHBRIDGE_LAYOUT``."""
    path_chars: int = 0
    """Characters that the name of the working directory is longer by."""


NO_LAYOUT: Final = DrawnLayout()


def draw_layout(seed: int, trial: int) -> DrawnLayout:
    """Return the layout of a trial; it follows from the run's seed and the trial's index alone."""
    draw = random.Random(f"layout {seed} {trial}")  # noqa: S311  a place in memory is drawn, no secret
    return DrawnLayout(draw.randint(0, MAX_ENVIRONMENT_BYTES), draw.randint(0, MAX_PATH_CHARS))
