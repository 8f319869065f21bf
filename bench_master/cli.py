"""The command line of `bench-master`: one module of `bench_master.commands` for each sub-command."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
import textwrap
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

from bench_common.cli import CommandParser, FirstHelp, add_debug_flag, read_options
from bench_common.errors import ExitCode, UsageError
from bench_common.extras import missing_extra
from bench_common.guard import run_guarded
from bench_common.safe_text import log_to_stderr
from bench_common.streams import PROGRAM, program_name
from bench_common.version import VersionAction
from bench_master.commands import CommandEntry, all_commands, find_command, own_commands
from bench_master.formatting import page_of
from bench_master.terminal import COLOR_MODES, screen_width

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

COLOR_FLAG = "--color"
"""The one switch before a sub-command that has a value."""

WIDTH: Final = 100
"""Columns of the text below the sub-commands."""
FIRST_COMMANDS: Final = {
    "set up": ("doctor", "build-images", "list"),
    "measure": ("weigh", "init", "run-scenario"),
    "see what was measured": ("report-scenario", "compare"),
}
"""What ``--help`` shows: the sub-commands of the first day, in the order in which they are needed."""
FIRST_STEPS: Final = """\
First steps:
  bench-master doctor                                 # check whether this machine is fit to measure
  bench-master weigh docker native -- sleep 1         # compare a command under two engines
  bench-master list scenarios                         # list the ready-made scenarios
  bench-master init                                   # write a scenario of your own, by three questions
  bench-master run-scenario -f quickstart --dry-run   # print what would run
  bench-master run-scenario -f quickstart             # run it
  bench-master report-scenario -s FILE.stats.gz       # print its report again
