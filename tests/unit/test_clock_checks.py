"""Clocks of the hosts against the master's: a virtual machine that lost time is reported, a correct clock never."""

import pytest
from builders import MS, S, StatsBuilder, footer, header, host, treatment_wire

from bench_common.records import ticket_of
from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import build_document
from bench_master.analysis.report_types import as_json
from bench_master.run_data.validity import ClockChecker


def told(*readings, worker=0):
    """Return clocks that were told of trials: (kind, trial, at, offset, bound[, age]) each, in ns."""
    clocks = ClockChecker()
    for kind, trial, at_ns, *reading in readings:
        clocks.add_event({"kind": kind, "trial": trial, "at_ns": at_ns, "clocks": [[worker, *reading]]})
    return clocks


def test_a_clock_that_agrees_with_the_masters_is_not_reported():
    """A difference within both bounds and the drift of ten seconds (a millisecond) is none."""
    clocks = told(("trial-begin", 0, 0, 5 * S, 200_000), ("trial-end", 0, 10 * S, 5 * S + 1_400_000, 200_000))
    assert clocks.disagreements == {}
    assert clocks.warnings({}) == []
    assert as_json(clocks.report(0)) == {"uncertainty_max_s": 0.0002, "disagreements": []}


@pytest.mark.parametrize("gained_ns", [-3 * S, 3 * S])
def test_a_clock_that_lost_or_gained_time_is_reported(gained_ns):
    """A machine that was suspended for three of ten seconds counted seven."""
    clocks = told(("trial-begin", 4, 0, 5 * S, MS), ("trial-end", 4, 10 * S, 5 * S + gained_ns, MS))
    (found,) = as_json(clocks.report(0))["disagreements"]
    assert (found["trials"], found["bracket_s"], found["own_s"]) == ([4], 10.0, 10 + gained_ns / S)
    (text,) = clocks.warnings({0: "vm-1"})
    assert "the clock of vm-1 disagreed with the master's 1 time, at worst in trial 4" in text
    assert f"it counted {10 + gained_ns / S:.3f} s, the master 10.000 s" in text


def test_a_change_at_the_start_of_a_trial_belongs_to_the_previous_one():
    """A stop that only the next heartbeat shows is attributed to the previous trial, in any order."""
    clocks = told(("trial-begin", 7, 0, 0, MS), ("trial-end", 7, S, 0, MS), ("trial-begin", 2, 2 * S, -S, MS))
    assert [found.trials for found in clocks.disagreements[0]] == [[7]]


def test_a_change_is_dated_by_the_comparisons_that_show_it():
    """One that came after the last comparison of a trial shows in a later one: it may have been in either."""
    clocks = told(
        ("trial-begin", 3, 0, 0, MS, 0),
        ("trial-end", 3, 3 * S, -S, MS, S // 2),
        ("trial-begin", 5, 4 * S, -S, MS, 3 * S // 2),
        ("trial-end", 5, 7 * S, -2 * S, MS, S // 2),
        ("trial-begin", 6, 8 * S, -2 * S, MS, 0),
    )
    found = as_json(clocks.report(0))["disagreements"]
    assert [(one["trials"], one["bracket_s"], one["own_s"]) for one in found] == [([3], 2.5, 1.5), ([3, 5], 4.0, 3.0)]
    assert "2 times, at worst in trial 3: it counted 1.500 s" in clocks.warnings({0: "vm-1"})[0]


def test_a_change_that_may_have_been_in_any_of_many_trials_names_the_first_and_the_last():
    """Of trials of a tenth of a second there are several between two comparisons."""
    short = [("trial-begin", k, k * S // 10, 0, MS, k * S // 10) for k in range(5)]
    clocks = told(*short, ("trial-end", 4, S // 2, -S, MS, 0))
    (text,) = clocks.warnings({})
    assert "1 time, at worst between trials 0 and 4: it counted -0.500 s" in text


def test_another_boot_may_be_another_clock():
    """A reconnected worker and a resumed run start without a previous reading."""
    clocks = told(("trial-begin", 0, 0, 5 * S, MS))
    clocks.add_event({"kind": "worker-reconnected", "worker": 0, "at_ns": S})
    clocks.add_event({"kind": "trial-end", "trial": 0, "at_ns": 2 * S, "clocks": [[0, 900 * S, MS]]})
    clocks.add_event({"kind": "resumed", "at_ns": 3 * S})
    clocks.add_event({"kind": "trial-begin", "trial": 1, "at_ns": 4 * S, "clocks": [[0, -900 * S, MS]]})
    assert clocks.disagreements == {}


def report(path, *jobs, clocks=()):
    """Return the report of one trial of ten seconds and these jobs, from and to so many ns after it began."""
    head = header([treatment_wire(0, {"engine": "native"}, ("run",))], [(0, 0, False)])
    builder = StatsBuilder(path, head).add("host", host())
    begin = 1001 * S
    readings = [list(reading) for reading in clocks]
    builder.add("event", {"at_ns": begin, "kind": "trial-begin", "trial": 0, "clocks": readings[:1]})
    rows = [{"ticket": ticket_of(k), "start_ns": begin + a, "end_ns": begin + b} for k, (a, b) in enumerate(jobs)]
    builder.add_jobs(*rows)
    builder.add("event", {"at_ns": begin + 10 * S, "kind": "trial-end", "trial": 0, "clocks": readings[1:]})
    return as_json(build_document(StatsFile(builder.close(footer()))))


def test_the_report_has_the_bound_and_warns(tmp_path):
    """The JSON report has each host's largest bound and disagreements, and the warning is among the others."""
    found = report(tmp_path / "a.stats.gz", (0, S), clocks=[(0, 0, MS), (0, -2 * S, MS)])
    assert found["hosts"][0]["clock_checks"]["uncertainty_max_s"] == 0.001
    assert any("it counted 8.000 s, the master 10.000 s" in text for text in found["warnings"])


@pytest.mark.parametrize(
    ("job", "doubtful"), [((0, 10 * S), False), ((-MS // 2, S), False), ((9 * S, 10 * S + 2 * MS), True)]
)
def test_jobs_outside_their_trial_are_reported(tmp_path, job, doubtful):
    """A job that ends after its trial by more than the clock's bound cannot be timed correctly."""
    found = report(tmp_path / "a.stats.gz", job, clocks=[(0, 0, MS), (0, 0, MS)])
    assert any("jobs of 1 trial lie outside" in text for text in found["warnings"]) == doubtful
