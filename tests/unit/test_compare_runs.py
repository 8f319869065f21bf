"""`compare`: two runs, an archive, pairs, groups and the history of a folder, from stats files with known levels."""

import json
import math
import os
import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from builders import MS, S, StatsBuilder, footer, header, host, treatment_wire
from levelled_runs import ROUNDS, a_run, archive, compare

from bench_common.records import MetricRecord, ticket_of
from bench_master.analysis.occasions import occasions, take_turns
from bench_master.analysis.report_schema import verdicts_schema
from bench_master.cli import run_command_line
from bench_master.run_data.summary import HostSummary, RunSummary

SCHEMA = jsonschema.Draft202012Validator(verdicts_schema())


def report(capsys, *arguments):
    found = json.loads(compare(capsys, *arguments, "--format", "json").out)
    SCHEMA.validate(found)
    return found


LEVELS = (100, 101, 99.5, 100.5, 99, 100.2)


def test_two_runs_carry_no_word(tmp_path, capsys):
    """But their ratio, the interval within them, labelled so, what would explain it, and what to do."""
    a, b = a_run(tmp_path / "a.stats.gz", 100), a_run(tmp_path / "b.stats.gz", 110, number=1)
    text = compare(capsys, a, b).out
    for part in (
        "REFUSED",
        "within the runs",
        "One run each: how much runs differ cannot be known from one",
        "A shift of",
        "make both builds treatments of one scenario",
        "from 5 earlier ones of different occasions on, 4 more than here",
    ):
        assert part in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80
    found = report(capsys, a, b)
    assert (found["format"], found["design"]["grade"], found["design"]["unit"]) == (
        "weighbridge-verdicts",
        "D",
        "run",
    )
    (comparison,) = found["comparisons"]
    assert comparison["verdict"] == "refused"
    assert comparison["ratio"] == pytest.approx(1.1, rel=0.02)
    assert comparison["low"] < 1.1 < comparison["high"]
    assert comparison["tipping"] == pytest.approx(comparison["low"] - 1)
    # The answer is what was found, as what it is.
    assert re.fullmatch(
        r"Weak evidence against the earlier run, no verdict: engine=docker \(1\d\d ms against \d+(\.\d)? ms, "
        r"\+\d+\.\d % \[\+.*, \+.*\]\)\.",
        found["answer"],
    )
    assert (comparison["a_value"], comparison["b_value"]) == pytest.approx((0.1, 0.11), rel=0.02)


def test_a_new_run_against_an_archive(tmp_path, capsys):
    """Ten percent more are found; the noise floor and the size of a gate are said."""
    archive(tmp_path / "old", LEVELS, engines=("docker", "native"), spread=0.001)
    new = a_run(tmp_path / "new.stats.gz", 110, number=30, engines=("docker",), spread=0.001)
    found = report(capsys, tmp_path / "old", new)
    (comparison,) = found["comparisons"]
    assert (comparison["verdict"], comparison["rounds"], found["design"]["grade"]) == ("slower", 6, "C")
    assert comparison["low"] > 1.05
    assert found["archive"]["runs"] == 6
    (floor,) = found["archive"]["noise"]
    assert floor["sd"] == pytest.approx(0.007, abs=0.003)
    assert floor["new_runs"] in (1, 2)
    assert found["answer"] == "Slower than earlier runs (100 ms): engine=docker (110 ms, +10.0 %)."
    text = " ".join(compare(capsys, tmp_path / "old", new).out.split())
    assert "Runs of this differ by" in text
    assert "a gate at 3 % needs" in text
    assert compare(capsys, "-q", tmp_path / "old", new).out.startswith("SLOWER engine=docker +10")


def test_runs_near_the_harness_own_rate_carry_no_word(tmp_path, capsys):
    """By the middle run of a side: one that was near it does not spoil an archive."""
    alone = {"spread": 0.001, "concurrency": 1}
    old = archive(tmp_path / "old", LEVELS, **alone, harness=(100.0, 0.0, 1.0))
    for place, (ceiling, word) in enumerate(((100.0, "slower"), (11.0, "refused"))):
        new = a_run(tmp_path / f"{place}.stats.gz", 110, number=30, **alone, harness=(ceiling, 0.0, 1.0))
        (comparison,) = report(capsys, *old, "--new", new)["comparisons"]
        assert comparison["verdict"] == word
    assert [one["code"] for one in comparison["reasons"]] == ["limited-by-harness"]
    assert comparison["reasons"][0]["data"]["rate_per_s"] == pytest.approx(1 / 0.11, rel=0.01)
    text = " ".join(compare(capsys, *old, "--new", new).out.split())
    assert "asks for 9.09 jobs/s, 83 % of the 11.0 that the harness itself can do here (no-op)" in text
    # One against one has no word anyway; why is told first.
    (comparison,) = report(capsys, old[0], new)["comparisons"]
    assert comparison["reasons"][0]["code"] == "limited-by-harness"
    old[0] = a_run(tmp_path / "0-near.stats.gz", 100, number=0, **alone, harness=(11.0, 0.0, 1.0))
    new = a_run(tmp_path / "far.stats.gz", 110, number=30, **alone, harness=(100.0, 0.0, 1.0))
    assert report(capsys, *old, "--new", new)["comparisons"][0]["verdict"] == "slower"


