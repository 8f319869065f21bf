"""``--format`` of commands that list something: for people, for programs that read lines, or as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

LIST_FORMATS: Final = ("table", "tsv", "json")


def add_list_format(
    parser: argparse.ArgumentParser, formats: Sequence[str] = LIST_FORMATS, *, more: str = ""
) -> None:
    """Add ``--format`` with these choices; `more` ends its help. `choose_format` says what holds without it."""
    parser.add_argument(
        "--format",
        choices=formats,
        help=f"output format (default: table on a terminal, else tsv){more}",
    )
