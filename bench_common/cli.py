"""The parser of both command lines, and how what it found becomes options.

`read_options` turns what the parser found into a Struct: no other module sees a namespace of argparse.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

from bench_common.errors import ExitCode, UsageError, did_you_mean
from bench_common.safe_text import one_line
from bench_common.streams import as_called

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from msgspec import Struct

    from bench_common.options import Option

Options = TypeVar("Options", bound="Struct")


def check_choice(value: str, known: Iterable[str], *, what: str) -> str:
    """Return `value` if it is known; otherwise raise `UsageError` with the nearest right spelling."""
    names = sorted(known)
    if value not in names:
        there = f"one of: {', '.join(names)}" if names else "there is none"
        raise UsageError(f"unknown {what} {value!r}{did_you_mean(value, names)}; {there}")
    return value


def add_debug_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--debug``, which both programs have."""
    parser.add_argument("--debug", action="store_true", help="print a traceback with every error")


def engine_option(what: str, *, takes_names: bool = False) -> Option:
    """Return ``--engine``, by which the owner of a worker offers an engine again; its help begins with `what`.

    With `takes_names` the name of an engine is a value, too: a label that stands for itself.
    """
    from bench_common.engine_traits import parse_engine, parse_engine_label
    from bench_common.options import Option

    return Option(
        f"--engine {'ENGINE|' if takes_names else ''}LABEL=ENGINE:PLACE",
        f"{what}, such as new=crun:/opt/crun/bin/crun or rootless=docker:unix:///run/user/1000/docker.sock; "
        "repeatable",
        type=parse_engine if takes_names else parse_engine_label,
    )


def host_settings_option(what: str) -> Option:
    """Return ``--allow-host-settings``, by which the owner of a host lends settings of its kernel."""
    from bench_common.host_settings import setting_names
    from bench_common.options import Option

    more = "such as sys/kernel/rcu_expedited, vm.swappiness, thp or governor; repeatable; needs root"
    return Option("--allow-host-settings NAME[,NAME...]", f"{what}, {more}", action="extend", type=setting_names)


def read_options(kind: type[Options], arguments: argparse.Namespace) -> Options:
    """Return the Struct `kind` with what the parser found: each field takes the argument of its own name.

    A field that no argument is named for and whose type is a Struct is a group of options and is read likewise; such
    a Struct may have a `read_arguments` that does it. Any other one keeps its default: this parser does not have the
    option. Options that can be repeated come as tuples.
    """
    from msgspec import Struct  # help does without it

    from bench_common.options import hints_of, plain_type

    values: dict[str, Any] = {}
    for name in kind.__struct_fields__:
        if hasattr(arguments, name):
            value = getattr(arguments, name)
            values[name] = tuple(value) if isinstance(value, list) else value
            continue
        plain = plain_type(hints_of(kind)[name])
        if isinstance(plain, type) and issubclass(plain, Struct):
            read = getattr(plain, "read_arguments", None)
            values[name] = read_options(plain, arguments) if read is None else read(arguments)
    try:
        return kind(**values)
    except TypeError as error:
        raise TypeError(f"{kind.__name__}: the command lacks an argument: {error}") from error


class StoreOnce(argparse.Action):
    """Stores the value of an option, like ``store``; a second one is an error, not a replacement."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        """Store it."""
        given = parser.given if isinstance(parser, CommandParser) else set[str]()
        if option is not None and self.dest in given:
            raise argparse.ArgumentError(self, f"given twice, the second time as {values!s}: it takes one value")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class WordsAfterDashes(NamedTuple):
    """The words after ``--``, which a parser takes as they are: another program's command line."""

    dest: str
    """The argument that they become, as a list."""
    explain_missing: Callable[[Sequence[str]], str]
    """Returns the message for a command line that has none; takes the words before the dashes."""
    replaced_by: Callable[[Sequence[str], Sequence[str]], bool] = lambda *_: False
    """Whether these positional words are enough without any; the second argument is the whole command line."""


