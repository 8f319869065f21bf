"""What a live page did not see: the points of a stretch of the run, from the stats file that is being written."""

from __future__ import annotations

from pathlib import Path

from bench_common.errors import WeighbridgeError
from bench_common.records import Outcome
from bench_common.stats.reader import StatsFile
from bench_features.live.history import MAX_POINTS, Point
from bench_features.live.live_verdict import MOST_BYTES


def past_points(path: Path, began_ns: int, gap: tuple[float, float]) -> list[Point]:
    """Return the points between two times (s) of a run that began at a time of the file's clock.

    They end with the last job that is in the file; none where it cannot be read.
    """
    begin_s, end_s = gap
    step_s = max(1.0, (end_s - begin_s) / (MAX_POINTS // 2))
    points: dict[int, Point] = {}
    try:
        if path.stat().st_size > MOST_BYTES:
            return []
        file = StatsFile(path)
        trials = file.header.trials
        for block in file.blocks({"jobs"}):
            for _, treatment, trial, _, outcome, start_ns, end_ns, *_ in block.body.tolist():
                at_s = (end_ns - began_ns) / 1e9
                if outcome > Outcome.FAILED or not begin_s <= at_s < end_s:
                    continue
                place = int((at_s - begin_s) // step_s)
                point = points.setdefault(place, _point(begin_s, end_s, step_s, place))
                if outcome == Outcome.FAILED:
                    point.failed += 1
                    continue
                point.done += 1
                if not trials[trial][2]:
                    counts = point.latencies.setdefault(treatment, {})
                    duration_s = float(f"{(end_ns - start_ns) / 1e9:.3g}")
                    counts[duration_s] = counts.get(duration_s, 0) + 1
    except (OSError, WeighbridgeError):
        return []
    return [
        points.get(place) or _point(begin_s, end_s, step_s, place) for place in range(max(points, default=-1) + 1)
    ]


def _point(begin_s: float, end_s: float, step_s: float, place: int) -> Point:
    return Point(begin_s + place * step_s, min(begin_s + (place + 1) * step_s, end_s), 0, 0)
