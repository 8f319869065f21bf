"""The live view: a picture of the run, redrawn in place on a terminal.

`render` is a pure function of a snapshot and the size of the screen: a head, then sections (latencies, errors,
benchmarks, hosts) that share the remaining height. The picture never exceeds the screen, and the last line of a
section counts the rows that it hides. `LiveView` draws only when asked to, prints log records and warnings above the
picture, and replaces it by one line at the end, so the scroll-back stays clean.
"""

from __future__ import annotations

import atexit
import sys
import textwrap
from typing import TYPE_CHECKING, Final, TextIO, cast

from msgspec import Struct
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from bench_common.safe_text import escape_lines, one_line, shorten
from bench_master.formatting import format_elapsed, format_number, format_seconds
from bench_master.progress.view import NotificationsView, final_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_master.progress.view import HostRow, LatencyRow, Snapshot

LAG_WARNING_MS: Final = 50.0
"""The lag of a worker's loop from which it is yellow: check its stamps in the report."""

NAME_WIDTH: Final = 16
BAR_WIDTH: Final = 40
_COLUMNS: Final = (("n", 9), ("errors", 8), ("p50", 10), ("p95", 10), ("max", 10))
_DROP_ORDER: Final = ("max", "errors", "p95")
"""The columns that a narrow screen drops, in this order."""


class Section(Struct, frozen=True):
    """A section of the picture."""

    heading: Text
    rows: Sequence[Text]
    noun: str
    """What the rows are called where some are hidden."""

    def cut_to(self, height: int) -> list[Text]:
        """Return at most `height` lines; the last one counts the hidden rows, if any."""
        lines = [self.heading, *self.rows]
        if len(lines) <= height:
            return lines
        if height <= 1:
            return [Text(f"{len(self.rows)} {self.noun}", style="dim")][:height]
        shown = height - 2
        more = Text(f"  ... {len(self.rows) - shown} more {self.noun}", style="dim")
        return [self.heading, *self.rows[:shown], more]


def render(snapshot: Snapshot, width: int, height: int) -> Group:
    """Return the picture: at most `height` lines, none wider than `width` columns."""
    head = _head(snapshot, width, height)
    sections = [
        section
        for section in (
            _latencies(snapshot, width, height - len(head)),
            _errors(snapshot, width),
            _status_texts(snapshot),
            _hosts(snapshot),
        )
        if section.rows
    ]
    spaced = height - len(head) >= 4 * len(sections)
    free = height - len(head) - (len(sections) if spaced else 0)
    lines = head
    for section, share in zip(sections, share_lines([1 + len(s.rows) for s in sections], free), strict=True):
        lines += [Text()] if spaced else []
        lines += section.cut_to(share)
    for line in lines:
        line.no_wrap = True
        line.truncate(width, overflow="ellipsis")
    return Group(*lines)


def share_lines(wanted: Sequence[int], free: int) -> list[int]:
    """Divide `free` lines: one to each section in turn, from the last to the first, until each has what it wants."""
    got = [0] * len(wanted)
    while free > 0 and got != list(wanted):
        for index in reversed(range(len(wanted))):
            if free > 0 and got[index] < wanted[index]:
                got[index] += 1
                free -= 1
    return got


def _head(snapshot: Snapshot, width: int, height: int) -> list[Text]:
    lines = [_title(snapshot), _bar(snapshot, width), _counts(snapshot), _trial(snapshot)]
    # On a screen of a line or two, progress matters most.
    return lines if height >= len(lines) else lines[1 : height + 1]


def _title(snapshot: Snapshot) -> Text:
    text = Text(one_line(snapshot.scenario), style="bold")
    if snapshot.noop:
        text.append("  NO-OP: nothing is executed, this is the harness's own maximum", style="yellow")
    return text


def _bar(snapshot: Snapshot, width: int) -> Text:
    finished, planned = snapshot.finished, snapshot.planned
    times = f"{format_elapsed(snapshot.elapsed_s)} elapsed, {format_elapsed(snapshot.eta_s)} to go"
    if planned is None:
        return Text(f"{finished:,} jobs   {times}")
    share = min(1.0, finished / planned) if planned else 1.0
    # Rounded down: an unfinished run never reads 100 %.
    text = f"{finished:,}/{planned:,} jobs {int(share * 100):3}%"
    size = min(BAR_WIDTH, width - len(text) - len(times) - 4)
    if size < BAR_WIDTH // 5:
        return Text(f"{text}  {times}")
    filled = int(size * share)
    return Text.assemble((text, "bold"), "  ", ("█" * filled, "green"), ("░" * (size - filled), "dim"), "  ", times)


def _counts(snapshot: Snapshot) -> Text:
    text = Text(f"{format_number(snapshot.rate_now)} jobs/s now, {format_number(snapshot.rate_mean)} mean")
    for count, word in ((snapshot.failed, "failed"), (snapshot.lost, "lost"), (snapshot.aborted, "aborted")):
        if count or word == "failed":
            text.append(f"   {count:,} {word}", style="bold red" if count else "")
    if snapshot.left_out:
        text.append(f"   {snapshot.left_out:,} left out (optional)")
    text.append(f"   {snapshot.in_flight:,} in flight")
    return text


def _trial(snapshot: Snapshot) -> Text:
    trial = snapshot.trial
    if trial is None:
        return Text(one_line(snapshot.doing) or "no trial is running", style="dim")
    warmup = " (warm-up, not in the latencies)" if trial.warmup else ""
    if snapshot.round is not None:
        return Text(f"{snapshot.round.text}; {one_line(trial.title)}")
    return Text(f"trial {trial.number:,} of {trial.total:,}{warmup}: {one_line(trial.title)}")


