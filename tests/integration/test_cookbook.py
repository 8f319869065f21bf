"""The recipes of docs/cookbook.rst: small runs as they are written, the measurements as plans, or whole if slow."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import cookbook_runs
import pytest
from deadlines import BUILD_S, LONG_END_S, LONG_TEST_S
from documents import ROOT, blocks, tree
from docutils import nodes
from test_readme import shell
from workspace import require_images

from bench_master.cli import run_command_line

COOKBOOK = ROOT / "docs" / "cookbook.rst"
IMAGES = ("weighbridge/base", "weighbridge/sysbench", "weighbridge/mariadb")
RECIPES = [one for one in tree(COOKBOOK).findall(nodes.section) if re.match(r"\d+\. ", one[0].astext())]


def of_class(recipe, name):
    """Return the literal blocks of a recipe that have a class."""
    return [one for one in recipe.findall(nodes.literal_block) if name in one["classes"]]


def named(recipe):
    return recipe[0].astext()[:40]


LONG = ("3.", "4.", "5.", "6.")
ALIKE = ("1.", "2.")
"""Those whose small runs are a `weigh` and a `quickstart` as in the tutorial, which runs both."""


def marked(recipes):
    """Return recipes as parameters, those that take longest, or show what others do, as slow ones."""
    return [
        pytest.param(one, id=named(one), marks=pytest.mark.slow if named(one).startswith((*LONG, *ALIKE)) else ())
        for one in recipes
    ]


def script_of(parts):
    return "\n".join(part.astext() for part in parts)


def planned(script):
    """Return the words of the commands of a script that have a plan, each with the option that shows it."""
    found = re.findall(r"^bench-master (run-scenario|weigh) (.*)$", script, flags=re.MULTILINE)
    assert found, script
    return [[command, "--dry-run", *shlex.split(words)] for command, words in found]


@pytest.fixture
def folder(tmp_path):
    """A folder with the files that the cookbook says to write."""
    for block in (*blocks(COOKBOOK, "yaml"), *blocks(COOKBOOK, "inventory")):
        (tmp_path / block["names"][0]).write_text(block.astext())
    return tmp_path


def ready(parts):
    """Skip, or fail in CI, where an image that the commands need is missing."""
    classes = {name for part in parts for name in part["classes"]}
    wanted = [*IMAGES] if "docker" in classes else []
    require_images(*wanted, *(["weighbridge/webbench"] if "webbench" in classes else [])).close()


def test_ten_recipes_have_all_that_a_recipe_has():
    """A small run or one on a testbed, the measurement, a part of real output, how to read it, what next."""
    assert len(RECIPES) == 10
    for recipe in RECIPES:
        assert of_class(recipe, "runnable") or of_class(recipe, "fleet"), named(recipe)
        assert len(of_class(recipe, "example")) == 1, named(recipe)
        said = [one.astext() for one in recipe.findall(nodes.strong)]
        assert said[0] == "How to read it.", named(recipe)
        assert said[-1] == "What next.", named(recipe)
        text = " ".join(recipe.astext().split())
        assert "For example:" in text or "For example, from" in text, named(recipe)


@pytest.mark.docker
@pytest.mark.parametrize("recipe", marked(one for one in RECIPES if of_class(one, "runnable")))
def test_the_small_runs_end_well(recipe, folder):
    """Each command ends with exit code 0, and the heads of the tables in the example are printed today."""
    parts = of_class(recipe, "runnable")
    ready(parts)
    status, printed = shell(script_of(parts), folder, folder)
    assert status == 0, printed
    printed += "".join(path.read_text() for path in folder.glob("report.txt"))
    (example,) = of_class(recipe, "example")
    heads = [line for line in example.astext().splitlines() if re.match(r" *(trial +held|\w+ .*verdict) ", line)]
    assert heads
    for head in heads:
        # Where the machine leaves no row an interval, its column is left out.
        words = set(head.split()) - {"95", "%", "interval"}
        assert any(words <= set(line.split()) for line in printed.splitlines()), (head, printed)


@pytest.mark.parametrize("recipe", [one for one in RECIPES if of_class(one, "full")], ids=named)
def test_the_measurements_have_a_plan(recipe, folder, monkeypatch, capsys):
    """Of each measurement `--dry-run` shows the plan, as the cookbook says; what it needs from before is written."""
    monkeypatch.chdir(folder)
    for line in script_of(of_class(recipe, "runnable")).splitlines():
        if line.startswith("bench-master init "):
            assert run_command_line(shlex.split(line)[1:]) == 0
    for words in planned(script_of(of_class(recipe, "full"))):
        assert run_command_line(words) == 0, words
        assert "Trials in order" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(LONG_TEST_S)
@pytest.mark.parametrize("recipe", [one for one in RECIPES if of_class(one, "slow")], ids=named)
def test_the_measurements_that_take_minutes(recipe, folder):
    """Each runs as it is written."""
    parts = of_class(recipe, "slow")
    ready(parts)
    status, printed = shell(script_of(parts), folder, folder, limit_s=BUILD_S)
    assert status == 0, printed


def test_the_script_runs_the_commands_of_the_document():
    """It finds the ten recipes with all their commands and files, and knows which of them need an engine or hosts."""
    found = cookbook_runs.recipes()
    assert [one.title for one in found] == [one[0].astext() for one in RECIPES]
    for ours, theirs in zip(found, RECIPES, strict=True):
        for name in ("runnable", "full", "fleet", "docker"):
            listed = [line for part in ours.blocks if name in part.classes for line in part.commands]
            assert "\n".join(listed) == script_of(of_class(theirs, name)), ours.title
    assert set(cookbook_runs.files()) == {"arrivals.yaml", "builds.yaml", "hosts.yaml", "score.yaml"}


@pytest.mark.parametrize("where", ["terminal", "pipe"])
def test_the_script_shows_the_answers_of_plain_processes(where, tmp_path):
    """The recipes that weigh commands end well, and the answer is among the first fifteen lines that a user sees."""
    script = [sys.executable, ROOT / "docs" / "_ext" / "cookbook_runs.py", "--native", "--deadline", str(LONG_END_S)]
    script += ["--pipe"] if where == "pipe" else []
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "XDG_CONFIG_HOME": str(tmp_path),
    }
    words = [*script, "1", "8"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=LONG_TEST_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [found[0] for found in re.finditer(r"^\d+\. ", done.stdout, re.MULTILINE)] == ["1. ", "8. "]
    screens = re.split(r"^\$ bench-master ", done.stdout, flags=re.MULTILINE)[1:]
    assert [screen.split()[0] for screen in screens] == ["weigh", "weigh", "weigh", "compare"]
    weighed, compared = screens[0].splitlines(), screens[3].splitlines()
    assert re.search("(Slower|Faster|Inconclusive|Same).* old", "\n".join(weighed[1:16])), screens[0]
    assert "against the earlier run" in "\n".join(compared[1:16]), screens[3]


def test_a_recipe_fails_whose_answer_is_below_the_first_lines(tmp_path, monkeypatch, engines, capsys):
    """Messages above a report must leave it room: the script looks for the whole sentence that ``-q`` prints."""
    program = tmp_path / "bench-master"
    program.write_text(
        "#!/bin/sh\n"
        'case "$*" in *-q*) echo "Slower than docker: runc (20 ms, 2.1x as slow)."; exit ;; esac\n'
        "seq $LINES_ABOVE; printf '  Slower than docker: runc (20 ms,\\n    2.1x as slow).\\n'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    command = "bench-master run-scenario -f x.yaml -s x.stats.gz"
    for above, ends_well in ((13, True), (14, False)):
        monkeypatch.setenv("LINES_ABOVE", str(above))
        ended = cookbook_runs.run_command(command, os.environ, tmp_path, cookbook_runs.wish_of([]), engines)
        assert ended is ends_well, above
    assert "not within the first 15 lines: Slower than docker: runc" in capsys.readouterr().out
    log = cookbook_runs.wish_of(["--pipe"])
    for above, below, ends_well in ((40, 11, True), (40, 12, False)):
        # In a log the report may begin late, but not its answer within it.
        program.write_text(
            "#!/bin/sh\n"
            'case "$*" in *-q*) echo "Slower than docker: runc (20 ms, 2.1x as slow)."; exit ;; esac\n'
            f"seq {above}; printf 'A report\\n========\\n'; seq {below}\n"
            "printf '  Slower than docker: runc (20 ms,\\n    2.1x as slow).\\n'\n"
        )
        assert cookbook_runs.run_command(command, os.environ, tmp_path, log, engines) is ends_well, below
    for other in (f"{command} -R", "bench-master compare a.stats.gz b.stats.gz", "bench-master list engines"):
        assert cookbook_runs.answer_of(other, os.environ, tmp_path) == [], other


def test_a_screen_has_as_many_lines_as_asked_for_and_a_report_below_messages_as_many(engines, tmp_path, capsys):
    """Warnings above a report do not hide it; what else is left out is counted."""
    wish = cookbook_runs.wish_of([])
    command = "seq 1 20; echo 'A report'; echo ========; seq 1 20"
    assert cookbook_runs.run_command(command, os.environ, tmp_path, wish, engines)
    shown = capsys.readouterr().out.splitlines()
    first, report = [*map(str, range(1, 16))], ["A report", "========", *map(str, range(1, 14))]
    left = "[5 more lines; the report begins at line 21:]"
    assert shown == [f"$ {command}", *first, left, *report, "[7 more lines]", ""]
    cookbook_runs.run_command("echo 'A report'; echo ========; seq 1 20", os.environ, tmp_path, wish, engines)
    assert capsys.readouterr().out.splitlines()[1:] == [*report, "[7 more lines]", ""]


@pytest.fixture
def engines(monkeypatch):
    """What the script asks of the engines: Docker and runc are there, crun is not."""
    found = cookbook_runs.Engines()
    monkeypatch.setattr(found, "reasons", lambda: {"docker": "", "runc": "", "crun": "there is no program crun"})
    return found


def test_an_engine_that_is_missing_is_left_out_with_the_reason(engines):
    """Of the engines of a `weigh` alone: what is weighed may have any name."""
    command = "bench-master weigh docker crun --repeats 1 -s x.stats.gz -- crun --version"
    kept, missing = engines.without_missing(command)
    assert kept == "bench-master weigh docker --repeats 1 -s x.stats.gz -- crun --version"
    assert missing == {"crun": "there is no program crun"}
    assert engines.without_missing("bench-master list engines") == ("bench-master list engines", {})


def test_a_command_that_fails_is_shown_with_its_last_lines(engines, tmp_path, capsys):
    """With its exit code; one that does not end is ended at the deadline."""
    wish = cookbook_runs.wish_of(["--lines", "2"])
    failing = "for n in 1 2 3; do echo line $n; done; echo the reason; exit 7"
    assert not cookbook_runs.run_command(failing, os.environ, tmp_path, wish, engines)
    printed = capsys.readouterr().out.splitlines()
    assert printed[1:] == ["line 1", "line 2", "[2 more lines]", "line 3", "the reason", "exit code 7"]
    wish = cookbook_runs.wish_of(["--deadline", "0.2"])  # subject: a deadline that passes
    assert not cookbook_runs.run_command("sleep 3600", os.environ, tmp_path, wish, engines)
    assert capsys.readouterr().out.endswith("not over in 0.2 s\n")
