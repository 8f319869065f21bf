"""How long silence is borne: as the command line says, and within what makes sense."""

import pytest

from bench_common.errors import UsageError
from bench_master.commands.run_options import HEARTBEATS_PER_TIMEOUT, parse_timeouts
from bench_master.run.dispatcher import DEFAULT_LEASE_S, HEARTBEAT_INTERVAL_S


def test_what_is_not_said_is_as_documented():
    """Five seconds, ten and fifteen, with two heartbeats a second."""
    timeouts = parse_timeouts(None, None, None)
    assert (timeouts.heartbeat_timeout_s, timeouts.reconnect_timeout_s, timeouts.lease_s) == (5, 10, DEFAULT_LEASE_S)
    assert timeouts.heartbeat_s == HEARTBEAT_INTERVAL_S


def test_less_silence_takes_more_heartbeats():
    """Some of them may be lost before a worker is missed; more silence takes no fewer of them."""
    assert parse_timeouts("1.2s", "2s", "3s").heartbeat_s == pytest.approx(1.2 / HEARTBEATS_PER_TIMEOUT)
    assert parse_timeouts("1m", None, None).heartbeat_s == HEARTBEAT_INTERVAL_S


def test_a_lease_grows_with_the_silence():
    """A worker never gives up a master that would still await it, unless that is asked for, which is refused."""
    assert parse_timeouts("1m", None, None).lease_s == 60
    with pytest.raises(UsageError, match=r"--lease 30s: expected no less than --heartbeat-timeout \(60 s\)"):
        parse_timeouts("1m", None, "30s")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("100ms", None, None), "--heartbeat-timeout 100ms: expected 0.5 s or more"),
        ((None, "0", None), "--reconnect-timeout 0: expected 0.5 s or more"),
        (("5 sec", None, None), "--heartbeat-timeout 5 sec: unknown unit"),
    ],
)
def test_what_makes_no_sense_is_refused(given, why):
    """With the option, its value and what was expected."""
    with pytest.raises(UsageError) as caught:
        parse_timeouts(*given)
    assert why in str(caught.value)
