"""Arguments of the command lines: what the other side would drop is refused before anything starts."""

from __future__ import annotations

import argparse

import pytest

from bench_common.argument_types import MAX_NAME, MAX_SLOTS, int_range, name, port, seconds
from bench_common.messages import FROM_WORKER, Hello, encode
from bench_master import cli as master
from bench_worker import cli as worker


@pytest.mark.parametrize("text", ["0", "-1", "65536", "99999", "http", "", "1.5", "1_0", "\u0661"])
def test_no_port(text):
    """A port that a socket would wrap round, or that is none, is refused."""
    with pytest.raises(argparse.ArgumentTypeError, match="expected a whole number from 1 to 65535"):
        port(text)


def test_whole_number_without_a_limit():
    """A number from the lowest on is taken as it is; one below it is refused with what was expected."""
    assert int_range(0)("0") == 0
    assert int_range(1)("123456") == 123456
    with pytest.raises(argparse.ArgumentTypeError, match="'0': expected a whole number, 1 or more"):
        int_range(1)("0")


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "3s", ""])
def test_no_seconds(text):
    """A time to wait is a finite number that is not negative."""
    with pytest.raises(argparse.ArgumentTypeError, match="expected a number of seconds"):
        seconds(text)


@pytest.mark.parametrize("text", ["", "a b", "a,b", "-a", "x" * (MAX_NAME + 1), "a\n"])
def test_no_name(text):
    """What a scenario could not name, or a message not carry, names no worker and no environment."""
    with pytest.raises(argparse.ArgumentTypeError, match="expected a word"):
        name(text)


def test_the_largest_introduction_can_be_sent():
    """The longest names and the most slots that the command line takes fit into a worker's introduction."""
    longest = name("x" * MAX_NAME)
    frame = encode(Hello(epoch=0, worker_id=longest, environment=longest, slots=MAX_SLOTS, sent_ns=1, info={}))
    assert FROM_WORKER.decode(frame).slots == MAX_SLOTS


@pytest.mark.parametrize(
    "arguments",
    [
        ["run-scenario", "-f", "x", "--seed", "-1"],
        ["run-scenario", "-f", "x", "--seed", "99999999999999999999"],
        ["run-scenario", "-f", "x", "--environment", "a b"],
        ["run-scenario", "-f", "x", "--zmq-control-port", "70000"],
        ["fleet", "list", "--zmq-control-port", "99999"],
        ["fleet", "list", "--wait", "-1"],
        ["fleet", "stop", "--wait", "nan"],
    ],
)
def test_the_master_refuses(arguments, capsys):
    """The master's command line ends with a usage error that names the value and what was expected."""
    with pytest.raises(SystemExit) as end:
        master.build_parser(arguments[:2]).parse_args(arguments)
    assert end.value.code == 2
    assert f"{arguments[-1]!r}: expected " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["-c", "0"], ["-c", "70000"], ["--environment", "a b"], ["--zmq-control-port", "70000"], ["a worker"]],
)
def test_the_worker_refuses(arguments, capsys):
    """The worker's command line does the same."""
    with pytest.raises(SystemExit) as end:
        worker.build_parser().parse_args(["--zmq-host", "127.0.0.1", *arguments])
    assert end.value.code == 2
    assert f"{arguments[-1]!r}: expected " in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["report-scenario", "-s", "a", "--stats-file", "b"],
        ["run-scenario", "-f", "a", "-f", "b"],
        ["run-scenario", "--resume", "a", "--resume", "b"],
        ["run-scenario", "-f", "a", "--workers", "1", "--workers=2"],
    ],
)
def test_an_option_with_one_value_is_given_once(arguments, capsys):
    """The second value would replace the first one unnoticed."""
    with pytest.raises(SystemExit) as ended:
        master.build_parser(arguments[:2]).parse_args(arguments)
    assert ended.value.code == 2
    assert "given twice" in capsys.readouterr().err


def test_no_option_replaces_an_earlier_value():
    """Every option of both programs that takes a value either takes one or collects all."""
    parsers = [worker.build_parser(), *master.build_parser().sub_commands().values()]
    actions = [action for parser in parsers for action in parser.arguments if action.option_strings]
    assert [action.option_strings for action in actions if type(action).__name__ == "_StoreAction"] == []


def test_the_same_parser_reads_a_second_command_line():
    """What the first one had is forgotten."""
    parser = master.build_parser(["report-scenario"])
    for _ in range(2):
        assert str(parser.parse_args(["report-scenario", "-s", "a"]).stats_file) == "a"
