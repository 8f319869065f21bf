"""How the program is cut: who imports whom, and which libraries it declares; length is an alarm, not a limit.

``python benchmarks/house.py`` prints the figures; docs/architecture.rst draws the arrows.
"""

import ast
import importlib.metadata
import inspect
import re
import sys
import tomllib

import pytest
from documents import ROOT

from bench_common.stats.reader import StatsFile

sys.path.insert(0, str(ROOT / "benchmarks"))
from house import (
    ALARM_LINES,
    FEATURES,
    FEATURES_THAT_KNOW_OTHERS,
    SHAPES,
    compares_sentence,
    crossings_of_halves,
    feature_imports_of_kernel,
    find_cycles,
    imports_between_features,
    imports_page,
    kernel_names_of_features,
    long_modules,
    main,
    makers,
    mentions,
    questions_of_kind,
    read_modules,
    sentence_comparisons,
    shapes_of,
    untyped_header_accesses,
    untyped_headers,
)

ENDS = ("common.job", "master.keys", "worker.runner")
"""Modules of the halves of a feature."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def modules():
    """Return the modules of the program; reading them takes seconds."""
    return read_modules()


def test_long_modules_are_listed_and_nothing_else_happens(tmp_path, capsys):
    """Length is an alarm, not a limit: the benchmark names the modules from 450 lines on, the longest first."""
    package = tmp_path / "bench_workloads"
    package.mkdir()
    for name, lines in (("short", ALARM_LINES - 1), ("long", ALARM_LINES), ("longest", ALARM_LINES + 1)):
        (package / f"{name}.py").write_text("\n" * lines)
    assert [module.name for module in long_modules(read_modules(tmp_path))] == [
        "bench_workloads.longest",
        "bench_workloads.long",
    ]
    assert main([], tmp_path) == 0
    assert capsys.readouterr().out.count("\nlong  ") == 2


def test_no_modules_import_each_other_in_a_circle(modules):
    """Modules load in one order."""
    assert find_cycles(modules) == []


def test_a_circle_would_be_found(tmp_path):
    """The check above sees a circle of two modules, and does not take an import inside a function for one."""
    package = tmp_path / "bench_workloads"
    package.mkdir()
    (package / "a.py").write_text("from bench_workloads import b\n")
    (package / "b.py").write_text("from bench_workloads.c import x\ndef late():\n    from bench_workloads import a\n")
    (package / "c.py").write_text("x = 1\n")
    assert find_cycles(read_modules(tmp_path)) == []
    (package / "c.py").write_text("import bench_workloads.a\nx = 1\n")
    assert find_cycles(read_modules(tmp_path)) == [["bench_workloads.a", "bench_workloads.b", "bench_workloads.c"]]


def test_the_arrows_are_those_that_are_drawn(modules):
    """docs/imports.rst lists, for each folder, exactly the folders that it imports from."""
    written = (ROOT / "docs" / "imports.rst").read_text(encoding="utf-8")
    assert written == imports_page(modules), "python benchmarks/house.py --write-imports"


def test_the_kernel_imports_no_feature(modules):
    """What is outside of bench_features works without it, and finds what a feature brings by entry points."""
    assert feature_imports_of_kernel(modules) == []


def test_features_know_one_another_only_where_that_is_said(modules):
    """Each feature is a room of its own."""
    assert imports_between_features(modules) == FEATURES_THAT_KNOW_OTHERS.keys()


def test_the_kernel_names_no_feature():
    """Its texts do not even say where one is: an entry point does."""
    assert kernel_names_of_features() == []


def test_a_name_of_a_feature_would_be_found(tmp_path):
    """The check above sees it in a text, and lets features name one another."""
    for package in ("bench_workloads", "bench_features"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "a.py").write_text("x = 1\nCLASS = 'bench_features.charts:Svg'\n")
    assert kernel_names_of_features(tmp_path) == ["bench_workloads/a.py:2"]


def test_the_sides_of_a_feature_know_what_they_share_alone(modules):
    """The worker's half runs where no master is, and the master's half beside no engine."""
    assert crossings_of_halves(modules) == []


@pytest.mark.parametrize(
    ("half", "imported"),
    [
        ("worker", "bench_master.plan"),
        ("worker", "bench_features.toy.master.keys"),
        ("master", "bench_worker.job"),
        ("master", "bench_features.toy.worker.runner"),
        ("common", "bench_master.plan"),
        ("common", "bench_features.toy.worker.runner"),
    ],
)
def test_a_half_that_knows_the_other_side_would_be_found(tmp_path, half, imported):
    """The check above sees an import of the other side's packages, and of the other half, inside functions too."""
    for name in ("bench_master.plan", "bench_worker.job", *(f"bench_features.toy.{end}" for end in ENDS)):
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    own = tmp_path / "bench_features" / "toy" / half / "more.py"
    own.write_text(f"from bench_features.toy.common.job import x\ndef late():\n    import {imported}\n")
    (tmp_path / "bench_features" / "toy" / "__init__.py").write_text("import bench_features.toy.common.job\n")
    assert crossings_of_halves(read_modules(tmp_path)) == [(f"bench_features.toy.{half}.more", imported)]


