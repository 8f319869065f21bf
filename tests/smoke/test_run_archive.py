"""`run-scenario --archive`, `weigh --archive`: a run goes into the archive at its end, and is never lost with it."""

import os
import shutil
import subprocess
import sys

import pytest
from archive_runs import a_run
from deadlines import END_S

from bench_common.stats.reader import StatsFile
from bench_features.archive.archive import Archive
from bench_features.archive.folder import VARIABLE
from bench_features.archive.run_extension import keep_run
from bench_master.run_data.measured import MeasuredRun

SCENARIO = """
name: archived
engines: [native]
repeats: 3
jobs:
  short: {operations: [run, wait, remove], container: {command: ["true"]}}
"""


def run_scenario(folder, *words, **environment):
    """Run the scenario for real, and return how it ended."""
    (folder / "s.yaml").write_text(SCENARIO)
    command = [
        sys.executable,
        "-m",
        "bench_master",
        "run-scenario",
        "-f",
        "s.yaml",
        "--workers",
        "1",
        "-s",
        "r.stats.gz",
    ]
    return subprocess.run(
        [*command, "--progress", "none", *words],
        cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=END_S, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("by_option", [False, True])
def test_a_run_is_in_the_archive_that_was_named(archive_folder, tmp_path, by_option):
    """By the environment or by the option; the file beside it is the same, and adding it again changes nothing."""
    if by_option:
        done = run_scenario(tmp_path, "-R", f"--archive={archive_folder}")
    else:
        done = run_scenario(tmp_path, "-R", "--archive", **{VARIABLE: archive_folder})
    assert done.returncode == 0, done.stderr
    assert "archived as " in done.stderr
    with Archive.open(archive_folder) as archive:
        (run,) = archive.runs()
        assert (run.scenario, run.state, run.problem, run.done) == ("archived", "complete", "", 3)
        assert run.report.argv[-1].startswith("--archive")
        assert not archive.add(tmp_path / "r.stats.gz").new


def test_a_weighed_command_is_in_the_archive(tmp_path):
    """The same command is the same series the next time; a name of an engine is no archive."""
    command = [sys.executable, "-m", "bench_master", "weigh", "native", "--repeats", "1", "--progress", "none"]
    for number in range(2):
        words = ["-s", f"{number}.stats.gz", "--archive", tmp_path / "archive", "--", "true"]
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, capture_output=True, text=True, timeout=END_S, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "archived as " in done.stderr
    with Archive.open(str(tmp_path / "archive")) as archive:
        assert [run.state for run in archive.runs()] == ["complete"] * 2
        assert [len(series.members) for series in archive.series()] == [2]
    words = ["--archive", "native", "docker", "--", "true"]
    done = subprocess.run(
        [*command, *words], cwd=tmp_path, capture_output=True, text=True, timeout=END_S, check=False
    )
    assert done.returncode == 2
    assert "'native' is an engine: name the engines first" in done.stderr


def test_an_archive_that_cannot_be_used_is_found_before_the_run(tmp_path):
    """A file in the place of the folder or in the way to it, a URL: nothing has run."""
    (tmp_path / "file").write_text("")
    for address, code in ((tmp_path / "file", 2), (tmp_path / "file" / "x", 3), ("postgresql://u:s3cret@h/d", 2)):
        done = run_scenario(tmp_path, "-R", f"--archive={address}")
        assert done.returncode == code, done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert "s3cret" not in done.stderr
        assert not (tmp_path / "r.stats.gz").exists()


def test_an_archive_that_fails_at_the_end_does_not_lose_the_run(archive_folder, tmp_path, capsys):
    """The command says where the run is and how to add it later, and ends with 3."""
    stats = a_run(tmp_path / "r.stats.gz")
    with Archive.open(archive_folder, create=True) as archive:
        shutil.rmtree(archive.folder.objects, ignore_errors=True)
        archive.folder.objects.write_text("in the way")
        run = MeasuredRun(StatsFile(stats))
        assert keep_run(run, archive_folder, quiet=True) == 3
        archive.folder.objects.unlink()
        told = capsys.readouterr().err
        assert f"bench-master archive add {stats}" in told
        assert "not in the archive" in told
    assert keep_run(run, archive_folder, quiet=False) == 0
    with Archive.open(archive_folder) as archive:
        assert f"archived as {archive.runs()[0].id}" in capsys.readouterr().err


def test_a_run_is_judged_by_the_archive_that_it_goes_into(archive_folder, tmp_path):
    """The first one has nothing to be held against: a gate is not green, and the run is kept; so is the next one."""
    words = ("--archive", archive_folder, "--baseline", "trend", "--fail-on", "slower")
    answers = {"a": "no earlier run of this treatment in the archive", "b": "only 1 earlier run of this kind"}
    for name, earlier in answers.items():
        (tmp_path / name).mkdir()
        done = run_scenario(tmp_path / name, *words)
        assert done.returncode == 4, done.stderr
        assert f"{earlier}; 5 are needed" in done.stderr
        assert "archived as " in done.stderr
        assert "against the trend of" in " ".join(done.stdout.split())
    with Archive.open(archive_folder) as archive:
        assert [len(one.members) for one in archive.series()] == [2]
    # Without an archive of its own the run is judged by the default one, which must be there before it begins.
    (tmp_path / "c").mkdir()
    done = run_scenario(tmp_path / "c", "--baseline", "trend", WEIGHBRIDGE_ARCHIVE=str(tmp_path / "none"))
    assert (done.returncode, (tmp_path / "c" / "r.stats.gz").exists()) == (2, False)
    assert "--baseline trend: " in done.stderr
    assert "there is no archive" in done.stderr
