"""Rules of the code that no tool checks: where a command line ends, and how its options reach the rest."""

import ast
import io
import re
import tokenize
from typing import get_type_hints

import msgspec
import pytest
from msgspec import Struct
from places import ROOT
from sources import statements

from bench_common.cli import read_options
from bench_master import cli as master
from bench_master.command_extension import command_extensions
from bench_master.commands import all_commands
from bench_master.reports.charts import ChartOptions, registered_charts
from bench_master.run_extension import ExtensionOptions, run_extensions
from bench_worker import cli as worker

PACKAGES = ("bench_common", "bench_features", "bench_master", "bench_worker", "weighbridge", "bench_workloads")
PATHS = [path for name in PACKAGES for path in sorted((ROOT / name).rglob("*.py"))]
SOURCES = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in PATHS}

EDGE = (
    *(f"bench_common/{name}.py" for name in ("argument_types", "cli", "version")),
    "bench_master/cli.py",
    "bench_master/command_extension.py",
    "bench_master/reports/charts.py",
    "bench_master/run_extension.py",
    "bench_worker/cli.py",
)
GLOBAL = {"help", "version", "debug", "quiet", "verbose", "color", "no_pager"}
"""Options of every command: those that need them have a field, the others do not."""


FIGURE = re.compile("(?<!con)figure", re.IGNORECASE)


