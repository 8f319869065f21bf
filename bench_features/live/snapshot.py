"""A run at one instant, as the live page's process gets it: small, whatever the run has, and with harmless texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench_common.histogram import Histogram, bucket_bounds
from bench_common.safe_text import one_line, shorten

if TYPE_CHECKING:
    from bench_master.progress.view import ErrorRow, HostRow, LatencyRow, Snapshot

MAX_ROWS: Final = {"latencies": 240, "hosts": 120, "errors": 50}
"""The most rows of each table; the page says how many more there are."""
MAX_CHARS: Final = 300
"""Of one text; of a longer one the middle is left out."""
MAX_TITLES: Final = 400
"""Treatments that have a title in the page."""
ROUNDING: Final = 8
"""So many neighbouring buckets of a histogram, of 0.4 % each, count as one in the page's curves."""
MAX_VALUES: Final = 400
"""Different durations of one treatment in one snapshot; with more, neighbours are joined."""
FRAME_BYTES: Final = 1024
"""What is around the encoded snapshot, at most."""
_NUMBERS: Final = (
    *("planned", "done", "failed", "left_out", "lost", "aborted", "in_flight"),
    *("elapsed_s", "eta_s", "rate_mean", "rate_now", "noop"),
)


class DurationWindow:
    """The durations of jobs since the last snapshot."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[Histogram, Histogram]] = {}
        """By treatment: its histogram, and a copy of it at the last snapshot."""

    def reset(self, durations: Sequence[Histogram]) -> None:
        """Begin a window: what was recorded until now is in none."""
        self._before = {index: (each, each.copy()) for index, each in enumerate(durations)}

    def take(self, durations: Sequence[Histogram]) -> list[list[Any]]:
        """Return `[treatment, [[duration in s, count], ...]]` of each treatment with new values; begin a window."""
        found = []
        for index, histogram in enumerate(durations):
            known, before = self._before.get(index, (None, histogram))
            if known is not histogram:
                # The statistics of a run that only now begins replace those of the time before.
                self._before[index] = (histogram, histogram.copy())
            elif histogram.n != before.n:
                found.append([index, rounded(histogram.since(before))])
                self._before[index] = (histogram, histogram.copy())
        return found


def rounded(counts: Mapping[int, int]) -> list[list[float]]:
    """Return `[duration in s, count]` of rounded durations, in order, `MAX_VALUES` at most."""
    width = ROUNDING
    while True:
        groups: dict[int, int] = {}
        for bucket, count in counts.items():
            groups[bucket // width] = groups.get(bucket // width, 0) + count
        if len(groups) <= MAX_VALUES:
            break
        width *= 2
    return [
        [(bucket_bounds(group * width)[0] + bucket_bounds((group + 1) * width - 1)[1]) / 2e9, count]
        for group, count in sorted(groups.items())
    ]


def plan_message(
    scenario: str, titles: Iterable[str], engines: Iterable[str], hues: Mapping[str, str]
) -> dict[str, Any]:
    """Return what does not change during a run: its name, and title, engine and colour of each treatment."""
    rows = [
        {"title": clean(title), "engine": clean(engine), "hue": hues[engine]}
        for title, engine in zip(titles, engines, strict=True)
    ]
    return {"scenario": clean(scenario), "treatments": rows[:MAX_TITLES]}


def snapshot_message(snapshot: Snapshot, window: Sequence[Any]) -> dict[str, Any]:
    """Return a snapshot as the page's process gets it; `window` is that of a `DurationWindow`."""
    trial = snapshot.trial
    rows: dict[str, Sequence[Any]] = {
        "latencies": _by_interest(snapshot),
        "hosts": snapshot.hosts,
        "errors": snapshot.errors,
    }
    make: dict[str, Callable[[Any], dict[str, Any]]] = {"latencies": _latency, "hosts": _host, "errors": _error}
    return {
        **{name: getattr(snapshot, name) for name in _NUMBERS},
        "round": snapshot.round.text if snapshot.round is not None else "",
        "trial": None
        if trial is None
        else {
            "number": trial.number,
            "total": trial.total,
            "treatment": trial.treatment,
            "title": clean(trial.title),
            "warmup": trial.warmup,
        },
        "doing": clean(snapshot.doing),
        "window": list(window),
        "hidden": {name: max(0, len(found) - MAX_ROWS[name]) for name, found in rows.items()},
        **{name: [make[name](row) for row in found[: MAX_ROWS[name]]] for name, found in rows.items()},
    }


def within(message: dict[str, Any], limit: int) -> dict[str, Any]:
    """Return a message whose tables have lost rows until it has, in its frame, no more than `limit` bytes."""
    while len(msgspec.msgpack.encode(message)) > limit - FRAME_BYTES:
        shown = {name: message[name] for name in MAX_ROWS if message.get(name)}
        if not shown:
            break
        hidden = dict(message["hidden"])
        for name, rows in shown.items():
            kept = rows[: len(rows) // 2]
            hidden[name] += len(rows) - len(kept)
            message = {**message, name: kept, "hidden": hidden}
    return message


def clean(text: str) -> str:
    """Return a text of a run as one short line in which nothing is invisible."""
    return shorten(one_line(text[: 20 * MAX_CHARS]), MAX_CHARS)


def _by_interest(snapshot: Snapshot) -> list[LatencyRow]:
    """Return the rows that have something; if they are too many, those of the running treatment first."""
    rows = [row for row in snapshot.latencies if row.n or row.errors]
    if len(rows) > MAX_ROWS["latencies"] and snapshot.trial is not None:
        running = snapshot.trial.treatment
        rows.sort(key=lambda row: row.treatment != running)
    return rows


def _latency(row: LatencyRow) -> dict[str, Any]:
    return {
        "treatment": row.treatment,
        "operation": clean(row.operation),
        "n": row.n,
        "errors": row.errors,
        "p50_s": row.p50_s,
        "p95_s": row.p95_s,
        "p99_s": row.p99_s,
        "max_s": row.max_s,
        "per_s": row.per_s,
        "mb_per_s": row.mb_per_s,
    }


def _host(row: HostRow) -> dict[str, Any]:
    return {
        "worker": clean(row.worker_id),
        "host": clean(row.host),
        "environment": clean(row.environment),
        "state": clean(row.state),
        "running": row.running,
        "slots": row.slots,
        "cpu_percent": row.cpu_percent,
        "lag_ms": row.lag_ms,
        "at": clean(row.status_text),
    }


def _error(row: ErrorRow) -> dict[str, Any]:
    return {
        "count": row.count,
        "operation": clean(row.operation),
        "kind": clean(row.kind),
        "message": clean(row.message),
        "left_out": row.left_out,
    }
