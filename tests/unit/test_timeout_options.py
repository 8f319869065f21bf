"""The timeouts between master and workers: defaults, and which values the command line accepts."""

import pytest

from bench_common.cli import CommandParser
from bench_common.errors import UsageError
from bench_common.options import add_options
from bench_master.coordinator.policy import DEFAULT_LEASE_S, HEARTBEAT_INTERVAL_S
from bench_master.options.run import HEARTBEATS_PER_TIMEOUT, TimeoutOptions


def test_the_defaults_are_the_documented_ones():
    """Five seconds, ten and fifteen, with two heartbeats a second."""
    timeouts = TimeoutOptions()
    assert (timeouts.heartbeat_timeout_s, timeouts.reconnect_timeout_s, timeouts.lease_s) == (5, 10, DEFAULT_LEASE_S)
    assert timeouts.heartbeat_interval_s == HEARTBEAT_INTERVAL_S


def test_a_shorter_timeout_needs_more_heartbeats():
    """Some of them may be lost before a worker counts as missing; a longer timeout keeps their interval."""
    assert TimeoutOptions(1.2, 2, 3).heartbeat_interval_s == pytest.approx(1.2 / HEARTBEATS_PER_TIMEOUT)
    assert TimeoutOptions(60).heartbeat_interval_s == HEARTBEAT_INTERVAL_S


def test_the_default_lease_grows_with_the_heartbeat_timeout():
    """A worker never leaves a master that still waits for it; a shorter lease is refused."""
    TimeoutOptions(60).check()
    assert TimeoutOptions(60).lease_s == 60
    for lease_s, shown in ((30, "30s"), (0, "0s")):
        with pytest.raises(UsageError, match=rf"--lease {shown}: expected no less than --heartbeat-timeout \(60 s\)"):
            TimeoutOptions(60, 10, lease_s).check()


@pytest.mark.parametrize(
    ("flag", "value", "why"),
    [
        ("--heartbeat-timeout", "100ms", "expected 0.5 s or more"),
        ("--reconnect-timeout", "0", "expected 0.5 s or more"),
        ("--heartbeat-timeout", "5 sec", "unknown unit"),
    ],
)
def test_invalid_timeouts_are_refused(flag, value, why, capsys):
    """The error names the option, its value and what was expected."""
    parser = CommandParser()
    add_options(parser, TimeoutOptions)
    with pytest.raises(SystemExit):
        parser.parse_args([flag, value])
    assert f"argument {flag}: {value!r}: {why}" in capsys.readouterr().err
