"""What only a part of the program needs is an extra: a missing one is named with the command that adds it."""

import subprocess
import sys
import tomllib

import pytest
from deadlines import END_S
from documents import ROOT, rows

from bench_common.extras import EXTRAS, missing_extra

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FOR_ALL = {"completion", "iibench", "pandas", "profile"}
"""The extras of users; the others are for those who work on Weighbridge. Frames are those of pandas, not of both."""
HIDING = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"shtab", "pyinstrument"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from bench_master.cli import run_command_line
sys.exit(run_command_line(sys.argv[1:]))
"""
"""The program as it is where the packages of extras are not installed."""


def run_without_extras(folder, *words):
    """Run a command where no extra is installed."""
    return subprocess.run(
        [sys.executable, "-c", HIDING, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=END_S,
        check=False,
    )


def names(requirements):
    """Return the names of the packages that requirements state."""
    return {requirement.partition(">")[0].partition("[")[0].lower() for requirement in requirements}


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (["run-scenario", "-f", "noop", "--noop", "--profile"], "pyinstrument", "profile"),
        (["completion", "bash"], "shtab", "completion"),
    ],
)
def test_a_missing_extra_is_told_with_the_command_that_adds_it(words, package, extra, tmp_path):
    """Before anything runs, in one line, with exit code 2."""
    done = run_without_extras(tmp_path, *words)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1
    assert f"needs {package}, which is not installed: pip install 'weighbridge[{extra}]'" in done.stderr
    assert list(tmp_path.rglob("*.gz")) == []


@pytest.mark.parametrize("words", [["--help"], ["list", "scenarios"], ["list", "workloads"]])
def test_what_needs_no_extra_does_without(words, tmp_path):
    """The help lists every sub-command all the same."""
    done = run_without_extras(tmp_path, *words)
    assert (done.returncode, "not installed" in done.stderr) == (0, False), done.stderr
    assert done.stdout


def test_another_missing_module_is_no_extra():
    """An installation that is broken is not explained away."""
    assert missing_extra(ModuleNotFoundError("No module named 'msgspec'", name="msgspec")) is None


def test_each_package_belongs_to_its_extra_and_to_no_first_run():
    """The table of the program is that of the package."""
    for _, package, extra in EXTRAS.values():
        assert package.lower() in names(PROJECT["optional-dependencies"][extra])
        assert package.lower() not in names(PROJECT["dependencies"])


def test_all_is_every_extra_of_a_user():
    """``weighbridge[all]`` has what any command may need."""
    extras = PROJECT["optional-dependencies"]
    assert names(extras["all"]) == set().union(*(names(extras[extra]) for extra in FOR_ALL))


def test_the_document_says_of_each_package_what_it_is_for():
    """docs/install.rst has a row for each package and each extra, and no other."""
    document = ROOT / "docs" / "install.rst"
    packages = {package.lower() for row in rows(document, "package", "for") for package in row[0].split(", ")}
    assert packages == {name.partition(";")[0].strip() for name in names(PROJECT["dependencies"])}
    extras = {row[0] for row in rows(document, "extra", "for")}
    assert extras == set(PROJECT["optional-dependencies"]) - {"docs", "grpc", "otava", "test", "test-all"}
