"""What both command lines do alike: run a command, turn errors into one clear message and an exit code.

Types of command-line arguments that both programs take, so that what is refused by one is refused by the other.

A value that the other side would drop in silence (a port that wraps round, a name longer than a message may carry) is
refused here, before anything is started.

The argument parser of both programs: what it refuses is told in one line, with the nearest right spelling.

Where hosts are: names and IP addresses as people write them, IPv6 beside IPv4.

An IPv6 address stands in brackets where a port follows it (RFC 3986), and nowhere else. Both programs take it with
them and without. What is no host at all is refused where it is given: zmq would ask for its name for ever.

The TCP ports that a master listens on unless it is told otherwise; a lane for each worker from `WORK_PORT` on.
"""

from __future__ import annotations

import argparse
import codecs
import functools
import io
import ipaddress
import os
import re
import select
import signal
import sys
import traceback
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from gevent.hub import Hub
from gevent.monkey import get_original

from bench_common.errors import ExitCode, UsageError, WeighbridgeError, did_you_mean
from bench_common.startup import restore_sigint

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ESCAPE: Final = "weighbridge-escape"


def _escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Return letters that an encoding lacks as JSON escapes them, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True)), error.end


codecs.register_error(ESCAPE, _escape_unencodable)


def harden_streams() -> None:
    """Make the standard streams such that writing to them does not fail for what is no fault of the command.

    A stream that was closed by the caller (``>&-``) leads nowhere: without this its number would go to the next file
    or socket. What stderr does not take, because its reader went away or its disk is full, is dropped: no run ends
    for want of somebody who looks on. A letter that the caller's encoding lacks is escaped as JSON does it: a report
    must not end in the middle of a name, and JSON must stay JSON.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  open to the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ESCAPE)
            kind = _name_stream_in_errors if name == "stdout" else _ignore_write_errors
            for method in ("write", "flush"):
                setattr(stream, method, kind(getattr(stream, method), name))


def silence_interrupts() -> None:
    """Let Ctrl-C end what waits without a traceback of the event loop, which knows it as an error."""
    Hub.NOT_ERROR = (*Hub.NOT_ERROR, KeyboardInterrupt)


def honors_sighup() -> bool:
    """Whether the end of the terminal is to end this process: not where it was begun under ``nohup``."""
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN


def run_guarded(command: Callable[[], int], *, program: str, debug: bool) -> int:
    """Run `command`; print what went wrong as one message on stderr; return the exit code.

    With `debug` an error also prints its traceback. Ctrl-C gives 130, a closed output pipe ends in silence.
    """
    try:
        restore_sigint()
        status = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        if _stdout_is_blocked():
            _discard_output()  # whoever it waits for, such as a pager, has had enough of it
        sys.stderr.write(f"{program}: interrupted\n")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError as error:
        if _stdout_has_reader():
            return _report_error(
                error, "a connection broke", int(ExitCode.INFRASTRUCTURE), program=program, debug=debug
            )
        # The reader went away (`| head`): keep the interpreter from complaining when it flushes at exit.
        _discard_output()
        return int(ExitCode.OK)
    except WeighbridgeError as error:
        return _report_error(error, str(error), int(error.exit_code), program=program, debug=debug)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _discard_rejected_output()
        text = f"{where}{error.strerror or error}"
        return _report_error(error, text, int(ExitCode.INFRASTRUCTURE), program=program, debug=debug)
    except Exception as error:  # noqa: BLE001  the last boundary: no traceback reaches a user unasked
        text = f"internal error: {type(error).__name__}: {error} (run again with --debug and report it, please)"
        return _report_error(error, text, int(ExitCode.INFRASTRUCTURE), program=program, debug=debug)
    return int(status)


def _stdout_has_reader() -> bool:
    """Whether somebody still reads stdout; a pipe whose reader is gone is in error, by poll(2)."""
    return not _stdout_state() & (select.POLLERR | select.POLLNVAL)


def _stdout_is_blocked() -> bool:
    """Whether stdout takes no more until its reader reads."""
    return _stdout_state() == 0


def _stdout_state() -> int:
    try:
        poll = get_original("select", "poll")()  # gevent's knows nothing of errors
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return sum(state for _, state in poll.poll(0))
    except (OSError, ValueError):
        return select.POLLNVAL


def _discard_rejected_output() -> None:
    """Drop what stdout does not take, such as on a full disk: the interpreter would try again at its own exit."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()


def _discard_output() -> None:
    """Let what stdout still has to be told lead nowhere, at the interpreter's own exit too."""
    _redirect_to_devnull(sys.stdout.fileno())


