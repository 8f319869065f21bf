"""The command line of `bench-master`: one module of `bench_master.commands` for each sub-command."""

from __future__ import annotations

import argparse
import importlib
import logging
import pkgutil
from typing import TYPE_CHECKING, Any, Protocol, cast

from bench_common.cli import CommandParser, VersionAction, add_debug_flag, read_options, run_guarded
from bench_common.errors import ExitCode
from bench_common.safe_text import log_to_stderr
from bench_master import commands

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "bench-master"

EPILOG = """\
First steps:
  bench-master doctor                                   check whether this machine is fit to measure
  bench-master list-scenarios                           list the ready-made scenarios
  bench-master run-scenario -f quickstart --dry-run     print what would run
  bench-master run-scenario -f quickstart --workers 1   run it
  bench-master report-scenario -s FILE.stats.gz         print its report again

Exit codes: 0 ok, 1 a threshold or gate failed, 2 usage or scenario error, 3 infrastructure failed or run incomplete,
4 a gate could not be judged, 130 interrupted.
"""


class Command(Protocol):
    """What a module of `bench_master.commands` offers."""

    NAME: str
    """The sub-command."""
    HELP: str
    """What it does, for ``--help``."""
    Options: type[Any]
    """The dataclass that holds its command line."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def run(self, options: Any) -> int:
        """Run with these `Options`; return the exit code."""


def all_commands() -> list[Command]:
    """Import and return every sub-command, by name."""
    modules = [
        importlib.import_module(f"{commands.__name__}.{info.name}")
        for info in pkgutil.iter_modules(commands.__path__)
    ]
    return sorted((cast("Command", module) for module in modules if hasattr(module, "NAME")), key=lambda c: c.NAME)


def named_command(argv: Sequence[str]) -> Command | None:
    """Import and return the sub-command that `argv` begins with; None if its first word names none."""
    word = next((word for word in argv if not word.startswith("-")), "")
    name = word.replace("-", "_")
    if name not in {info.name for info in pkgutil.iter_modules(commands.__path__)}:
        return None
    module = importlib.import_module(f"{commands.__name__}.{name}")
    return cast("Command", module) if getattr(module, "NAME", None) == word else None


def build_parser(only: Command | None = None) -> CommandParser:
    """Return the whole parser; what it returns has the module to run as `command`.

    With `only` it has that sub-command alone: to import all others takes longer than many commands.
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
    add_debug_flag(parser)
    subparsers = parser.add_subparsers(metavar="SUB-COMMAND", required=True, parser_class=CommandParser)
    for command in all_commands() if only is None else [only]:
        sub = subparsers.add_parser(
            command.NAME,
            help=command.HELP,
            description=command.HELP[0].upper() + command.HELP[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        # The global switches work on either side of the sub-command.
        sub.add_argument("-v", "--verbose", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        sub.add_argument("-q", "--quiet", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        command.configure(sub)
        sub.set_defaults(command=command)
    return parser


def run_command_line(argv: Sequence[str]) -> int:
    """Parse `argv` (without the program's name), run the sub-command, return the exit code.

    Who gives no arguments at all wants to know what there is, and gets the help.
    """
    if not argv:
        build_parser().print_help()
        return int(ExitCode.OK)
    arguments = build_parser(named_command(argv)).parse_args(argv)
    level = logging.INFO if arguments.verbose else logging.WARNING
    log_to_stderr(logging.ERROR if arguments.quiet else level)
    command: Command = arguments.command
    options = read_options(command.Options, arguments)
    return run_guarded(lambda: command.run(options), program=PROGRAM, debug=arguments.debug)
