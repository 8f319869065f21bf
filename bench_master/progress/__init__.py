"""Shows a run while it goes on; `choose_view` returns the view that ``--progress`` asks for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, Literal, TextIO, TypeAlias

from bench_common.cli import check_choice
from bench_common.errors import UsageError
from bench_master.progress.line_views import CharsView, LinesView
from bench_master.progress.view import NotificationsView, View

Mode: TypeAlias = Literal["auto", "live", "chars", "lines", "none"]
MODES: Final[tuple[Mode, ...]] = ("auto", "live", "chars", "lines", "none")
"""The values of ``--progress``."""
LOG_INTERVAL_S: Final = 10.0
"""The time between two lines in a log, in seconds."""


def choose_view(
    mode: str, stream: TextIO, *, quiet: bool = False, color: str = "auto", environ: Mapping[str, str] = os.environ
) -> View:
    """Return the view for ``--progress MODE`` on `stream`, which is stderr as a rule.

    ``auto`` is the live view on a terminal that can move its cursor and show UTF-8, characters on any other terminal,
    and elsewhere, as in a log, a line now and then. Raises `UsageError` for a mode that does not exist, and for
    a live view where none is possible.
    """
    check_choice(mode, MODES, what="--progress mode")
    if quiet:
        return View()
    if mode == "none":
        return NotificationsView(stream)
    if mode == "lines":
        return LinesView(stream)
    if mode == "auto" and not stream.isatty():
        return LinesView(stream, LOG_INTERVAL_S)
    obstacle = _no_live_view(stream, environ)
    if mode == "live" and obstacle:
        raise UsageError(f"--progress live: {obstacle}; use --progress chars or lines instead")
    if mode == "chars" or obstacle:
        return CharsView(stream)
    from bench_master.progress.live import LiveView

    return LiveView(stream, no_color=color == "never" or (color == "auto" and bool(environ.get("NO_COLOR"))))


def _no_live_view(stream: TextIO, environ: Mapping[str, str]) -> str:
    """Return why there can be no live view on `stream`; empty if there can."""
    if not stream.isatty():
        return "stderr is not a terminal"
    term = environ.get("TERM", "")
    if term.lower() in {"", "dumb", "unknown"}:
        return f"the terminal cannot move its cursor (TERM={term or 'is not set'})"
    if (stream.encoding or "").lower().replace("-", "") != "utf8":
        return f"the terminal's encoding is {stream.encoding}, not UTF-8"
    return ""
