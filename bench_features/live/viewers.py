"""The viewers of the live page, and what each still has to get.

Every viewer has only the newest state: one that reads slowly skips states, and nothing is kept for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import gevent
import msgspec
from gevent.event import Event

from bench_features.live.history import History, Point
from bench_features.live.messages import ASK_INTERVAL_S, Ask, Ended, Plan, State, ViewerCount

MAX_VIEWERS: Final = 4
"""How many there may be at once."""
HEARTBEAT_S: Final = 10.0
"""After so long without news a viewer gets an empty message: a connection that is gone is noticed."""


class Viewer:
    """One viewer: its stream of server-sent events, as a WSGI server takes it."""

    def __init__(self, viewers: Viewers, greeting: Mapping[str, Any]) -> None:
        self._viewers = viewers
        self._greeting = greeting
        self._news = Event()
        self._plan_sent = False
        self._missing_from = 0
        """From which point on it has to get the history."""

    def notify(self, changed_from: int) -> None:
        """Note that there is news, and from which point on the history has changed."""
        self._missing_from = min(self._missing_from, changed_from)
        self._news.set()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the stream until the run ends."""
        viewers = self._viewers
        yield frame("hello", self._greeting)
        while True:
            if not self._news.wait(HEARTBEAT_S):
                yield b":\n\n"
                continue
            self._news.clear()
            if viewers.plan is not None and not self._plan_sent:
                self._plan_sent = True
                yield frame("plan", viewers.plan)
            if viewers.state is not None:
                begin, self._missing_from = self._missing_from, viewers.history.size
                points = viewers.history.rows(begin)
                yield frame("state", {**viewers.state, "answer": viewers.answer, "from": begin, "points": points})
            if viewers.ending is not None:
                yield frame("end", viewers.ending)
                return

    def close(self) -> None:
        """Leave: the server calls this however the connection ended, even before the first frame."""
        self._viewers.leave(self)


def frame(event: str, data: Any) -> bytes:
    """Return one server-sent event; JSON has no line end within."""
    return b"event: %s\ndata: %s\n\n" % (event.encode(), msgspec.json.encode(data))


class Viewers:
    """All viewers. `tell` sends a message to the master, which is asked only while there is one."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell
        self._viewers: list[Viewer] = []
        self._asking: gevent.Greenlet[..., Any] | None = None
        self.history = History()
        self.plan: dict[str, Any] | None = None
        self.state: dict[str, Any] | None = None
        """The newest state, without the history; None until somebody has looked."""
        self.ending: dict[str, Any] | None = None
        """How the run ended; None while it goes on."""
        self.answer = ""
        """What is known so far, as the report would say it."""

    def __len__(self) -> int:
        return len(self._viewers)

    def join(self, greeting: Mapping[str, Any]) -> Viewer | None:
        """Return a new viewer, or None if there are enough."""
        if len(self._viewers) >= MAX_VIEWERS:
            return None
        viewer = Viewer(self, greeting)
        self._viewers.append(viewer)
        self._changed()
        if self.ending is not None:
            viewer.notify(0)
        elif self._asking is None:
            # What was seen before somebody looked again is old.
            self.state = None
            self._asking = gevent.spawn(self._ask)
        elif self.state is not None:
            viewer.notify(0)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Forget a viewer that has gone."""
        if viewer in self._viewers:
            self._viewers.remove(viewer)
            self._changed()

    def take(self, message: Plan | State | Ended) -> None:
        """Pass on what the master sent."""
        changed = self.history.size
        match message:
            case Plan():
                self.plan = message.body
                return
            case State():
                changed = self.history.add(message.body)
                self.state = {name: value for name, value in message.body.items() if name != "window"}
            case Ended():
                self.end(message.status, message.line, message.reasons, message.answer)
        for viewer in self._viewers:
            viewer.notify(changed)

    def fill(self, points: Sequence[Point]) -> None:
        """Show what happened while nobody looked."""
        self.history.fill(points)
        for viewer in self._viewers:
            viewer.notify(0)

    def show_answer(self, answer: str) -> None:
        """Tell every viewer what is known so far."""
        self.answer = answer
        for viewer in self._viewers:
            viewer.notify(self.history.size)

    def end(self, status: str, line: str, reasons: list[str], answer: str = "") -> None:
        """Tell every viewer that nothing follows."""
        if self.ending is None:
            self.ending = {"status": status, "line": line, "reasons": reasons, "answer": answer}
            for viewer in self._viewers:
                viewer.notify(self.history.size)

    def _changed(self) -> None:
        self._tell(ViewerCount(len(self._viewers)))

    def _ask(self) -> None:
        while self._viewers and self.ending is None:
            self._tell(Ask(plan=self.plan is None))
            gevent.sleep(ASK_INTERVAL_S)
        self._asking = None
        self.history.pause()
