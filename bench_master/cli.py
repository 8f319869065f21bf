"""The command line of `bench-master`: one module of `bench_master.commands` for each sub-command."""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol, cast

from bench_common.cli import CommandParser, add_debug_flag, read_options
from bench_common.errors import ExitCode
from bench_common.guard import run_guarded
from bench_common.safe_text import log_to_stderr
from bench_common.version import VersionAction
from bench_master.commands import all_commands, find_command, own_commands
from bench_master.formatting import page_of
from bench_master.terminal import COLOR_MODES, screen_width

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

PROGRAM = "bench-master"
COLOR_FLAG = "--color"
"""The one switch before a sub-command that has a value."""

EPILOG = """\
First steps:
  bench-master doctor                                 # check whether this machine is fit to measure
  bench-master weigh docker native -- sleep 1         # compare a command under two engines
  bench-master list-scenarios                         # list the ready-made scenarios
  bench-master init                                   # write a scenario of your own, by three questions
  bench-master run-scenario -f quickstart --dry-run   # print what would run
  bench-master run-scenario -f quickstart             # run it
  bench-master report-scenario -s FILE.stats.gz       # print its report again

Exit codes: 0 ok, 1 a threshold or gate failed, or jobs did, 2 usage or scenario error, 3 infrastructure missing or
failed, or run incomplete, 4 a gate could not be judged, 130 interrupted.
"""


class Command(Protocol):
    """What a module of `bench_master.commands` offers; one that is a group has ``members()`` instead."""

    Options: type[Any]
    """The Struct that holds its command line."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, options: Any) -> int:
        """Run with these `Options`; return the exit code."""


class Member(Command, Protocol):
    """A sub-command of a group."""

    help: str
    """What it does, for ``--help``."""


def load_command(name: str) -> Command:
    """Import and return the module of a sub-command; raise `KeyError` for a name that is none."""
    entry = find_command(name)
    if entry is None:
        raise KeyError(name)
    return cast("Command", importlib.import_module(entry.module))


def named_commands(argv: Sequence[str]) -> list[str]:
    """Return the sub-command that `argv` names: the first word that is no option, if it is the name of one."""
    words = [word for before, word in pairwise(["", *argv]) if word[:1] != "-" and before != COLOR_FLAG]
    return words[:1] if words and find_command(words[0]) else []


def build_parser(loaded: Collection[str] | None = None) -> CommandParser:
    """Return the parser; what it returns has the module to run as `command`.

    Of sub-commands that are not `loaded` (None: all are) it knows only what they do: to import all of them takes
    longer than many commands. If some are, it knows only them and those that need no other package to be asked.
    """
    parser = CommandParser(
        prog=PROGRAM,
        description="Weighbridge: weigh a loaded container where it stands.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=VersionAction, help="print versions and the commit, and exit")
    parser.add_argument("-v", "--verbose", action="store_true", help="show all of a report; log more to stderr")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only verdicts, results and errors")
    parser.add_argument(
        COLOR_FLAG,
        choices=COLOR_MODES,
        default="auto",
        help="colour verdicts, failures and warnings (default: auto, on a terminal unless NO_COLOR is set)",
    )
    parser.add_argument("--no-pager", action="store_true", help="print long reports without a pager (see PAGER)")
    add_debug_flag(parser)
    subparsers = parser.add_subparsers(metavar="SUB-COMMAND", required=True, parser_class=CommandParser)
    named = {name: entry for name in loaded or () if (entry := find_command(name)) is not None}
    known = own_commands() | named if named else all_commands()
    for name, entry in known.items():
        if loaded is None or name in loaded:
            _configure(_add_parser(subparsers, name, entry.help), load_command(name))
        else:
            # Only a line of the help: its options would cost milliseconds.
            subparsers.add_parser(name, help=entry.help, add_help=False)
    return parser


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


def _configure(parser: CommandParser, command: Command) -> None:
    """Add what a command has: the sub-commands of a group, or its arguments."""
    members = members_of(command)
    if not members:
        command.configure(parser)
        parser.set_defaults(command=command)
        return
    parser.epilog = getattr(command, "EPILOG", None)
    subparsers = parser.add_subparsers(metavar="SUB-COMMAND", required=True, parser_class=CommandParser)
    for name, member in members.items():
        _configure(_add_parser(subparsers, name, member.help), member)


def members_of(command: Command) -> Mapping[str, Member]:
    """Return the sub-commands of a command that is a group, by name; none of any other one."""
    listed = getattr(command, "members", None)
    return cast("Mapping[str, Member]", listed()) if listed is not None else {}


def single_commands() -> dict[str, Command]:
    """Return every command that runs by all the words that name it, such as ``archive add``."""
    found: dict[str, Command] = {}
    for name in all_commands():
        command = load_command(name)
        members = members_of(command)
        found |= {f"{name} {word}": member for word, member in members.items()} if members else {name: command}
    return found


def run_command_line(argv: Sequence[str]) -> int:
    """Parse `argv` (without the program's name), run the sub-command, return the exit code.

    Who gives no arguments at all wants to know what there is, and gets the help.
    """
    if not argv:
        build_parser(()).print_help()
        return int(ExitCode.OK)
    arguments = build_parser(named_commands(argv)).parse_args(argv)
    level = logging.INFO if arguments.verbose else logging.WARNING
    log_to_stderr(logging.ERROR if arguments.quiet else level)
    from bench_master.progress_message import show_progress_messages

    command: Command = arguments.command
    options = read_options(command.Options, arguments)
    with page_of(screen_width(sys.stdout)), show_progress_messages(quiet=arguments.quiet):
        return run_guarded(lambda: command.run(options), program=PROGRAM, debug=arguments.debug)
