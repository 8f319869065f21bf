"""`bench-master man-page`: print the manual page, built from the parser's own texts."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from msgspec import Struct

from bench_common import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_common.cli import CommandParser


_EPILOG = """\
To install it:
  bench-master man-page > ~/.local/share/man/man1/bench-master.1
"""


class Options(Struct, frozen=True):
    """The command line of `man-page`."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's epilog; it has no arguments."""
    parser.epilog = _EPILOG


def run(options: Options) -> int:
    """Print the page."""
    del options
    from bench_master.cli import build_parser

    sys.stdout.write("\n".join(man_page(build_parser())) + "\n")
    return 0


def man_page(parser: CommandParser) -> Iterator[str]:
    """Yield the lines of the page of `parser` and its sub-commands, for ``man -l`` or groff."""
    name, commands = parser.prog, all_sub_commands(parser)
    title, _, summary = (parser.description or "").partition(": ")
    yield f'.TH {name.upper()} 1 "" "{_escape(title)} {_escape(__version__)}"'
    yield ".SH NAME"
    yield f"{_escape(name)} \\- {_escape(summary.rstrip('.'))}"
    yield ".SH SYNOPSIS"
    yield f".B {_escape(name)}"
    yield r"[\fIoptions\fR] \fIsub-command\fR [\fIarguments\fR]"
    yield ".SH DESCRIPTION"
    yield f"{_escape(parser.description or '')} Each sub-command prints its own help with"
    yield r".BR \-\-help ."
    yield from _preformatted(parser.epilog)
    yield ".SH OPTIONS"
    yield from _groups(parser)
    yield ".SH SUB-COMMANDS"
    for command, sub in commands.items():
        yield f".SS {_escape(command)}"
        yield _escape(sub.description or "")
        yield ".PP"
        usage = re.sub(r"\s+", " ", sub.format_usage().removeprefix("usage: ")).strip()
        yield _escape(usage)
        yield from _groups(sub)
        yield from _preformatted(sub.epilog)


def all_sub_commands(parser: CommandParser, words: str = "") -> dict[str, CommandParser]:
    """Return the parsers of the sub-commands by name; members of a group follow it, after its name."""
    found: dict[str, CommandParser] = {}
    for name, sub in parser.sub_commands().items():
        found[f"{words}{name}"] = sub
        found |= all_sub_commands(sub, f"{words}{name} ")
    return found


def _groups(parser: CommandParser) -> Iterator[str]:
    """Yield the arguments and options, under the headings that help has."""
    for heading, text, actions in parser.groups():
        shown = [action for action in actions if action.help != argparse.SUPPRESS]
        if not shown:
            continue
        yield ".PP"
        yield f"\\fB{_escape(heading)}\\fR" + (f": {_escape(text)}" if text else "")
        for action in shown:
            yield ".TP"
            yield _invocation(action)
            yield _escape((action.help or "") % {**vars(action), "prog": parser.prog}) or r"\&"


def _preformatted(text: str | None) -> Iterator[str]:
    if text:
        yield from (".PP", ".nf", *(_escape(line) for line in text.rstrip().splitlines()), ".fi")


def _invocation(action: argparse.Action) -> str:
    """Return how an argument is written, such as ``-f X.yaml, --file X.yaml``."""
    value = ""
    if action.nargs != 0:
        given = action.metavar or (action.choices and "{" + ",".join(map(str, action.choices)) + "}") or action.dest
        value = f"\\fI{_escape(str(given))}\\fR"
    names = [f"\\fB{_escape(name)}\\fR" for name in action.option_strings]
    return ", ".join(f"{name} {value}".strip() for name in names) or value


def _escape(text: str) -> str:
    """Return text for troff: what it takes for a request or an escape is neither."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("\n", " ")
    return rf"\&{escaped}" if escaped[:1] in (".", "'") else escaped
