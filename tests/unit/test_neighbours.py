"""Each treatment is compared with the next one, too, and every format says it in the same words."""

import io

import numpy as np
import pytest
from builders import S, StatsBuilder, footer, header, host, treatment_wire

from bench_common.records import ticket_of
from bench_common.stats.reader import StatsFile
from bench_features.formats.github import GithubReport
from bench_master.analysis.document import build_document
from bench_master.analysis.early_stopping import Looks
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.reports import ReportSource
from bench_master.reports.html import HtmlReport
from bench_master.reports.markdown import MarkdownReport
from bench_master.reports.text import lines
from bench_master.reports.verdict_text import neighbour_text

ROUNDS = 12
LEVELS = {"docker": 0.7, "runc": 0.2, "crun": 0.08, "youki": 0.0801, "runsc": 1.9}
NOISE = 0.05


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The stats file of a run of engines whose levels are known; the first is the baseline."""
    return run_of(tmp_path_factory.mktemp("run") / "run.stats.gz", LEVELS)


def run_of(path, levels):
    treatments = [
        treatment_wire(index, {"engine": engine}, ("run",)) | {"jobs_per_trial": 1}
        for index, engine in enumerate(levels)
    ]
    trials = [(side, block, False) for block in range(ROUNDS) for side in range(len(levels))]
    builder = StatsBuilder(path, header(treatments, trials))
    builder.add("host", host())
    random, now = np.random.default_rng(7), 1001 * S
    for trial, (side, _, _) in enumerate(trials):
        event = {"at_ns": now, "kind": "trial-begin", "trial": trial, "workers": [0]}
        builder.add("event", event)
        start, level = now, list(levels.values())[side] * np.exp(NOISE * random.normal())
        now += int(level * S)
        builder.add_jobs(
            {"ticket": ticket_of(trial), "treatment": side, "trial": trial, "start_ns": start, "end_ns": now}
        )
        ended = {"at_ns": now, "kind": "trial-end", "trial": trial, "not_started": 0}
        builder.add("event", ended | {"not_started_outcome": "lost", "complete": True})
    return builder.close(footer(counts={"done": len(trials), "planned": len(trials)}))


def verdicts_of(path, **options):
    return build_document(StatsFile(path), options=VerdictOptions(**options)).verdicts


def test_each_treatment_is_compared_with_the_next_one(path):
    """In the order of the values; those that have the baseline between them are compared with it alone."""
    verdicts = verdicts_of(path)
    assert {(one.name, one.a.rpartition("=")[2]) for one in verdicts.neighbours} in (
        {("crun", "youki"), ("youki", "runc")},
        {("youki", "crun"), ("crun", "runc")},
    )
    ends, step = verdicts.neighbours
    assert ends.verdict in ("inconclusive", "same")
    assert step.verdict == "faster"
    assert step.low < 0.08 / 0.2 < step.high


def test_neighbours_hold_together_with_all_pairs_that_the_order_could_have_chosen(path, tmp_path):
    """So their intervals are wider than that of the same pair where nothing else was there to choose from."""
    step = verdicts_of(path).neighbours[-1]
    alone = verdicts_of(path, baseline={"engine": "runc"}).comparisons
    same = next(one for one in alone if one.b == step.b)
    assert (same.a, same.ratio) == (step.a, step.ratio)
    # The table's family is of 4 comparisons, the neighbours' of the 6 pairs of 4 treatments.
    assert step.low <= same.low < same.high <= step.high
    two = run_of(tmp_path / "two.stats.gz", {"docker": 0.7, "crun": 0.08})
    assert verdicts_of(two).neighbours == []


def test_a_look_during_a_run_does_not_pay_for_neighbours(path):
    """Its verdicts only decide how long the run goes on."""
    assert verdicts_of(path, look=ROUNDS).neighbours == []


def test_neighbours_of_a_run_that_stopped_early_are_judged_by_the_rounds_that_both_ran():
    """A treatment runs until the last of its own comparisons is settled."""
    settled = {"a": 0, "b": 1, "verdict": "faster"}
    open_ = {"a": 0, "b": 2, "verdict": "inconclusive"}
    taken = (
        {"rounds": 10, "comparisons": [settled, open_]},
        {"rounds": 20, "comparisons": [settled, open_ | {"verdict": "slower"}]},
    )
    looks = Looks(last=30, warmup=1, taken=taken, ended="settled")
    assert [looks.rounds(*pair) for pair in ((0, 1), (0, 2), (1, 2))] == [10, 20, 10]


@pytest.mark.parametrize("report", [MarkdownReport, GithubReport, HtmlReport], ids=lambda report: report.__name__)
def test_every_format_has_the_same_sentence(path, report):
    """Beside the answer, as the text report has it."""
    source = ReportSource(StatsFile(path))
    sentence = neighbour_text(source.document.verdicts)
    assert "as fast as runc [" in sentence
    assert sentence in " ".join(" ".join(lines(source.document)).split())
    out = io.StringIO()
    report().write(source, out)
    plain = " ".join(out.getvalue().replace("\\", "").replace("&#34;", '"').split())
    assert sentence in plain