def test_cpu_time_that_the_harness_took_may_be_the_difference_of_runs(tmp_path, capsys):
    """A tenth is no more than the 30 % that it took, and jobs in flight beside others lacked them."""
    several = {"spread": 0.001}
    old = archive(tmp_path / "old", LEVELS, **several, harness=(1e6, 0.3, 0.1))
    new = a_run(tmp_path / "new.stats.gz", 110, number=30, **several, harness=(1e6, 0.05, 0.1))
    (comparison,) = report(capsys, *old, "--new", new)["comparisons"]
    assert [one["code"] for one in comparison["reasons"]] == ["harness-cpu"]
    assert (comparison["verdict"], comparison["reasons"][0]["data"]["share"]) == ("refused", pytest.approx(0.3))
    old = archive(tmp_path / "idle", LEVELS, **several, harness=(1e6, 0.3, 0.4))
    assert report(capsys, *old, "--new", new)["comparisons"][0]["verdict"] == "slower"


def test_equal_runs_are_the_same(tmp_path, capsys):
    """With three new runs, which are judged by their mean, and a quiet archive."""
    quiet = archive(tmp_path / "old", [100 + (level - 100) / 10 for level in LEVELS], spread=0.001)
    new = [a_run(tmp_path / f"new{n}.stats.gz", 100, number=40 + n, spread=0.001) for n in range(3)]
    found = report(capsys, *quiet, "--new", *new)
    assert found["comparisons"][0]["verdict"] == "same"
    assert len(found["archive"]["new"]) == 3


def test_four_earlier_runs_are_too_few(tmp_path, capsys):
    """For a single new one; four against four count as groups."""
    old = archive(tmp_path / "old", LEVELS[:4])
    new = [a_run(tmp_path / f"new{n}.stats.gz", 120 + n, number=50 + n) for n in range(4)]
    few = report(capsys, *old, new[0])
    assert few["comparisons"][0]["verdict"] == "refused"
    assert "too few runs" in few["refused"][0]
    assert few["answer"].startswith("Weak evidence against earlier runs, no verdict: engine=docker (120 ms")
    groups = report(capsys, *old, "--new", *new)
    assert (groups["comparisons"][0]["verdict"], groups["design"]["unit"]) == ("slower", "occasion")
    assert "came before all of the other" in groups["runs"]["flags"][0]["text"]


def in_turns(folder, levels, orders):
    """Write pairs of runs, of which the second side takes 6 % more; return the runs of each side."""
    folder.mkdir()
    sides = [], []
    for pair, (level, order) in enumerate(zip(levels, orders, strict=True)):
        for place, side in enumerate(order):
            path = folder / f"{side}{pair}.stats.gz"
            sides[side].append(a_run(path, level * 1.06**side, number=2 * pair + place, spread=0.001))
    return sides


def test_runs_in_turns_are_pairs(tmp_path, capsys):
    """What both runs of a pair share does not count, whichever is first."""
    for name, order in (("fixed", [(0, 1)] * 6), ("drawn", [(0, 1), (1, 0)] * 3)):
        old, new = in_turns(tmp_path / name, [100, 121, 90, 133, 97, 110], order)
        found = report(capsys, *old, "--new", *new)
        assert (found["comparisons"][0]["verdict"], found["comparisons"][0]["p"]) == ("slower", 2 / 64)
        assert "6 pairs of runs in turns" in found["question"]


def test_runs_in_turns_whose_levels_drift_need_a_drawn_order(tmp_path, capsys):
    """Where the same side is always first a steady drift is a difference like any other."""
    old, new = in_turns(tmp_path / "fixed", [100 * 1.1**n for n in range(6)], [(0, 1)] * 6)
    (comparison,) = report(capsys, *old, "--new", *new)["comparisons"]
    assert comparison["verdict"] == "refused"
    assert "a drift of +" in comparison["reason"]
    assert "the same side was always first" in comparison["reason"]
    old, new = in_turns(tmp_path / "drawn", [100 * 1.1**n for n in range(6)], [(0, 1), (1, 0)] * 3)
    assert report(capsys, *old, "--new", *new)["comparisons"][0]["verdict"] == "slower"


