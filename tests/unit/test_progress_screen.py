"""The picture of the live view: what it shows, and that it fits any screen."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from bench_master.progress.line_views import status_line
from bench_master.progress.live import render, share_lines
from bench_master.progress.view import ErrorRow, HostRow, LatencyRow, RoundRow, Snapshot, TrialRow

ENGINES = ("docker", "native", "podman", "runc")
OPERATIONS = ("job", "create", "start", "a-very-long-operation-name", "remove")


def a_snapshot(**changes):
    titles = [f"environment=bare-metal engine={name} network=host memory=512MiB" for name in ENGINES]
    busy = Snapshot(
        scenario="quickstart",
        elapsed_s=42.3,
        planned=800,
        done=412,
        failed=3,
        in_flight=4,
        rate_now=12.41,
        rate_mean=9.83,
        eta_s=39.2,
        trial=TrialRow(7, 12, 2, titles[2], warmup=False),
        latencies=tuple(
            LatencyRow(index, title, operation, 40, int(operation == "start"), 0.0123, 0.0456, 1.5)
            for index, title in enumerate(titles)
            for operation in OPERATIONS
        ),
        hosts=(
            HostRow("w-1", "alpha", "bare-metal", "ready", 4, 4, 0.31, 12.4),
            HostRow("w-2", "beta", "control", "lost", 0, 4, 133.0, None),
        ),
        errors=(ErrorRow(3, "start", "timeout", "no answer in 60 s\x1b[2J from the engine's socket"),),
    )
    return replace(busy, **changes)


def picture(snapshot, width, height):
    out = io.StringIO()
    Console(file=out, width=width, height=height, color_system=None).print(render(snapshot, width, height))
    return out.getvalue()


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 132])
@pytest.mark.parametrize("height", [1, 2, 3, 4, 5, 7, 10, 24, 60])
def test_the_picture_fits_the_screen(width, height):
    """No line is wider and no picture taller than the screen, however small or large that is."""
    lines = picture(a_snapshot(), width, height).splitlines()
    assert 1 <= len(lines) <= height
    assert max(cell_len(line) for line in lines) <= width


def test_wide_characters_fit_too():
    """Characters that take two columns count as two."""
    wide = a_snapshot(scenario="秤" * 100, trial=TrialRow(1, 2, 0, "引擎=" * 40, warmup=False))
    assert max(cell_len(line) for line in picture(wide, 80, 24).splitlines()) <= 80


def test_a_large_screen_shows_everything():
    """With enough lines nothing is left out: progress, rates, trial, every latency, errors and hosts."""
    warm_up = TrialRow(7, 12, 2, "engine=podman", warmup=True)
    text = picture(a_snapshot(noop=True, lost=2, aborted=5, trial=warm_up), 100, 60)
    for part in (
        "NO-OP: nothing is executed",
        "quickstart",
        "422/800 jobs  52%",
        "0:42 elapsed, 0:39 to go",
        "12.4 jobs/s now, 9.83 mean",
        "3 failed",
        "4 in flight",
        "2 lost",
        "5 aborted",
        "trial 7 of 12 (warm-up, not in the latencies): engine=podman",
        "3 x start timeout: no answer in 60 s",
        "w-1 on alpha (bare-metal): ready, 4/4 slots busy, cpu 12 %, loop lag 0.3 ms",
        "w-2 on beta (control): lost, 0/4 slots busy, loop lag 133.0 ms",
    ):
        assert part in text
    assert text.count("12.3ms") == len(ENGINES) * len(OPERATIONS)
    assert "more" not in text


def test_a_small_screen_shows_the_running_treatment_first_and_counts_the_rest():
    """When not all fits, the latencies of the current trial are what stays, and what is hidden is counted."""
    lines = picture(a_snapshot(), 80, 18).splitlines()
    heading = next(index for index, line in enumerate(lines) if line.startswith("latency so far"))
    assert "engine=podman" in lines[heading + 1]
    shown = [line for line in lines[heading + 1 :] if "ms" in line and "lag" not in line]
    hidden = next(line for line in lines if "more rows of latencies" in line)
    total = len(ENGINES) * (1 + len(OPERATIONS))
    assert int(hidden.split()[1]) == total - len(shown) - 1
    assert any("w-2 on beta" in line for line in lines)
    assert any("3 x start timeout" in line for line in lines)


def test_a_narrow_screen_gives_up_columns_not_the_median():
    """What is dropped first is the maximum; count and median stay to the last."""
    headings = {
        width: next(line for line in picture(a_snapshot(), width, 40).splitlines() if "latency so far" in line)
        for width in (80, 60, 40)
    }
    assert headings[80].split()[3:] == ["n", "errors", "p50", "p95", "max"]
    assert headings[60].split()[3:] == ["n", "errors", "p50", "p95"]
    assert headings[40].split()[3:] == ["n", "p50"]


def test_the_bar_is_full_only_at_the_end():
    """A run with one job left never reads 100 %, and one that is over does."""
    almost = picture(a_snapshot(planned=100_000, done=99_999, failed=0), 80, 24)
    assert "99%" in almost
    assert "░" in almost
    over = picture(a_snapshot(planned=100_000, done=100_000, failed=0), 80, 24)
    assert "100%" in over
    assert "░" not in over


def test_foreign_text_cannot_steer_the_terminal():
    """An escape sequence in an engine's message is shown as text."""
    text = picture(a_snapshot(), 80, 60)
    assert "\x1b" not in text
    assert r"\u001b[2J" in text


