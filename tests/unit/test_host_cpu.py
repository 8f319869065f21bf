"""CPU use of the hosts in each treatment: readings inside measured trials, against figures computed by hand."""

import numpy as np
import pytest
from builders import S

from bench_common.stats.rows import SampleColumns
from bench_master.analysis.report_types import as_json
from bench_master.run_data.host_samples import HostCpu, RateStats, TrialSpan, TrialSpans


def block(rows, worker=0, source="host"):
    """Build samples of (time in s, interval in s, user, system and iowait in ticks)."""
    columns = np.array(rows, float).T
    names = ("time_ns", "interval_ns", "cpu_user_ticks", "cpu_system_ticks", "cpu_iowait_ticks")
    return SampleColumns(
        worker,
        source,
        {n: (c * (S if n.endswith("_ns") else 1)).astype(np.int64) for n, c in zip(names, columns, strict=True)},
        {},
    )


FIRST = block([(1010.5, 1, 500, 500, 500), (1011.5, 1, 10, 4, 0), (1012.5, 1, 20, 4, -1)])
"""A reading that began before the trial, and two within it: of the second the kernel took iowait back."""
SECOND = block([(1014.5, 2, 60, 4, 9), (1020.5, 1, 500, 500, 500), (1022, 1, 7, 8, 9), (1032, 1, 500, 500, 500)])
"""A late reading of two seconds, one that ended in the next trial, one of that, one of a trial of nobody."""

ALL = frozenset({0})
SPANS = [TrialSpan(1, 1020 * S, 1030 * S, ALL), TrialSpan(0, 1010 * S, 1020 * S, ALL)]


def test_readings_count_for_the_trial_that_contains_their_interval():
    """Readings weigh by length, negative iowait stays, and a reading across two trials is left out."""
    cpu = HostCpu(TrialSpans([*SPANS, TrialSpan(7, 1030 * S, 1040 * S, ALL)]))
    for samples in (FIRST, SECOND, block([(1011, 1, 900, 900, 900)], source="engine:docker")):
        cpu.add(samples)
    found = as_json(cpu.report(0))
    # Rates of the three readings: user 10, 20, 30; system 4, 4, 2; iowait 0, -1, 4.5.
    assert list(found) == ["host_cpu_user", "host_cpu_system", "host_cpu_iowait"]
    user, system, iowait = found.values()
    assert (user["unit"], user["direction"], user["n"]) == ("USER_HZ/s", "lower", 3)
    assert (user["min"], user["max"]) == (10.0, 30.0)
    assert (user["mean"], user["stddev"]) == (pytest.approx(20), pytest.approx(10))
    assert user["median"] == pytest.approx(20, rel=0.002)
    assert (system["mean"], system["stddev"]) == (pytest.approx(10 / 3), pytest.approx(2 / 3**0.5))
    assert (system["min"], system["median"], system["max"]) == (2.0, pytest.approx(4, rel=0.002), 4.0)
    assert (iowait["mean"], iowait["min"], iowait["median"], iowait["max"]) == (pytest.approx(3.5 / 3), -1, 0, 4.5)
    other = as_json(cpu.report(1))["host_cpu_user"]
    assert (other["n"], other["mean"], other["median"], other["stddev"]) == (1, 7.0, 7.0, None)


def test_only_hosts_that_ran_jobs_of_a_trial_count():
    """A host that idles while another environment is measured would dilute its figures."""
    cpu = HostCpu(
        TrialSpans(
            [TrialSpan(0, 1010 * S, 1020 * S, frozenset({0})), TrialSpan(1, 1020 * S, 1030 * S, frozenset({1}))]
        )
    )
    for worker in range(3):
        cpu.add(block([(1012, 1, 10 + worker, 0, 0), (1022, 1, 20 + worker, 0, 0)], worker))
    assert [as_json(cpu.report(index))["host_cpu_user"]["mean"] for index in range(2)] == [10.0, 21.0]
    assert as_json(cpu.report(0))["host_cpu_user"]["n"] == 1


@pytest.mark.parametrize("lacking", ["time_ns", "interval_ns"])
def test_readings_without_time_belong_to_no_treatment(lacking):
    """Monitor logs have no times, and none are invented."""
    cpu = HostCpu(TrialSpans(SPANS))
    columns = {name: values for name, values in FIRST.columns.items() if name != lacking}
    cpu.add(SampleColumns(0, "host", columns, {}))
    assert cpu.report(0) is None


def test_a_host_without_these_counters_has_no_measures():
    """Without a readable /proc/stat there is no measure."""
    cpu = HostCpu(TrialSpans(SPANS))
    columns = {name: FIRST.columns[name] for name in ("time_ns", "interval_ns")}
    cpu.add(SampleColumns(0, "host", columns, {}))
    assert cpu.report(0) is None


@pytest.mark.parametrize(
    ("values", "median"),
    [([-3.0, -1.0, -1.0, 2.0], -1.0), ([-3.0, 1.0], -1.0), ([0.0, 0.0, 0.0, 95.0], 0.0), ([-2.0, 0.0, 5.0], 0.0)],
)
def test_the_median_goes_through_zero(values, median):
    """Readings below zero are ranked before the others, and two middle ones are averaged."""
    rates = RateStats()
    rates.add(np.array(values))
    assert rates.median == pytest.approx(median, rel=0.004)


def test_many_readings_cost_no_more_memory_and_keep_their_spread():
    """Blocks added one by one give the same as all at once; NaN is left out."""
    values = np.random.default_rng(5).normal(3, 4, 4096)
    rates = RateStats()
    for part in np.split(values, 64):
        rates.add(np.append(part, np.nan))
    assert rates.n == 4096
    assert rates.mean == pytest.approx(values.mean())
    assert rates.stddev == pytest.approx(values.std(ddof=1))
    assert rates.median == pytest.approx(np.median(values), rel=0.003)
    assert (rates.low, rates.high) == (values.min(), values.max())