"""
EPILOG: Final = f"""\
{FIRST_STEPS}
Exit codes: 0 ok, 1 a threshold or gate failed, or jobs did, 2 usage or scenario error, 3 infrastructure missing or
failed, or run incomplete, 4 a gate could not be judged, 130 interrupted.
"""


class Command(Protocol):
    """What a module of `bench_master.commands` offers; one that is a group has ``members()`` instead.

    It may have an ``EPILOG``, which ends its help, and a ``configure(parser)`` where the parser takes more than the
    options that `Options` declares.
    """

    Options: type[Any]
    """The Struct that holds its command line (see `bench_common.options`)."""

    def run(self, options: Any) -> int:
        """Run with these `Options`; return the exit code."""


class MemberEntry(NamedTuple):
    """A sub-command of a group, which need not be loaded to be listed."""

    help: str
    """What it does, for ``--help``."""
    load: Callable[[], Command]


def load_command(name: str) -> Command:
    """Import and return the module of a sub-command; raise `KeyError` for a name that is none."""
    entry = find_command(name)
    if entry is None:
        raise KeyError(name)
    return cast("Command", importlib.import_module(entry.module))


def named_commands(argv: Sequence[str]) -> list[str]:
    """Return the sub-command that `argv` names, with the word behind it, which names one of its own if it is a group.

    It is the first word that is no option, if it is the name of one; without it nothing is returned.
    """
    words = [word for before, word in pairwise(["", *argv]) if word[:1] != "-" and before != COLOR_FLAG]
    return words[:2] if words and find_command(words[0]) else []


def build_parser(words: Sequence[str] | None = None) -> CommandParser:
    """Return the parser; what it returns has the module to run as `command`.

    Raises `UsageError` if what `words` name needs an extra that is not installed; among all it has no options.

    `words` are those of `named_commands`. Of the other sub-commands (None: there are none) it knows only what they
    do: to import all of them takes longer than many commands. With words it knows that one, and those that need no
    other package to be asked.
    """
    loaded = None if words is None else words[:1]
    parser = CommandParser(
        prog=program_name(),
        description="Weighbridge: weigh a loaded container where it stands.",
        epilog=EPILOG.replace(PROGRAM, program_name()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=VersionAction, help="print versions and the commit, and exit")
    parser.add_argument("-v", "--verbose", action="store_true", help="show all of a report; log more to stderr")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only the answer, results and errors")
    parser.add_argument(
        COLOR_FLAG,
        choices=COLOR_MODES,
        default="auto",
        help="colour verdicts, failures and warnings (default: auto, on a terminal unless NO_COLOR is set)",
    )
    parser.add_argument("--no-pager", action="store_true", help="print long reports without a pager (see PAGER)")
    add_debug_flag(parser)
    parser.show_first(_first_commands(()))
    subparsers = parser.add_subparsers(metavar="SUB-COMMAND", required=True, parser_class=CommandParser)
    named = {name: entry for name in loaded or () if (entry := find_command(name)) is not None}
    known = own_commands() | named if named else all_commands()
    for name, entry in known.items():
        if loaded is None or name in loaded:
            try:
                _configure(_add_parser(subparsers, name, entry.help), load_command(name), words)
            except ModuleNotFoundError as error:
                refusal = missing_extra(error)
                if refusal is None:
                    raise
                if loaded is not None:
                    raise refusal from error
        else:
            # Only a line of the help: its options would cost milliseconds.
            subparsers.add_parser(name, help=entry.help, add_help=False)
    parser.first_help = _first_commands(parser.sub_commands())
    return parser


def _first_commands(names: Collection[str]) -> FirstHelp:
    """Return the help of the program: what it begins with, and the names of the rest."""
    parts = {heading: [one for one in listed if one in names] for heading, listed in FIRST_COMMANDS.items()}
    shown = {one for listed in parts.values() for one in listed}
    others = ", ".join(sorted(set(names) - shown))
    more = textwrap.fill(f"More commands: {others}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return FirstHelp(
        "SUB-COMMAND [OPTIONS]",
        {heading: listed for heading, listed in parts.items() if listed} | {"options": ["-v", "-q", "--version"]},
        f"{FIRST_STEPS}\n{more}\n\nWhat each of them does, all options and exit codes: {PROGRAM} --help-all\n"
        f"The options of a sub-command: {PROGRAM} SUB-COMMAND --help\n".replace(PROGRAM, program_name()),
    )


def _add_parser(subparsers: Any, name: str, what: str) -> CommandParser:
    sub: CommandParser = subparsers.add_parser(
        name,
        help=what,
        description=what[0].upper() + what[1:] + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # The global switches work on either side of the sub-command.
    sub.add_argument("-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    sub.add_argument("-q", "--quiet", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    sub.add_argument("--color", choices=COLOR_MODES, default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    sub.add_argument("--no-pager", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return sub


def _configure(parser: CommandParser, command: Command, words: Sequence[str] | None) -> None:
    """Add what a command has: the sub-commands of a group, or its arguments; of a group only what `words` name."""
    members = members_of(command)
    parser.epilog = getattr(command, "EPILOG", "").replace(PROGRAM, program_name()) or None
    if not members:
        configure(parser, command)
        parser.set_defaults(command=command)
        if parser.first_help is None:
            parser.add_help_all()
        return
    parser.add_help_all()
    subparsers = parser.add_subparsers(metavar="SUB-COMMAND", required=True, parser_class=CommandParser)
    for name, member in members.items():
        if words is None or name in words[1:]:
            _configure(_add_parser(subparsers, name, member.help), member.load(), words)
        else:
            subparsers.add_parser(name, help=member.help, add_help=False)


def configure(parser: CommandParser, command: Any) -> None:
    """Add the options of one command to its parser."""
    from bench_common.options import add_options  # help does without it

    add = getattr(command, "configure", None)
    if add is None:
        add_options(parser, command.Options)
    else:
        add(parser)


def members_of(command: Command) -> Mapping[str, MemberEntry]:
    """Return the sub-commands of a command that is a group, by name; none of any other one.

    A group has ``members()``, which returns for each either a `CommandEntry` or a command with its ``help``.
    """
    listed = getattr(command, "members", None)
    return {} if listed is None else {name: _member(one) for name, one in listed().items()}


def _member(one: Any) -> MemberEntry:
    if isinstance(one, CommandEntry):
        return MemberEntry(one.help, lambda: cast("Command", importlib.import_module(one.module)))
    return MemberEntry(one.help, lambda: cast("Command", one))


def _refuse(error: UsageError) -> int:
    raise error


def run_command_line(argv: Sequence[str]) -> int:
    """Parse `argv` (without the program's name), run the sub-command, return the exit code.

    Who gives no arguments at all wants to know what there is, and gets the help.
    """
    if not argv:
        build_parser(()).print_help()
        return int(ExitCode.OK)
    try:
        parser = build_parser(named_commands(argv))
    except UsageError as error:
        return run_guarded(partial(_refuse, error), program=program_name(), debug="--debug" in argv)
    arguments = parser.parse_args(argv)
    level = logging.INFO if arguments.verbose else logging.WARNING
    log_to_stderr(logging.ERROR if arguments.quiet else level)
    from bench_master.progress_message import show_progress_messages

    command: Command = arguments.command
    options = read_options(command.Options, arguments)
    with page_of(screen_width(sys.stdout)), show_progress_messages(quiet=arguments.quiet):
        return run_guarded(lambda: command.run(options), program=program_name(), debug=arguments.debug)