def test_rows_of_nothing_are_left_out():
    """Operations that did not happen yet take no line; one that only failed does, without a latency."""
    rows = (
        LatencyRow(0, "engine=docker", "create", 0, 0),
        LatencyRow(0, "engine=docker", "start", 0, 2),
        LatencyRow(1, "engine=native", "start", 0, 0),
    )
    text = picture(a_snapshot(latencies=rows, trial=None), 80, 40)
    assert "create" not in text
    assert "engine=native" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("  start")]
    assert line.split() == ["start", "0", "2", "-", "-", "-"]


@pytest.mark.parametrize(
    ("wanted", "free", "got"),
    [
        ([10, 2, 3], 15, [10, 2, 3]),
        ([10, 2, 3], 12, [7, 2, 3]),
        ([10, 2, 3], 100, [10, 2, 3]),
        ([10, 10, 10], 7, [2, 2, 3]),
        ([10, 10], 0, [0, 0]),
        ([], 5, []),
    ],
)
def test_lines_are_shared_evenly(wanted, free, got):
    """Small sections get all they want, and the large ones share what is left."""
    assert share_lines(wanted, free) == got


def test_what_a_benchmark_reports_is_shown_while_it_does():
    """A line for each host that has something to tell; none where nothing is told."""
    quiet, talking = a_snapshot().hosts
    told = replace(quiet, status_text="run: [ 4s ] thds: 1 tps: 2580.91")
    shown = picture(a_snapshot(hosts=(told, talking)), 100, 60)
    assert "what workers prepare and benchmarks report" in shown
    assert "  w-1 run: [ 4s ] thds: 1 tps: 2580.91" in shown
    alone = picture(a_snapshot(hosts=(told,)), 100, 60)
    assert "\n  run: [ 4s ]" in alone
    assert "what workers prepare and benchmarks report" not in picture(a_snapshot(), 100, 60)


def test_a_round_is_shown_where_rounds_go_on_until_they_are_settled():
    """In place of the number of trials, which is not known."""
    settling = a_snapshot(round=RoundRow(12, 30, 3, 4))
    assert "round 12 of at most 30: 3 of 4 settled; environment=bare-metal engine=" in picture(settling, 132, 24)
    assert "round 12 of at most 30: 3 of 4 settled, trial 7/12: " in status_line(settling)
    assert "settled" not in picture(a_snapshot(), 132, 24) + status_line(a_snapshot())
