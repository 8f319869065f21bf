"""Runs of two builds in drawn pairs: which run is next, what a kill leaves, and what the pairs may say."""

import itertools
import math
from pathlib import Path
from types import SimpleNamespace

import archive_runs
import numpy as np
import pytest
from msgspec.structs import replace

from bench_common.errors import InfrastructureError, UsageError
from bench_common.stats.block_types import StoredTreatment
from bench_features.alternate import alternate
from bench_features.alternate.series import CUT, FILE, Series, files_of, load, run_file, save, set_aside
from bench_master import run_process
from bench_master.analysis.compare_runs import choose_runs, compare_runs
from bench_master.analysis.verdict_options import GateOptions, VerdictOptions
from bench_master.analysis.verdict_types import DIRECTED_WORDS
from bench_master.cli import run_command_line
from bench_master.run_data.summary import HostSummary, RunSummary, TreatmentSummary
from bench_master.run_data.trial_values import primary_of
from bench_master.verdicts.between_runs import RunLevels
from bench_master.verdicts.stopping import is_settled

SERIES = Series(command=("weigh", "native", "--", "true"), old="true", new="true", seed=5, pairs=6)
RUN = ("--old", "true", "--new", "true", "--", "weigh", "native", "--", "true")


def test_the_first_of_each_pair_is_drawn_from_the_seed():
    """About half of the pairs begin with either side, the same ones again with the same seed, others with another."""
    first = [SERIES.order(pair)[0] for pair in range(1, 401)]
    assert 150 < first.count("new") < 250
    assert first == [replace(SERIES).order(pair)[0] for pair in range(1, 401)]
    assert first != [replace(SERIES, seed=6).order(pair)[0] for pair in range(1, 401)]
    assert all(set(SERIES.order(pair)) == {"old", "new"} for pair in range(1, 401))


def test_a_series_runs_pair_after_pair():
    """Each pair has one run of each side, in its drawn order; then it is over."""
    series, made = SERIES, []
    while not series.is_over:
        made.append(series.next_run())
        series = series.with_run(1.0)
    assert made == [(pair, side) for pair in range(1, 7) for side in SERIES.order(pair)]
    assert (series.complete_pairs, sum(series.runs)) == (6, 12.0)


def test_a_budget_ends_no_pair_in_its_middle():
    """What is over is over between two pairs."""
    series = replace(SERIES, until_verdict=True, budget_s=2.5).with_run(1.0).with_run(1.0).with_run(1.0)
    assert not series.is_over
    assert series.with_run(1.0).is_over


def test_a_pair_that_was_cut_is_made_again(tmp_path):
    """Its run is forgotten, and its files are set aside; those of complete pairs stay, and the order with them."""
    series = SERIES.with_run(1.0).with_run(1.0).with_run(1.0)
    for pair, side in itertools.product((1, 2), ("old", "new")):
        run_file(tmp_path, pair, side).write_bytes(b"")
    save(series, tmp_path)
    whole = load(tmp_path).whole()
    assert whole.runs == (1.0, 1.0)
    assert whole.next_run() == (2, SERIES.order(2)[0])
    moved = set_aside(whole, tmp_path)
    assert sorted(path.name for path in moved) == ["1-02-new.stats.gz", "1-02-old.stats.gz"]
    assert all(path.parent == tmp_path / CUT for path in moved)
    assert files_of(whole, tmp_path, "old") == [run_file(tmp_path, 1, "old")]
    run_file(tmp_path, 2, "old").write_bytes(b"")
    assert [path.name for path in set_aside(whole, tmp_path)] == ["2-02-old.stats.gz"]


