"""Looks at a run that goes on until its verdicts are settled: what each settles, and that the report agrees."""

import numpy as np
import pytest
from builders import S, StatsBuilder, footer, header, host, treatment_wire

from bench_common.records import Outcome, ticket_of
from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import build_document
from bench_master.analysis.early_stopping import take_look
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.scenario.model import AGAIN

LAST = 30


class Watched:
    """A run of rounds without an end, of treatments whose trials take `levels` seconds and noise; None fails."""

    def __init__(self, path, *levels, noise=0.01, again=None, warmup=1, **changes):
        self.path, self.levels, self.noise = path, levels, noise
        labels = [{"engine": f"e{side}"} for side in range(len(levels))]
        if again is not None:
            labels.append(labels[again] | {AGAIN: "again"})
            self.levels = (*levels, levels[again])
        treatments = [
            treatment_wire(index, own, ("run",)) | {"jobs_per_trial": 1} for index, own in enumerate(labels)
        ]
        self.sides = len(labels)
        self.warmup = warmup
        self.trials = [(side, block, block < warmup) for block in range(LAST + warmup) for side in range(self.sides)]
        until = {"at_most": LAST, "budget_s": None}
        self.builder = StatsBuilder(path, header(treatments, self.trials, until_verdict=until, **changes))
        self.builder.add("host", host())
        self.now, self.rounds, self.job = 1001 * S, 0, 0
        self.random = np.random.default_rng(4)
        self.gone = set()
        self.looked = []
        self.begun = set()
        for _ in range(warmup):
            self.run(warmup=True)

    def run(self, *, warmup=False):
        """Run a round of those that are not settled."""
        block = self.rounds + (0 if warmup else self.warmup)
        for side in range(self.sides):
            fails = self.levels[side] is None
            level = (self.levels[side] or 0.1) * np.exp(self.noise * self.random.normal())
            if side in self.gone:
                continue
            trial = self.trials.index((side, block, warmup))
            self.begun.add(trial)
            self.event("trial-begin", trial=trial, workers=[0])
            row = {"ticket": ticket_of(self.job), "treatment": side, "trial": trial, "start_ns": self.now}
            self.now += int(level * S)
            self.builder.add_jobs(row | {"end_ns": self.now, "outcome": Outcome.FAILED if fails else Outcome.DONE})
            self.event("trial-end", trial=trial, not_started=0, not_started_outcome="lost", complete=True)
            self.job += 1
        self.rounds += not warmup
        self.builder.flush()

    def event(self, kind, **fields):
        self.builder.add("event", {"at_ns": self.now, "kind": kind, **fields})

    def events(self, kind):
        """The events of a kind that the file has."""
        return [one.body for one in StatsFile(self.path).blocks({"event"}) if one.body["kind"] == kind]

    def look(self):
        """Take a look as a run does, and leave out what is settled; return it."""
        stats = StatsFile(self.path)
        verdicts = build_document(stats, options=VerdictOptions(look=self.rounds)).verdicts
        look = take_look(verdicts, stats.header, self.rounds)
        self.event("look", **look.fields())
        self.gone |= look.settled
        self.looked.append(verdicts)
        return look

    def go_on(self):
        """Run rounds with a look after each, until all are settled or it is the last; return the last look."""
        while True:
            self.run()
            if self.rounds < 5:
                continue
            look = self.look()
            if look.settled == set(range(self.sides)) or self.rounds == LAST:
                return look

    def end(self, why="settled"):
        """End the run; return its report."""
        for trial in sorted(set(range(len(self.trials))) - self.begun) if why else ():
            fields = {"not_started": 0, "not_started_outcome": "aborted", "reason": why, "not_needed": 1}
            self.event("trial-skipped", trial=trial, **fields)
        if why:
            self.event("rounds-over", rounds=self.rounds, last=LAST, why=why)
        return build_document(StatsFile(self.builder.close(footer())))


@pytest.fixture
def watched(tmp_path):
    return lambda *levels, **changes: Watched(tmp_path / "run.stats.gz", *levels, **changes)


