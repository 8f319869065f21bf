"""Trends: since when, and a gate that fails after the second run that is slower."""

import json
import math
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from archive_runs import a_run

from bench_features.archive.archive import Archive
from bench_master.cli import run_command_line

MEMORY = 2**33


def one(path, number, level=1.0, **more):
    """Write a run of nine rounds, whose level differs by 1 % from run to run; return its path."""
    generator = np.random.default_rng([11, number])
    middle = 100 * level * math.exp(0.01 * generator.normal())
    times = [middle * math.exp(0.01 * x) for x in generator.normal(size=9)]
    return a_run(path / f"{number:03}.stats.gz", number, times=times, engines=("docker",), **more)


@pytest.fixture
def archive(archive_folder, monkeypatch):
    """Return the address of an archive, which is the default one."""
    monkeypatch.setenv("WEIGHBRIDGE_ARCHIVE", archive_folder)
    return archive_folder


def keep(url, *paths):
    with Archive.open(url, create=True) as opened:
        return [opened.add(path).run.id for path in paths]


@pytest.fixture
def command(capsys):
    def call(*words):
        try:
            code = run_command_line(list(map(str, words)))
        except SystemExit as end:
            code = end.code
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def judge(command):
    """Judge a run by the trend with a gate; return exit code, verdict, its line and what the gate says."""

    def call(path, *words, gate="slower"):
        gates = ("--fail-on", gate) if gate else ()
        code, out, _ = command(
            "report-scenario", "-s", path, "--baseline", "trend", *gates, "--format", "json", *words
        )
        verdicts = json.loads(out)["verdicts"]
        (found,) = verdicts["comparisons"]
        return code, found["verdict"], verdicts["answer"], "".join(each["text"] for each in verdicts["gates"]), found

    return call


def test_a_gate_passes_on_noise_and_fails_on_the_second_slow_run(archive, tmp_path, command, judge):
    """Unchanged runs pass; the first that is 10 % slower is unconfirmed and passes, the second and a third fail."""
    keep(archive, *(one(tmp_path, number) for number in range(16)))
    for number in range(16, 20):
        run = one(tmp_path, number)
        code, word, _, text, _ = judge(run)
        assert (code, word) == (0, "inconclusive"), text
        assert "is not shown to be slower" in text
        keep(archive, run)
    runs = [one(tmp_path, number, level=1.1) for number in (20, 21, 22)]
    code, word, answer, text, first = judge(runs[0])
    assert (code, word, first["unconfirmed"], first["confidence"]) == (0, "inconclusive", True, 0.999)
    assert "unconfirmed: run it again)" in answer
    assert "stands out from its trend" in text
    assert judge(runs[0], gate="slower by 5%")[0] == 0
    # What must be shown is not shown by one run.
    assert judge(runs[0], "--require", "not slower by 5%", gate=None)[0] == 4
    # Without the first one in the archive, the second is the first.
    assert judge(runs[1])[0] == 0
    (since,) = keep(archive, runs[0])
    code, word, _, text, second = judge(runs[1])
    assert (code, word, second["unconfirmed"]) == (1, "slower", False)
    assert second["low"] < 1.1 < second["high"]
    assert since in second["reason"]
    assert judge(runs[1], gate="slower by 5%")[0] == 1
    keep(archive, runs[1])
    assert judge(runs[2])[0] == 1
    # Judged again, the first one is what it was: only runs before it count.
    assert judge(runs[0])[1:2] == ("inconclusive",)
    text = " ".join(command("report-scenario", "-s", runs[2], "--baseline", "trend")[1].split())
    assert "Confirmed by 3 runs since 2026-01-22" in text


def test_what_is_missing_is_said(archive, archive_folder, tmp_path, command, judge):
    """No archive, no run of this kind, too few, another machine: which fact."""
    run = one(tmp_path, 30)
    code, _, err = command("report-scenario", "-s", run, "--baseline", "trend")
    assert (code, "there is no archive" in err) == (2, True)
    keep(archive, *(one(tmp_path, number) for number in range(3)))
    code, word, _, text, _ = judge(run)
    assert (code, word) == (4, "refused")
    assert "only 3 earlier runs of this kind; 5 are needed" in text
    assert judge(run, gate=None)[0] == 0
    last = keep(archive, *(one(tmp_path, number) for number in range(3, 8)))[-1]
    assert judge(run)[0] == 0
    # Memory within two per cent is the same machine; another kernel is not.
    assert judge(one(tmp_path, 31, facts={"memory": int(1.01 * MEMORY)}))[0] == 0
    code, word, _, text, _ = judge(one(tmp_path, 32, facts={"kernel": "6.8.0"}))
    assert (code, word) == (4, "refused")
    assert f"no earlier run since the machine changed (kernel 6.1.0 -> 6.8.0, after run {last}); 5 are needed" in text
    assert "(the archive has runs of this on blade1)" in judge(one(tmp_path, 33, host="blade2"))[3]
    assert (
        "(the archive has runs of this treatment with others)" in judge(one(tmp_path, 34, wire={"concurrency": 7}))[3]
    )
    assert "in others)" in judge(one(tmp_path, 35, name="weekly"))[3]
    assert "the run was killed or is still running" in judge(one(tmp_path, 36, whole=False), gate=None)[4]["reason"]
    keep(archive, one(tmp_path, 40, facts={"kernel": "6.8.0"}), one(tmp_path, 41, facts={"kernel": "6.8.0"}))
    text = judge(one(tmp_path, 42, facts={"kernel": "6.8.0"}))[3]
    assert "only 2 earlier runs since the machine changed (kernel 6.1.0 -> 6.8.0, with run" in text
    code, _, err = command("report-scenario", "-s", run, "--baseline", "trend", "--baseline", tmp_path)
    assert (code, "cannot both be the baseline" in err) == (2, True)