def soon(folder, levels, *, hours, minutes=10):
    """Write runs some minutes apart, from an hour of the year on."""
    folder.mkdir(exist_ok=True)
    found = []
    for number, level in enumerate(levels):
        created = f"2026-02-{1 + hours // 24:02}T{hours % 24:02}:{minutes * number:02}:00+00:00"
        path = folder / f"{hours:03}-{number}.stats.gz"
        head = {"run_id": path.name, "created": created}
        found.append(a_run(path, level, number=100 * hours + number, spread=0.001, head=head))
    return found


def test_groups_that_did_not_take_turns_are_refused(tmp_path, capsys):
    """Whatever changed between them looks the same as a difference, however many runs there are."""
    old, new = soon(tmp_path / "a", LEVELS, hours=0), soon(tmp_path / "b", LEVELS, hours=30)
    found = report(capsys, *old, "--new", *new)
    assert (found["design"]["grade"], found["comparisons"][0]["verdict"]) == ("D", "refused")
    assert found["comparisons"][0]["reason"].startswith(
        "the runs did not take turns, and were made on 1 occasion and 1 occasion"
    )
    assert found["answer"].startswith("Weak evidence against earlier runs, no verdict: engine=docker (")
    compare(capsys, *old, "--new", *new, "--fail-on", "slower by 2%", expected=4)
    mixed = [[old[n] for n in (0, 1, 4, 5)], [old[n] for n in (2, 3)] + soon(tmp_path / "c", LEVELS[:2], hours=1)]
    turns = report(capsys, *mixed[0], "--new", *mixed[1])
    assert (turns["design"]["unit"], turns["comparisons"][0]["verdict"]) == ("run", "same")


def test_an_occasion_counts_once(tmp_path, capsys):
    """Three new runs of one evening are one measurement of what differs from day to day, and so are ten earlier
    ones."""
    new = soon(tmp_path / "new", [103, 103.2, 103.1], hours=240)
    days = [run for day in range(6) for run in soon(tmp_path / "days", [LEVELS[day]] * 2, hours=24 * day)]
    found = report(capsys, *days, "--new", *new)
    (comparison,) = found["comparisons"]
    assert (found["design"]["unit"], comparison["rounds"]) == ("occasion", 6)
    assert comparison["reason"].startswith(
        "runs of one occasion count once: 12 earlier runs on 6 occasions and 3 new runs on 1 occasion"
    )
    text = " ".join(compare(capsys, *days, "--new", *new).out.split())
    assert "against earlier runs: the unit is the occasion" in text
    assert "(95 %, 6 occasions); a gate at 3 % needs 2 occasions of the new build" in text
    alone = report(capsys, *days, new[0])["comparisons"][0]
    assert (comparison["low"], comparison["high"]) == pytest.approx((alone["low"], alone["high"]), rel=0.005)
    evening = soon(tmp_path / "evening", LEVELS, hours=0, minutes=5)
    (refused,) = report(capsys, *evening, "--new", *new)["comparisons"]
    assert refused["verdict"] == "refused"
    assert "too few occasions: earlier runs of 5 can carry a word; here 1" in refused["reason"]


def test_groups_of_four_occasions_each(tmp_path, capsys):
    """One after the other they carry words about occasions, unless the sides drift: that would go on between them."""
    old = [run for day in range(4) for run in soon(tmp_path / "a", [LEVELS[day]] * 2, hours=24 * day)]
    new = [
        run for day in range(4, 8) for run in soon(tmp_path / "b", [110 + LEVELS[day % 4] / 100] * 2, hours=24 * day)
    ]
    found = report(capsys, *old, "--new", *new)
    assert (found["design"]["unit"], found["comparisons"][0]["verdict"], found["comparisons"][0]["rounds"]) == (
        "occasion", "slower", 4,
    )  # fmt: skip
    drifting = [soon(tmp_path / "c", [100 * 1.01**day], hours=24 * day)[0] for day in range(12)]
    (comparison,) = report(capsys, *drifting[:6], "--new", *drifting[6:])["comparisons"]
    assert comparison["verdict"] == "refused"
    assert "the runs of each side have a drift of +" in comparison["reason"]