def numbers(comparison):
    return comparison.verdict, comparison.ratio, comparison.low, comparison.high, comparison.rounds


def test_a_clear_gap_settles_after_five_rounds(watched):
    """Five times as long at a noise of 1 %: no interval is needed, and none is given."""
    run = watched(0.01, 0.05)
    look = run.go_on()
    assert (look.rounds, look.nominal, look.settled) == (5, 0.0, {0, 1})
    (found,) = run.end().verdicts.comparisons
    assert (found.verdict, found.rounds, found.confidence) == ("slower", 5, 0.9375)


def test_a_side_of_which_every_job_fails_is_not_run_to_the_last_round(watched):
    """The first look ends it: no round would have a value."""
    run = watched(0.01, None)
    look = run.go_on()
    assert (look.rounds, look.settled) == (5, {0, 1})
    (found,) = run.end().verdicts.comparisons
    assert (found.word, found.rounds) == ("FAILED", 0)


def test_the_report_comes_to_the_words_of_the_looks(watched):
    """Each comparison by the look that settled it: its rounds, its level; a settled treatment has no later trial."""
    run = watched(0.10, 0.106, 0.10, noise=0.025, again=0)
    last = run.go_on()
    report = run.end()
    assert report.run_state == "complete"
    slower, same = report.verdicts.comparisons
    assert (slower.verdict, same.verdict) == ("slower", "same")
    assert 9 <= slower.rounds < same.rounds == last.rounds < LAST
    assert numbers(slower) == numbers(run.looked[slower.rounds - 5].comparisons[0])
    assert numbers(same) == numbers(run.looked[-1].comparisons[1])
    stopping = report.verdicts.design.stopping
    assert (stopping.last, stopping.look, stopping.why) == (LAST, last.rounds, "settled")
    assert 0.0 < stopping.nominal == last.nominal < 0.05
    assert [flag.kind for flag in report.verdicts.runs.flags] == ["early-stop"]
    # The treatment that runs twice stays for as long as it does itself, and is in no table.
    assert report.verdicts.runs.noise_floor.rounds == last.rounds
    assert run.gone == {0, 1, 2, 3}
    assert all({1} <= set(look["settled"]) < {0, 1, 2, 3} for look in run.events("look")[slower.rounds - 5 : -1])
    assert len(report.treatments) == 3
    assert not report.incomplete


def test_no_treatment_differs_from_itself(watched):
    """Equal treatments come to *same*, and not by the first look."""
    run = watched(0.1, 0.1, noise=0.02)
    look = run.go_on()
    (found,) = run.end().verdicts.comparisons
    assert found.verdict == "same"
    assert 8 <= look.rounds < LAST
    assert look.nominal < 0.05


def test_a_treatment_that_differs_from_itself_warns_of_everything(watched):
    """The second time is made slower: the noise floor is a difference."""
    run = watched(0.1, 0.2, again=0, noise=0.01)
    run.levels = (0.1, 0.2, 0.13)
    for _ in range(9):
        run.run()
    run.look()
    report = run.end("at-most")
    floor = report.verdicts.runs.noise_floor
    assert (floor.verdict, floor.name) == ("slower", "e0")
    assert "noise-floor" in [flag.kind for flag in report.verdicts.runs.flags]


def test_a_run_that_is_cut_short_is_judged_by_its_last_look(watched):
    """Rounds after it do not count: nobody was to look at them."""
    run = watched(0.10, 0.103, noise=0.05)
    for _ in range(10):
        run.run()
    run.look()
    run.run()
    report = run.end("")
    (found,) = report.verdicts.comparisons
    assert found.rounds == 10
    assert (report.verdicts.design.stopping.look, report.verdicts.design.stopping.why) == (10, "interrupted")
    assert numbers(found) == numbers(run.looked[-1].comparisons[0])


def test_a_design_without_words_is_settled_at_once(watched):
    """More rounds of a no-op run would not help."""
    run = watched(0.1, 0.1, noop=True)
    assert run.go_on().rounds == 5
