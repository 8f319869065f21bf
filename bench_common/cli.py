"""What the command lines of master and worker share: standard streams, exit codes, the parser, types of arguments.

A value that the other side would silently drop (a port that wraps round, a name longer than a message may carry) is
refused here, before anything starts. `read_options` turns what the parser found into a dataclass: no other module
sees a namespace of argparse.

An IPv6 address stands in brackets where a port follows it (RFC 3986), and nowhere else; both programs accept it with
and without them.
"""

from __future__ import annotations

import argparse
import codecs
import errno
import functools
import io
import ipaddress
import json
import os
import platform
import re
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO, TypeVar, get_type_hints

from bench_common.errors import ExitCode, ScenarioError, UsageError, WeighbridgeError, did_you_mean
from bench_common.limits import ADVICE
from bench_common.safe_text import escape_unprintable, flat_line, one_line, quoted_lines
from bench_common.startup import release_collector, restore_sigint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")

ESCAPE: Final = "weighbridge-escape"
_COMMIT_CHARS: Final = 12
_GIT_TIMEOUT_S: Final = 5.0


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Return characters that an encoding cannot represent as JSON escapes, and where to continue."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True)), error.end


codecs.register_error(ESCAPE, _escape_unencodable)


def harden_streams() -> None:
    """Make writing to the standard streams safe from faults that are not the command's.

    A stream that the caller closed (``>&-``) is redirected to /dev/null: otherwise the next file or socket would get
    its number. Output that stderr rejects, because its reader is gone or its disk is full, is dropped: no run may end
    because nobody watches it. A character that the caller's encoding cannot represent is escaped as in JSON: a report
    must not end in the middle of a name, and JSON must stay JSON. So is everything that could steer a terminal.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number: this one
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  stays open
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPE)
            kind = _name_stream_in_errors if name == "stdout" else _ignore_write_errors
            escape_output(stream)
            for method in ("write", "flush"):
                setattr(stream, method, kind(getattr(stream, method), name))


def silence_interrupts() -> None:
    """Keep the event loop, which takes Ctrl-C for an error, from printing a traceback for it."""
    from gevent.hub import Hub

    Hub.NOT_ERROR = (*Hub.NOT_ERROR, KeyboardInterrupt)


def honors_sighup() -> bool:
    """Whether closing the terminal ends this process: not if it was started under ``nohup``."""
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN


def run_guarded(command: Callable[[], int], *, program: str, debug: bool) -> int:
    """Run `command`; print an error as one message on stderr; return the exit code.

    With `debug` an error also prints its traceback. Ctrl-C gives 130; a closed output pipe ends the command silently.
    """
    try:
        restore_sigint()
        release_collector()
        status = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        if _stdout_is_blocked():
            discard_output()  # its reader, such as a pager, has stopped reading
        sys.stderr.write(f"{program}: interrupted\n")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError as error:
        if _stdout_has_reader():
            return _report_error(error, "connection lost", int(ExitCode.INFRASTRUCTURE), program=program, debug=debug)
        # The reader went away (`| head`): keep the interpreter from complaining when it flushes at exit.
        discard_output()
        return int(ExitCode.OK)
    except WeighbridgeError as error:
        return _report_error(error, str(error), int(error.exit_code), program=program, debug=debug)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _discard_rejected_output()
        advice = f" ({ADVICE[error.errno]})" if error.errno in ADVICE else ""
        text = f"{where}{error.strerror or error}{advice}"
        return _report_error(error, text, int(ExitCode.INFRASTRUCTURE), program=program, debug=debug)
    except MemoryError as error:
        text = ADVICE[errno.ENOMEM]
        return _report_error(error, text, int(ExitCode.INFRASTRUCTURE), program=program, debug=debug)
    except Exception as error:  # noqa: BLE001  the last boundary: users see a traceback only with --debug
        text = f"internal error: {type(error).__name__}: {error} (please run again with --debug and report it)"
        return _report_error(error, text, int(ExitCode.INFRASTRUCTURE), program=program, debug=debug)
    return int(status)


def _stdout_has_reader() -> bool:
    """Whether stdout still has a reader; poll(2) reports an error for a pipe without one."""
    return not _stdout_state() & (select.POLLERR | select.POLLNVAL)


def _stdout_is_blocked() -> bool:
    """Whether stdout accepts nothing until its reader reads."""
    return _stdout_state() == 0


def _stdout_state() -> int:
    from gevent.monkey import get_original

    try:
        poll = get_original("select", "poll")()  # gevent's reports no errors
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return sum(state for _, state in poll.poll(0))
    except (OSError, ValueError):
        return select.POLLNVAL


def _discard_rejected_output() -> None:
    """Drop output that stdout rejects, as on a full disk: the interpreter would retry at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        discard_output()


def discard_output() -> None:
    """Redirect stdout's buffered output to /dev/null, so that the interpreter does not fail at exit."""
    _redirect_to_devnull(sys.stdout.fileno())