def test_runs_of_one_boot_are_one_occasion_for_half_a_day():
    """What is constant in a boot is in all of its runs; where boots are unknown an hour tells occasions apart."""

    def made(hours, boot=None):
        facts = {} if boot is None else {"boot_id": boot}
        hosts = {"blade-1": HostSummary(facts, {}, {}, math.nan)}
        return RunSummary("a", "a", None, 3600.0 * hours, None, hosts, "1", None, {})

    assert occasions([made(0), made(0.5), made(1.4), made(2.4), made(9)]) == [0, 0, 0, 1, 2]
    assert occasions([made(0, "x"), made(3, "x"), made(6, "y"), made(30, "y")]) == [0, 0, 1, 2]
    assert occasions([made(math.nan), made(math.nan)]) == [0, 0]
    assert occasions([]) == []


@pytest.mark.parametrize(
    ("order", "turns"),
    [
        ("abababab", True),
        ("aabbaabb", True),
        ("abbaabba", True),
        ("aaaabbbb", False),
        ("abbbbaaa", False),
        ("", False),
    ],
)
def test_sides_that_take_turns(order, turns):
    """As often as a drawn order does, within one change of side."""
    assert take_turns(["ab".index(side) for side in order]) == turns


def test_runs_of_another_kind_are_left_out(tmp_path, capsys):
    """And named, with the reason; what is accepted stays in."""
    old = archive(tmp_path / "old", LEVELS)
    facts = host(0)["fingerprint"]
    folder = tmp_path / "old"
    a_run(folder / "kernel.stats.gz", 200, number=20, on={"fingerprint": {**facts, "kernel": "7.0"}})
    a_run(folder / "hurried.stats.gz", 200, number=25, on={"fingerprint": {**facts, "rcu_expedited": 1}})
    image = {"programs": {"docker": {"storage_driver": "vfs", "image busybox": "2" * 64}}}
    a_run(folder / "rebuilt.stats.gz", 200, number=26, on=image)
    a_run(folder / "elsewhere.stats.gz", 200, number=21, on={"host": "blade2"})
    a_run(folder / "noop.stats.gz", 200, number=22, head={"noop": True})
    a_run(folder / "killed.stats.gz", 200, number=23, foot=False)
    a_run(folder / "other.stats.gz", 200, number=24, engines=("podman",))
    (folder / "again.stats.gz").write_bytes(old[0].read_bytes())
    (folder / "text.stats.gz").write_text("no stats file")
    (folder / "cut.stats.gz").write_bytes(old[0].read_bytes()[:9])
    (folder / "notes.txt").write_text("ignored")
    os.mkfifo(folder / "pipe.stats.gz")
    mine = {"programs": {"docker": {"storage_driver": "overlay2", "image busybox": "1" * 64}}}
    new = a_run(tmp_path / "new.stats.gz", 100, number=30, on={"fingerprint": {**facts, "rcu_expedited": 0}, **mine})
    found = report(capsys, folder, new)
    left_out = {Path(each["file"]).name.partition(".")[0]: each["why"] for each in found["archive"]["left_out"]}
    assert found["archive"]["runs"] == 6
    assert left_out.keys() - {"again", "000"} == {
        "kernel",
        "hurried",
        "rebuilt",
        "elsewhere",
        "noop",
        "killed",
        "other",
        "text",
        "cut",
        "pipe",
    }
    assert len(left_out) == 11
    assert (
        left_out["kernel"]
        == "the runs differ in kernel (7.0 against 6.1.0-18-amd64); --accept kernel if that is what you compare"
    )
    assert left_out["hurried"].startswith("the runs differ in rcu_expedited (1 against 0); ")
    assert "storage driver of docker (vfs against overlay2)" in left_out["rebuilt"]
    assert "image busybox of docker (222222222222 against 111111111111)" in left_out["rebuilt"]
    assert "host (blade2 against blade1)" in left_out["elsewhere"]
    assert "no treatment in common" in left_out["other"]
    assert "killed or is still running" in left_out["killed"]
    assert "not a regular file" in left_out["pipe"]
    assert report(capsys, folder, new, "--accept", "kernel")["archive"]["runs"] == 7
    text = compare(capsys, folder, new).out
    assert "Left out: 11 files" in text
    assert "and 6 more (-v)" in text
    assert "elsewhere.stats.gz" in compare(capsys, "-v", folder, new).out


