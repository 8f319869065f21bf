"""Text that is shown: nothing in it can steer a terminal, and no value can pass for a line of ours.

Names, reasons and outputs come from workers, scenarios, stats files and tools. Characters that are not printable
(control characters, also those of C1; directional overrides and other invisible ones; lone surrogates) are written as
escapes of JSON. There are two layers:

- `bench_common.streams.harden_streams` escapes all that the programs write to stdout and stderr, except for line ends
  and tabs. Nothing gets around it, but it cannot tell our line ends from those of a value.
- So what formats a message or a table makes each value `one_line`, or writes what may have several lines as
  `quoted_lines`, all but the first of which begin with a bar. Log records (`LineFormatter`), errors, notifications,
  messages (`bench_common.streams.tell`) and table cells do so for whatever they get.
"""

from __future__ import annotations

import logging
import re
from typing import Final

BAR: Final = "  | "
"""Before each line of a quoted text but the first."""
_KEPT: Final = frozenset("\n\t")
_FEW: Final = 32
_USERINFO: Final = re.compile(r"://[^\s/@]*@")
_PASSWORD: Final = re.compile(r"(:/{1,2}[^\s/@:]*):[^\s/@]*@")


def escape_unprintable(text: str) -> str:
    """Return text with all that is not printable as JSON escapes, except for line feeds and tabs."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    # A report has megabytes of few different characters: to replace each of these is quickest.
    odd = [each for each in set(text) - _KEPT if not each.isprintable()]
    if len(odd) > _FEW:
        return text.translate({ord(each): _escape(each) for each in odd})
    for each in odd:
        text = text.replace(each, _escape(each))
    return text


def _escape(letter: str) -> str:
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))


def escape_lines(text: str) -> str:
    """Return text in lines, with indentation, and without anything else that could steer a terminal."""
    return "\n".join(escape_unprintable(line) for line in text.expandtabs().splitlines())


def one_line(text: str) -> str:
    """Return text as one line: white space of any kind becomes one space, and the rest is escaped.

    The user and password of a URL are left out: messages are shown, logged and kept.
    """
    return escape_unprintable(without_userinfo(" ".join(text.split())))


def without_userinfo(text: str) -> str:
    """Return text with ``***`` in the place of the user and password of each URL in it."""
    return _USERINFO.sub("://***@", text) if "://" in text and "@" in text else text


def without_passwords(text: str) -> str:
    """Return text with ``***`` in the place of the password of each URL in it, also of one taken for a path."""
    return _PASSWORD.sub(r"\1:***@", text) if ":/" in text and "@" in text else text


def flat_line(text: str) -> str:
    """Return text as one line that keeps its spaces, for columns."""
    return escape_unprintable(" ".join(text.expandtabs().splitlines()))


_CUT: Final = " [...] "


def shorten(text: str, limit: int) -> str:
    """Return text in at most `limit` characters: its beginning and its end, either of which may have the reason."""
    if len(text) <= limit:
        return text
    kept = max(0, limit - len(_CUT))
    head = (kept + 1) // 2
    return f"{text[:head]}{_CUT}{text[len(text) - kept + head :]}"[:limit]


def quoted_lines(text: str) -> list[str]:
    """Return the lines of text; those after the first begin with a bar, so that none passes for one of ours."""
    first, *rest = escape_lines(text).split("\n")
    return [first, *(f"{BAR}{line}" for line in rest)]


class LineFormatter(logging.Formatter):
    """Formats log records: whatever a value holds, one record has one line that begins like a record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record with its traceback, if there is one."""
        return "\n".join(quoted_lines(super().format(record)))


def log_to_stderr(level: int) -> None:
    """Have this program's log records written to stderr, from a level on."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter("%(levelname)s: %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


_CREDENTIAL: Final = re.compile(
    r"(?i)((?:[\w-]*(?:token|passw\w*|secret|signature|credential)|\b[\w-]*key|authorization)['\"]?\s*[:=,]\s*)"
    r"(u?'[^']*'|u?\"[^\"]*\"|(?:bearer|basic)\s+[^\s,)}]+|[^\s,)}'\"]+)"
)
_TOKEN: Final = re.compile(r"AUTH_tk[\w.~+/=-]+|gAAAA[\w=-]+|\b[0-9a-f]{32,}\b")


def mask_credentials(text: str) -> str:
    """Return a text in which whatever could be a password, a key or a token is replaced by stars."""
    return _TOKEN.sub("***", without_userinfo(_CREDENTIAL.sub(r"\1***", text)))
