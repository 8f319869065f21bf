"""The data of vm-docker-bench (2014) as its authors published them: every verdict is refused, with the numbers.

``tests/data/vm-docker-bench`` has the raw figures of https://github.com/DockerDemos/vm-docker-bench, one a line.
"""

import json
import math

import numpy as np
import places
import pytest

from bench_master.cli import run_command_line
from bench_master.verdicts import diagnosis
from bench_master.verdicts.between_runs import RunLevels, of_groups
from bench_master.verdicts.decision import Rules

DATA = places.DATA / "vm-docker-bench"
CPU = ("sysbench-cpu", "cpu", "total_time_s")
LIMITED = ("sysbench-fileio", "fileio-512m", "mib_per_second")
AB = ("ab", "ab", "requests_per_second")


def logs(environment, name):
    return np.log(np.loadtxt(DATA / f"{environment}-{name}.txt"))


@pytest.mark.parametrize(
    ("name", "ratio", "low", "high"),
    [("cpu", -13.60, -13.61, -13.59), ("fileio", -3.72, -4.16, -3.43), ("fileio-512m", -4.19, -4.66, -3.70)],
)
def test_the_interval_of_two_series(name, ratio, low, high):
    """The rank-sum interval of the hypervisor against bare metal, in per cent."""
    verdict = of_groups(*(RunLevels.exact(logs(place, name)) for place in ("bare-metal", "vm")), Rules())
    assert [100 * (each - 1) for each in (verdict.ratio, verdict.low, verdict.high)] == pytest.approx(
        [ratio, low, high], abs=0.006
    )
    assert 100 * verdict.tipping_point == pytest.approx(-high, abs=0.006)


def test_what_the_series_hide():
    """Control's file I/O climbs eightfold and has no single number; the CPU series are as steady as they look."""
    found = {one.kind: one for one in diagnosis.find(logs("control", "fileio-512m"), math.log1p(0.03))}
    assert math.expm1(found["drift"].size) == pytest.approx(6.90, abs=0.01)
    assert found["drift"].p == pytest.approx(2e-10, rel=0.2)
    assert (found["step"].at, math.expm1(found["step"].size)) == (12, pytest.approx(2.55, abs=0.01))
    assert diagnosis.von_neumann(logs("control", "fileio-512m"))[1] == pytest.approx(0.92, abs=0.005)
    falling = {one.kind: one for one in diagnosis.find(logs("control", "fileio"), math.log1p(0.03))}
    assert math.expm1(falling["drift"].size) == pytest.approx(-0.25, abs=0.005)
    assert (falling["step"].at, math.expm1(falling["step"].size)) == (16, pytest.approx(-0.22, abs=0.005))
    for place in ("bare-metal", "vm", "control"):
        assert diagnosis.find(logs(place, "cpu"), math.log1p(0.03)) == []
    small = diagnosis.drift(logs("control", "cpu"))
    assert (small.p, math.expm1(small.size)) == (pytest.approx(5e-5, rel=0.01), pytest.approx(0.002, abs=2e-4))
    p, correlation = diagnosis.von_neumann(logs("control", "cpu"))
    assert (p, correlation) == (pytest.approx(0.003, abs=5e-4), pytest.approx(0.25, abs=0.005))


def imported(folder, what, environment, *words):
    """Import a series as a user would; return the stats file."""
    workload, name, metric = what
    stats = folder / f"{environment}-{name}.stats.gz"
    source = DATA / f"{environment}-{name}.txt"
    argv = ["-q", "import-results", workload, str(source), "--environment", environment, "--engine", "docker"]
    assert run_command_line([*argv, "--metric", metric, "-s", str(stats), *words]) == 0
    return stats


def compared(capsys, a, b):
    """Compare two imports; return what is printed, and the comparison of the JSON report."""
    assert run_command_line(["compare", str(a), str(b), "--format", "json"]) == 0
    (comparison,) = json.loads(capsys.readouterr().out)["comparisons"]
    assert run_command_line(["compare", str(a), str(b), "--fail-on", "slower"]) == 4
    return capsys.readouterr().out, comparison


def test_a_significant_and_implausible_measure_is_refused(tmp_path, capsys):
    """The CPU is "13.6 % faster under the hypervisor": an interval without doubt, and no word."""
    text, found = compared(capsys, *(imported(tmp_path, CPU, place) for place in ("bare-metal", "vm")))
    assert (found["verdict"], found["a"]) == ("refused", "environment=bare-metal engine=docker")
    assert [found[end] for end in ("low", "high")] == pytest.approx([0.8639, 0.8641], abs=1e-4)
    for part in ("REFUSED", "[-13.61, -13.59]", "nobody knows", "A shift of 13.6 %", "host: bare-metal -> vm"):
        assert part in text
    assert found["flags"] == []


def test_a_series_that_climbs_has_no_single_number(tmp_path, capsys):
    """Neither in a comparison nor in its own report, which says why there is no verdict."""
    bare, control = (imported(tmp_path, LIMITED, place) for place in ("bare-metal", "control"))
    text, found = compared(capsys, bare, control)
    assert (found["verdict"], found["b_value"]) == ("refused", None)
    assert [flag["kind"] for flag in found["flags"]] == ["step"]
    assert "a drift of 7.90x" in text
    assert run_command_line(["report-scenario", "-s", str(control)]) == 0
    alone = " ".join(capsys.readouterr().out.split())
    assert "No verdict: only one treatment ran" in alone
    assert "no single number: a step of 3.55x after the 12th trial, a drift of 7.90x" in alone


def test_other_parameters_are_refused_before_any_statistics(tmp_path, capsys):
    """The web server was asked by 100 clients at once on one host and by 4 on the other."""
    bare = imported(tmp_path, AB, "bare-metal", "--label", "concurrency=100")
    text, found = compared(capsys, bare, imported(tmp_path, AB, "vm", "--label", "concurrency=4"))
    assert (found["verdict"], found["ratio"]) == ("refused", None)
    assert found["reason"].startswith("other parameters: params.concurrency 100 -> 4")
    assert "Other parameters" in text


def test_failed_runs_are_named(tmp_path, capsys):
    """Of 25 runs of blogbench 22 had a score, and the others were dropped in silence; here they are counted."""
    scored = (DATA.parent / "blogbench" / "1.2-i3-s2.txt").read_text()
    log = tmp_path / "blogbench.txt"
    log.write_text("\n".join([scored] * 22 + [scored[: len(scored) // 2]] * 3))
    files = []
    for place in ("bare-metal", "vm"):
        files.append(tmp_path / f"{place}.stats.gz")
        argv = ["import-results", "blogbench", str(log), "--environment", place, "--engine", "docker"]
        assert run_command_line([*argv, "-s", str(files[-1])]) == 0
    assert capsys.readouterr().err.count("failed run: ") == 6
    text, found = compared(capsys, *files)
    assert found["verdict"] == "refused"
    assert " ".join(text.split()).count("3 of 25 trials have no value: what is left are survivors") == 2
