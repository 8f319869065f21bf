"""What both command lines do alike: run a command, turn errors into one clear message and an exit code."""

from __future__ import annotations

import codecs
import functools
import io
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gevent.hub import Hub
from gevent.monkey import get_original

from bench_common.errors import ExitCode, UsageError, WeighbridgeError, did_you_mean
from bench_common.loading import loaded

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable


ESCAPE: Final = "weighbridge-escape"


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Return letters that an encoding lacks as JSON escapes them, and where to go on."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True)), error.end


codecs.register_error(ESCAPE, _escaped)


def steady_streams() -> None:
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
            kind = _naming if name == "stdout" else _sparing
            for method in ("write", "flush"):
                setattr(stream, method, kind(getattr(stream, method), name))


def quiet_interrupts() -> None:
    """Let Ctrl-C end what waits without a traceback of the event loop, which knows it as an error."""
    Hub.NOT_ERROR = (*Hub.NOT_ERROR, KeyboardInterrupt)


def hangs_up() -> bool:
    """Whether the end of the terminal is to end this process: not where it was begun under ``nohup``."""
    return signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN


def guarded(command: Callable[[], int], *, program: str, debug: bool) -> int:
    """Run `command`; print what went wrong as one message on stderr; return the exit code.

    With `debug` an error also prints its traceback. Ctrl-C gives 130, a closed output pipe ends in silence.
    """
    try:
        loaded()
        status = command()
        sys.stdout.flush()
    except KeyboardInterrupt:
        if _stdout_is_stuck():
            _drop_output()  # whoever it waits for, such as a pager, has had enough of it
        sys.stderr.write(f"{program}: interrupted\n")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError as error:
        if _stdout_works():
            return _told(error, "a connection broke", int(ExitCode.INFRASTRUCTURE), program=program, debug=debug)
        # The reader went away (`| head`): keep the interpreter from complaining when it flushes at exit.
        _drop_output()
        return int(ExitCode.OK)
    except WeighbridgeError as error:
        return _told(error, str(error), int(error.exit_code), program=program, debug=debug)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _give_up_refused_output()
        text = f"{where}{error.strerror or error}"
        return _told(error, text, int(ExitCode.INFRASTRUCTURE), program=program, debug=debug)
    except Exception as error:  # noqa: BLE001  the last boundary: no traceback reaches a user unasked
        text = f"internal error: {type(error).__name__}: {error} (run again with --debug and report it, please)"
        return _told(error, text, int(ExitCode.INFRASTRUCTURE), program=program, debug=debug)
    return int(status)


def _stdout_works() -> bool:
    """Whether somebody still reads stdout; a pipe whose reader is gone is in error, by poll(2)."""
    return not _stdout_state() & (select.POLLERR | select.POLLNVAL)


def _stdout_is_stuck() -> bool:
    """Whether stdout takes no more until its reader reads."""
    return _stdout_state() == 0


def _stdout_state() -> int:
    try:
        poll = get_original("select", "poll")()  # gevent's knows nothing of errors
        poll.register(sys.stdout.fileno(), select.POLLOUT)
        return sum(state for _, state in poll.poll(0))
    except (OSError, ValueError):
        return select.POLLNVAL


def _give_up_refused_output() -> None:
    """Drop what stdout does not take, such as on a full disk: the interpreter would try again at its own exit."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()


def _drop_output() -> None:
    """Let what stdout still has to be told lead nowhere, at the interpreter's own exit too."""
    _lead_nowhere(sys.stdout.fileno())


def _lead_nowhere(number: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def _naming(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a stream's method such that its errors name the stream, as those of a file name the file."""

    @functools.wraps(method)
    def named(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except OSError as error:
            error.filename = error.filename or name
            raise

    return named


def _sparing(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a stream's method such that what cannot be said is left unsaid."""

    @functools.wraps(method)
    def spared(*arguments: Any) -> Any:
        try:
            return method(*arguments)
        except BrokenPipeError:
            # For good: nor need what is in its buffer, nor what is started from here, be told that again.
            _lead_nowhere(getattr(sys, name).fileno())
        except OSError:
            pass  # a disk may have room again
        return len(arguments[0]) if arguments else None

    return spared


def _told(error: BaseException, text: str, status: int, *, program: str, debug: bool) -> int:
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
