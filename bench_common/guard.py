"""The last boundary of a command: its errors become one message and an exit code, and Ctrl-C ends it."""

from __future__ import annotations

import errno
import signal
import sys
import traceback
from collections.abc import Callable

from bench_common.errors import ExitCode, ScenarioError, WeighbridgeError
from bench_common.extras import missing_extra
from bench_common.limits import ADVICE
from bench_common.safe_text import quoted_lines, without_passwords
from bench_common.startup import release_collector, restore_sigint
from bench_common.streams import (
    as_called,
    discard_output,
    discard_rejected_output,
    fit_line,
    stdout_has_reader,
    stdout_is_blocked,
)


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
        if stdout_is_blocked():
            discard_output()  # its reader, such as a pager, has stopped reading
        sys.stderr.write(f"{program}: interrupted\n")
        return int(ExitCode.INTERRUPTED)
    except BrokenPipeError as error:
        if stdout_has_reader():
            return _report_error(error, "connection lost", int(ExitCode.INFRASTRUCTURE), program=program, debug=debug)
        # The reader went away (`| head`): keep the interpreter from complaining when it flushes at exit.
        discard_output()
        return int(ExitCode.OK)
    except WeighbridgeError as error:
        return _report_error(error, str(error), int(error.exit_code), program=program, debug=debug)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        discard_rejected_output()
        advice = f" ({ADVICE[error.errno]})" if error.errno in ADVICE else ""
        text = f"{where}{error.strerror or error}{advice}"
        return _report_error(error, text, int(ExitCode.INFRASTRUCTURE), program=program, debug=debug)
    except ModuleNotFoundError as error:
        refusal = missing_extra(error)
        text = str(refusal or _internal(error))
        status = int(refusal.exit_code if refusal is not None else ExitCode.INFRASTRUCTURE)
        return _report_error(error, text, status, program=program, debug=debug)
    except MemoryError as error:
        text = ADVICE[errno.ENOMEM]
        return _report_error(error, text, int(ExitCode.INFRASTRUCTURE), program=program, debug=debug)
    except Exception as error:  # noqa: BLE001  the last boundary: users see a traceback only with --debug
        return _report_error(error, _internal(error), int(ExitCode.INFRASTRUCTURE), program=program, debug=debug)
    return int(status)


def _internal(error: Exception) -> str:
    return f"internal error: {type(error).__name__}: {error} (please run again with --debug and report it)"


def _report_error(error: BaseException, text: str, status: int, *, program: str, debug: bool) -> int:
    if debug:
        sys.stderr.write(without_passwords("".join(traceback.format_exception(error))))
    for line in error_lines(error) if isinstance(error, WeighbridgeError) else quoted_lines(text):
        shown = f"{program}: {without_passwords(as_called(line)) or type(error).__name__}"
        sys.stderr.write(f"{fit_line(shown, sys.stderr)}\n")
    return status


def error_lines(error: WeighbridgeError) -> list[str]:
    """Return an error's message as lines: the problems of a scenario, else the message and below it its details."""
    if isinstance(error, ScenarioError):
        return [str(problem) for problem in error.problems]
    details = (line for detail in error.details for line in quoted_lines(detail))
    return [*quoted_lines(error.message), *(f"  {line}" for line in details)]
