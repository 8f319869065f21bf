"""What a feature adds to a sub-command of the kernel, such as `doctor`: options, and what the command does with them.

A command that features may extend asks every `CommandExtension` for it that an entry point of
``weighbridge.command_extensions`` names, and knows none of them. For runs there is more to add: see
`bench_master.run_extension`. A feature has ::

    class AgeOptions(Struct, frozen=True):
        age: Annotated[int | None, Option("--age DAYS", "...", type=int)] = None

    class CleanupByAge(CommandExtension):
        command = "cleanup-containers"
        Options = AgeOptions

        def instead(self, options: Any) -> int | None:
            age = options.extensions.of(AgeOptions).age
            return None if age is None else remove_older(age)

    CLEANUP = CleanupByAge()

and in ``pyproject.toml`` ``ages-cleanup = "ages:CLEANUP"``. Extensions are asked in the order of the
names of their entry points. A command calls `add_options` for its parser, `prepare` and `instead` before it does
anything else, and the others where it needs what they return.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from msgspec import Struct

from bench_common.cli import read_options
from bench_common.options import add_options
from bench_master.registered_parts import load_registered

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from typing import Self

    from bench_common.requirements import KindNeed

GROUP: Final = "weighbridge.command_extensions"
EXTENDED: Final = "extended_command"
"""The default of a parser that says which command it is of."""
Own = TypeVar("Own", bound=Struct)


class CommandExtension:
    """What one feature adds to one sub-command; it keeps nothing between the calls."""

    command: ClassVar[str]
    Options: ClassVar[type[Struct]]
    """Its options, each with a default (see `bench_common.options`)."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options to the command."""
        add_options(parser, self.Options)

    def prepare(self, options: Any) -> None:
        """Do what comes before all else; raise `UsageError` where options contradict each other."""

    def instead(self, options: Any) -> int | None:  # noqa: ARG002  see above
        """Do what the options ask for in the place of the command; return the exit code, None if they do not."""
        return None

    def query_flags(self, options: Any) -> AbstractContextManager[Sequence[str]]:  # noqa: ARG002
        """Return further arguments of the query that the command asks the worker, valid within the context."""
        return nullcontext(())

    def needs(self, options: Any) -> Sequence[KindNeed]:  # noqa: ARG002
        """Return further needs of jobs that `doctor` is to check."""
        return ()


class CommandOptions(Struct, frozen=True):
    """The options of all features in one sub-command, each feature's as a Struct of its own."""

    values: tuple[Struct, ...] = ()

    @classmethod
    def read_arguments(cls, arguments: Any) -> Self:
        """Return what the parser found (see `bench_common.cli.read_options`)."""
        command = str(getattr(arguments, EXTENDED))
        return cls(tuple(read_options(one.Options, arguments) for one in command_extensions(command)))

    def of(self, kind: type[Own]) -> Own:
        """Return the options of one feature, by their type; its defaults where no command line was read."""
        return next((one for one in self.values if isinstance(one, kind)), None) or kind()


NO_OPTIONS: Final = CommandOptions()


@cache
def command_extensions(command: str) -> tuple[CommandExtension, ...]:
    """Return what is registered for a sub-command; what cannot be loaded is left out, and told on stderr."""
    return tuple(one for one in _all_extensions() if one.command == command)


@cache
def _all_extensions() -> tuple[CommandExtension, ...]:
    return tuple(load_registered(GROUP, CommandExtension, "extension of a command").values())


def add_extensions(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the options of all features to a sub-command's parser."""
    parser.set_defaults(**{EXTENDED: command})
    for extension in command_extensions(command):
        extension.add_options(parser)


def done_instead(options: Any, command: str) -> int | None:
    """Prepare all features; return the exit code of the one that does what is asked for, None if none does."""
    for extension in command_extensions(command):
        extension.prepare(options)
    codes = (extension.instead(options) for extension in command_extensions(command))
    return next((code for code in codes if code is not None), None)
