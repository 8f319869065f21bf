"""The sentence at the top of the live page: the report's own, made seldom, and never the end of the page."""

import gevent
import pytest
from deadlines import wait_until
from places import ROOT

from bench_common.stats.reader import StatsFile
from bench_features.live import live_verdict
from bench_features.live.live_verdict import AnswerSoFar, answer_of, answer_so_far
from bench_master.analysis.document import build_document
from bench_master.reports.text import lines

PAGES = ROOT / "tests" / "data" / "pages"


@pytest.mark.parametrize("name", ["engines", "same", "interrupted"])
def test_the_answer_is_that_of_the_report(name):
    """Whether the run is complete or not; nothing is said twice."""
    path = PAGES / f"{name}.stats.gz"
    document = build_document(StatsFile(path))
    assert document.verdicts.answer
    assert answer_of(path) == document.verdicts.answer
    rounds = document.verdicts.comparisons[0].rounds
    assert answer_so_far(path, None) == f"So far, preliminary, after {rounds} rounds: {document.verdicts.answer}"
    assert answer_of(path) in " ".join(" ".join(lines(document)).split())


def test_what_cannot_be_read_has_no_answer(tmp_path, monkeypatch):
    """A file that is not there yet, that is none, or that is so large that reading it would disturb the run."""
    assert answer_of(tmp_path / "nosuch.stats.gz") == ""
    (tmp_path / "none.stats.gz").write_text("no stats file")
    assert answer_of(tmp_path / "none.stats.gz") == ""
    monkeypatch.setattr(live_verdict, "MOST_BYTES", 100)
    assert answer_of(PAGES / "same.stats.gz") == ""


class Clock:
    """A clock that stands until it is moved."""

    now = 100.0

    def __call__(self):
        return self.now


def test_answers_are_made_after_a_trial_and_seldom():
    """One at a time; the next one when another trial runs, and when making one is a small part of the time again."""
    shown, clock = [], Clock()

    def make(path, margin):
        clock.now += 1.0
        return f"{path} {margin} {len(shown)}"

    answers = AnswerSoFar(shown.append, make, clock)
    answers.trial_runs("/run", 0.05, 1)
    answers.trial_runs("/run", 0.05, 2)
    wait_until(lambda: shown == ["/run 0.05 0"], sleep=gevent.sleep)
    for trial, later in ((2, 5.0), (3, 13.0)):
        clock.now += later
        answers.trial_runs(
            "/run", 0.05, trial
        )  # a second of work is a twentieth of the time only after twenty of them
    assert len(shown) == 1
    clock.now += 1.0
    answers.trial_runs("/run", 0.05, 1)
    gevent.sleep(0)
    assert len(shown) == 1  # the trial of the last answer
    answers.trial_runs("/run", 0.05, 3)
    wait_until(lambda: len(shown) == 2, sleep=gevent.sleep)


def test_an_answer_that_fails_ends_no_page():
    """The next trial has its own."""
    shown, clock, fails = [], Clock(), [True]

    def make(path, margin):
        del path, margin
        if fails.pop() if fails else False:
            raise RuntimeError("odd")
        return "said"

    answers = AnswerSoFar(shown.append, make, clock)
    answers.trial_runs("/run", 0.05, 1)
    wait_until(lambda: not fails and not answers._is_busy, sleep=gevent.sleep)
    clock.now += 5.0
    answers.trial_runs("/run", 0.05, 2)
    wait_until(lambda: shown == ["said"], sleep=gevent.sleep)
