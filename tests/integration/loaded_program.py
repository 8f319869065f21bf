"""`bench-master` as a fork of a process that has loaded it: loading takes more CPU time than most runs of tests do.

Each process of tests that asks for it starts ``fork_server.py`` once, which ends with it. A fork of that is a process
like any other: a session of its own, its own folder, environment and standard streams, the same exit code, the same
end by a signal. What it cannot have is a command line in the process list, and other modules: whatever needs these is
started as users start it, as are all commands once in ``test_command_programs.py``.
"""

import array
import atexit
import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import sys
from socket import AF_UNIX, SCM_RIGHTS, SO_SNDBUF, SOCK_SEQPACKET, SOL_SOCKET, socketpair

import fork_server
from deadlines import ANSWER_S, START_S
from fork_server import INHERITED, MAX_MESSAGE, NUMBER_BYTES

_LOADED_WITH = ("PYTHON", "LC_", "LD_", "MALLOC_", "OPENBLAS_", "OMP_")
_LOADED_WITH_NAMES = frozenset({"LANG", "LANGUAGE", "TZ"})


class ForkedProcess:
    """What `subprocess.Popen` is to a child, for a fork: its end is told by its parent, through a pipe."""

    def __init__(self, argv, told):
        self.args, self.returncode = argv, None
        self._told = told
        assert select.select([told], [], [], START_S)[0], "bench-master is not loaded"
        self.pid = self._read()

    def _read(self):
        found = os.read(self._told.fileno(), NUMBER_BYTES)
        assert len(found) == NUMBER_BYTES, "the process that has loaded bench-master ended"
        return int.from_bytes(found, "little")

    def poll(self):
        """Return how it ended, or None if it has not."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout=None):
        """Wait for its end; return its exit code, or the negative number of the signal that ended it."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = os.waitstatus_to_exitcode(self._read())
            self._told.close()
        return self.returncode

    def send_signal(self, number):
        """Send it a signal, if it is there."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self):
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self):
        """End it."""
        self.send_signal(signal.SIGKILL)


def can_fork(words, environ):
    """Whether a fork does for these arguments: its modules were loaded with this environment.

    Passwords and keys are wiped off the command line, which a fork does not have.
    """
    own = {key: value for key, value in environ.items() if _matters(key)}
    return own == {key: value for key, value in os.environ.items() if _matters(key)} and not any(
        str(word).startswith("-K") for word in words
    )


def _ignored():
    """Return the signals that a child would ignore, as all do under nohup(1)."""
    return [number for number in INHERITED if signal.getsignal(number) is signal.SIG_IGN]


def _matters(key):
    return key.startswith(_LOADED_WITH) or key in _LOADED_WITH_NAMES


def fork_program(words, folder, environ, out, err):
    """Start `bench-master` with these arguments in a folder; `out` and `err` are files open for writing."""
    argv = ["bench-master", *words]
    asked = {"argv": argv, "folder": str(folder), "environ": environ, "ignored": _ignored()}
    message = json.dumps(asked).encode()
    read, write = os.pipe()
    told = os.fdopen(read, "rb", buffering=0)
    try:
        fds = array.array("i", [out.fileno(), err.fileno(), write])
        _parent().sendmsg([message], [(SOL_SOCKET, SCM_RIGHTS, fds)])
    finally:
        os.close(write)
    return ForkedProcess(argv, told)


@functools.cache
def _parent():
    """Start the process that forks; it ends with the one that asks."""
    ours, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
    ours.setsockopt(SOL_SOCKET, SO_SNDBUF, 2 * MAX_MESSAGE)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, fork_server.__file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
    atexit.register(_end, ours, process)
    return ours


def _end(ours, process):
    ours.close()
    process.wait(ANSWER_S)
