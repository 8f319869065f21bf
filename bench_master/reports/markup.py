"""Markdown that texts of others cannot break out of: escaped texts, and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from bench_common.safe_text import one_line
from bench_master.formatting import Column

_MARKUP: Final = re.compile(r"[\\`*_{}\[\]<>#|~$&@]|:(?=//)")
_PLAIN: Final = re.compile(
    r"""(?:[\w .,;:/()=%+'"-]|\[[-+\d., a-z]+\](?!\()|!(?=[ =])|(?<= )[<>]=?(?= ))*""", re.ASCII
)
"""What is no markup: words and numbers, the interval of a difference, comparisons of numbers."""
_LINK: Final = re.compile(r"://|www\.", re.IGNORECASE)


def escape(text: str) -> str:
    """Return a text of others as Markdown that shows it, whatever it contains, on one line."""
    line = one_line(text)
    if _PLAIN.fullmatch(line) and not _LINK.search(line):
        # Underscores within words are no markup; those at their ends are.
        return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", line)
    escaped = _MARKUP.sub(lambda found: f"&#{ord(found[0])};", line)
    # A comment keeps a name from being told, and an address from being linked, where entities do not.
    return re.sub(r"(&#64;|www)", r"\1<!-- -->", escaped, flags=re.IGNORECASE)


def markdown_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table whose source is aligned, too."""
    lines = [[escape(column.title) for column in columns], *([escape(cell) for cell in row] for row in rows)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = [
        f":{'-' * (width - 1)}" if column.left else f"{'-' * (width - 1)}:"
        for column, width in zip(columns, widths, strict=True)
    ]
    for line in (lines[0], rule, *lines[1:]):
        cells = [
            cell.ljust(width) if column.left else cell.rjust(width)
            for cell, column, width in zip(line, columns, widths, strict=True)
        ]
        yield f"| {' | '.join(cells)} |"
