"""The reference of commands, from the parsers that read them: a page for each, an anchor for each option."""

from __future__ import annotations

import argparse
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from rst_text import code, heading, indented, plain

from bench_master.cli import build_parser
from bench_worker.cli import build_parser as build_worker_parser

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bench_common.cli import CommandParser


def pages() -> dict[str, str]:
    """Return the text of each page by its path below docs/generated."""
    return {f"commands/{page_of(parser)}.rst": _page(parser) for parser in all_parsers()}


def all_parsers() -> Iterator[CommandParser]:
    """Yield the parsers of both programs and of their sub-commands, and of those below them."""
    waiting = [build_parser(), build_worker_parser()]
    for parser in waiting:
        yield parser
        waiting += parser.sub_commands().values()


def page_of(parser: CommandParser) -> str:
    """Return the name of a command's page, such as ``archive-add``."""
    return _title(parser).replace(" ", "-")


def _title(parser: CommandParser) -> str:
    return parser.prog.removeprefix("bench-master ")


def _page(parser: CommandParser) -> str:
    """Return the page of one command: purpose, usage, arguments by group, and what its help ends with."""
    parts = [
        heading(_title(parser)),
        plain(parser.description or ""),
        code(at_home(_usage(parser))),
        f".. program:: {parser.prog}",
        *_groups(parser),
    ]
    commands = parser.sub_commands()
    if commands:
        listed = "\n".join(f"- :doc:`{page_of(sub)}`: {plain(_help(parser, name))}" for name, sub in commands.items())
        parts += [heading("Sub-commands", "-"), listed, _navigation(map(page_of, commands.values()))]
    if parser.epilog:
        parts += [heading("Notes", "-"), code(at_home(parser.epilog))]
    if parser.prog != "bench-worker":
        parts.append("The exit codes of all commands: `overview <../../overview.rst#exit-codes>`_.")
    return "\n\n".join(parts) + "\n"


def _usage(parser: CommandParser) -> str:
    """Return the usage as argparse wraps it, without the word before it."""
    return textwrap.dedent(parser.format_usage().replace("usage: ", " " * len("usage: "), 1))


def _navigation(names: Iterable[str]) -> str:
    return "\n".join([".. toctree::", "   :hidden:", "", *(f"   {name}" for name in names)])


def _help(parser: CommandParser, name: str) -> str:
    """Return the line that the list of sub-commands has for one of them."""
    actions = [action for action in parser._actions if isinstance(action.choices, dict)]  # noqa: SLF001
    return next(
        (choice.help or "" for action in actions for choice in action._get_subactions() if choice.dest == name),  # noqa: SLF001
        "",
    )


def _groups(parser: CommandParser) -> Iterator[str]:
    for title, text, actions in parser.groups():
        shown = [action for action in actions if action.help != argparse.SUPPRESS]
        if not shown:
            continue
        yield heading(title[:1].upper() + title[1:], "-")
        if text:
            yield plain(text)
        for action in shown:
            yield f".. option:: {invocation(action)}\n\n{indented(plain(at_home(_expanded(parser, action))) or '..')}"


def _expanded(parser: CommandParser, action: argparse.Action) -> str:
    words = (action.help or "") % {**vars(action), "prog": parser.prog}
    if action.choices and not action.option_strings:
        words += f"; one of {', '.join(map(str, action.choices))}"
    return words


def invocation(action: argparse.Action) -> str:
    """Return how an argument is written, such as ``-f X.yaml, --file X.yaml``."""
    value = "" if action.nargs == 0 else _value(action)
    return ", ".join(f"{name} {value}".strip() for name in action.option_strings) or value


def anchors(parser: CommandParser, action: argparse.Action) -> list[str]:
    """Return the ids of an argument on its command's page: one for each spelling of an option.

    Sphinx makes them of the directive ``option``: an id has a hyphen for each run of other characters, such as ``|``.
    """
    words = action.option_strings or [f"arg-{_value(action)}"]
    return [re.sub(r"[^A-Za-z0-9._]+", "-", f"cmdoption-{parser.prog}-{word.lstrip('-')}") for word in words]


def _value(action: argparse.Action) -> str:
    if action.metavar:
        return " ".join(action.metavar) if isinstance(action.metavar, tuple) else action.metavar
    if action.choices and action.option_strings:
        return "{" + "|".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def at_home(text: str) -> str:
    """Return text without the home directory of who builds the site."""
    return re.sub(rf"{re.escape(str(Path.home()))}(?=/|\b)", "~", text)