def _redirect_to_devnull(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def escape_output(stream: TextIO) -> TextIO:
    """Return a stream, which from now on escapes what could steer a terminal that shows its text."""
    write = stream.write

    @functools.wraps(write)
    def escaped(text: str) -> int:
        write(escape_unprintable(text))
        return len(text)

    stream.write = escaped  # type: ignore[method-assign]
    return stream


def _name_stream_in_errors(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a stream's method: its errors name the stream, as a file's errors name the file."""

    @functools.wraps(method)
    def named(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except OSError as error:
            error.filename = error.filename or name
            raise

    return named


def _ignore_write_errors(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a stream's method: output that cannot be written is dropped."""

    @functools.wraps(method)
    def spared(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except BrokenPipeError:
            # Permanently: neither the buffered rest nor child processes should run into it again.
            _redirect_to_devnull(getattr(sys, name).fileno())
        except OSError:
            pass  # a full disk may get room again
        return len(arguments[0]) if arguments else None

    return spared


def _report_error(error: BaseException, text: str, status: int, *, program: str, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    for line in error_lines(error) if isinstance(error, WeighbridgeError) else quoted_lines(text):
        sys.stderr.write(f"{program}: {line or type(error).__name__}\n")
    return status


def error_lines(error: WeighbridgeError) -> list[str]:
    """Return an error's message as lines: the problems of a scenario, else the message and below it its details."""
    if isinstance(error, ScenarioError):
        return [str(problem) for problem in error.problems]
    details = (line for detail in error.details for line in quoted_lines(detail))
    return [*quoted_lines(error.message), *(f"  {line}" for line in details)]


def tell(text: str) -> None:
    """Write a message to stderr, as one line whatever is in it."""
    sys.stderr.write(f"{flat_line(text)}\n")


def tell_quoted(text: str) -> None:
    """Write a message that may have several lines to stderr; those after the first begin with a bar."""
    for line in quoted_lines(text):
        sys.stderr.write(f"{line}\n")


def check_choice(value: str, known: Iterable[str], *, what: str) -> str:
    """Return `value` if it is known; otherwise raise `UsageError` with the nearest right spelling."""
    names = sorted(known)
    if value not in names:
        hint = did_you_mean(value, names)
        raise UsageError(f"unknown {what} {value!r}{hint}; one of: {', '.join(names)}")
    return value


def add_debug_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--debug``, which both programs have."""
    parser.add_argument("--debug", action="store_true", help="print a traceback with every error")


class VersionAction(argparse.Action):
    """``--version``: prints what a report of a fault has to name, in one line, and exits."""

    def __init__(self, option_strings: Sequence[str], dest: str, **given: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **given)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Print the line and exit."""
        sys.stdout.write(f"{version_line()}\n")
        parser.exit()


def version_line() -> str:
    """Return the version and commit of this program, and the versions of Python and libzmq."""
    import zmq

    from bench_common import __version__

    commit = _installed_commit() or _checked_out_commit() or "unknown"
    return (
        f"weighbridge {__version__} (commit {commit}, Python {platform.python_version()}, libzmq {zmq.zmq_version()})"
    )


def _installed_commit() -> str | None:
    """Return the commit that pip installed from a repository (PEP 610); None if it installed something else."""
    from importlib import metadata

    with suppress(metadata.PackageNotFoundError, ValueError, AttributeError):
        origin = json.loads(metadata.distribution("weighbridge").read_text("direct_url.json") or "{}")
        return str(origin.get("vcs_info", {}).get("commit_id", ""))[:_COMMIT_CHARS] or None
    return None


def _checked_out_commit() -> str | None:
    """Return the commit of the working tree that this module is in, marked if files differ from it; None without."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", f"--abbrev={_COMMIT_CHARS}", "--exclude=*"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True)  # noqa: S603
        return done.stdout.strip() or None
    return None


class InvalidValue(argparse.ArgumentTypeError):
    """A value that a type of arguments refuses; the parser prints its text after the option's name."""


def read_options(kind: type[Options], arguments: argparse.Namespace) -> Options:
    """Return the dataclass `kind` with what the parser found: each field takes the argument of its own name.

    A field whose type is a dataclass is a group of options and is read likewise. An option that this parser does not
    have keeps the field's default. Options that can be repeated come as tuples.
    """
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in fields(kind):
        hint = hints[field.name]
        if isinstance(hint, type) and is_dataclass(hint):
            values[field.name] = read_options(hint, arguments)
        elif hasattr(arguments, field.name):
            value = getattr(arguments, field.name)
            values[field.name] = tuple(value) if isinstance(value, list) else value
        elif field.default is MISSING:
            raise TypeError(f"{kind.__name__}.{field.name}: the command has no such argument")
    return kind(**values)


MAX_NAME: Final = 128
"""The longest name of a worker or an environment, in characters: what a message can carry."""
MAX_SLOTS: Final = 65536
"""The most jobs that one worker may have in flight."""
MAX_SEED: Final = 2**53
"""The largest seed: whole numbers up to here survive every reader of JSON."""
NAME_PATTERN: Final = rf"^[A-Za-z0-9][A-Za-z0-9_.+-]{{0,{MAX_NAME - 1}}}$"
"""Valid names of workers and environments, as a regular expression that ECMA-262 and Python read alike."""


def int_range(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return a type of arguments: whole numbers from `low` to `high` (None: without limit)."""
    wanted = f"a whole number, {low} or more" if high is None else f"a whole number from {low} to {high}"

    def parse(text: str) -> int:
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
        if number is None or number < low or (high is not None and number > high):
            raise InvalidValue(f"{text!r}: expected {wanted}")
        return number

    return parse


port: Final = int_range(1, 65535)
"""A type of arguments: a TCP port."""


def seconds(text: str) -> float:
    """Return `text` as a number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not isfinite(number) or number < 0:
        raise InvalidValue(f"{text!r}: expected a number of seconds, 0 or more")
    return number


def file_name(text: str) -> Path:
    """Return `text` as a path; an empty one is refused (pathlib takes it for the working directory)."""
    if not text:
        raise InvalidValue("'': expected a file name")
    return Path(text)


def name(text: str) -> str:
    """Return `text` if it is a valid name of a worker or an environment."""
    if re.fullmatch(NAME_PATTERN, text) is None:
        raise InvalidValue(
            f"{text!r}: expected a word of letters, digits and _ . + -, at most {MAX_NAME} characters long"
        )
    return text


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


@dataclass(frozen=True, slots=True)
class WordsAfterDashes:
    """The words after ``--``, which a parser takes as they are: another program's command line."""

    dest: str
    """The argument that they become, as a list."""
    explain_missing: Callable[[Sequence[str]], str]
    """Returns the message for a command line that has none; takes the words before the dashes."""


class CommandParser(argparse.ArgumentParser):
    """Parses a command line; an error is one line that points to ``--help``, not preceded by the whole usage.

    An option that takes one value and comes twice is an error.
    """

    words_after_dashes: WordsAfterDashes | None = None
    """None: the parser takes what stands after ``--`` for positional arguments."""
    explain_unknown: Callable[[str], str] | None = None
    """Returns what is meant by an unknown option (``--repeats``), as the end of the message, or an empty string."""
    _argv: Sequence[str] = ()

    def __init__(self, *arguments: Any, **given: Any) -> None:
        super().__init__(*arguments, **given)
        self.given: set[str] = set()
        """The `dest` of each option with one value that the present command line has had so far."""
        self.register("action", None, StoreOnce)
        self.register("action", "store", StoreOnce)

    @property
    def arguments(self) -> Sequence[argparse.Action]:
        """Its options and positional arguments, in order."""
        return self._actions

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
            if not after and not {"-h", "--help"}.intersection(args):
                self.error(tail.explain_missing(args))
        self._argv = tuple(args or ())
        self.given.clear()
        parsed, rest = super().parse_known_args(args, namespace)
        if tail is not None:
            setattr(parsed, tail.dest, after)
        if rest:
            self._reject_extra(rest)
        return parsed, rest

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
                message = f"unknown sub-command {value!r}{hint or f'; {known}'}"
            else:
                message = f"{what}: {value!r}: expected {known}{hint}"
        missing = message.removeprefix("the following arguments are required: ").split("/")[0]
        if (
            not self._get_positional_actions()
            and missing in self._option_string_actions
            and (stray := self._first_stray_argument())
        ):
            message += f" (did you mean '{missing} {stray}'?)"
        self.exit(int(ExitCode.USAGE), f"{self.prog}: {one_line(message)}; see {self.prog} --help\n")


_BRACKETS: Final = re.compile(r"\[[^\[\]]*:[^\[\]]*\]")
_NAME: Final = re.compile(r"[^\s:/@\[\]]+")
_WITH_PORT: Final = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:]+):(?P<port>[0-9]+)")


def authority(host: str, port: int | str) -> str:
    """Return host and port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def strip_brackets(text: str) -> str:
    """Return an address without the brackets of IPv6."""
    return text[1:-1] if _BRACKETS.fullmatch(text) else text


def host_name(text: str) -> str:
    """Return a host name or IP address without brackets: a type of arguments."""
    host = strip_brackets(text)
    if _NAME.fullmatch(host) or (":" in host and _parse_ip(host) is not None):
        return host
    match = _WITH_PORT.fullmatch(text)
    hint = f"; give the port {match['port']} with its own option" if match else ""
    raise InvalidValue(f"{text!r}: expected a host name or IP address, such as 10.0.0.5 or fd00::5{hint}")


def host_address(text: str) -> str:
    """Return an IP address, without brackets, at which other hosts can reach a host: a type of arguments."""
    address = _parse_ip(strip_brackets(text))
    if address is None or address.is_unspecified or address.is_multicast:
        raise InvalidValue(f"{text!r}: expected the IP address of a host, such as 10.0.0.5 or fd00::5")
    if isinstance(address, ipaddress.IPv6Address):
        if address.is_link_local:
            raise InvalidValue(f"{text!r}: link-local address: other hosts cannot reach it; give a routable one")
        return str(address.ipv4_mapped or address)
    return str(address)


def _parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


CONTROL_PORT: Final = 13577
"""The master's default TCP port for control messages."""
RESULTS_PORT: Final = 13578
"""The master's default TCP port for results."""
WORK_PORT: Final = 13579
"""The first of the master's default TCP ports for work, one for each worker."""