def test_a_feature_without_halves_is_the_masters(tmp_path):
    """It must not import the worker's packages either."""
    for name in ("bench_master.plan", "bench_worker.job"):
        path = tmp_path / f"{name.replace('.', '/')}.py"
        path.parent.mkdir(parents=True)
        path.write_text("")
    own = tmp_path / "bench_features" / "flat" / "__init__.py"
    own.parent.mkdir(parents=True)
    own.write_text("import bench_master.plan\nimport bench_worker.job\n")
    assert crossings_of_halves(read_modules(tmp_path)) == [("bench_features.flat", "bench_worker.job")]


# -- the header of a stats file -----------------------------------------------------------------------------------


def test_the_header_has_its_type_everywhere():
    """Readers get the declared type, so mypy checks each key, and no function takes a map of anything instead."""
    assert inspect.signature(StatsFile.header.fget).return_annotation == "Header"
    assert untyped_header_accesses() == []


@pytest.mark.parametrize(
    "text",
    [
        "def f(header: dict[str, Any]): ...",
        "def f(header: Mapping[str, Any]): ...",
        "def header(self) -> dict[str, Any]: ...",
        "header: dict[str, Any] | None = None",
        "def f(body):\n    header = body\n    return header['seed']",
        "def f(header):\n    return header.get('seed')",
    ],
)
def test_an_untyped_header_would_be_found(text):
    """The check above sees each form of a header without its type."""
    assert untyped_headers(ast.parse(text))


# -- kinds of jobs and features --------------------------------------------------------------------------------------


def test_a_job_is_hardly_ever_asked_for_its_kind():
    """What differs between kinds is in their parts, so that a further kind needs no change elsewhere."""
    assert len(questions_of_kind()) <= 5


def test_each_form_of_the_question_is_found(tmp_path):
    """The check above sees `isinstance` with one or several classes, and `match`, of whatever is a `Job`."""
    package = tmp_path / "bench_workloads"
    package.mkdir()
    asking = ("isinstance(x, Dice)", "isinstance(x.job, (int, a.Dice))", "isinstance(x, int | Dice)")
    lines = ["class Dice(Job, Struct): pass", *asking, "match x:", "    case Dice(): pass", "isinstance(x, Struct)"]
    (package / "dice.py").write_text("\n".join(lines))
    assert questions_of_kind(tmp_path) == [f"bench_workloads/dice.py:{line}" for line in (2, 3, 4, 6)]


MENTIONS = {"objects": 5}
"""How many modules outside of a feature's folder mention it: fewer are better, and more are refused."""


@pytest.mark.parametrize("feature", FEATURES)
def test_no_further_module_mentions_a_feature(feature):
    """A feature that can live outside of the kernel is known to few modules there."""
    assert len(mentions(feature)) <= MENTIONS[feature], mentions(feature)


# -- reasons and verdicts -----------------------------------------------------------------------------------------


def test_no_logic_reads_the_sentence_of_a_reason():
    """What a reason is says its code; sentences are for readers, and may change."""
    assert sentence_comparisons() == []


@pytest.mark.parametrize(
    "text",
    [
        "comparison.reason == NOT_ENOUGH",
        "'drift' in comparison.reason",
        "flag.where in flag.text",
        "flag.text.replace(title, name)",
        "document.no_verdict.startswith('only')",
        "one.sentence() != other",
    ],
)
def test_logic_that_reads_a_sentence_would_be_found(text):
    """The check above sees each form of it."""
    assert compares_sentence(ast.parse(text, mode="eval").body)


def test_each_shape_of_a_treatment_or_a_run_says_what_it_is_for():
    """On the wire, measured or indexed; a new one needs a reason beside those, and the table names no other."""
    found = {place.split()[-1] for thing in ("Treatment", "Run") for place in shapes_of(thing)}
    assert found == SHAPES.keys()
    assert {level for level, _ in SHAPES.values()} == {"wire", "measured", "indexed"}


def test_a_further_shape_would_be_found(tmp_path):
    """By its name and its fields; what holds another shape adds to it and is none of its own."""
    package = tmp_path / "bench_workloads"
    package.mkdir()
    (package / "some.py").write_text(
        "class RunLine:\n    run_id: str\n    created: str\n"
        "class RunMore:\n    line: RunLine\n    hosts: str\n    created: str\n"
        "class RunPlan:\n    steps: int\n"
    )
    assert shapes_of("Run", tmp_path) == ["bench_workloads/some.py:1 RunLine"]


def test_verdicts_and_the_answer_have_one_maker():
    """Within a run, between runs and against a trend alike; so a report cannot depend on who made it."""
    assert makers(("ComparisonReport", "VerdictsReport", "make_answer")) == {
        "ComparisonReport": {"bench_master.analysis.verdict_makers"},
        "VerdictsReport": {"bench_master.analysis.verdict_makers"},
        "make_answer": {"bench_master.analysis.verdict_makers"},
    }


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
        if not name.startswith("test")
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
