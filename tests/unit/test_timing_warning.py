"""What is said of uncertain times: nothing of an idle run, and advice that fits how many jobs were in flight."""

import pytest
from builders import operation_report

from bench_master.analysis.validity import SWITCH_INTERVAL_S, timing_warning

SHORT = {"start": operation_report(n=10, percentiles_s={"p50": 0.0002})}


def test_an_idle_run_gets_no_warning():
    """A thread switch may delay any stamp by so much, on an idle host, too; a long operation allows for more."""
    long = {"start": operation_report(n=10, percentiles_s={"p50": 0.3})}
    assert timing_warning(SWITCH_INTERVAL_S, SHORT, 0.9, 1) is None
    assert timing_warning(0.02, long, 0.9, 1) is None
    assert timing_warning(None, SHORT, 0.9, 1) is None


@pytest.mark.parametrize(
    ("busy", "concurrency", "said"),
    [(0.9, 1, "with one job in flight each; check what else runs"), (0.9, 4, "keep fewer jobs in flight"),
     (None, 1, "with one job in flight each; check what else runs"), (0.2, 4, "something else used their CPUs")],
)  # fmt: skip
def test_the_advice_fits_the_load(busy, concurrency, said):
    """At concurrency 1 nobody can keep fewer jobs in flight; where the loops were idle, their load is no cause."""
    warning = timing_warning(0.01, SHORT, busy, concurrency)
    assert warning is not None
    assert said in warning
    assert ("keep fewer" in warning) is (said == "keep fewer jobs in flight")
