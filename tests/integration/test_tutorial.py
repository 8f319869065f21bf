"""The commands of docs/tutorial.rst, one after the other in one folder, and the outputs that it shows."""

import re
import shlex

import pytest
from deadlines import BUILD_S, LONG_TEST_S
from documents import ROOT, blocks, literals
from test_readme import shell
from workspace import require_images

from bench_master.cli import run_command_line

TUTORIAL = ROOT / "docs" / "tutorial.rst"
RECORDED = ROOT / "docs" / "data" / "quickstart.stats.gz"


def shown(name):
    """Return the text of the only block of a class."""
    (block,) = blocks(TUTORIAL, name)
    return block.astext()


def commands(name):
    """Return the commands of all blocks of a class, in order."""
    return "\n".join(block.astext() for block in blocks(TUTORIAL, name))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the files that the tutorial says to write."""
    work = tmp_path / "work"
    work.mkdir()
    for block in blocks(TUTORIAL, "yaml"):
        (work / block["names"][0]).write_text(block.astext())
    monkeypatch.chdir(work)
    return work


@pytest.mark.docker
def test_the_small_runs_end_well(folder):
    """All commands run as written, in order; mistakes are reported and a gate judged as the page says."""
    require_images("weighbridge/base", "weighbridge/sysbench").close()
    assert len(blocks(TUTORIAL, "runnable")) > 8
    status, printed = shell(commands("runnable"), folder, folder.parent)
    assert status == 0, printed
    assert shown("mistakes") in printed
    assert shown("gate") in printed
    assert {"first.html", "quickstart-small.html", "trials.svg"} <= {path.name for path in folder.iterdir()}
    remove = next(text for text in literals(TUTORIAL) if text.startswith("rm "))
    assert shell(remove, folder, folder.parent) == (0, "")
    assert list(folder.iterdir()) == []


def test_the_full_runs_have_a_plan(folder, capsys):
    """`--dry-run` shows the plan of each measurement."""
    full = commands("full").splitlines()
    assert len(full) == 3
    for line in full:
        words = shlex.split(re.sub(r"^bench-master ", "", line))
        assert run_command_line([*words, "--dry-run"]) == 0, line
        assert "Trials in order" in capsys.readouterr().out


def test_the_report_is_what_the_recorded_run_prints(capsys):
    """The example is word for word the report of the run in docs/data, to the end of its warnings."""
    assert run_command_line(["report-scenario", "-s", str(RECORDED)]) == 0
    assert capsys.readouterr().out.startswith(shown("recorded") + "\n")


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(LONG_TEST_S)
def test_the_measurements_that_take_minutes(folder):
    """Each runs as it is written."""
    require_images("weighbridge/base", "weighbridge/sysbench").close()
    status, printed = shell(commands("full"), folder, folder.parent, limit_s=BUILD_S)
    assert status == 0, printed
