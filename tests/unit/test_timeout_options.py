"""The timeouts between master and workers: defaults, and which values the command line accepts."""

import pytest

from bench_common.errors import UsageError
from bench_master.coordinator.policy import DEFAULT_LEASE_S, HEARTBEAT_INTERVAL_S
from bench_master.options.run import HEARTBEATS_PER_TIMEOUT, TimeoutOptions


def test_the_defaults_are_the_documented_ones():
    """Five seconds, ten and fifteen, with two heartbeats a second."""
    timeouts = TimeoutOptions().parse()
    assert (timeouts.heartbeat_timeout_s, timeouts.reconnect_timeout_s, timeouts.lease_s) == (5, 10, DEFAULT_LEASE_S)
    assert timeouts.heartbeat_interval_s == HEARTBEAT_INTERVAL_S


def test_a_shorter_timeout_needs_more_heartbeats():
    """Some of them may be lost before a worker counts as missing; a longer timeout keeps their interval."""
    timeouts = TimeoutOptions("1.2s", "2s", "3s").parse()
    assert timeouts.heartbeat_interval_s == pytest.approx(1.2 / HEARTBEATS_PER_TIMEOUT)
    assert TimeoutOptions("1m").parse().heartbeat_interval_s == HEARTBEAT_INTERVAL_S


def test_the_default_lease_grows_with_the_heartbeat_timeout():
    """A worker never leaves a master that still waits for it; a shorter lease is refused."""
    assert TimeoutOptions("1m").parse().lease_s == 60
    with pytest.raises(UsageError, match=r"--lease 30s: expected no less than --heartbeat-timeout \(60 s\)"):
        TimeoutOptions("1m", None, "30s").parse()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("100ms", None, None), "--heartbeat-timeout 100ms: expected 0.5 s or more"),
        ((None, "0", None), "--reconnect-timeout 0: expected 0.5 s or more"),
        (("5 sec", None, None), "--heartbeat-timeout 5 sec: unknown unit"),
    ],
)
def test_invalid_timeouts_are_refused(given, why):
    """The error names the option, its value and what was expected."""
    with pytest.raises(UsageError) as caught:
        TimeoutOptions(*given).parse()
    assert why in str(caught.value)
