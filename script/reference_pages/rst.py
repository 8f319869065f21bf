"""What generated documents are written with: text that is only text, headings, entries of lists, literal blocks."""

from __future__ import annotations

import re
import textwrap

_LITERAL = re.compile(r"``?([^`]+)``?|(?<![\w-])(--?[a-zA-Z][\w-]*)")
_SPECIAL = re.compile(r"([\\*_|`<>])")
_COLUMNS = 120


def plain(text: str) -> str:
    """Return text as reStructuredText in which only names in backquotes and flags are marked up, as code."""
    text = " ".join(text.split())
    parts, end = [], 0
    for match in _LITERAL.finditer(text):
        before, after = text[end : match.start()], text[match.end() : match.end() + 1]
        # Markup needs an escaped blank where it stands beside a letter.
        left = "" if not before or before[-1] in " '\"([{-/:" else "\\ "
        right = "" if not after or after in " '\")]}-/:.,;!?" else "\\ "
        parts += [_SPECIAL.sub(r"\\\1", before), f"{left}``{match[1] or match[2]}``{right}"]
        end = match.end()
    return "".join([*parts, _SPECIAL.sub(r"\\\1", text[end:])])


def paragraph(text: str, indent: str = "") -> str:
    """Return marked-up text in lines of a document's width."""
    return textwrap.fill(
        text,
        _COLUMNS,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def entry(term: str, *texts: str) -> str:
    """Return an entry of a definition list: a term, and paragraphs of marked-up text, or of none."""
    return "\n\n".join(
        [f"{term}\n{paragraph(texts[0] or '..', '   ')}", *(paragraph(one, "   ") for one in texts[1:])]
    )


def heading(text: str, underline: str = "=", target: str = "") -> str:
    """Return a heading, behind a target for links."""
    return (f".. _{target}:\n\n" if target else "") + f"{text}\n{underline * len(text)}"


def code(text: str) -> str:
    """Return a literal block."""
    return "::\n\n" + "\n".join(f"   {line}".rstrip() for line in text.strip("\n").splitlines())


def document(title: str, *parts: str) -> str:
    """Return a document with a list of its sections."""
    rule = "=" * len(title)
    contents = ".. contents::\n   :local:\n   :depth: 1"
    made = ".. Written by script/reference."
    return "\n\n".join([made, f"{rule}\n{title}\n{rule}", parts[0], contents, *parts[1:]]) + "\n"
