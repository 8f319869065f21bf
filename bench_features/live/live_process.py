"""The process of the live page, which `run-scenario --web` starts: ``python -m bench_features.live.live_process``.

It has an interpreter of its own and a low priority, so whatever readers do costs the master one message a second at
most. It ends when the master closes its end of the pair of sockets, as the kernel does for a master that was killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final

import gevent
import msgspec
from gevent import socket as cooperative
from gevent.event import Event

from bench_features.live.live_app import PAGES, LiveApp
from bench_features.live.live_verdict import AnswerSoFar
from bench_features.live.messages import MAX_MESSAGE, NICENESS, Ended, Plan, State, StopRun, Welcome, encode, to_page
from bench_features.live.viewers import Viewers
from bench_master.web import guard
from bench_master.web.guard import Guard, Rules
from bench_master.web.http_server import make_server

SEND_TIMEOUT_S: Final = 1.0
FAREWELL_S: Final = 1.5
"""How long readers may take to get the last message."""


class LiveProcess:
    """Serves the page on `listener`, and exchanges messages with the master over `master`."""

    def __init__(self, listener: Any, master: Any, welcome: Welcome) -> None:
        self._master = master
        self._over = Event()
        self._viewers = Viewers(self._tell)
        self._is_looking_back = False
        self._so_far = AnswerSoFar(self._viewers.show_answer)
        stop = (lambda who: self._tell(StopRun(who))) if welcome.control else None
        rules = Rules(
            guard.hosts_of(welcome.host),
            any_address=welcome.host in ("0.0.0.0", "::"),  # noqa: S104  compared only
            token=welcome.token,
            cookie=welcome.cookie,
            open_paths=frozenset(PAGES),
        )
        self._server = make_server(listener, Guard(LiveApp(self._viewers, welcome, stop), rules))

    def run(self) -> None:
        """Serve until the master is gone."""
        self._server.start()
        gevent.spawn(self._listen)
        self._over.wait()
        self._viewers.end("lost", "The master is gone, and has not said how the run ended.", [])
        self._server.stop_accepting()
        with gevent.Timeout(FAREWELL_S, False):  # type: ignore[arg-type]
            while len(self._viewers):
                gevent.sleep(0.02)

    def _listen(self) -> None:
        try:
            while data := self._receive():
                message = to_page(data)
                if isinstance(message, (Plan, State, Ended)):
                    self._viewers.take(message)
                if isinstance(message, State) and message.stats:
                    self._look_back(message)
                    trial = message.body["trial"]
                    number = None if trial is None else trial["number"]
                    self._so_far.trial_runs(Path(message.stats), message.margin, number)
        except (OSError, msgspec.DecodeError):
            pass  # as if it were gone
        finally:
            self._over.set()

    def _look_back(self, message: State) -> None:
        """Fill the time in which nobody looked, once for each such time."""
        gap = self._viewers.history.gap
        if gap is None or self._is_looking_back:
            return
        self._is_looking_back = True
        began_ns = monotonic_ns() - round(float(message.body["elapsed_s"]) * 1e9)
        gevent.spawn(self._fill, Path(message.stats), began_ns, gap)

    def _fill(self, stats: Path, began_ns: int, gap: tuple[float, float]) -> None:
        from bench_features.live.past import past_points  # a page that sees all of a run needs no reader

        try:
            self._viewers.fill(gevent.get_hub().threadpool.apply(past_points, (stats, began_ns, gap)))
        finally:
            self._is_looking_back = False

    def _receive(self) -> bytes:
        """Return the next message; empty if the master has closed its end."""
        with contextlib.suppress(ConnectionResetError):
            return bytes(self._master.recv(2 * MAX_MESSAGE))
        # It closed its end before it had read all of ours; what it sent before is still there.
        return bytes(self._master.recv(2 * MAX_MESSAGE))

    def _tell(self, message: Any) -> None:
        """Send a message to the master; one that it has no room for is dropped, and a question asked again."""
        with contextlib.suppress(OSError), gevent.Timeout(SEND_TIMEOUT_S, False):  # type: ignore[arg-type]
            self._master.send(encode(message))


def lower_priority() -> None:
    """Let everything else on this machine run first."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    # Where each session is scheduled as a group, only the group's own niceness counts against others.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(NICENESS), "ascii")


def main() -> None:
    """Serve the page; the arguments are the descriptors of the listening socket and of that to the master."""
    lower_priority()
    for ignored in (signal.SIGINT, signal.SIGHUP):
        # These are for the master, which ends this process when its run is over.
        signal.signal(ignored, signal.SIG_IGN)
    listener = cooperative.socket(fileno=int(sys.argv[1]))
    master = cooperative.socket(fileno=int(sys.argv[2]))
    welcome = to_page(master.recv(2 * MAX_MESSAGE))
    assert isinstance(welcome, Welcome)
    LiveProcess(listener, master, welcome).run()
    # What hangs on a connection that nobody reads is not waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
