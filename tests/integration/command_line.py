"""Commands of `bench-master` in the process of the tests: those that read and write files, or ask one `bench-worker`.

To start the program takes more processor time than most of these commands do. A command finds what the program would
find: its folder, environment, arguments and standard streams, and a log that nobody has set up. Afterwards everything
is as it was before. What gevent patches is not patched here, so commands with an event loop are not among these.
``test_command_programs.py`` compares some of them with the program that users start.
"""

import contextlib
import gc
import logging
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

from bench_common import directories
from bench_common.streams import harden_streams
from bench_master.cli import named_commands, run_command_line

IN_PROCESS = frozenset(
    {
        "archive",
        "cleanup-containers",
        "compare",
        "completion",
        "convert-scenario",
        "import-results",
        "keygen",
        "list",
        "parse-output",
        "report-scenario",
        "show-output",
        "validate-scenario",
    }
)
"""Commands without an event loop."""
DRY = frozenset({"run-scenario", "weigh"})
"""Commands that have none with ``--dry-run``."""


def runs_in_process(words, environ):
    """Whether `bench-master` needs no process of its own for these arguments.

    It does where it has other modules (``PYTHONPATH``).
    """
    if environ.get("PYTHONPATH") != os.environ.get("PYTHONPATH"):
        return False
    own = words[: words.index("--")] if "--" in words else words
    named = set(named_commands([str(word) for word in own])[:1])
    return bool(named & IN_PROCESS or (named & DRY and "--dry-run" in own))


def run_in_process(words, folder, environ):
    """Run `bench-master` with these arguments in a folder; return its exit code, and what it wrote on each stream."""
    argv = [str(word) for word in words]
    with contextlib.ExitStack() as stack:
        out, err = (stack.enter_context(_stream(buffering)) for buffering in (-1, 1))
        with _as_program(argv, folder, environ, out, err):
            status = _run(argv)
            out.flush()
        return status, _written(out), _written(err)


def _stream(buffering):
    """Return a stream with a file behind it, as a program's standard streams have."""
    return tempfile.TemporaryFile("w+", buffering, encoding="utf-8")


def _written(stream):
    stream.flush()
    return os.pread(stream.fileno(), os.fstat(stream.fileno()).st_size, 0).decode("utf-8", "replace")


def _run(argv):
    harden_streams()
    try:
        return run_command_line(argv)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1


@contextlib.contextmanager
def _as_program(argv, folder, environ, out, err):
    """Have the process look like a program that has just been started; restore it afterwards."""
    with ExitStack() as stack:
        stdin = stack.enter_context(Path(os.devnull).open(encoding="utf-8"))
        for change in (
            contextlib.chdir(folder),
            mock.patch.dict(os.environ, environ, clear=True),
            mock.patch.multiple(sys, stdin=stdin, stdout=out, stderr=err),
            _arguments("bench-master", *argv),
            mock.patch.object(tempfile, "tempdir", None),
            mock.patch.object(directories, "_warned", set()),
            _own_log(),
            _kept_signals(),
            _kept_collector(),
        ):
            stack.enter_context(change)
        yield


@contextlib.contextmanager
def _arguments(*argv):
    """Have these arguments, in the same list: a command takes passwords out of it."""
    before = sys.argv[:]
    sys.argv[:] = argv
    try:
        yield
    finally:
        sys.argv[:] = before


@contextlib.contextmanager
def _own_log():
    """Have no log yet, as a program that starts."""
    root = logging.getLogger()
    with mock.patch.object(root, "handlers", []):
        level = root.level
        try:
            yield
        finally:
            root.setLevel(level)


@contextlib.contextmanager
def _kept_signals():
    """Undo what is changed about the signals that commands handle."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


@contextlib.contextmanager
def _kept_collector():
    """Let the collector look again at what a command sets aside: it takes all that is there for its own modules."""
    enabled = gc.isenabled()
    try:
        yield
    finally:
        gc.unfreeze()
        if not enabled:
            gc.disable()
