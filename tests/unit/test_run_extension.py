"""What features add to runs: options, checks, observers and what becomes of a run, found by entry points alone."""

import argparse
from contextlib import contextmanager
from typing import Annotated

import pytest
from msgspec import Struct
from msgspec.structs import replace

from bench_common.cli import CommandParser, read_options
from bench_common.errors import ExitCode, UsageError
from bench_common.options import Option, add_options
from bench_master import registered_parts
from bench_master.cli import build_parser
from bench_master.options.run import RunOptions, add_run_options, add_shared_run_options
from bench_master.run_extension import RESULTS, OptionGroups, RunExtension, run_extensions, settled, watching

OF_FEATURES = {"--archive", "--web", "--web-control", "--web-insecure-bind"}


class Age(Struct, frozen=True):
    age: Annotated[int | None, Option("--age DAYS", "of what is kept", type=int)] = None


class AgeExtension(RunExtension):
    """Keeps the record of its calls in a list."""

    Options = Age

    def __init__(self, calls):
        self.calls = calls

    def add_options(self, groups):
        add_options(groups.named(RESULTS), Age)

    def settle(self, options):
        return replace(options, quiet=options.extensions.of(Age).age is not None)

    @contextmanager
    def around(self, _options):
        self.calls.append("opened")
        yield self
        self.calls.append("closed")

    def finish(self, options, source):
        return ExitCode.INFRASTRUCTURE


@pytest.fixture
def register(monkeypatch):
    """Make these the registered extensions."""

    def register(**extensions):
        class Point(argparse.Namespace):
            def load(self):
                if isinstance(self.extension, Exception):
                    raise self.extension
                return self.extension

        points = [Point(name=name, value="some:THING", extension=one) for name, one in extensions.items()]
        monkeypatch.setattr(registered_parts, "registered", lambda _group: points)
        run_extensions.cache_clear()

    yield register
    run_extensions.cache_clear()


def options_of(*words):
    """Return the options of `run-scenario`."""
    parser = CommandParser()
    parser.set_defaults(quiet=False, verbose=False)
    add_run_options(parser)
    return read_options(RunOptions, parser.parse_args(["-f", "s.yaml", *words]))


def test_a_feature_has_options_of_its_own_type(register):
    """They are read into its own Struct; what it makes of them holds for the run."""
    register(age=AgeExtension([]))
    assert options_of("--age", "3").extensions.of(Age) == Age(3)
    assert options_of().extensions.of(Age) == Age()
    assert settled(options_of("--age", "3")).quiet
    assert not settled(options_of()).quiet


def test_options_stand_in_the_groups_that_they_belong_to(register):
    """A feature names a group; it makes one that is not there yet."""
    register(age=AgeExtension([]))
    parser = CommandParser()
    add_shared_run_options(groups := OptionGroups(parser, takes_file=False))
    groups.named("of ships").add_argument("--anchor")
    found = {title: [flag for one in actions for flag in one.option_strings] for title, _, actions in parser.groups()}
    assert "--age" in found[RESULTS]
    assert found["of ships"] == ["--anchor"]


def test_who_watches_is_there_during_the_run_and_gone_after_it(register):
    """An extension that watches gives an observer; the others give none."""
    calls = []
    register(age=AgeExtension(calls), other=RunExtension())
    RunExtension.Options = Age
    try:
        with watching(options_of()) as observers:
            assert [type(one) for one in observers] == [AgeExtension]
            assert calls == ["opened"]
    finally:
        del RunExtension.Options
    assert calls == ["opened", "closed"]


def test_the_features_of_the_project_are_registered():
    """Their options are those of the command."""
    flags = set(build_parser(["run-scenario"]).sub_commands()["run-scenario"]._option_string_actions)
    assert flags >= OF_FEATURES


def test_without_the_features_their_options_are_unknown(register, capsys):
    """The command has all the others, and says which it does not know."""
    register()
    flags = set(build_parser(["run-scenario"]).sub_commands()["run-scenario"]._option_string_actions)
    assert flags & OF_FEATURES == set()
    assert "--progress" in flags
    with pytest.raises(SystemExit):
        options_of("--web")
    assert "unknown option --web" in capsys.readouterr().err


def test_an_option_without_its_page_is_refused():
    """``--web-control`` alone would do nothing."""
    with pytest.raises(UsageError, match="there is no page without --web"), watching(options_of("--web-control")):
        pass
