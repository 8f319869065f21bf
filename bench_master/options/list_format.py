"""``--format`` of commands that list something: for people, for programs that read lines, or as JSON."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from bench_common.options import Option

LIST_FORMAT_HELP: Final = "output format (default: table on a terminal, else tsv)"
ListFormat: TypeAlias = Annotated[Literal["table", "tsv", "json"] | None, Option("--format", LIST_FORMAT_HELP)]
"""None: see `choose_format`."""