def test_an_archive_that_differs_as_a_whole(tmp_path, capsys):
    """The numbers are there, the word is refused, and the reason says how to accept it."""
    archive(tmp_path / "old", LEVELS, on={"engines": {"docker": "27.0"}})
    new = a_run(tmp_path / "new.stats.gz", 110, number=30)
    (comparison,) = report(capsys, tmp_path / "old", new)["comparisons"]
    assert (comparison["verdict"], comparison["ratio"]) == ("refused", pytest.approx(1.1, rel=0.02))
    assert comparison["reason"] == (
        "the runs differ in engine docker (27.0 against 20.10.24); --accept 'engine docker' if that is what you "
        "compare"
    )
    accepted = report(capsys, tmp_path / "old", new, "--accept", "engine docker")
    assert accepted["comparisons"][0]["verdict"] == "slower"
    assert accepted["environment"]["differences"][0]["level"] == "accepted"


def test_other_parameters_do_not_compare(tmp_path, capsys):
    """A treatment of the same name with another setting is another treatment."""
    archive(tmp_path / "old", LEVELS)
    wire = treatment_wire(0, {"engine": "docker"}, ("run",)) | {"jobs_per_trial": 1, "concurrency": 8}
    builder = StatsBuilder(tmp_path / "b.stats.gz", header([wire], [(0, 0, False)], run_id="b")).add("host", host(0))
    builder.add_jobs({"ticket": ticket_of(0), "start_ns": 1001 * S, "end_ns": 1002 * S})
    (comparison,) = report(capsys, tmp_path / "old", builder.close(footer()))["comparisons"]
    assert comparison["verdict"] == "refused"
    assert "other parameters: concurrency 2 -> 8" in comparison["reason"]


def a_rate(path, per_s, *, engines=("docker",), imported=False, **params):
    """Write a run of a workload that reports events per second, as `import-results` does if it is `imported`."""
    metrics = {"events_per_second": {"unit": "1/s", "direction": "higher"}}
    stated = {"version": params["version"]} if "version" in params else {}
    wires = [
        treatment_wire(index, {"environment": "old" if imported else "local", "engine": engine} | stated, (), metrics)
        | {"job": {"workload": "sysbench-cpu", "params": params}}
        for index, engine in enumerate(engines)
    ]
    trials = [(index, block, False) for block in range(ROUNDS) for index in range(len(engines))]
    more = {"imported": {"at": "2026-01-01T00:00:00+00:00", "files": []}, "created": None} if imported else {}
    if imported:
        del wires[0]["concurrency"]
    builder = StatsBuilder(path, header(wires, trials, run_id=path.name, **more)).add("host", host(0))
    for trial, (treatment, block, _) in enumerate(trials):
        ticket = ticket_of(trial)
        builder.add_jobs({"ticket": ticket, "treatment": treatment, "trial": trial})
        builder.flush()
        builder.writer.metrics([MetricRecord(ticket, treatment, trial, "events_per_second", per_s + block)])
    return builder.close(footer())


@pytest.mark.parametrize("engines", [("docker",), ("docker", "native")])
def test_results_from_elsewhere_beside_our_own(tmp_path, capsys, engines):
    """What only one side states is named and hides no measure; the counterpart is the one with agreeing labels."""
    old = a_rate(tmp_path / "old.stats.gz", 1000, imported=True, version="1.0", threads=1)
    new = a_rate(tmp_path / "new.stats.gz", 1100, engines=engines, threads=1, time=10)
    (comparison,) = report(capsys, old, new)["comparisons"]
    assert comparison["labels"]["engine"] == "docker"
    assert comparison["verdict"] == "refused"
    assert (comparison["a_value"], comparison["b_value"]) == pytest.approx((1002.5, 1102.5))
    assert "nobody knows when and how they were measured" in comparison["reason"]
    assert "only one side states params.version, concurrency, params.time;" in comparison["reason"]
    advice = " ".join(compare(capsys, old, new).out.split())
    assert "Imported results carry no verdict, however many there are. For one, make both builds treatments" in advice
    assert "5 earlier ones" not in advice
    assert "--rerun-baseline" not in advice


def test_results_from_elsewhere_with_other_parameters(tmp_path, capsys):
    """What both sides state, and unlike, is no pair of figures."""
    old = a_rate(tmp_path / "old.stats.gz", 1000, imported=True, threads=4)
    new = a_rate(tmp_path / "new.stats.gz", 1100, threads=1)
    (comparison,) = report(capsys, old, new)["comparisons"]
    assert (comparison["a_value"], comparison["verdict"]) == (None, "refused")
    assert "other parameters: params.threads 4 -> 1;" in comparison["reason"]


