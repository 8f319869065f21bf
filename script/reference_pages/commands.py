"""The reference of commands, from the parsers that read them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from bench_common.cli import CommandParser
from bench_master.cli import build_parser
from bench_worker.cli import build_parser as build_worker_parser
from reference_pages.rst import code, document, entry, heading, paragraph, plain


def page() -> str:
    """Return the document."""
    return document(
        "Commands",
        paragraph(
            "Every command of the two programs with its arguments and options, as ``bench-master COMMAND "
            "--help-all`` prints them. ``weighbridge`` is another name of ``bench-master``. The exit codes are in "
            "the `user guide <../user-guide.rst>`_."
        ),
        *(part for parser in all_parsers() for part in _section(parser)),
    )


def all_parsers() -> Iterator[CommandParser]:
    """Yield the parsers of both programs, and each followed by those of its sub-commands."""
    waiting = [build_parser(), build_worker_parser()]
    while waiting:
        parser = waiting.pop(0)
        yield parser
        waiting = [*parser.sub_commands().values(), *waiting]


def _section(parser: CommandParser) -> Iterator[str]:
    """Yield the parts of one command: purpose, usage, arguments by group, and what its help ends with."""
    yield heading(_title(parser))
    yield paragraph(plain(parser.description or ""))
    if parser.usage:
        yield code(parser.usage.replace("%(prog)s", parser.prog).replace("\n       ", "\n"))
    for title, text, actions in parser.groups():
        shown = [action for action in actions if action.help != argparse.SUPPRESS and action.dest != "help"]
        if shown:
            yield f"**{title[:1].upper()}{title[1:]}**" + (f": {plain(text)}" if text else "")
            yield "\n\n".join(
                entry(f"``{invocation(action)}``", plain(at_home(_words(parser, action)))) for action in shown
            )
    commands = parser.sub_commands()
    if commands:
        yield paragraph("Sub-commands: " + ", ".join(f"`{_title(one)}`_" for one in commands.values()) + ".")
    if parser.epilog:
        yield code(at_home(parser.epilog))


def _title(parser: CommandParser) -> str:
    return parser.prog.removeprefix("bench-master ")


def _words(parser: CommandParser, action: argparse.Action) -> str:
    words = (action.help or "") % {**vars(action), "prog": parser.prog}
    if action.choices and not action.option_strings:
        words += f"; one of {', '.join(map(str, action.choices))}"
    return words


def invocation(action: argparse.Action) -> str:
    """Return how an argument is written, such as ``-f X.yaml, --file X.yaml``."""
    value = "" if action.nargs == 0 else _value(action)
    return ", ".join(f"{name} {value}".strip() for name in action.option_strings) or value


def _value(action: argparse.Action) -> str:
    if action.metavar:
        return " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    if action.choices and action.option_strings:
        return "{" + "|".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def at_home(text: str) -> str:
    """Return text without the home directory of who writes the reference."""
    return re.sub(rf"{re.escape(str(Path.home()))}(?=/|\b)", "~", text)