def complaint(capsys, *words):
    """Return what a refused command line prints."""
    try:
        status = run_command_line(["alternate", *map(str, words)])
    except SystemExit as ended:
        status = ended.code
    out, err = capsys.readouterr()
    assert (status, out) == (2, "")
    return err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--old, --new, -- is missing"),
        (("--old", "true", "--", "weigh", "native", "--", "true"), "--new is missing"),
        (("--old", "a", "--new", "b", "--", "doctor"), "'doctor' makes no run"),
        (("--old", "a", "--new", "b", "--", "weigh", "-s", "x", "native", "--", "true"), "-s: each run"),
        (("--old", "a", "--new", "b", "--", "run-scenario", "--resume=x"), "--resume=x: each run"),
        (("--budget", "1h", *RUN), "add --until verdict"),
        (("--until", "verdict", "--budget", "soon", *RUN), "--budget: 'soon'"),
        (("--pairs", "5", *RUN), "--pairs"),
    ],
)
def test_what_makes_no_series_is_refused(capsys, tmp_path, words, said):
    """Before anything runs or is written."""
    assert said in complaint(capsys, tmp_path / "series", *words)
    assert not (tmp_path / "series").exists()


def test_a_series_is_not_changed_by_options(capsys, tmp_path):
    """What it runs, and how often, is fixed before its first run; other folders are not written into."""
    save(SERIES, tmp_path)
    text = complaint(capsys, tmp_path, "--pairs", "9", *RUN)
    assert "--old, --new, --pairs, -- cannot change" in text.replace("which ", "")
    (tmp_path / FILE).write_text("{}")
    assert "is no series of runs" in complaint(capsys, tmp_path)
    (tmp_path / FILE).rename(tmp_path / "else.json")
    assert "name a new folder" in complaint(capsys, tmp_path, *RUN)


def made(tmp_path, **changes):
    with (tmp_path / "held").open("wb") as held:
        return alternate.make_run(
            replace(SERIES, **changes), tmp_path, setup_timeout_s=changes.pop("limit_s", 60.0), held=held.fileno()
        )


def test_a_build_that_cannot_be_put_in_place_ends_the_series(tmp_path):
    """The message has the command, its exit code, the end of its output, and where all of it is."""
    broken = "echo no such tag; exit 7"
    with pytest.raises(UsageError) as caught:
        made(tmp_path, old=broken, new=broken)
    side = SERIES.order(1)[0]
    for part in (f"--{side}", "exit code 7", "  no such tag", str(tmp_path / f"01-{side}.log")):
        assert part in str(caught.value)


@pytest.mark.parametrize(("status", "error"), [(2, UsageError), (3, InfrastructureError), (130, KeyboardInterrupt)])
def test_a_run_that_is_incomplete_does_not_count(monkeypatch, tmp_path, status, error):
    """Wrong options, a lost host and an interruption each end the series, with the run's own exit code."""
    statuses = iter((0, status))
    for module in (alternate, run_process):
        monkeypatch.setattr(module, "run_process", lambda *_, **__: next(statuses))
    with pytest.raises(error):
        made(tmp_path)


@pytest.mark.parametrize("status", [0, 1, 4])
def test_a_run_with_failed_jobs_or_gates_counts(monkeypatch, tmp_path, status):
    """Its measurement is complete."""
    statuses = iter((0, status))
    for module in (alternate, run_process):
        monkeypatch.setattr(module, "run_process", lambda *_, **__: next(statuses))
    assert made(tmp_path) > 0.0


# -- what the pairs may say -----------------------------------------------------------------------------------------


def a_run(number, level):
    labels = {"engine": "native"}
    definition = StoredTreatment(title="engine=native", labels=labels, engine="native")
    measure = primary_of(definition)
    trials = RunLevels.exact(level).trials()
    return RunSummary(
        file=f"{number}.stats.gz", run_id=f"run-{number}", created=None, began_s=600.0 * number, scenario="x",
        hosts={"blade-1": HostSummary({}, {}, {}, math.nan)}, harness="1", margin=None,
        treatments={"engine=native": TreatmentSummary(definition, measure, trials)},
    )  # fmt: skip


