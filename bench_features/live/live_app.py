"""The application of the live page: a page without data, the stream of a run's states and, if allowed, a stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.resources import files
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench_features.live.messages import Welcome
from bench_features.live.viewers import MAX_VIEWERS, Viewers
from bench_master.web import guard
from bench_master.web.guard import Refused, Session

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

PAGES: Final = {
    "/": ("live.html", "text/html; charset=utf-8"),
    "/live.css": ("live.css", "text/css; charset=utf-8"),
    "/live.js": ("live.js", "text/javascript; charset=utf-8"),
    "/chart.js": ("chart.js", "text/javascript; charset=utf-8"),
}
"""What anybody may load: it shows nothing of the run."""
CONFIRM_WITHIN_S: Final = 60.0
"""How long after a reader asked to stop the run the confirmation counts."""


class LiveApp:
    """Answers what the guard lets through; `stop(who)` stops the run, None if readers may not."""

    def __init__(self, viewers: Viewers, welcome: Welcome, stop: Callable[[str], None] | None) -> None:
        self._viewers = viewers
        self._welcome = welcome
        self._stop = stop
        self._asked: dict[int, tuple[str, float]] = {}
        """By session: what has to be sent to confirm a stop, and when that was said."""

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        method, path = environ["REQUEST_METHOD"], environ.get("PATH_INFO", "")
        try:
            if path in PAGES and method != "POST":
                return _send(start_response, *self._page(path))
            session: Session = environ[guard.SESSION]
            match method, path:
                case ("GET", "/events"):
                    return self._events(session, start_response)
                case ("GET", "/status"):
                    found = {"viewers": len(self._viewers), "most": MAX_VIEWERS, "control": self._stop is not None}
                    return _send_json(start_response, found)
                case ("POST", "/stop"):
                    return _send_json(start_response, self._on_stop(environ))
            raise Refused("404 Not Found", "there is no such page")
        except Refused as refused:
            return guard.refuse(refused, start_response)

    def _page(self, path: str) -> tuple[str, bytes]:
        """Return the type and the text of a file."""
        name, kind = PAGES[path]
        text = files("bench_features.live").joinpath("pages", name).read_text("utf-8")
        if name.endswith(".css"):
            text = text.replace("LIGHT", self._welcome.light).replace("DARK", self._welcome.dark)
        return kind, text.encode()

    def _events(self, session: Session, start_response: StartResponse) -> Iterable[bytes]:
        control = self._stop is not None
        greeting = {"version": self._welcome.version, "control": control, "secret": session.csrf if control else ""}
        viewer = self._viewers.join(greeting)
        if viewer is None:
            raise Refused("503 Service Unavailable", f"{MAX_VIEWERS} viewers are the most: close one of their pages")
        headers = [("Content-Type", "text/event-stream"), ("X-Accel-Buffering", "no"), ("Connection", "close")]
        start_response("200 OK", headers)
        return viewer

    def _on_stop(self, environ: WSGIEnvironment) -> dict[str, Any]:
        if self._stop is None:
            raise Refused(
                "403 Forbidden", "this page only shows the run: start it with --web-control, or press Ctrl-C"
            )
        session = guard.check_csrf(environ)
        given = guard.read_json(environ).get("confirm")
        code, asked_at = self._asked.pop(session.number, ("", 0.0))
        if given is None:
            code = guard.new_token()
            self._asked[session.number] = (code, monotonic())
            return {"confirm": code}
        if not code or given != code or monotonic() - asked_at > CONFIRM_WITHIN_S:
            raise Refused("409 Conflict", "this was not asked, or too long ago: ask again")
        self._stop(f"{environ.get('REMOTE_ADDR', 'unknown')}, session {session.number}")
        return {"stopping": True}


def _send(start_response: StartResponse, kind: str, body: bytes) -> list[bytes]:
    start_response("200 OK", [("Content-Type", kind), ("Content-Length", str(len(body)))])
    return [body]


def _send_json(start_response: StartResponse, found: Any) -> list[bytes]:
    return _send(start_response, "application/json", msgspec.json.encode(found))