def _redirect_to_devnull(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _name_stream_in_errors(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a stream's method such that its errors name the stream, as those of a file name the file."""

    @functools.wraps(method)
    def named(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except OSError as error:
            error.filename = error.filename or name
            raise

    return named


def _ignore_write_errors(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a stream's method such that what cannot be said is left unsaid."""

    @functools.wraps(method)
    def spared(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except BrokenPipeError:
            # For good: nor need what is in its buffer, nor what is started from here, be told that again.
            _redirect_to_devnull(getattr(sys, name).fileno())
        except OSError:
            pass  # a disk may have room again
        return len(arguments[0]) if arguments else None

    return spared


def _report_error(error: BaseException, text: str, status: int, *, program: str, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    for line in text.splitlines() or [type(error).__name__]:
        sys.stderr.write(f"{program}: {line}\n")
    return status


def check_choice(value: str, known: Iterable[str], *, what: str) -> str:
    """Return `value` when it is known; raise `UsageError` with the nearest right spelling otherwise."""
    names = sorted(known)
    if value not in names:
        hint = did_you_mean(value, names)
        raise UsageError(f"unknown {what} {value!r}{hint}; one of: {', '.join(names)}")
    return value


def add_debug_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--debug``, which both programs know."""
    parser.add_argument("--debug", action="store_true", help="print a traceback with every error")


MAX_NAME: Final = 128
"""The longest name of a worker or an environment, in characters: what a message may carry."""
MAX_SLOTS: Final = 65536
"""The most jobs that one worker may have in flight."""
MAX_SEED: Final = 2**53
"""The largest seed: whole numbers up to here survive every reader of JSON."""
NAME_PATTERN: Final = rf"^[A-Za-z0-9][A-Za-z0-9_.+-]{{0,{MAX_NAME - 1}}}$"
"""What a worker or an environment may be called, as a regular expression that ECMA-262 and Python read alike."""


def int_range(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return a type of arguments: whole numbers from `low` to `high` (None: without limit)."""
    wanted = f"a whole number from {low} on" if high is None else f"a whole number from {low} to {high}"

    def parse(text: str) -> int:
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
        if number is None or number < low or (high is not None and number > high):
            raise argparse.ArgumentTypeError(f"{text!r}: expected {wanted}")
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
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of seconds, 0 or more")
    return number


def file_name(text: str) -> Path:
    """Return `text` as a path; nothing at all names no file (and would be taken for the working directory)."""
    if not text:
        raise argparse.ArgumentTypeError("'': expected a file's name, and it is empty")
    return Path(text)


def name(text: str) -> str:
    """Return `text` if a worker or an environment can be called so."""
    if re.fullmatch(NAME_PATTERN, text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a word of letters, digits and _ . + -, of at most {MAX_NAME} characters"
        )
    return text


class CommandParser(argparse.ArgumentParser):
    """Parses a command line; a complaint says where its help is, and does not print the whole usage before itself."""

    _argv: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as usual; what is left over is refused here, where it is known which command it was meant for."""
        self._argv = tuple(args or ())
        parsed, rest = super().parse_known_args(args, namespace)
        if rest:
            self._refuse(rest)
        return parsed, rest

    def _refuse(self, rest: Sequence[str]) -> NoReturn:
        flag = next((word.split("=")[0] for word in rest if word.startswith("-")), None)
        if flag is None:
            self.error(f"unexpected {rest[0]!r}")
        self.error(f"there is no option {flag}{did_you_mean(flag, self._option_string_actions)}")

    def _first_stray_argument(self) -> str | None:
        """Return the first word that belongs to no option."""
        for before, word in zip(("", *self._argv), self._argv, strict=False):
            action = self._option_string_actions.get(before)
            if not word.startswith("-") and (action is None or action.nargs == 0):
                return word
        return None

    def error(self, message: str) -> NoReturn:
        """Print the message on stderr, and where help is; exit 2."""
        if "invalid choice: '" in message:
            value = message.split("invalid choice: '")[1].split("'", maxsplit=1)[0]
            choices = [part.strip(" '\")") for part in message.rsplit("choose from", maxsplit=1)[-1].split(",")]
            message += did_you_mean(value, choices)
        missing = message.removeprefix("the following arguments are required: ").split("/")[0]
        if (
            not self._get_positional_actions()
            and missing in self._option_string_actions
            and (stray := self._first_stray_argument())
        ):
            message += f" (did you mean '{missing} {stray}'?)"
        self.exit(int(ExitCode.USAGE), f"{self.prog}: {message}; see {self.prog} --help\n")


_BRACKETS: Final = re.compile(r"\[[^\[\]]*:[^\[\]]*\]")
_NAME: Final = re.compile(r"[^\s:/@\[\]]+")
_WITH_PORT: Final = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:]+):(?P<port>[0-9]+)")


def authority(host: str, port: int | str) -> str:
    """Return host and port as they stand in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def strip_brackets(text: str) -> str:
    """Return an address without the brackets that an IPv6 one may have."""
    return text[1:-1] if _BRACKETS.fullmatch(text) else text


def host_name(text: str) -> str:
    """Return `text`, without brackets, if it can be a host's name or is its IP address: a type of arguments."""
    host = strip_brackets(text)
    if _NAME.fullmatch(host) or (":" in host and _parse_ip(host) is not None):
        return host
    match = _WITH_PORT.fullmatch(text)
    hint = f"; the port {match['port']} goes to an option of its own" if match else ""
    raise argparse.ArgumentTypeError(
        f"{text!r}: expected a host's name or IP address, such as 10.0.0.5 or fd00::5{hint}"
    )


def host_address(text: str) -> str:
    """Return `text`, without brackets, if it is an IP address at which others reach a host: a type of arguments."""
    address = _parse_ip(strip_brackets(text))
    if address is None or address.is_unspecified or address.is_multicast:
        raise argparse.ArgumentTypeError(f"{text!r}: expected the IP address of a host, such as 10.0.0.5 or fd00::5")
    if isinstance(address, ipaddress.IPv6Address):
        if address.is_link_local:
            raise argparse.ArgumentTypeError(f"{text!r}: is of one link alone; give one that holds everywhere")
        return str(address.ipv4_mapped or address)
    return str(address)


def _parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


CONTROL_PORT: Final = 13577
RESULTS_PORT: Final = 13578
WORK_PORT: Final = 13579
