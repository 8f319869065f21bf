"""What the master sends to its live page: small whatever a run has, harmless texts, and durations since the last."""

import msgspec
import numpy as np
import pytest

from bench_common.histogram import Histogram
from bench_features.live.messages import MAX_MESSAGE, Ask, Plan, State, encode, to_master, to_page
from bench_features.live.snapshot import (
    MAX_CHARS,
    MAX_ROWS,
    MAX_VALUES,
    DurationWindow,
    plan_message,
    rounded,
    snapshot_message,
    within,
)
from bench_master.progress.view import ErrorRow, HostRow, LatencyRow, Snapshot, TrialRow

HOSTILE = "<script>alert(1)</script>\u202eevil\x1b[2J\n]]>\ud800" + "w" * 10_000


def recorded(*values_ns):
    histogram = Histogram()
    histogram.record(np.array(values_ns, np.int64))
    return histogram


def test_a_window_holds_the_jobs_since_the_last_snapshot():
    window, one, other = DurationWindow(), recorded(10**6), Histogram()
    window.reset([one, other])
    assert window.take([one, other]) == []
    one.record(np.array([10**6, 5 * 10**9]))
    ((treatment, counts),) = window.take([one, other])
    assert (treatment, [count for _, count in counts]) == (0, [1, 1])
    assert [value for value, _ in counts] == pytest.approx([1e-3, 5.0], rel=0.02)
    other.record(np.array([100]))
    assert [index for index, _ in window.take([one, other])] == [1]
    assert window.take([one, other]) == []


def test_statistics_that_begin_anew_are_no_negative_jobs():
    window = DurationWindow()
    window.reset([recorded(1, 2, 3)])
    fresh = recorded(5)
    assert window.take([fresh]) == []
    fresh.record(np.array([7]))
    assert window.take([fresh]) == [[0, [[pytest.approx(4e-9, abs=4e-9), 1]]]]


def test_durations_of_any_spread_are_few_values_within_two_percent():
    values = (10 ** np.random.default_rng(5).uniform(3, 6, 20_000)).astype(np.int64)
    found = rounded(recorded(*values).since(Histogram()))
    assert len(found) <= MAX_VALUES
    assert sum(count for _, count in found) == len(values)
    cumulative = np.cumsum([count for _, count in found])
    for share in (0.05, 0.5, 0.95):
        at = found[int(np.searchsorted(cumulative, share * len(values)))][0]
        assert at * 1e9 == pytest.approx(np.quantile(values, share), rel=0.035)


def large():
    """Return a run with more of everything than a page has room for, all of it hostile."""
    return Snapshot(
        scenario=HOSTILE,
        trial=TrialRow(1, 2, 1900, HOSTILE, warmup=True),
        doing=HOSTILE,
        latencies=tuple(LatencyRow(index, HOSTILE, HOSTILE, 5, 0, 0.1, 0.2, 0.3) for index in range(2000)),
        hosts=tuple(HostRow(HOSTILE, HOSTILE, HOSTILE, HOSTILE, status_text=HOSTILE) for _ in range(500)),
        errors=tuple(ErrorRow(1, HOSTILE, HOSTILE, HOSTILE) for _ in range(51)),
    )


def test_a_message_fits_and_says_what_it_leaves_out():
    message = within(snapshot_message(large(), []), MAX_MESSAGE)
    assert len(encode(State(message))) <= MAX_MESSAGE
    assert message["hidden"]["latencies"] + len(message["latencies"]) == 2000
    assert message["hidden"]["hosts"] + len(message["hosts"]) == 500
    assert message["latencies"][0]["treatment"] == 1900  # the running one comes first
    small = snapshot_message(Snapshot("s", latencies=(LatencyRow(0, "t", "job", 0, 0),)), [])
    assert within(small, MAX_MESSAGE) is small
    assert small["latencies"] == []  # nothing is known of it
    assert set(small["hidden"]) == set(MAX_ROWS)


def test_texts_are_short_lines_in_which_nothing_is_invisible():
    message = snapshot_message(large(), [])
    plan = plan_message(HOSTILE, [HOSTILE] * 1000, ["docker"] * 1000, {"docker": "vermilion"})
    assert len(encode(Plan(plan))) <= 2 * MAX_MESSAGE
    assert plan["treatments"][0]["hue"] == "vermilion"

    def texts(found):
        if isinstance(found, str):
            yield found
        elif isinstance(found, dict | list):
            for each in found.values() if isinstance(found, dict) else found:
                yield from texts(each)

    for text in (*texts(message), *texts(plan)):
        assert text.isprintable()
        assert len(text) <= MAX_CHARS


def test_messages_arrive_as_they_were_sent():
    assert to_master(encode(Ask(plan=True))) == Ask(plan=True)
    state = to_page(encode(State(snapshot_message(Snapshot("s"), [[0, [[0.5, 2]]]]))))
    assert state.body["window"] == [[0, [[0.5, 2]]]]
    for nonsense in (
        b"",
        b"\xc1",
        msgspec.msgpack.encode({"type": "Nobody"}),
        msgspec.msgpack.encode({"type": "State"}),
    ):
        with pytest.raises(msgspec.DecodeError):
            to_page(nonsense)
