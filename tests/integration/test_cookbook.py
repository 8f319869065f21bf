"""The recipes of docs/cookbook.rst: small runs as they are written, the measurements as plans, or whole if slow."""

import re
import shlex

import pytest
from deadlines import BUILD_S, LONG_TEST_S
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
    """A small run or one on a testbed, the measurement, the first lines of real output, how to read it, what next."""
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
    heads = [line for line in example.astext().splitlines() if re.match(r" *(packed|\w+ .*verdict) ", line)]
    assert heads
    for head in heads:
        assert any(set(head.split()) <= set(line.split()) for line in printed.splitlines()), (head, printed)


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
