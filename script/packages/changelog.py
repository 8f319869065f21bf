"""Says whether the changelog has a section for a release: ``changelog.py CHANGELOG VERSION``.

The newest section is the first; its title is the version and, in parentheses, the day or ``unreleased``.
Prints what stands in the parentheses. Exit code 2 with a message if the first section is another version's.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

_TITLE: Final = re.compile(r"^(\d+\.\d+\.\d+\S*) \((\d{4}-\d{2}-\d{2}|unreleased)\)\n=+$", re.MULTILINE)


def newest(text: str) -> tuple[str, str]:
    """Return version and day of the first section; raise `ValueError` if no title is like ``1.2.3 (2026-01-31)``."""
    found = _TITLE.search(text)
    if found is None:
        raise ValueError("no title of the form '1.2.3 (2026-01-31)' or '1.2.3 (unreleased)'")
    return found[1], found[2]


def main(path: str, expected: str) -> int:
    """Print the day of the release `expected`."""
    try:
        version, day = newest(Path(path).read_text("utf-8"))
    except ValueError as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 2
    if version != expected:
        print(f"{path}: the first section is that of {version}; add one for {expected}", file=sys.stderr)
        return 2
    print(day)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