def test_since_when(tmp_path, capsys):
    """The history of a folder names the first run of a new level; a quiet one says that nothing changed."""
    levels = [*LEVELS * 2, *(1.1 * level for level in LEVELS * 2)]
    archive(tmp_path / "runs", levels)
    found = report(capsys, tmp_path / "runs")
    (step,) = found["archive"]["changes"]
    assert (step["kind"], step["word"], step["runs"]) == ("step", "slower", 12)
    assert step["since"].endswith("012.stats.gz")
    assert step["ratio"] == pytest.approx(1.1, rel=0.01)
    assert found["archive"]["noise"][0]["runs"] == 12
    assert "SLOWER" in compare(capsys, tmp_path / "runs").out
    archive(tmp_path / "quiet", LEVELS * 2)
    assert "No change in 12 runs." in compare(capsys, tmp_path / "quiet").out
    for number in (20, 21):
        other = tmp_path / "quiet" / f"other-{number}.stats.gz"
        a_run(other, 100, number=number, concurrency=9)
    mixed = report(capsys, tmp_path / "quiet")["archive"]
    assert (mixed["runs"], len(mixed["left_out"])) == (2, 12), "the newest run says which series it is"
    archive(tmp_path / "fresh", [*LEVELS * 2, 140])
    newest = report(capsys, tmp_path / "fresh")["archive"]["changes"]
    assert [(one["kind"], one["runs"]) for one in newest] == [("newest", 1)]


def test_only_the_current_regime_predicts(tmp_path, capsys):
    """A run that equals the level since the last step is the same, however fast older ones were."""
    archive(tmp_path / "old", [*(1.3 * level for level in LEVELS), *LEVELS, *LEVELS], spread=0.001)
    new = a_run(tmp_path / "new.stats.gz", 100, number=60, spread=0.001)
    found = report(capsys, tmp_path / "old", new)
    assert (found["comparisons"][0]["rounds"], found["archive"]["noise"][0]["runs"]) == (12, 12)
    # Since when is the question of a history without a new run.
    assert found["archive"]["changes"]
    for form in ("text", "markdown", "html"):
        assert "first file" not in compare(capsys, tmp_path / "old", new, "--format", form).out
    assert abs(found["comparisons"][0]["ratio"] - 1) < 0.01


def test_earlier_runs_that_drift_predict_nothing(tmp_path, capsys):
    """A level that creeps up has no step; the next run is no draw from it."""
    archive(tmp_path / "old", [100 * 1.01**n for n in range(7)], spread=0.001)
    new = a_run(tmp_path / "new.stats.gz", 108, number=60, spread=0.001)
    (comparison,) = report(capsys, tmp_path / "old", new)["comparisons"]
    assert comparison["verdict"] == "refused"
    assert "earlier runs are unstable (a drift of +6" in comparison["reason"]


def test_an_anchor_takes_out_what_runs_share(tmp_path, capsys):
    """A treatment that is the same in all runs, where the earlier runs show that ratios to it vary less."""
    shared = [100, 130, 90, 115, 80, 105, 120, 95]
    archive(tmp_path / "old", shared, engines=("native", "docker"), spread=0.002)
    new = a_run(tmp_path / "new.stats.gz", 140, number=60, engines=("native", "docker"), spread=0.002)
    plain = report(capsys, tmp_path / "old", new)
    assert {each["verdict"] for each in plain["comparisons"]} == {"inconclusive"}
    (anchored,) = report(capsys, tmp_path / "old", new, "--anchor", "engine=native")["comparisons"]
    assert (anchored["verdict"], anchored["name"]) == ("same", "engine=docker")
    assert "relative to engine=native" in anchored["reason"]
    refused = compare(capsys, tmp_path / "old", new, "--anchor", "engine=natve", expected=2)
    assert "did you mean 'engine=native'?" in refused.err


def test_runs_that_share_no_treatment(tmp_path, capsys):
    """Say so in each format."""
    a = a_run(tmp_path / "a.stats.gz", 100, engines=("docker", "native"))
    b = a_run(tmp_path / "b.stats.gz", 100, number=1, engines=("podman", "crun"))
    assert "there is nothing to compare" in " ".join(compare(capsys, a, b).out.split())
    answer = "Refused: no treatment of the new run is in an earlier one, so there is nothing to compare."
    assert compare(capsys, "-q", a, b).out == f"{answer}\n"
    assert report(capsys, a, b)["comparisons"] == []


