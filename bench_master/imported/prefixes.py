"""What collectors of logs put in front of each line, taken off again: the time, a container's name, syslog's head.

A tool's output that went through ``docker logs -t``, Compose, a CRI or the journal has it, and no parser knows such a
line. Only forms that are known go, and only from a text in which lines begin with them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_TIME: Final = r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?"
_END: Final = r"(?: |$)"
_PREFIX: Final = re.compile(
    rf"[\w.-]{{1,128}} +\|{_END}(?:{_TIME}{_END})?"  # Compose, with times or without
    rf"|{_TIME}{_END}(?:(?:stdout|stderr) [FP]{_END})?"  # `docker logs -t`, `ts`; a CRI's log
    rf"|[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d \S{{1,128}} [^\s:]{{1,128}}:{_END}",  # syslog, the journal
    re.ASCII,
)


def without_prefixes(lines: Sequence[str]) -> list[str]:
    """Return the lines less what a collector put in front of them; lines that have no such thing stay as they are."""
    return [_PREFIX.sub("", line, count=1) if _PREFIX.match(line) else line for line in lines]