def names_of_figures(text):
    """Return the names, keys and options of a source that call something a figure."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    names = {token.string for token in tokens if token.type == tokenize.NAME and FIGURE.search(token.string)}
    return names | set(re.findall(r"""["'](-*figures?)["']""", text))


def test_a_number_is_a_measure_and_a_picture_a_chart():
    """No name, key or option is a figure, which is both."""
    assert {
        name: found for name, text in SOURCES.items() if FIGURE.search(text) if (found := names_of_figures(text))
    } == {}


def test_each_form_of_a_figure_is_found():
    """Prose may speak of figures, and what configures is none."""
    text = 'def draw_figure(FIGURES, configure):\n    """A figure."""\n    return {"figure": "--figure"}\n'
    assert names_of_figures(text) == {"draw_figure", "FIGURES", "figure", "--figure"}


def test_argparse_stays_at_the_edge():
    """Only the command lines import argparse, and a program that runs in a guest by itself."""
    imports = re.compile(r"^\s*(import|from) argparse\b", re.MULTILINE)
    users = {name for name, text in SOURCES.items() if imports.search(text)}
    places = (
        "bench_features/archive/commands/",
        "bench_features/archive/options.py",
        "bench_features/charts/in_reports.py",
        "bench_features/fleet/",
        "bench_features/objects/master/",
        "bench_features/objects/worker/cleanup_store.py",
        "bench_master/commands/",
        "bench_master/options/",
        "bench_worker/queries/",
    )
    commands = {f"{entry.module.replace('.', '/')}.py" for entry in all_commands().values()}
    others = {name for name in users if not name.startswith(places)}
    assert others - commands == {*EDGE, "bench_workloads/blogload_program.py"}


def test_no_command_sees_a_namespace():
    """What argparse found is a Struct before a command runs; the action of --resume belongs to the parser."""
    users = {name for name, text in SOURCES.items() if "argparse.Namespace" in text}
    assert users <= {*EDGE, "bench_master/options/run.py", "bench_workloads/blogload_program.py"}


def arguments_of(parser):
    """Return the names under which a parser stores its arguments."""
    return {action.dest for action in parser._actions if action.dest not in GLOBAL}


def fields_of(kind):
    """Return the names of the fields of a Struct and of the groups in it, and those that have no default."""
    hints, names, required = get_type_hints(kind), set(), set()
    for field in msgspec.structs.fields(kind):
        hint = hints[field.name]
        if hint is ExtensionOptions:
            for extension in run_extensions().values():
                names |= fields_of(extension.Options)[0]
        elif hint is ChartOptions:
            names |= fields_of(registered_charts().Options)[0]
        elif isinstance(hint, type) and issubclass(hint, Struct):
            inner, needed = fields_of(hint)
            names |= inner
            required |= needed
        else:
            names.add(field.name)
            if field.required:
                required.add(field.name)
    return names, required


SINGLE = master.single_commands()


def parser_of(words):
    """Return the parser of a sub-command, which may be a member of a group."""
    parser = master.build_parser(words.split())
    for word in words.split():
        parser = parser.sub_commands()[word]
    return parser


@pytest.mark.parametrize("command", SINGLE)
def test_every_argument_of_a_command_is_a_field_of_its_options(command):
    """An argument without a field would be ignored, and a field without an argument or a default never be set."""
    parser = parser_of(command)
    arguments = arguments_of(parser)
    names, required = fields_of(SINGLE[command].Options)
    for extension in command_extensions(command):
        names |= fields_of(extension.Options)[0]
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


class Inner(Struct, frozen=True):
    a: int = 1
    b: int = 2


class Outer(Struct, frozen=True):
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
    with pytest.raises(TypeError, match=r"Outer: the command lacks an argument: .*names"):
        read_options(Outer, master.CommandParser().parse_args([]))


POLL_S, WORK_S = 0.005, 30
"""The longest interval at which a unit test polls, and the shortest sleep that is the work of a fake."""


def fixed_sleeps(source):
    """Return the lines at which a test sleeps for a fixed time; the work of a fake (a lambda) is something else."""
    found = []
    for statement in statements(ast.parse(source)) if "sleep(" in source else ():
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == "sleep":
            (seconds,) = call.args or [None]
            if isinstance(seconds, ast.Constant) and POLL_S < seconds.value < WORK_S:
                found.append(statement.lineno)
    return found


def test_no_unit_test_sleeps_for_a_fixed_time():
    """It would be too short on a busy machine, and too long on every other; tests wait for events."""
    tests = sorted((ROOT / "tests").rglob("unit/*.py"))
    found = {path.name: fixed_sleeps(path.read_text("utf-8")) for path in tests}
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert fixed_sleeps("import gevent\ngevent.sleep(0.001)\ngevent.sleep(0.05)\nlambda: gevent.sleep(60)\n") == [3]


GUARDS = {"timeout", "timeout_s", "seconds", "limit_s", "within_s"}
"""The names of arguments that are deadlines, and below the functions that take one by its place."""
PLACES = {"wait": 0, "join": 0, "timeout": 0, "Timeout": 0, "settimeout": 0, "select": 3}
PLACES |= {"wait_until": 1, "wait_for_output": 1, "wait_for_exit": 0, "assert_clean": 0, "sequence": 0}
PLACES |= {"workspace.finish": 3}
SCENARIO_KEYS = {"Operation", "lifecycle", "arrivals"}
"""What takes a key of a scenario by such a name."""
SUBJECT = "# subject: "
"""A comment on the line that says which duration the test is about. What is shorter than a second is a pause."""


def is_deadline(node, constants):
    """Return whether an expression has numbers alone; a constant of the module is what it stands for."""
    if isinstance(node, ast.Name):
        node = constants.get(node.id, node)
    if isinstance(node, ast.BinOp):
        parts = [part for part in ast.walk(node) if not isinstance(part, ast.operator | ast.BinOp)]
        return all(is_deadline(part, constants) for part in parts)
    return isinstance(node, ast.Constant) and type(node.value) in {int, float} and node.value >= 1


def deadlines_of(node):
    """Yield the expressions that are deadlines: arguments, their defaults, and what is added to the clock."""
    if isinstance(node, ast.Call):
        words = ast.unparse(node.func)
        name = words.rpartition(".")[2]
        place = PLACES.get(words, PLACES.get(name, len(node.args)))
        yield from node.args[place : place + 1]
        yield from (word.value for word in node.keywords if word.arg in GUARDS and name not in SCENARIO_KEYS)
    elif isinstance(node, ast.FunctionDef):
        words, optional = node.args.args, node.args.defaults
        pairs = [*zip(words[len(words) - len(optional) :], optional, strict=True)]
        pairs += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        yield from (value for word, value in pairs if word.arg in GUARDS)
    elif isinstance(node, ast.BinOp) and ast.unparse(node.left).endswith("monotonic()"):
        yield node.right


def literal_deadlines(source):
    """Return the lines of a test module that have a deadline which is not from tests/deadlines.py."""
    tree, lines = ast.parse(source), source.splitlines()
    plain = [each for each in tree.body if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)]
    constants = {each.targets[0].id: each.value for each in plain}
    found = [each for node in ast.walk(tree) for each in deadlines_of(node) if is_deadline(each, constants)]
    return sorted({each.lineno for each in found if SUBJECT not in lines[each.lineno - 1]})


def test_deadlines_are_in_one_module():
    """A number of seconds is too short on a slow machine; those of tests/deadlines.py follow its speed."""
    tests = {path.relative_to(ROOT / "tests").as_posix(): path for path in sorted((ROOT / "tests").rglob("*.py"))}
    del tests["deadlines.py"]
    found = {name: literal_deadlines(path.read_text("utf-8")) for name, path in tests.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_each_form_of_a_deadline_is_found():
    """In an argument, in a default, beside the clock, and behind a name; not what is scaled, or a test's subject."""
    wrong = "run(x, timeout=60)", "x.wait(5)", "wait_until(x, 3 * 5, y)", "end = time.monotonic() + 20", "x.join(A_S)"
    wrong += ("def wait(seconds=9): pass", "def wait(*, seconds=9): pass", "workspace.finish(x, y, 0, 90)")
    right = ("run(x, timeout=END_S)", "x.wait(0.05)", "wait_until(x, 2 * END_S, y)", "x.wait(5)  # subject: five")
    right += ('Operation("sleep", seconds=2.0)', '"".join(words)', "x.wait()", "x.wait(5 * B_S)")
    source = "\n".join(("A_S = 7", "B_S = 2 * END_S", *wrong, *right))
    assert literal_deadlines(source) == list(range(3, 3 + len(wrong)))