def test_a_host_that_was_faster(tmp_path, capsys):
    """No property shows it, but the work that each host did before its trials."""
    runs = []
    for number, took_ms in enumerate((50, 65)):
        path = tmp_path / f"{number}.stats.gz"
        head = header([treatment_wire(0, {"engine": "docker"}, ("run",))], [(0, 0, False)], run_id=f"r{number}")
        builder = StatsBuilder(path, head).add("host", host(0))
        took_ns = np.array([took_ms * MS])
        columns = {"time_ns": np.array([1000 * S]), "trial": np.array([0]), "wall_ns": took_ns, "cpu_ns": took_ns}
        builder.writer.samples(0, "speed", columns, {})
        runs.append(builder.add_jobs({"start_ns": 1001 * S, "end_ns": 1002 * S}).close(footer()))
    (difference,) = report(capsys, *runs)["environment"]["differences"]
    assert (difference["name"], difference["values"]) == ("speed", {"earlier": "50.0 ms", "new": "65.0 ms"})
    assert "speed: 50.0 ms -> 65.0 ms (warning)" in compare(capsys, *runs).out


def test_odd_runs_by_themselves(tmp_path, capsys):
    """Of two runs each is shown, with what is wrong with it; a treatment that ran against itself counts once."""
    plain = a_run(tmp_path / "a.stats.gz", 100)
    noop = a_run(tmp_path / "b.stats.gz", 100, number=1, head={"noop": True})
    assert "a no-op run measures the harness alone" in " ".join(compare(capsys, plain, noop).out.split())
    twins = [
        treatment_wire(index, labels, ("run",)) | {"jobs_per_trial": 1}
        for index, labels in enumerate(({"engine": "docker"}, {"engine": "docker", "(aa)": "again"}))
    ]
    both = [
        a_run(tmp_path / f"aa{n}.stats.gz", 100, number=n, engines=("docker", "x"), head={"treatments": twins})
        for n in range(2)
    ]
    assert [each["name"] for each in report(capsys, *both)["comparisons"]] == ["engine=docker"]
    wire = treatment_wire(0, {"engine": "docker"}, ("run",)) | {"jobs_per_trial": 1, "job": "none", "container": 7}
    odd = a_run(tmp_path / "odd.stats.gz", 100, number=3, head={"treatments": [wire]})
    assert "its run cannot be read" in compare(capsys, plain, odd, expected=3).err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["one.stats.gz"], 2, "one run has nothing to be compared with"),
        (["gone.stats.gz", "one.stats.gz"], 2, "gone.stats.gz: No such file"),
        (["one.stats.gz", "empty"], 2, "empty: has no stats files"),
        (["text.stats.gz", "one.stats.gz"], 2, "is not a stats file"),
        (["one.stats.gz", "killed.stats.gz"], 3, "the run was killed or is still running"),
        (["cut.stats.gz", "one.stats.gz"], 3, "cut.stats.gz: nothing to read"),
        (["one.stats.gz", "one.stats.gz"], 2, "is the same run as one.stats.gz"),
        (["one.stats.gz", "x", "--margin", "3"], 2, "did you mean '3%'?"),
        (
            ["one.stats.gz", "two.stats.gz", "--accept", "kernl"],
            2,
            "no property has this name (did you mean 'kernel'?)",
        ),
        (
            ["one.stats.gz", "two.stats.gz", "--anchor", "engine=podmn"],
            2,
            "these labels (did you mean 'engine=podman'",
        ),
        (["noop"], 2, "no run of the history can be compared: noop/a.stats.gz: a no-op run"),
    ],
)
def test_what_cannot_be_compared(tmp_path, capsys, monkeypatch, arguments, status, message):
    """Is named, with the exit code of other commands for it."""
    monkeypatch.chdir(tmp_path)
    one = a_run(tmp_path / "one.stats.gz", 100)
    a_run(tmp_path / "two.stats.gz", 100, number=2, engines=("docker", "podman"))
    a_run(tmp_path / "killed.stats.gz", 100, number=1, foot=False)
    (tmp_path / "noop").mkdir()
    a_run(tmp_path / "noop" / "a.stats.gz", 100, number=3, head={"noop": True})
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.stats.gz").write_text("no stats file")
    (tmp_path / "cut.stats.gz").write_bytes(one.read_bytes()[:40])
    try:
        code = run_command_line(["compare", *arguments])
    except SystemExit as stopped:
        code = stopped.code
    printed = capsys.readouterr()
    assert code == status, printed
    assert message in printed.err
    assert "Traceback" not in printed.err


# -- the report of a run against earlier ones -----------------------------------------------------------------------


def report_scenario(capsys, *arguments, expected=0):
    status = run_command_line(["report-scenario", "-s", *map(str, arguments)])
    printed = capsys.readouterr()
    assert status == expected, printed.err
    return printed.out


