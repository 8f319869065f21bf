"""What features add to sub-commands and to the workers of a run, found by entry points alone."""

import argparse
from typing import Annotated

import pytest
from msgspec import Struct

from bench_common.cli import CommandParser, read_options
from bench_common.options import Option
from bench_common.requirements import KindNeed
from bench_master import command_extension, registered_parts
from bench_master.command_extension import (
    NO_OPTIONS,
    CommandExtension,
    CommandOptions,
    add_extensions,
    command_extensions,
    done_instead,
)
from bench_master.commands import doctor
from bench_master.run.started_workers import NO_WORKERS, StartedWorkers, together


class Age(Struct, frozen=True):
    age: Annotated[int | None, Option("--age DAYS", "of what is kept", type=int)] = None


class Clean(Struct, frozen=True):
    extensions: CommandOptions = NO_OPTIONS


class CleanByAge(CommandExtension):
    command = "clean"
    Options = Age

    def __init__(self):
        self.prepared = 0

    def prepare(self, options):
        self.prepared += 1

    def instead(self, options):
        return options.extensions.of(Age).age


class Dry(CommandExtension):
    command = "doctor"
    Options = Age

    def needs(self, options):
        return [KindNeed("cup", {"kind": "dice"})]


@pytest.fixture
def register(monkeypatch):
    """Make these the registered extensions."""

    def clear():
        command_extensions.cache_clear()
        command_extension._all_extensions.cache_clear()

    def register(**extensions):
        class Point(argparse.Namespace):
            def load(self):
                if isinstance(self.extension, Exception):
                    raise self.extension
                return self.extension

        points = [Point(name=name, value="some:THING", extension=one) for name, one in extensions.items()]
        monkeypatch.setattr(registered_parts, "registered", lambda _group: points)
        clear()

    yield register
    clear()


def options_of(*words):
    parser = CommandParser()
    add_extensions(parser, "clean")
    return read_options(Clean, parser.parse_args(words))


def test_a_feature_does_a_command_in_its_own_way(register):
    """Its options are of its own type; without them the command does its work itself, everything prepared."""
    extension = CleanByAge()
    register(age=extension, other=Dry())
    assert done_instead(options_of("--age", "3"), "clean") == 3
    assert done_instead(options_of(), "clean") is None
    assert extension.prepared == 2
    assert done_instead(options_of("--age", "3"), "doctor") is None


def test_the_doctor_checks_what_features_need(register):
    """Each need reaches the worker as one argument, in JSON."""
    register(dry=Dry())
    options = doctor.Options(file=None, directory=(), format="text", quiet=False)
    assert doctor.worker_flags(options, None) == ["--doctor-jobs", '{"engine":"cup","job":{"kind":"dice"}}']


def test_workers_of_several_features_are_told_of_together():
    """Each is explained by the feature that started it; what to do about an absent one is all that they advise."""
    one = StartedWorkers(frozenset({"a"}), lambda name: f"{name} was cancelled", "see its log")
    other = StartedWorkers(frozenset({"b"}), None, "ask the scheduler")
    both = together([NO_WORKERS, one, other])
    assert both.names == {"a", "b"}
    assert both.explain_end is not None
    assert (both.explain_end("a"), both.explain_end("b"), both.explain_end("c")) == ("a was cancelled", None, None)
    assert both.advice == "see its log; or ask the scheduler"
    assert together([NO_WORKERS]).names == frozenset()
