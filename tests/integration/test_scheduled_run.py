"""The scheduled runs of the user guide: cron's line, systemd's units and the CI job are tried as they are written."""

import configparser
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from busybox_image import skip_or_fail
from deadlines import LONG_END_S
from documents import ROOT, tree
from docutils import nodes

from bench_features.archive.archive import Archive

NIGHTLY = """
name: nightly
engines: [native]
repeats: 3
jobs:
  short: {operations: [run, wait, remove], container: {command: ["true"]}}
"""


def blocks():
    """Return the literal blocks of the user guide."""
    return [block.astext() for block in tree(ROOT / "docs" / "user-guide.rst").findall(nodes.literal_block)]


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Return what stands for /srv/bench, with a scenario and the repository's scripts."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "nightly.yaml").write_text(NIGHTLY)
    (folder / "weighbridge").symlink_to(ROOT)
    return folder


def run(bench, command, **environment):
    """Run a line of the guide in a shell, in the folder that stands for /srv/bench."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-e", "-c", command.replace("/srv/bench", str(bench))],
        cwd=bench, env={**os.environ, "PATH": path, **environment},
        capture_output=True, text=True, timeout=LONG_END_S, check=False,
    )  # fmt: skip


def archived(bench):
    """Return the runs in the archive of the guide."""
    with Archive.open(str(bench / "archive")) as archive:
        return archive.runs()


HAS_OWN = (ROOT / ".venv" / "bin" / "bench-master").exists()
"""Whether the repository has a virtual environment, as that of the guide."""


def path_of_cron():
    """Return a PATH without our programs."""
    folders = [part for part in os.environ["PATH"].split(":") if not Path(part, "bench-master").exists()]
    return ":".join(part for part in folders if Path(part) != Path(sys.executable).parent)


@pytest.fixture(scope="module")
def from_cron(bench):
    """Return how the line of the guide for cron ended, in an environment like that of cron."""
    (cron,) = [line for text in blocks() for line in text.splitlines() if line.startswith("15 3 * * *")]
    return run(bench, cron.split(maxsplit=5)[5], **({"PATH": path_of_cron()} if HAS_OWN else {}))


def test_every_way_to_schedule_a_run_archives_and_judges_it(bench, from_cron):
    """Too few earlier runs are no failure; nothing is left beside the archive, and what was left goes in."""
    assert from_cron.returncode == 4, from_cron.stderr
    assert [(one.scenario, one.state) for one in archived(bench)] == [("nightly", "complete")]
    assert (bench / "weighbridge-scheduled").is_dir()
    assert list((bench / "weighbridge-scheduled").glob("*.gz")) == []

    service = configparser.ConfigParser(interpolation=None, strict=False)
    service.optionxform = str
    service.read_string(next(text for text in blocks() if "ExecStart=" in text))
    unit = service["Service"]
    assert unit["WorkingDirectory"] == "/srv/bench"
    variables = dict(
        word.split("=", 1) for word in shlex.split(unit["Environment"].replace("/srv/bench", str(bench)))
    )
    done = run(bench, unit["ExecStart"], **variables)
    assert str(done.returncode) == unit["SuccessExitStatus"], done.stderr
    assert len(archived(bench)) == 2

    workflow = yaml.safe_load(next(text for text in blocks() if "schedule:" in text))
    job = workflow["jobs"]["benchmark"]
    variables = {name: value.replace("/srv/bench", str(bench)) for name, value in job["env"].items()}
    summary = bench / "github.md"
    for step in job["steps"]:
        if "run" in step:
            done = run(bench, step["run"], GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(summary), **variables)
            assert done.returncode == 0, done.stderr
    assert "nightly" in summary.read_text()
    assert len(archived(bench)) == 3


def test_a_scheduled_run_fails_as_its_parts_do(bench, tmp_path):
    """While one is under way another does not begin; a wrong scenario is a usage error; help and shellcheck pass."""
    script = "/srv/bench/weighbridge/script/scheduled-run"
    variables = {"WEIGHBRIDGE_ARCHIVE": str(tmp_path / "archive"), "WEIGHBRIDGE_RESULTS": str(tmp_path / "results")}
    assert run(bench, f"{script} none.yaml --workers 1", **variables).returncode == 2
    busy = run(bench, f"exec 8>{tmp_path}/results/lock; flock 8; {script} nightly.yaml", **variables)
    assert busy.returncode == 75
    assert "another run is under way" in busy.stderr
    assert "Exit codes" in run(bench, f"{script} --help").stdout
    assert run(bench, script).returncode == 2


def test_a_scheduled_run_finds_the_programs_without_a_path(bench, from_cron, tmp_path):
    """cron and systemd know no virtual environment: that of the repository is taken, and its absence explained."""
    if not HAS_OWN:
        skip_or_fail("the repository has no .venv")
    assert from_cron.returncode == 4, from_cron.stderr
    assert archived(bench)

    variables = {
        "PATH": path_of_cron(),
        "WEIGHBRIDGE_ARCHIVE": str(tmp_path / "archive"),
        "WEIGHBRIDGE_RESULTS": str(tmp_path / "results"),
    }
    (tmp_path / "script").mkdir()
    alone = shutil.copy(ROOT / "script" / "scheduled-run", tmp_path / "script")
    done = run(bench, f"{alone} nightly.yaml", **variables)
    assert done.returncode == 3
    assert f"none in {tmp_path}/.venv/bin" in done.stderr
