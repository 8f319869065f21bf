"""A character per job: which one, where lines break, and what happens when there are too many."""

from __future__ import annotations

import io

import numpy as np
import pytest
from msgspec.structs import replace

from bench_common.job_rows import JOB_ROW, OPERATION_ROW
from bench_common.records import Outcome
from bench_master.progress.line_views import (
    BURST_CHARS,
    CALM_REFRESHES,
    FIRST_BYTE_LEGEND,
    LEGEND,
    LINE_CHARS,
    CharsView,
)
from bench_master.progress.view import HostRow, Snapshot, TrialRow

MS = 1_000_000


def jobs(*durations_ms, outcome=Outcome.DONE):
    rows = np.zeros(len(durations_ms), dtype=JOB_ROW)
    rows["outcome"] = outcome
    rows["start_ns"] = 5_000 * MS
    rows["end_ns"] = rows["start_ns"] + np.array(durations_ms, dtype=np.int64) * MS
    return rows


class Shown:
    """A view and what it has written since the last look."""

    def __init__(self):
        self.out = io.StringIO()
        self.view = CharsView(self.out)
        self.seen = 0

    def text(self):
        text = self.out.getvalue()[self.seen :]
        self.seen += len(text)
        return text


@pytest.fixture
def shown():
    return Shown()


def test_the_legend_comes_first(shown):
    """Before any character it is said what the characters mean, and of a no-op run that it is one."""
    shown.view.begin(Snapshot("quickstart", noop=True))
    text = shown.text()
    assert text.startswith("quickstart: one character per job\n")
    assert LEGEND in text
    assert "NO-OP" in text


def test_each_job_has_the_character_of_its_time_or_outcome(shown):
    """The limits belong to the slower side, and a job that is not done has its outcome's letter whatever its time."""
    shown.view.jobs(jobs(0, 999, 1000, 2999, 3000, 9999, 10_000, 10**7))
    for outcome in (Outcome.FAILED, Outcome.LOST, Outcome.ABORTED):
        shown.view.jobs(jobs(1, outcome=outcome))
    assert shown.text() == "  ..ooOO**XLA"


def test_a_job_on_objects_has_the_character_of_its_first_byte_or_else_of_its_last(shown):
    """Both alphabets of ssbench: reads by their first byte, all others by the last, failures the same."""
    names = (("run",), ("create[tiny]", "read[tiny]", "read[tiny].first"))
    shown.view.begin(Snapshot("s", operation_names=names, alternatives=frozenset({1})))
    text = shown.text()
    assert LEGEND in text
    assert FIRST_BYTE_LEGEND in text
    rows = jobs(10, 2000, 5000, 20_000, 1, 2000, 5000, 20_000, 20_000)
    rows["treatment"], rows["ticket"], rows["outcome"][4] = 1, np.arange(len(rows))[::-1], Outcome.FAILED
    operations = np.zeros(2 * len(rows), dtype=OPERATION_ROW)
    operations["ticket"] = np.repeat(rows["ticket"], 2)
    operations["treatment"] = 1
    operations["duration_ns"] = np.repeat([10, 2000, 5000, 20_000, 1, 10, 2000, 5000, 20_000], 2) * MS
    operations["operation"] = [0, 0] * 5 + [1, 2] * 4
    shown.view.jobs(rows, operations)
    other = jobs(5, 2000)
    other["ticket"] = 100 + np.arange(2)
    shown.view.jobs(other, operations[:0])
    assert shown.text() == "  _|^@X.oO*.o"


def test_lines_are_wrapped_at_80_columns(shown):
    """Lines break by themselves at the same width, across batches."""
    for _ in range(17):
        shown.view.jobs(jobs(*[1] * 10))
        shown.view.refresh(Snapshot("s"))
    lines = shown.text().split("\n")
    assert [len(line) for line in lines] == [LINE_CHARS + 2, LINE_CHARS + 2, 170 - 2 * LINE_CHARS + 2]
    assert LINE_CHARS + 2 <= 80


def test_what_must_be_seen_has_a_line_of_its_own(shown):
    """A notice in the middle of a line of characters neither cuts into it nor leaves an empty one."""
    shown.view.jobs(jobs(1))
    shown.view.notify("worker w-1 was lost\x1b")
    shown.view.notify("again")
    shown.view.jobs(jobs(1))
    assert shown.text() == "  .\nworker w-1 was lost\\u001b\nagain\n  ."


