"""What generated pages are written with: text that is only text, headings, literal blocks."""

from __future__ import annotations

import re

_LITERAL = re.compile(r"`([^`]+)`|(?<![\w-])(--?[a-zA-Z][\w-]*)")
_SPECIAL = re.compile(r"([\\*_|`<>])")


def plain(text: str) -> str:
    """Return text as reStructuredText in which only names in backquotes and flags are marked up, as code."""
    text = " ".join(text.split())
    parts, end = [], 0
    for match in _LITERAL.finditer(text):
        # Beside a letter, markup needs an escaped blank.
        parts += [_escape(text[end : match.start()]), rf"\ ``{match[1] or match[2]}``\ "]
        end = match.end()
    return "".join([*parts, _escape(text[end:])]).strip()


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)


def heading(text: str, underline: str = "=") -> str:
    """Return a heading with a blank line after it."""
    return f"{text}\n{underline * len(text)}\n"


def code(text: str) -> str:
    """Return a literal block that no lexer colours."""
    lines = "\n".join(f"   {line}".rstrip() for line in text.strip("\n").splitlines())
    return f".. code-block:: text\n\n{lines}\n"


def indented(text: str) -> str:
    """Return text as the content of a directive."""
    return "\n".join(f"   {line}".rstrip() for line in text.splitlines())
