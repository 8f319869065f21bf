"""The two commands of README do what it says, and its report is that of a recorded run."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from deadlines import END_S, LONG_END_S
from documents import ROOT, blocks, tree
from docutils import nodes
from workspace import require_images

from bench_master.cli import run_command_line

README = ROOT / "README.rst"


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


def test_the_report_is_what_the_recorded_run_prints(capsys):
    """Word for word, and it fits a terminal of 80 columns."""
    begin = "`true` in weighbridge/base"
    blocks_of_readme = [block.astext() for block in tree(README).findall(nodes.literal_block)]
    report = next(text for text in blocks_of_readme if text.startswith(begin))
    assert run_command_line(["report-scenario", "-s", str(ROOT / "docs" / "data" / "weigh.stats.gz")]) == 0
    assert capsys.readouterr().out == report + "\n"
    assert max(map(len, report.splitlines())) <= 80
