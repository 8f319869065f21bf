"""The master's end of the live page: starts its process, and answers what it asks.

Nothing runs here unless the process sends something, which it does only while somebody looks: then a snapshot a
second at most, dropped if the process has not yet taken the last one. If the page fails, the run goes on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Any, Final

import gevent
import msgspec
from gevent.socket import wait_read

from bench_common import __version__
from bench_common.safe_text import one_line
from bench_common.stats.block_types import as_stored
from bench_common.streams import tell
from bench_features.live.live_verdict import answer_of
from bench_features.live.messages import (
    LEAST_INTERVAL_S,
    MAX_MESSAGE,
    NICENESS,
    Ask,
    Ended,
    Plan,
    State,
    StopRun,
    ViewerCount,
    Welcome,
    encode,
    to_master,
)
from bench_features.live.snapshot import DurationWindow, clean, plan_message, snapshot_message, within
from bench_master.analysis.subject import describe_subject
from bench_master.progress.view import final_line
from bench_master.reports.palette import css_variables, engine_hue
from bench_master.web.address import Address, bound_address, listen
from bench_master.web.guard import new_token

if TYPE_CHECKING:
    from pathlib import Path

    from bench_master.analysis.verdict_options import VerdictOptions
    from bench_master.run.watched_run import WatchedRun

log = logging.getLogger(__name__)

END_TIMEOUT_S: Final = 3.0
"""How long its process may take to end when its sockets are closed; then it is killed."""


class LivePage:
    """The page of one run, served on `listener`; with `control` its readers may stop the run.

    `verdicts` says how the report judges, so that the page ends with the report's sentence.
    """

    def __init__(self, listener: socket.socket, *, control: bool, verdicts: VerdictOptions | None = None) -> None:
        self.address: Address = bound_address(listener)
        self._listener = listener
        self._control = control
        self._verdicts = verdicts
        self._ending: Ended | None = None
        self._stats: Path | None = None
        """Set at the end of a run that somebody looked at then."""
        self._token = new_token()
        self._run: WatchedRun | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: Any = None
        self._reader: gevent.Greenlet[..., Any] | None = None
        self._window = DurationWindow()
        self._sent_at = 0.0
        self._stopped = False
        self._viewers = 0
        self._most = 0
        self._snapshots = self._dropped = self._cost_ns = 0

    @property
    def url(self) -> str:
        """The address to open, with the token in its fragment."""
        return f"http://{self.address}/#t={self._token}"

    def start(self, run: WatchedRun) -> None:
        """Start the process, and print the address, once."""
        self._run = run
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MAX_MESSAGE)
        with theirs:
            descriptors = (self._listener.fileno(), theirs.fileno())
            # A session of its own: Ctrl-C in the terminal is the master's to interpret.
            self._process = subprocess.Popen(  # noqa: S603  our own program
                [sys.executable, "-m", "bench_features.live.live_process", *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if log.isEnabledFor(logging.DEBUG) else subprocess.DEVNULL,
                pass_fds=descriptors,
                start_new_session=True,
            )
        self._listener.close()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, NICENESS)
        welcome = Welcome(
            token=self._token,
            cookie=f"weighbridge-{self.address.port}",
            host=self.address.host,
            control=self._control,
            version=__version__,
            light=css_variables("light"),
            dark=css_variables("dark"),
        )
        self._socket.settimeout(0.0)
        self._socket.send(encode(welcome))
        self._reader = gevent.spawn(self._serve)
        may = "shows and can stop" if self._control else "shows"
        tell(f"live page: {self.url} ({may} this run to whoever has this address)")

    def finish(self, status: str, reasons: Sequence[str]) -> None:
        """Note in the stats file that nobody looks any more; `close` says to readers how the run ended."""
        if self._reader is None or self._run is None:
            return
        if self._viewers:
            self._stats = self._run.stats()
        self._set_viewers(0)
        line = clean(final_line(self._run.snapshot()))
        self._ending = Ended(status, line, [clean(reason) for reason in reasons[:20]])
        # What readers want from now on is answered by the end alone.
        self._reader.kill()

    def close(self) -> None:
        """Say to readers how the run ended, with the sentence of its report, and end the process, whatever it does.

        The stats file is whole by now.
        """
        self._listener.close()
        if self._ending is not None and self._reader is not None:
            answer = "" if self._stats is None else answer_of(self._stats, self._verdicts)
            with contextlib.suppress(OSError):
                self._socket.send(encode(msgspec.structs.replace(self._ending, answer=answer)))
        self._disconnect()
        process, self._process = self._process, None
        if process is None:
            return
        for sign in (None, signal.SIGTERM, signal.SIGKILL):
            if sign is not None:
                process.send_signal(sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT_S)
                return

    def _disconnect(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.kill()
            self._socket.close()

    # -- messages of the process ------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Answer until the process ends; the run does not depend on it."""
        assert self._run is not None
        why = "its process ended"
        try:
            while True:
                wait_read(self._socket.fileno())  # type: ignore[no-untyped-call]
                try:
                    data = self._socket.recv(MAX_MESSAGE)
                except BlockingIOError:
                    continue
                if not data:
                    break
                self._handle(to_master(data))
        except ConnectionError:
            pass  # it ended with something of ours unread
        except (OSError, msgspec.DecodeError) as error:
            why = str(error)
        except Exception as error:
            log.exception("the live page failed")
            why = f"{type(error).__name__}: {error}"
        self._set_viewers(0)
        self._reader = None
        self._socket.close()
        self._run.notify(f"the live page is gone ({one_line(why)}); the run goes on without it")

    def _handle(self, message: Ask | ViewerCount | StopRun) -> None:
        match message:
            case Ask():
                self._answer(message)
            case ViewerCount():
                self._set_viewers(message.viewers)
            case StopRun():
                self._stop(message.who)

    def _answer(self, ask: Ask) -> None:
        run, now = self._run, monotonic()
        if run is None or now - self._sent_at < LEAST_INTERVAL_S:
            return
        self._sent_at = now
        began_ns = monotonic_ns()
        if ask.plan:
            treatments = run.plan.treatments
            engines = [one.engine for one in treatments]
            hues = {engine: engine_hue(engine) for engine in set(engines)}
            subject = describe_subject([as_stored(one) for one in treatments], ())
            name = subject if run.scenario in subject else f"{run.scenario}: {subject}"
            self._send(Plan(plan_message(name, [one.title for one in treatments], engines, hues)))
        body = snapshot_message(run.snapshot(), self._window.take(run.durations()))
        body["stopping"] = self._stopped
        stats, margin = run.stats(), None if self._verdicts is None else self._verdicts.margin
        path = "" if stats is None else str(stats.absolute())
        self._send(State(within(body, MAX_MESSAGE - len(path.encode())), path, margin))
        self._snapshots += 1
        self._cost_ns += monotonic_ns() - began_ns

    def _send(self, message: Any) -> None:
        try:
            self._socket.send(encode(message))
        except BlockingIOError:
            self._dropped += 1  # it has not taken the last one: this one would be old, too

    def _set_viewers(self, viewers: int) -> None:
        """Note when somebody begins to look, and when nobody does any more."""
        run, before, self._viewers = self._run, self._viewers, viewers
        assert run is not None
        self._most = max(self._most, viewers)
        if viewers and not before:
            self._most, self._snapshots, self._dropped, self._cost_ns = viewers, 0, 0, 0
            self._window.reset(run.durations())
            run.note("watched", {"state": "began", "shares_host": run.shares_host()})
        elif before and not viewers:
            counts = {"viewers": self._most, "snapshots": self._snapshots, "dropped": self._dropped}
            run.note(
                "watched", {"state": "ended", "shares_host": run.shares_host(), **counts, "cost_ns": self._cost_ns}
            )

    def _stop(self, who: str) -> None:
        if self._run is None or not self._control or self._stopped:
            return
        self._stopped = True
        run, who = self._run, clean(who)
        run.note("stopped-on-page", {"who": who})
        run.remark(f"the run was stopped on its live page, by {who}")
        run.notify(f"stopped on the live page, by {who}")
        run.interrupt()


@contextlib.contextmanager
def open_live_page(
    address: Address, *, control: bool, allow_any: bool, verdicts: VerdictOptions
) -> Iterator[LivePage]:
    """Listen for the readers of a run that is about to begin; end the page's process afterwards."""
    listener = listen(address, option="--web", allow_any=allow_any, allow_flag="--web-insecure-bind")
    page = LivePage(listener, control=control, verdicts=verdicts)
    try:
        yield page
    finally:
        page.close()
