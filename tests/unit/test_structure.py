"""How the program is cut: no circles, layers that know what is below them, and libraries that are declared."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from graphlib import TopologicalSorter

import pytest
from documents import ROOT

PACKAGES = ("bench_common", "bench_features", "bench_master", "bench_worker", "weighbridge", "bench_workloads")
FEATURES_THAT_KNOW_OTHERS = {("archive", "charts"), ("clusters", "fleet"), ("compat", "objects")}
"""Trends are drawn, a scheduler is one more launcher, and scenarios of ssbench are about objects."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def statements(body, *, at_load):
    """Yield the statements of a module: all, or those that run when it is loaded."""
    for node in body:
        yield node
        is_deferred = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        is_typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if at_load and (is_deferred or is_typing):
            continue
        for part in ("body", "orelse", "finalbody"):
            yield from statements(getattr(node, part, ()), at_load=at_load)
        for handler in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from statements(handler.body, at_load=at_load)


def imported(node):
    """Yield the dotted names that a statement may import."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Assign | ast.Return) and "import_module(" in (call := ast.unparse(node)):
        yield from re.findall(r"import_module\('([\w.]+)'", call)


@pytest.fixture(scope="module")
def trees():
    """Return each module of the program, read, by its dotted name."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text())
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
    }


def modules_imported(trees, name, *, at_load=False):
    """Return the modules of the program that one imports."""
    names = {target for node in statements(trees[name].body, at_load=at_load) for target in imported(node)}
    return {target if target in trees else target.rpartition(".")[0] for target in names} & trees.keys() - {name}


def feature(name):
    """Return the feature that a module belongs to, or None."""
    words = name.split(".")
    return words[1] if words[0] == "bench_features" and len(words) > 1 else None


def test_no_modules_load_each_other_in_a_circle(trees):
    """Modules load in one order."""
    TopologicalSorter({name: modules_imported(trees, name, at_load=True) for name in trees}).prepare()


def test_the_kernel_imports_no_feature(trees):
    """What is outside of bench_features works without it, and finds what a feature brings by entry points."""
    kernel = [name for name in trees if not name.startswith("bench_features")]
    assert [name for name in kernel if any(map(feature, modules_imported(trees, name)))] == []


def test_features_know_one_another_only_where_that_is_said(trees):
    """Each feature is a room of its own."""
    pairs = {(feature(name), feature(target)) for name in trees for target in modules_imported(trees, name)}
    assert {(one, other) for one, other in pairs if one and other and one != other} == FEATURES_THAT_KNOW_OTHERS


ROAD = ("verdicts", "run_data", "analysis", "reports", "commands")
"""Folders between a stats file and its reader; none imports one behind it: verdicts know numbers alone."""


def test_the_road_from_the_stats_file_to_the_reader_has_one_direction(trees):
    """What reads a file knows nothing of the document that is made of it, and that nothing of how it is shown."""
    road = [f"bench_master.{name}" for name in ROAD]
    for place, folder in enumerate(road):
        for name in (one for one in trees if one.startswith(f"{folder}.")):
            for target in modules_imported(trees, name):
                assert not target.startswith(tuple(f"{later}." for later in road[place + 1 :])), f"{name} -> {target}"


def test_the_halves_of_a_feature_know_their_own_side(trees):
    """The worker's half imports nothing of the master, the master's nothing of the worker, the common one neither."""
    sides = {"master": ("bench_worker", "worker"), "worker": ("bench_master", "master")}
    for name in trees:
        half = name.split(".")[2] if feature(name) and name.count(".") > 1 else ""
        others = [sides[half]] if half in sides else list(sides.values()) if half == "common" else []
        for target in modules_imported(trees, name):
            for package, folder in others:
                assert target.split(".")[0] != package, name
                assert not target.startswith(f"bench_features.{feature(name)}.{folder}"), name


# -- libraries ----------------------------------------------------------------------------------------------------


def normalized(requirement):
    """Return the name of a requirement as package indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


@pytest.fixture(scope="module")
def libraries(trees):
    """Return the distributions of each library that the program imports."""
    found = importlib.metadata.packages_distributions()
    names = {
        target.split(".")[0]
        for tree in trees.values()
        for node in statements(tree.body, at_load=False)
        for target in imported(node)
    }
    names -= {*sys.stdlib_module_names, *PACKAGES, "_typeshed"}
    return {name: {normalized(each) for each in found.get(name, ())} for name in names}


def test_what_is_imported_is_declared(libraries):
    """Every library that the program imports is a dependency of its own, not one of a dependency."""
    extras = PROJECT["optional-dependencies"]
    optional = [text for name, texts in extras.items() if not name.startswith("test") for text in texts]
    declared = [*PROJECT["dependencies"], *optional]
    known = {normalized(text) for text in declared}
    assert {name for name, distributions in libraries.items() if not distributions & known} == set()


def test_what_is_declared_is_used(libraries):
    """No dependency is installed for nothing."""
    used = set().union(*libraries.values())
    assert {normalized(text) for text in PROJECT["dependencies"]} - used == set()
