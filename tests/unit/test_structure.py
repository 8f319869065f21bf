"""How the program is cut: sizes, folders, who imports whom, and which libraries it declares.

``python benchmarks/house.py`` prints the figures; docs/architecture.rst draws the arrows.
"""

import importlib.metadata
import re
import statistics
import sys
import tomllib
from collections import Counter

import pytest
from documents import ROOT, rows

sys.path.insert(0, str(ROOT / "benchmarks"))
from house import find_arrows, find_cycles, read_modules

MAX_MODULES = 460
MAX_LINES = 600
MEDIAN_LINES = range(150, 201)
MAX_FILES_IN_A_FOLDER = 30

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def modules():
    """Return the modules of the program; reading them takes seconds."""
    return read_modules()


def test_no_module_is_longer_than_the_limit(modules):
    """A module can be read at a sitting."""
    assert {module.name: module.lines for module in modules.values() if module.lines > MAX_LINES} == {}


def test_modules_are_few_and_of_a_readable_size(modules):
    """A newcomer finds the file in one guess: few modules, neither crumbs nor giants."""
    assert len(modules) <= MAX_MODULES
    assert statistics.median_low(module.lines for module in modules.values()) in MEDIAN_LINES


def test_no_folder_is_crowded(modules):
    """A folder's list of files fits on a screen."""
    crowded = Counter(module.folder for module in modules.values())
    assert {folder: count for folder, count in crowded.items() if count > MAX_FILES_IN_A_FOLDER} == {}


def test_no_modules_import_each_other_in_a_circle(modules):
    """Modules load in one order."""
    assert find_cycles(modules) == []


def test_a_circle_would_be_found(tmp_path):
    """The check above sees a circle of two modules, and does not take an import inside a function for one."""
    package = tmp_path / "workloads"
    package.mkdir()
    (package / "a.py").write_text("from workloads import b\n")
    (package / "b.py").write_text("from workloads.c import x\ndef late():\n    from workloads import a\n")
    (package / "c.py").write_text("x = 1\n")
    assert find_cycles(read_modules(tmp_path)) == []
    (package / "c.py").write_text("import workloads.a\nx = 1\n")
    assert find_cycles(read_modules(tmp_path)) == [["workloads.a", "workloads.b", "workloads.c"]]


def test_the_arrows_are_those_that_are_drawn(modules):
    """docs/architecture.rst lists, for each folder, exactly the folders that it imports from."""
    table = rows(ROOT / "docs" / "architecture.rst", "folder", "imports from")
    drawn = {folder: set(re.findall(r"[\w/]+", targets)) - {"nothing"} for folder, targets in table}
    assert drawn == find_arrows(modules)


# -- libraries ----------------------------------------------------------------------------------------------------


def normalized(requirement):
    """Return the name of a requirement as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


@pytest.fixture(scope="module")
def distributions():
    """Return the distributions that provide each importable package."""
    found = importlib.metadata.packages_distributions()
    return {package: {normalized(name) for name in names} for package, names in found.items()}


def test_what_is_imported_is_declared(modules, distributions):
    """Every library that the program imports is a dependency of its own, not one of a dependency."""
    declared = {normalized(text) for text in PROJECT["dependencies"]}
    declared |= {
        normalized(text)
        for name, extra in PROJECT["optional-dependencies"].items()
        if name != "test"
        for text in extra
    }
    libraries = {library for module in modules.values() for library in module.libraries} - set(
        sys.stdlib_module_names
    )
    assert {library for library in libraries if not distributions.get(library, set()) & declared} == set()


def test_what_is_declared_is_used(modules, distributions):
    """No dependency is installed for nothing."""
    libraries = {library for module in modules.values() for library in module.libraries}
    used = {name for library in libraries for name in distributions.get(library, ())}
    assert {normalized(text) for text in PROJECT["dependencies"]} - used == set()