class FirstHelp(NamedTuple):
    """What ``--help`` shows of a parser that has more than a screen can hold; ``--help-all`` shows all of it."""

    usage: str
    """How it is called, without the program's name."""
    parts: dict[str, list[str]]
    """What it shows below each heading: options by a spelling, arguments and sub-commands by their name in help."""
    more: str
    """What stands below them, such as examples; it ends with how to see the rest."""


class _ShowAll(argparse.Action):
    """Prints the whole help and ends the program."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        _values: Any,
        _option: str | None = None,
    ) -> None:
        """Print it."""
        assert isinstance(parser, CommandParser)
        sys.stdout.write(parser.format_all())
        parser.exit()


class CommandParser(argparse.ArgumentParser):
    """Parses a command line; an error is one line that points to ``--help``, not preceded by the whole usage.

    An option that takes one value and comes twice is an error.
    """

    first_help: FirstHelp | None = None
    """None: ``--help`` shows everything."""
    words_after_dashes: WordsAfterDashes | None = None
    """None: the parser takes what stands after ``--`` for positional arguments."""
    explain_unknown: Callable[[str], str] | None = None
    """Returns what is meant by an unknown option (``--repeats``), as the end of the message, or an empty string."""
    explain_misused: Callable[[str], str] | None = None
    """Returns what an option means whose value is missing or wrong (``-s``), likewise."""
    _argv: Sequence[str] = ()

    def __init__(self, *arguments: Any, **given: Any) -> None:
        super().__init__(*arguments, **given)
        self.given: set[str] = set()
        """The `dest` of each option with one value that the present command line has had so far."""
        self.register("action", None, StoreOnce)
        self.register("action", "store", StoreOnce)

    def show_first(self, first: FirstHelp) -> None:
        """Have ``--help`` show this alone, and add ``--help-all``; what it names may be added later."""
        self.first_help = first
        self.add_help_all("show every option, and exit")

    def add_help_all(self, what: str = argparse.SUPPRESS) -> None:
        """Add ``--help-all``; who adds it from habit where ``--help`` has everything need not know."""
        self.add_argument("--help-all", nargs=0, action=_ShowAll, dest="help", default=argparse.SUPPRESS, help=what)

    def format_help(self) -> str:
        """Return what ``--help`` prints."""
        first = self.first_help
        if first is None:
            return self.format_all()
        formatter = self._get_formatter()
        formatter.add_usage(f"{self.prog} {first.usage}".replace("%", "%%"), (), ())
        formatter.add_text(self.description)
        for heading, names in first.parts.items():
            formatter.start_section(heading)
            formatter.add_arguments([self._named(name) for name in names])
            formatter.end_section()
        formatter.add_text(first.more)
        return formatter.format_help()

    def format_all(self) -> str:
        """Return what ``--help-all`` prints: every argument, option and sub-command."""
        return super().format_help()

    def _named(self, name: str) -> argparse.Action:
        """Return an option, an argument or the line of a sub-command; raise `KeyError` if there is none."""
        lists = (action for action in self._actions if isinstance(action, argparse._SubParsersAction))  # noqa: SLF001
        lines = [line for one in lists for line in one._get_subactions()]  # noqa: SLF001  help has no other way
        found = {action.metavar or action.dest: action for action in (*self._actions, *lines)}
        return self._option_string_actions.get(name) or found[name]

    @property
    def arguments(self) -> Sequence[argparse.Action]:
        """Its options and positional arguments, in order."""
        return self._actions

    def has_options(self, words: Iterable[str]) -> bool:
        """Return whether each word that looks like an option is one of this parser, spelled out."""
        return all(word.partition("=")[0] in self._option_string_actions for word in words if word.startswith("-"))

    def sub_commands(self) -> dict[str, CommandParser]:
        """Return the parsers of its sub-commands by name, in order."""
        found = (action.choices for action in self._actions if isinstance(action.choices, dict))
        return {name: parser for choices in found for name, parser in choices.items()}

    def groups(self) -> Iterator[tuple[str, str, Sequence[argparse.Action]]]:
        """Yield the heading, the description and the arguments of each part of its help, without sub-commands."""
        for group in self._action_groups:
            members = group._group_actions  # noqa: SLF001  argparse shows them in no other way
            actions = [action for action in members if not isinstance(action.choices, dict)]
            yield group.title or "", group.description or "", actions

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as usual; reject extra words here, where the sub-command that they belong to is known."""
        tail = self.words_after_dashes
        if tail is not None:
            # argparse would give them to the first argument that takes several.
            given = list(sys.argv[1:] if args is None else args)
            split = given.index("--") if "--" in given else len(given)
            args, after = given[:split], given[split + 1 :]
            is_asked = not after and not {"-h", "--help", "--help-all"}.intersection(args)
            if is_asked and not tail.replaced_by(self._positional_words(args), args):
                self.error(tail.explain_missing(args))
        self._argv = tuple(args or ())
        self.given.clear()
        parsed, rest = super().parse_known_args(args, namespace)
        if tail is not None:
            setattr(parsed, tail.dest, after)
            rest = self._gathered(parsed, rest)
        if rest:
            self._reject_extra(rest)
        return parsed, rest

    def _gathered(self, parsed: argparse.Namespace, rest: list[str]) -> list[str]:
        """Add words that stand apart, behind options, to the argument that takes any number; return what is left."""
        takers = [action.dest for action in self._get_positional_actions() if action.nargs == "*"]
        if not takers or any(word.startswith("-") for word in rest):
            return rest
        setattr(parsed, takers[0], [*getattr(parsed, takers[0]), *rest])
        return []

    def _positional_words(self, words: Sequence[str]) -> list[str]:
        """Return the words that are neither options nor their values."""
        found, skipped = [], 0
        for word in words:
            action = self._option_string_actions.get(word)
            if skipped:
                skipped -= 1
            elif action is not None:
                skipped = action.nargs if isinstance(action.nargs, int) else 1
            elif not word.startswith("-"):
                found.append(word)
        return found

    def _reject_extra(self, rest: Sequence[str]) -> NoReturn:
        flag = next((word.split("=")[0] for word in rest if word.startswith("-")), None)
        if flag is None:
            self.error(f"unexpected argument {rest[0]!r}")
        meant = self.explain_unknown(flag) if self.explain_unknown is not None else ""
        self.error(f"unknown option {flag}{meant or did_you_mean(flag, self._option_string_actions)}")

    def _first_stray_argument(self) -> str | None:
        """Return the first word that is not an option or its value."""
        for before, word in zip(("", *self._argv), self._argv, strict=False):
            action = self._option_string_actions.get(before)
            if not word.startswith("-") and (action is None or action.nargs == 0):
                return word
        return None

    def error(self, message: str) -> NoReturn:
        """Print the message and where to find help on stderr; exit 2."""
        if "invalid choice: '" in message:
            value = message.split("invalid choice: '")[1].split("'", maxsplit=1)[0]
            choices = [part.strip(" '\")") for part in message.rsplit("choose from", maxsplit=1)[-1].split(",")]
            hint = did_you_mean(value, choices)
            what = message.partition(":")[0]
            known = f"one of {', '.join(choices)}"
            if what == "argument SUB-COMMAND":
                if not hint and value.partition("-")[0] in choices:
                    hint = f" (did you mean '{value.replace('-', ' ', 1)}'?)"
                message = f"unknown sub-command {value!r}{hint or f'; {known}'}"
            else:
                message = f"{what}: {value!r}: expected {known}{hint}"
        if self.explain_misused is not None and message.startswith("argument -"):
            message += self.explain_misused(message.split()[1].rstrip(":").split("/")[0])
        if message.endswith("required: SUB-COMMAND"):
            message += f", one of {', '.join(self.sub_commands())}"
        missing = message.removeprefix("the following arguments are required: ").split("/")[0]
        if (
            not self._get_positional_actions()
            and missing in self._option_string_actions
            and (stray := self._first_stray_argument())
        ):
            message += f" (did you mean '{missing} {stray}'?)"
        self.exit(int(ExitCode.USAGE), f"{self.prog}: {one_line(as_called(message))}; see {self.prog} --help\n")