def test_no_two_seconds_are_silent(shown):
    """A dash for each two seconds without a job; what goes on first, and reports that change not too often."""
    row, trial = HostRow("w-1", "alpha", "local", "ready"), TrialRow(1, 2, 0, "engine=docker", warmup=False)

    def refresh(*times, text="", doing=""):
        host = replace(row, status_text=text)
        for elapsed_s in times:
            now = Snapshot("s", elapsed_s=elapsed_s, hosts=(host,), doing=doing, trial=None if doing else trial)
            shown.view.refresh(now)
        return shown.text()

    shown.view.begin(Snapshot("s", doing="waiting for workers: 0 of 1 joined"))
    assert shown.text().endswith("  0:00  waiting for workers: 0 of 1 joined\n")
    assert refresh(0.25, 1.75, doing="waiting for workers: 0 of 1 joined") == ""
    assert refresh(2.0, 2.5, doing="waiting for workers: 0 of 1 joined") == "  -"
    assert refresh(3.75, doing="waiting for one more") == "\n  0:04  waiting for one more\n"
    # The time restarts with the first trial.
    assert refresh(0.1, 1.5) == ""
    shown.view.jobs(jobs(1))
    assert shown.text() == "  ."
    assert refresh(1.75, 3.25) == ""
    assert refresh(3.5) == "-"
    assert refresh(5.25, text="starting mariadb") == "\n  0:05  starting mariadb\n"
    assert refresh(7.0, text="[ 1s ] tps: 5") == "  0:07  [ 1s ] tps: 5\n"
    assert refresh(8.75, 10.5, 12.25, 14.0, text="[ 8s ] tps: 9") == "  ----"
    assert refresh(15.75, 17.5, text="[ 9s ] tps: 9") == "-\n  0:18  [ 9s ] tps: 9\n"


def characters_of(text):
    return [line[2:] for line in text.splitlines() if line.startswith("  ") and set(line[2:]) <= set(".oO*XLA-")]


def test_a_flood_is_thinned_and_said(shown):
    """A second's worth of a no-op run stays a few lines, and what a character stands for is said with the legend."""
    for _ in range(100):
        shown.view.jobs(jobs(*[0] * 1000))
    text = shown.text()
    assert "each character now stands for the worst of 1,000 jobs:" in text
    assert text.count("X failed") == 3
    assert sum(map(len, characters_of(text))) <= 4 * BURST_CHARS


def test_thinning_counts_every_job(shown):
    """Characters times their weight is the number of jobs, and the group at the end is shown too."""
    shown.view.jobs(jobs(*[0] * (BURST_CHARS + 10 * 5 + 3)))
    shown.view.end(Snapshot("s"))
    before, _, after = shown.text().partition("worst of 10 jobs")
    assert sum(map(len, characters_of(before))) == BURST_CHARS
    assert sum(map(len, characters_of(after))) == 6


@pytest.mark.parametrize("batch", [1, 7, 1000])
@pytest.mark.parametrize("place", [0, 9, 499, 999])
def test_a_failure_is_never_thinned_away(shown, batch, place):
    """One failed job among many that are done has its group shown as failed, wherever it is."""
    shown.view.jobs(jobs(*[0] * (BURST_CHARS + 1)))
    shown.view.refresh(Snapshot("s"))
    shown.text()
    rows = jobs(*[0] * 999, 5000)
    rows["outcome"][place] = Outcome.FAILED
    for first in range(0, 1000, batch):
        shown.view.jobs(rows[first : first + batch])
    shown.view.end(Snapshot("s"))
    assert "".join(characters_of(shown.text())).count("X") == 1


def test_calm_brings_the_single_jobs_back(shown):
    """When few characters come for some seconds, each stands for fewer jobs again, which is said."""
    shown.view.jobs(jobs(*[0] * (BURST_CHARS + 1)))
    shown.text()
    for _ in range(CALM_REFRESHES + 1):
        shown.view.refresh(Snapshot("s"))
    text = shown.text()
    assert "each character now stands for one job:" in text
    shown.view.jobs(jobs(0, 0))
    assert shown.text() == "  .."
