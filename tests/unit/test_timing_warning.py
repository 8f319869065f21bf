"""What is said of uncertain times: nothing of an idle run, and advice that fits how many jobs were in flight."""

import pytest
from builders import operation_report, treatment_report

from bench_master.run_data.validity import SWITCH_INTERVAL_S, LoopStats, timing_warning, timing_warnings

SHORT = {"start": operation_report(n=10, percentiles_s={"p50": 0.0002})}


def loops(busy, wake_up_ns=0):
    """Return workers whose loops were busy for this share of the time; None: nobody measured it."""
    return LoopStats() if busy is None else LoopStats(1000, int(1000 * busy), 0, wake_up_ns)


def test_an_idle_run_gets_no_warning():
    """A thread switch may delay any stamp by so much, on an idle host, too; a long operation allows for more."""
    long = {"start": operation_report(n=10, percentiles_s={"p50": 0.3})}
    assert timing_warning(SWITCH_INTERVAL_S, SHORT, loops(0.9), 1) is None
    assert timing_warning(0.02, long, loops(0.9), 1) is None
    assert timing_warning(None, SHORT, loops(0.9), 1) is None


@pytest.mark.parametrize(
    ("busy", "concurrency", "said"),
    [(0.9, 1, "with one job in flight each; check what else runs"), (0.9, 4, "keep fewer jobs in flight"),
     (None, 1, "with one job in flight each; check what else runs"), (0.2, 4, "something else used their CPUs")],
)  # fmt: skip
def test_the_advice_fits_the_load(busy, concurrency, said):
    """At concurrency 1 nobody can keep fewer jobs in flight; where the loops were idle, their load is no cause."""
    warning = timing_warning(0.01, SHORT, loops(busy), concurrency)
    assert warning is not None
    assert said in warning
    assert ("keep fewer" in warning) is (said == "keep fewer jobs in flight")


@pytest.mark.parametrize(("wake_up_ns", "told"), [(9_000_000, True), (4_000_000, False), (0, False)])
def test_late_wake_ups_are_told_where_they_are_the_reason(wake_up_ns, told):
    """A host that wakes threads late is named where that is most of the error, and not its workers."""
    warning = timing_warning(0.01, SHORT, loops(0.9, wake_up_ns), 4)
    assert ("the host woke a thread up to 9.00ms late, as a busy hypervisor does" in warning) is told
    assert ("keep fewer jobs in flight" in warning) is not told


@pytest.mark.parametrize(
    ("median_s", "share"),
    [(0.02, "10.0ms of 20.0ms (50%) in"), (0.0002, "10.0ms of 200us (50.0x) in")],
)
def test_a_warning_says_how_much_of_the_median_the_error_is(median_s, share):
    """In percent, or as a factor where it is a multiple."""
    operations = {"start": operation_report(n=10, percentiles_s={"p50": median_s})}
    late = treatment_report(operations=operations, timing_error_p99_s=0.01, timing_warning="late")
    assert share in timing_warnings([late])[0]
