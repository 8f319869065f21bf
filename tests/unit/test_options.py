"""Options that are declared on the fields of a Struct."""

import argparse
from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Struct

from bench_common.argument_types import duration, some_time
from bench_common.cli import CommandParser, read_options
from bench_common.options import Heading, Option, add_options, hints_of, options_of, plain_type
from bench_master.cli import build_parser
from bench_master.commands import weigh
from bench_master.options.run import RunOptions


class Inner(Struct, frozen=True):
    wait_s: Annotated[float, Option("--wait TIME", "how long", type=duration)] = 5.0
    port: Annotated[int | None, Option("--port N", "where", type=int)] = None


class Outer(Struct, frozen=True, kw_only=True):
    file: Annotated[Path, Option("FILE", "what")]
    label: Annotated[tuple[str, ...], Option("-l, --label NAME", "of what")] = ("a",)
    pair: Annotated[
        tuple[str, ...], Option("--pair FROM TO", "from where"), Option("--span FROM TO", "the same")
    ] = ()
    across: Annotated[Literal["date", "version"], Option("--across", "the axis")] = "date"
    dry_run: Annotated[bool, Option("--dry-run", "do nothing")]
    unseen: int = 7
    inner: Annotated[Inner, Heading("places")]
    last: Annotated[str | None, Heading("ends"), Option("--last X", "the end")] = None


def parsed(*words, parser=None, **instead):
    parser = parser or CommandParser()
    add_options(parser, Outer, **instead)
    return read_options(Outer, parser.parse_args(words))


def test_the_type_of_a_field_says_what_its_argument_is():
    """A path is the name of a file, a tuple is repeatable, a bool is a switch; defaults are the field's."""
    assert parsed("f") == Outer(file=Path("f"), dry_run=False, inner=Inner())
    words = ("f", "-l", "b", "--label", "c", "--pair", "d", "e", "--span", "g", "h", "--dry-run", "--wait", "1m")
    assert parsed(*words, "--across", "version", "--last", "z") == Outer(
        file=Path("f"),
        label=("a", "b", "c"),
        pair=("d", "e", "g", "h"),
        across="version",
        dry_run=True,
        inner=Inner(60.0),
        last="z",
    )


def test_help_has_the_headings_and_the_names_of_values():
    """A heading holds for a Struct, or for the options from there on."""
    parser = CommandParser()
    add_options(parser, Outer)
    groups = {title: [action.dest for action in actions] for title, _, actions in parser.groups()}
    assert (groups["places"], groups["ends"]) == (["wait_s", "port"], ["last"])
    assert "-l NAME, --label NAME" in parser.format_help()
    assert "--pair FROM TO" in parser.format_help()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--wait", "5 sec"], "argument --wait: '5 sec': unknown unit 'sec'"),
        (["--last", "0"], "argument --last: '0': expected more than 0 seconds"),
        (["--across", "dat"], "argument --across: 'dat': expected one of date, version (did you mean 'date'?)"),
    ],
)
def test_a_wrong_value_is_told_with_its_option(words, message, capsys):
    """The message has the option, its value and what was expected."""
    with pytest.raises(SystemExit, match="2"):
        parsed("f", *words, last=Option("--last TIME", "the end", type=some_time))
    assert message in capsys.readouterr().err


def test_a_command_leaves_options_out_and_has_its_own():
    """None leaves a field out; a flag that the command has already is an error of its author."""
    parser = CommandParser()
    parser.add_argument("-l", "--port", dest="length")
    found = parsed("f", "-l", "1", "--label", "b", parser=parser, port=None, label=Option("--label NAME", "of what"))
    assert (found.label, found.inner) == (("a", "b"), Inner())
    with pytest.raises(argparse.ArgumentError, match="conflicting option strings: -l, --label"):
        parsed("f", parser=parser)


def declared(kind):
    """Yield the flags of a Struct's options, with those of the Structs in it."""
    for hint in hints_of(kind).values():
        yield from (flag for option in options_of(hint) for flag in option.flags)
        if hasattr(plain_type(hint), "__struct_fields__"):
            yield from declared(plain_type(hint))


@pytest.mark.parametrize(("words", "kind"), [(["run-scenario"], RunOptions), (["weigh"], weigh.Options)])
def test_every_declared_option_of_a_run_is_known(words, kind):
    """Options of a run stand below several headings, each named by the function that adds them."""
    parser = build_parser(words).sub_commands()[words[0]]
    unknown = {flag for flag in declared(kind) if not parser.has_options([flag])}
    ours = {
        "-f",
        "--file",
        "--resume",
        "--more",
        "--rerun-baseline",
        "--legacy",
        "--drivers",
        "--stop-grace",
        "-u",
        "--user-count",
    }
    assert unknown == (ours if kind is weigh.Options else set())