def word_of_series(generator, seed, levels, pairs, ratio=1.0, *, drawn=True, until_verdict=False):
    """Return the word for runs of which the new build's take `ratio` times as long, and after how many pairs."""
    series = replace(SERIES, seed=seed)
    sides = {"old": [], "new": []}
    for pair in range(1, pairs + 1):
        for side in series.order(pair) if drawn else ("old", "new"):
            number = len(sides["old"]) + len(sides["new"])
            noise = 0.001 * generator.normal()
            sides[side].append(a_run(number, levels[number] + noise + (math.log(ratio) if side == "new" else 0.0)))
        if pair == pairs or (until_verdict and pair >= 6):
            chosen = choose_runs(sides["old"], sides["new"], [], VerdictOptions(margin=0.005))
            (found,) = compare_runs(chosen, last_look=pairs if until_verdict else None).comparisons
            if until_verdict and is_settled(found.verdict, pair):
                break
    return found.verdict, pair


def test_equal_builds_on_a_machine_that_drifts_are_seldom_called_different():
    """On a machine that becomes slower drawn pairs err within the level, fixed or until settled."""
    generator = np.random.default_rng(20)
    drift = np.linspace(0.0, 0.1, 24)
    runs = 60
    fixed = [word_of_series(generator, seed, drift, 8)[0] for seed in range(runs)]
    # At 5 % more than 8 of 60 are wrong in 3 of 1,000 times.
    assert sum(word in DIRECTED_WORDS for word in fixed) <= 8
    looked = [word_of_series(generator, 1000 + seed, drift, 12, until_verdict=True)[0] for seed in range(runs)]
    assert sum(word in DIRECTED_WORDS for word in looked) <= 8
    in_turns = [word_of_series(generator, seed, drift, 8, drawn=False)[0] for seed in range(5)]
    assert set(in_turns) == {"refused"}


def test_a_slower_build_is_found_before_the_last_pair():
    """10 % slower in noise of 0.1 %: each series ends early, with the right word."""
    generator = np.random.default_rng(21)
    found = [word_of_series(generator, seed, np.zeros(40), 20, 1.1, until_verdict=True) for seed in range(10)]
    assert {word for word, _ in found} == {"slower"}
    assert max(pairs for _, pairs in found) < 20


def test_a_look_asks_for_more_evidence():
    """The same six pairs: the interval of a first look of 20 is wider than that of a series of six."""
    sides = [[a_run(2 * n + side, 0.01 * n * side + 0.1 * side) for n in range(6)] for side in (0, 1)]
    chosen = choose_runs(*sides, [], VerdictOptions())
    fixed, looked = compare_runs(chosen), compare_runs(chosen, last_look=20)
    assert (looked.design.stopping.look, looked.design.stopping.last) == (6, 20)
    assert fixed.design.stopping is None
    (one,), (other,) = fixed.comparisons, looked.comparisons
    assert other.low is None or other.low < one.low


def test_a_series_until_its_verdict_looks_after_each_pair_from_the_sixth_on(tmp_path):
    """At the files of its pairs, whatever the gates are."""
    series = replace(SERIES, pairs=20, until_verdict=True)
    comparison = SimpleNamespace(accept=(), gates=GateOptions(fail_on=("slower",)))
    options = SimpleNamespace(folder=tmp_path, comparison=comparison)
    for number in range(12):
        assert not alternate._is_settled(series, options)
        pair, side = series.next_run()
        archive_runs.a_run(run_file(tmp_path, pair, side), number, engines=("native",))
        series = series.with_run(1.0)
    (found,) = alternate.judged(series, tmp_path, options).comparisons
    assert alternate._is_settled(series, options) == is_settled(found.verdict, 6)


def test_the_folder_is_one_series_at_a_time(capsys, tmp_path):
    """While a run of it is being made, also by a process whose parent was killed, nobody else goes on with it."""
    save(SERIES, tmp_path)
    with alternate._locked(Path(tmp_path)):
        assert "is still being made" in complaint(capsys, tmp_path)
