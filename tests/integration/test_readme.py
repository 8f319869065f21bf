"""Commands of README and overview run as they are written, in a folder of their own; other ones are understood."""

import os
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run_in_process
from deadlines import END_S, LONG_END_S
from documents import ROOT, blocks, tree
from docutils import nodes
from workspace import require_images

from bench_master.cli import run_command_line

README = ROOT / "README.rst"
OVERVIEW = ROOT / "docs" / "overview.rst"
RUNNABLE = blocks(OVERVIEW, "runnable")
MEASURES = ("validate-scenario -f sleepers.yaml", "run-scenario -f noop --noop")
"""How the blocks begin that always run: of the others each command is one of the tutorial, or a run like theirs."""


def shell(script, folder, home, limit_s=LONG_END_S):
    """Run a script with our programs on PATH, in `folder`, to its end; return what it printed and its exit code.

    It stops at the first command that fails, and at the deadline it is ended with all that it started.
    """
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
    }
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        # Asked first, so that a run cleans up after itself.
        os.killpg(process.pid, signal.SIGTERM)
        printed, _ = process.communicate(timeout=END_S)
        pytest.fail(f"not over in {limit_s} s: {script}\n{printed}")
    return process.returncode, printed


@pytest.fixture
def folder(tmp_path):
    """A folder with the scenario that the overview says to write."""
    for block in blocks(OVERVIEW, "yaml"):
        (tmp_path / block["names"][0]).write_text(block.astext())
    return tmp_path


def test_there_is_something_to_run():
    """The overview marks its runnable blocks, and names the file that they need."""
    assert len(RUNNABLE) >= 4
    assert [block["names"] for block in blocks(OVERVIEW, "yaml")] == [["sleepers.yaml"]]


def commands(block):
    """Return the words of each command of a block."""
    return [shlex.split(line, comments=True) for line in block.astext().splitlines()]


def runs_always(block):
    return block.astext().removeprefix("bench-master ").startswith(MEASURES)


@pytest.mark.docker
@pytest.mark.parametrize(
    "block",
    [pytest.param(block, marks=() if runs_always(block) else pytest.mark.slow) for block in RUNNABLE],
    ids=lambda block: block.astext().splitlines()[0][:40],
)
def test_the_commands_run_as_written(block, folder):
    """Every command of a runnable block ends with exit code 0."""
    if "docker" in block["classes"]:
        require_images("weighbridge/base").close()
    status, printed = shell(block.astext(), folder, folder)
    assert status == 0, printed


def test_the_commands_that_run_only_if_slow_are_understood(folder):
    """Each is a command of the tutorial, whose commands run always, or its plan or list is shown."""
    shown = [words for block in blocks(ROOT / "docs" / "tutorial.rst", "runnable") for words in commands(block)]
    others = [words for block in RUNNABLE if not runs_always(block) for words in commands(block)]
    others = [words for words in others if words not in shown]
    assert [words[3] for words in others if words[1] == "run-scenario"] == ["sleepers.yaml", "vm-docker-bench/cpu"]
    for words in others:
        dry = [] if "--dry-run" in words else ["--dry-run"]
        status, _, err = run_in_process([*words[1:], *dry], folder, os.environ)
        assert status == 0, err


@pytest.mark.parametrize("name", ["demo", "test"])
def test_the_two_commands_exist_and_explain_themselves(name, tmp_path):
    """README names script/demo and script/test, and each can be run and has help."""
    script = ROOT / "script" / name
    assert f"script/{name}" in [block.astext() for block in blocks(README, "sh")]
    assert script.stat().st_mode & stat.S_IXUSR
    status, printed = shell(f"{script} --help", ROOT, tmp_path)
    assert status == 0
    assert printed.startswith(f"Usage: script/{name}")


@pytest.mark.slow
@pytest.mark.docker
def test_the_demo_ends_with_a_report_and_the_place_of_its_file(tmp_path):
    """The first of the two commands does what README says, from a checkout as it stands."""
    require_images("weighbridge/base", "weighbridge/sysbench").close()
    status, printed = shell("script/demo --yes", ROOT, tmp_path)
    assert status == 0, printed
    assert "cpu (sysbench-cpu), lifecycle (create to remove), on host" in printed
    place = ROOT / printed.split("stats file: ")[1].splitlines()[0]
    place.unlink()


@pytest.mark.parametrize(
    ("document", "begin", "run"),
    [(README, "`true` in weighbridge/base", "weigh"), (OVERVIEW, "cpu (sysbench-cpu)", "readme")],
    ids=["readme", "overview"],
)
def test_the_report_in_a_document_is_what_the_recorded_run_prints(document, begin, run, capsys):
    """Word for word, and it fits a terminal of 80 columns."""
    report = next(
        block.astext() for block in tree(document).findall(nodes.literal_block) if block.astext().startswith(begin)
    )
    assert run_command_line(["report-scenario", "-s", str(ROOT / "docs" / "data" / f"{run}.stats.gz")]) == 0
    assert capsys.readouterr().out == report + "\n"
    assert max(map(len, report.splitlines())) <= 80