def _latencies(snapshot: Snapshot, width: int, height: int) -> Section:
    columns = dict(_COLUMNS)
    for name in _DROP_ORDER:
        if NAME_WIDTH + sum(columns.values()) > width:
            del columns[name]
    heading = Text(f"{'latency so far':{NAME_WIDTH}}", style="dim")
    for name, size in columns.items():
        heading.append(f"{name:>{size}}")
    groups = _by_treatment(snapshot)
    current = None if snapshot.trial is None else snapshot.trial.treatment
    if sum(1 + len(rows) for rows in groups.values()) + 1 > height:
        # Too many: the running treatment comes first. Otherwise each keeps its place, which is calmer.
        groups = dict(sorted(groups.items(), key=lambda item: item[0] != current))
    lines = []
    for treatment, rows in groups.items():
        lines.append(Text(one_line(rows[0].title), style="bold" if treatment == current else ""))
        lines += [_latency(row, columns) for row in rows]
    return Section(heading, lines, "rows of latencies")


def _by_treatment(snapshot: Snapshot) -> dict[int, list[LatencyRow]]:
    groups: dict[int, list[LatencyRow]] = {}
    for row in snapshot.latencies:
        if row.n or row.errors:
            groups.setdefault(row.treatment, []).append(row)
    return groups


def _latency(row: LatencyRow, columns: dict[str, int]) -> Text:
    cells = {
        "n": f"{row.n:,}",
        "errors": f"{row.errors:,}",
        "p50": format_seconds(row.p50_s, 3),
        "p95": format_seconds(row.p95_s, 3),
        "max": format_seconds(row.max_s, 3),
    }
    name = f"  {one_line(row.operation)}"
    line = Text(f"{name:{NAME_WIDTH}}" if len(name) < NAME_WIDTH else f"{name[: NAME_WIDTH - 2]}~ ")
    for column, size in columns.items():
        style = "bold red" if column == "errors" and row.errors else ""
        line.append(f"{cells[column]:>{size}}", style=style)
    return line


def _errors(snapshot: Snapshot, width: int) -> Section:
    rows = [
        Text.assemble(
            (count := f"{group.count:7,} x ", "" if group.left_out else "bold red"),
            left_out := "left out (optional): " if group.left_out else "",
            shorten(
                f"{one_line(group.operation)} {one_line(group.kind)}: {one_line(group.message)}",
                width - len(count) - len(left_out),
            ),
        )
        for group in snapshot.errors
    ]
    return Section(Text("errors", style="dim"), rows, "kinds of error")


def _hosts(snapshot: Snapshot) -> Section:
    return Section(Text("hosts", style="dim"), [_host(row) for row in snapshot.hosts], "hosts")


def _status_texts(snapshot: Snapshot) -> Section:
    several = len(snapshot.hosts) > 1
    rows = [
        Text(f"  {f'{one_line(row.worker_id)} ' if several else ''}{one_line(row.status_text)}")
        for row in snapshot.hosts
        if row.status_text
    ]
    return Section(Text("what workers prepare and benchmarks report", style="dim"), rows, "reports")


def _host(row: HostRow) -> Text:
    place = f"{one_line(row.host)} ({one_line(row.environment)})"
    if row.host != row.worker_id:
        place = f"{one_line(row.worker_id)} on {place}"
    line = Text(f"  {place}: {one_line(row.state)}, {row.running}/{row.slots} slots busy")
    if row.cpu_percent is not None:
        line.append(f", cpu {row.cpu_percent:.0f} %")
    if row.lag_ms is not None:
        line.append(f", loop lag {row.lag_ms:.1f} ms", style="yellow" if row.lag_ms > LAG_WARNING_MS else "")
    return line


class LiveView(NotificationsView):
    """Shows the run on a terminal, and restores the terminal however Python ends."""

    shows_progress = True

    def __init__(self, stream: TextIO, *, no_color: bool = False) -> None:
        super().__init__(stream)
        self.writer.steers = True  # what the console is given is escaped
        self._console = Console(
            file=cast("TextIO", self.writer), force_terminal=True, highlight=False, no_color=no_color
        )
        self._live: Live | None = None

    def begin(self, snapshot: Snapshot) -> None:
        """Hide the cursor, redirect what others print, draw."""
        # Only a stdout that is a terminal would overwrite the picture; a pipe is left alone.
        self._live = Live(
            console=self._console, auto_refresh=False, redirect_stdout=sys.stdout.isatty(), redirect_stderr=True
        )
        atexit.register(self.close)
        self._live.start()
        super().begin(snapshot)
        self.refresh(snapshot)

    def refresh(self, snapshot: Snapshot) -> None:
        """Redraw the picture."""
        # Skip this picture while the screen has not taken the last one.
        if self._live is not None and not self.writer.blocked:
            width, height = self._console.size
            self._live.update(render(snapshot, width, height - 1), refresh=True)

    def notify(self, text: str, *, passing: bool = False) -> None:
        """Show a notification above the picture, which has by itself what is told in passing."""
        if not passing or self._live is None:
            super().notify(text)

    def show(self, text: str) -> None:
        """Show lines above the picture."""
        if self._live is None:
            super().show(text)
        else:
            self._console.print(Text(escape_lines(text)))

    def end(self, snapshot: Snapshot) -> None:
        """Replace the picture by one line of summary."""
        if self._live is not None:
            self._live.transient = True
        self.close()
        # Wrapped between words: a terminal would break within one.
        self.writer.write(f"{textwrap.fill(final_line(snapshot), self._console.width)}\n")
        self.writer.close()

    def close(self) -> None:
        """Restore the terminal; the last picture stays."""
        live, self._live = self._live, None
        if live is not None:
            # An incomplete line would be lost with the redirection.
            sys.stdout.flush()
            sys.stderr.flush()
            live.stop()
            atexit.unregister(self.close)
        super().close()
