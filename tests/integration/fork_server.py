"""A program that loads `bench-master` and forks for each command line that it is sent.

It loads what `run-scenario` loads, with gevent's patches, and starts nothing. Its streams and its environment
are those of the tests; `loaded_program.py` starts it and asks.
"""

import array
import contextlib
import importlib
import json
import os
import select
import signal
import sys
from socket import socket

MAX_MESSAGE = 1 << 20
"""The arguments and the environment of a program."""
NUMBER_BYTES = 4
"""A pid, and then what waitpid(2) returns, in so many bytes each."""
INHERITED = {
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGTERM: signal.SIG_DFL,
}
"""What a program does at signals that its parent does not ignore; this process may have been started otherwise."""
MODULES = (
    "bench_master.commands.run_scenario",
    "bench_master.commands.weigh",
    "bench_master.analysis.document",
    "bench_master.reports.text",
    # What a run loads on its way: numpy's parts cost most.
    "numpy.random",
    "numpy.ma",
    "pprint",
    "gevent.fileobject",
    "gevent.threadpool",
    "bench_master.run.ceilings",
    "bench_features.certify.certificate",
    *(f"bench_features.{feature}" for feature in ("certify.in_runs", "charts.in_reports", "objects.master.part")),
    *(f"bench_features.{feature}.run_extension" for feature in ("archive", "fleet")),
    *(f"bench_workloads.{name}" for name in ("ab", "blogbench", "blogload", "iibench", "mbw", "sysbench_oltp")),
)


class ForkServer:
    """Forks for each message of a socket; made before gevent replaces what would start its loop."""

    def __init__(self, asked):
        self._asked = asked
        self._fork, self._wait, self._poller = os.fork, os.waitpid, select.poll()
        self._told = {}
        """By descriptor of a fork: its pid, and the pipe to whoever asked for it."""

    def serve(self):
        """Return whether this is a fork; it is none when nobody can ask any more."""
        self._poller.register(self._asked, select.POLLIN)
        while True:
            for fd, _ in self._poller.poll():
                if fd in self._told:
                    self._tell_end(fd)
                    continue
                text, fds = self._receive()
                if not text:
                    return False
                if self._start(text, *fds):
                    return True

    def _receive(self):
        text, ancillary, _, _ = self._asked.recvmsg(MAX_MESSAGE, 1024)
        fds = array.array("i")
        for _, _, data in ancillary:
            fds.frombytes(data)
        return text, fds.tolist()

    def _start(self, text, out, err, pipe):
        """Fork; return whether this is the fork."""
        pid = self._fork()
        if not pid:
            pipes = [one for _, one in self._told.values()]
            become_program(json.loads(text), out, err, [self._asked.detach(), pipe, *self._told, *pipes])
            return True
        os.close(out)
        os.close(err)
        os.write(pipe, pid.to_bytes(NUMBER_BYTES, "little"))
        end = os.pidfd_open(pid)
        self._told[end] = pid, pipe
        self._poller.register(end, select.POLLIN)
        return False

    def _tell_end(self, fd):
        pid, pipe = self._told.pop(fd)
        self._poller.unregister(fd)
        status = self._wait(pid, 0)[1]
        with contextlib.suppress(BrokenPipeError):  # the test did not wait for it
            os.write(pipe, status.to_bytes(NUMBER_BYTES, "little"))
        os.close(pipe)
        os.close(fd)


def become_program(asked, out, err, others):
    """Be the program that was asked for: `others` are descriptors that it does not have."""
    os.setsid()
    os.dup2(out, 1)
    os.dup2(err, 2)
    for fd in {out, err, *others}:
        os.close(fd)
    for number, handler in INHERITED.items():
        signal.signal(number, signal.SIG_IGN if number in asked["ignored"] else handler)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environ"])
    sys.argv[:] = asked["argv"]
    sys.path[0] = asked["folder"]


def load_program():
    """Load the program with its event loop, as `python -m bench_master run-scenario` does; return its module."""
    sys.argv = ["bench-master", "run-scenario"]
    program = importlib.import_module("bench_master.__main__")
    for name in MODULES:
        importlib.import_module(name)
    return program


if __name__ == "__main__":
    with socket(fileno=int(sys.argv[1])) as requests:
        server = ForkServer(requests)
        loaded = load_program()
        is_fork = server.serve()
    if is_fork:
        loaded.main()
