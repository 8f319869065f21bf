"""What a report says of a run that somebody watched, by the events of its stats file."""

import pytest

from bench_master.run_data.host_samples import TrialSpan
from bench_master.run_data.validity import Watches

SPANS = [TrialSpan(0, 100 * index, 100 * index + 90, frozenset({0}), index) for index in range(12)]


def watches(*events):
    made = Watches()
    for at_ns, state, *shares in events:
        kind = state if state == "resumed" else "watched"
        made.add_event({"kind": kind, "state": state, "at_ns": at_ns, "shares_host": bool(shares)})
    return made


@pytest.mark.parametrize(
    ("events", "trials"),
    [
        ([], ""),
        ([(310, "began"), (880, "ended")], ""),  # the page's process ran elsewhere
        ([(310, "began", True), (880, "ended")], "trials 4-9"),
        ([(310, "began"), (880, "ended", True)], "trials 4-9"),  # a worker of this host joined later
        ([(95, "began", True), (99, "ended", True)], ""),  # between two trials
        ([(10, "began", True), (20, "ended", True), (30, "began", True), (40, "ended", True)], "trial 1:"),
        ([(10, "began", True), (20, "ended", True), (310, "began", True), (420, "ended", True)], "trials 1, 4-5"),
        ([(1010, "began", True)], "trials 11-12"),  # killed
        ([(310, "began", True), (350, "resumed")], "trial 4:"),  # killed and resumed
        ([(310, "ended", True)], ""),
    ],
)
def test_the_trials_that_were_watched_are_named_if_the_page_shared_a_host_with_a_worker(events, trials):
    remarks = watches(*events).remarks(SPANS)
    assert [remark.startswith(f"watched during {trials}") for remark in remarks] == ([True] if trials else [])
