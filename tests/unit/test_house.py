"""Rules of the code that no tool checks: where a command line ends, and how its options reach the rest."""

import ast
import dataclasses
import re
from pathlib import Path
from typing import get_type_hints

import pytest

from bench_common.cli import read_options
from bench_master import cli as master
from bench_worker import cli as worker

ROOT = Path(__file__).parents[2]
PACKAGES = ("bench_common", "bench_master", "bench_worker", "weighbridge", "workloads")
PATHS = [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in PATHS}

EDGE = ("bench_common/cli.py", "bench_master/cli.py", "bench_worker/cli.py")
GLOBAL = {"help", "version", "debug", "quiet", "verbose", "color", "no_pager"}
"""Options of every command: those that need them have a field, the others do not."""


def test_argparse_stays_at_the_edge():
    """Only the command lines import argparse, and a program that runs in a guest by itself."""
    imports = re.compile(r"^\s*(import|from) argparse\b", re.MULTILINE)
    users = {name for name, text in SOURCES.items() if imports.search(text)}
    places = ("bench_master/commands/", "bench_master/options/", "bench_worker/queries/")
    assert {name for name in users if not name.startswith(places)} == {*EDGE, "workloads/blogload_program.py"}


def test_no_command_sees_a_namespace():
    """What argparse found is a dataclass before a command runs; the action of --resume belongs to the parser."""
    users = {name for name, text in SOURCES.items() if "argparse.Namespace" in text}
    assert users <= {*EDGE, "bench_master/options/run.py", "workloads/blogload_program.py"}


def arguments_of(parser):
    """Return the names under which a parser stores its arguments."""
    return {action.dest for action in parser._actions if action.dest not in GLOBAL}


def fields_of(kind):
    """Return the names of the fields of a dataclass and of the groups in it, and those that have no default."""
    hints, names, required = get_type_hints(kind), set(), set()
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            inner, needed = fields_of(hint)
            names |= inner
            required |= needed
        else:
            names.add(field.name)
            if field.default is dataclasses.MISSING:
                required.add(field.name)
    return names, required


SINGLE = master.single_commands()


def parser_of(words):
    """Return the parser of a sub-command, which may be a member of a group."""
    parser = master.build_parser(words.split()[:1])
    for word in words.split():
        parser = parser.sub_commands()[word]
    return parser


@pytest.mark.parametrize("command", SINGLE)
def test_every_argument_of_a_command_is_a_field_of_its_options(command):
    """An argument without a field would be ignored, and a field without an argument or a default never be set."""
    parser = parser_of(command)
    arguments = arguments_of(parser)
    names, required = fields_of(SINGLE[command].Options)
    assert arguments <= names
    assert required - GLOBAL <= arguments | parser._defaults.keys()


def test_every_argument_of_the_worker_is_a_field():
    """Those of serving, and those of each query."""
    names, required = fields_of(worker.ServeOptions)
    for query in worker.all_queries():
        more, needed = fields_of(query.Options)
        names |= more
        required |= needed
    arguments = arguments_of(worker.build_parser())
    assert arguments - {"query", "load_process"} == names - GLOBAL
    assert required - GLOBAL <= arguments


@dataclasses.dataclass(frozen=True)
class Inner:
    a: int = 1
    b: int = 2


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner
    names: tuple[str, ...]


def test_options_are_read_by_name():
    """Groups are filled from the same arguments; lists become tuples; a missing argument keeps its default."""
    parser = master.CommandParser()
    parser.add_argument("--a", type=int)
    parser.add_argument("--names", nargs="*")
    assert read_options(Outer, parser.parse_args(["--a", "5", "--names", "x", "y"])) == Outer(Inner(5, 2), ("x", "y"))


def test_a_field_without_an_argument_and_a_default_is_an_error():
    """It is a mistake of the command, and names the field."""
    with pytest.raises(TypeError, match=r"Outer\.names: the command has no such argument"):
        read_options(Outer, master.CommandParser().parse_args([]))


POLL_S, WORK_S = 0.005, 30
"""The longest interval at which a unit test polls, and the shortest sleep that is the work of a fake."""


def fixed_sleeps(source):
    """Return the lines at which a test sleeps for a fixed time; the work of a fake (a lambda) is something else."""
    found = []
    for statement in ast.walk(ast.parse(source)):
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == "sleep":
            (seconds,) = call.args or [None]
            if isinstance(seconds, ast.Constant) and POLL_S < seconds.value < WORK_S:
                found.append(statement.lineno)
    return found


def test_no_unit_test_sleeps_for_a_fixed_time():
    """It would be too short on a busy machine, and too long on every other; tests wait for events."""
    tests = sorted((ROOT / "tests" / "unit").glob("*.py"))
    found = {path.name: fixed_sleeps(path.read_text("utf-8")) for path in tests}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert fixed_sleeps("import gevent\ngevent.sleep(0.001)\ngevent.sleep(0.05)\nlambda: gevent.sleep(60)\n") == [3]