def test_a_report_against_earlier_runs(tmp_path, capsys):
    """--baseline takes runs as well as labels; their answer comes first, and this run's has the next one's range."""
    engines = ("native", "docker")
    archive(tmp_path / "old", LEVELS, engines=engines, spread=0.001)
    new = a_run(tmp_path / "old" / "new.stats.gz", 110, number=30, engines=engines, spread=0.001)
    arguments = (new, "--baseline", tmp_path / "old", "--baseline", "engine=native")
    found = json.loads(report_scenario(capsys, *arguments, "--format", "json"))["verdicts"]
    (within,) = found["comparisons"]
    assert (within["verdict"], within["name"], within["a"]) == ("slower", "docker", "engine=native")
    assert within["next_low"] < within["ratio"] < within["next_high"]
    assert [each["verdict"] for each in found["between"]["comparisons"]] == ["slower", "slower"]
    assert found["archive"]["runs"] == found["between"]["archive"]["runs"] == 6
    text = report_scenario(capsys, *arguments)
    # Who names earlier runs asks for this first.
    assert 0 < text.index("Against earlier runs") < text.index("Within this run") < text.index("Engines against")
    assert "quickstart: 1 run against 6 earlier runs, margin 3 %" in text
    earlier, within = report_scenario(capsys, *arguments, "-q").splitlines()
    assert earlier == f"Against earlier runs: {found['between']['answer']}"
    assert within == found["answer"]


def test_a_report_of_one_treatment_against_an_earlier_run(tmp_path, capsys):
    """Where there is nothing to compare within the run, only the comparison with the other one is there."""
    a, b = a_run(tmp_path / "a.stats.gz", 100), a_run(tmp_path / "b.stats.gz", 110, number=1)
    found = json.loads(report_scenario(capsys, b, "--baseline", a, "--format", "json"))["verdicts"]
    assert [each["verdict"] for each in found["comparisons"]] == ["refused"]
    text = report_scenario(capsys, b, "--baseline", a, "--fail-on", "slower", expected=4)
    assert "REFUSED" in text
    assert "one run against another" in text
    assert text.count("UNDECIDED") == 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("gone.stats.gz", "gone.stats.gz: No such file"),
        ("results", "expected labels such as engine=docker, a stats file or folder, which must exist, or trend"),
        ("empty", "empty: has no stats files"),
    ],
)
def test_earlier_runs_that_cannot_be_read(tmp_path, capsys, monkeypatch, value, message):
    """Are a usage error, of a run before it begins."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    a_run(tmp_path / "a.stats.gz", 100)
    for command in (["report-scenario", "-s", "a.stats.gz"], ["run-scenario", "-f", "quickstart", "--workers", "1"]):
        try:
            status = run_command_line([*command, "--baseline", value])
        except SystemExit as stopped:
            status = stopped.code
        assert (status, message in capsys.readouterr().err) == (2, True)


def test_gates_on_runs(tmp_path, capsys):
    """A sixth run that is slower fails, one that is not passes, and two single runs cannot be judged."""
    folder = tmp_path / "runs"
    archive(folder, LEVELS)
    slower, alike = (
        a_run(tmp_path / f"{number}.stats.gz", level, number=number) for number, level in ((30, 110), (31, 100.3))
    )
    failed = compare(capsys, folder, slower, "--fail-on", "slower by 5%", expected=1)
    assert "FAILED     --fail-on" in failed.out
    assert "--fail-on 'slower by 5%': failed: engine=docker is slower by 5%: +10" in failed.err.replace('"', "'")
    compare(capsys, folder, alike, "--fail-on", "slower", "--require", "not slower by 5%")
    refused = compare(capsys, alike, slower, "--fail-on", "slower", expected=4)
    assert "cannot be judged: the verdict is refused: one run each" in refused.err
    compare(capsys, alike, slower, expected=0)
    assert (
        "did you mean 'docker'?" in compare(capsys, alike, slower, "--require", "engine=dokcer same", expected=2).err
    )


def test_gates_of_a_report_against_earlier_runs(tmp_path, capsys):
    """Are about the earlier runs, not about the treatments of the run; a threshold of the scenario is about these."""
    engines = ("native", "docker")
    archive(tmp_path / "old", LEVELS, engines=engines, spread=0.001)
    new = a_run(tmp_path / "new.stats.gz", 100.1, number=30, engines=engines, spread=0.001)
    arguments = (new, "--baseline", tmp_path / "old")
    report_scenario(capsys, *arguments, "--fail-on", "slower")
    report_scenario(capsys, new, "--fail-on", "slower", expected=1)
    stated = {"thresholds": ["engine=docker not slower by 5 times"]}
    own = a_run(tmp_path / "own.stats.gz", 100.1, number=31, engines=engines, spread=0.001, head=stated)
    report_scenario(capsys, own, "--baseline", tmp_path / "old", "--fail-on", "slower", expected=1)