def test_since_when(archive, tmp_path, command):
    """The table, JSON and the chart name the run, size, interval and where the machine changed."""
    code, _, err = command("archive", "trend")
    assert (code, "there is no archive" in err) == (2, True)
    levels = [1.0] * 16 + [1.08] * 12
    ids = keep(archive, *(one(tmp_path, number, level) for number, level in enumerate(levels)))
    newer = {"facts": {"kernel": "6.8.0"}}
    ids += keep(archive, *(one(tmp_path, number, 1.5, **newer) for number in range(28, 36)))
    code, out, _ = command("archive", "trend")
    assert (code, "SLOWER +" in out, "2026-01-18" in out) == (0, True, True)
    (listed,) = json.loads(command("archive", "trend", "--format", "json")[1])
    chart = tmp_path / "trend.svg"
    code, out, _ = command("archive", "trend", listed["series"][:6], "--format", "json", "--chart", chart)
    trend = json.loads(out)
    assert (code, trend) == (0, listed)
    (change,) = trend["changes"]
    assert (change["run"], change["kind"], change["word"], change["runs"]) == (ids[16], "step", "slower", 12)
    assert change["low"] < 1.08 < change["high"]
    (found,) = trend["breaks"]
    assert (found["run"], found["facts"]) == (ids[28], [{"name": "kernel", "before": "6.1.0", "after": "6.8.0"}])
    assert "kernel 6.1.0 -" in ET.parse(chart).getroot().find("{*}desc").text
    text = " ".join(command("archive", "trend", trend["treatment"])[1].split())
    for part in (
        "SLOWER",
        ids[16],
        "BREAK 2026-01-30 03:04: the machine changed (kernel 6.1.0 -> 6.8.0)",
        "expected",
    ):
        assert part in text
    since = json.loads(command("archive", "trend", trend["series"], "--since", "2026-01-20", "--format", "json")[1])
    assert (len(since["runs"]), since["changes"]) == (18, [])
    other = json.loads(command("archive", "trend", trend["series"], "--of", "start.p50", "--format", "json")[1])
    assert (other["measure"], other["unit"], len(other["changes"])) == ("start.p50", "s", 1)
    for words, said in (
        (("nothing",), "nothing: no series of the archive"),
        ((trend["series"], "--of", "strat.p50"), "did you mean 'start.p50'"),
        ((trend["series"], "--chart", tmp_path / "no" / "x.svg"), "cannot write: No such file"),
    ):
        code, _, err = command("archive", "trend", *words)
        assert (code, said in err, "Traceback" in err) == (2, True, False), err


def test_an_acknowledged_change(archive, archive_folder, tmp_path, command, judge):
    """Gates pass again when the new level has five runs, not before; a run of another series is refused."""
    levels = [1.0] * 12 + [1.1] * 2
    ids = keep(archive, *(one(tmp_path, number, level) for number, level in enumerate(levels)))
    stranger = keep(archive, one(tmp_path, 60, name="weekly"))[0]
    (key,) = (each["series"] for each in json.loads(command("archive", "trend", "--format", "json")[1])
              if each["scenario"] == "quickstart")  # fmt: skip
    code, _, err = command("archive", "acknowledge", key, stranger)
    assert (code, "is not in series" in err) == (2, True)
    code, _, err = command("archive", "acknowledge", key, ids[12])
    assert (code, "are judged by the level since then" in err) == (0, True)
    trend = json.loads(command("archive", "trend", key, "--format", "json")[1])
    assert [(each["kind"], each["acknowledged"]) for each in trend["changes"]] == [("confirmed", True)]
    run = one(tmp_path, 14, 1.1)
    text = judge(run)[3]
    assert f"only 2 earlier runs since the change that was acknowledged (run {ids[12]}); 5 are needed" in text
    keep(archive, run, one(tmp_path, 15, 1.1), one(tmp_path, 16, 1.1))
    assert judge(one(tmp_path, 17, 1.1))[0] == 0
