"""Pressure and the scheduler: read from recorded hosts, and told in the report where a trial stands out by them."""

import math

import numpy as np
import pytest
from builders import StatsBuilder, footer, header, treatment_wire
from recorded_host import RecordedHostFiles

from bench_common.records import Outcome, ticket_of
from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import build_document
from bench_master.analysis.report_types import as_json
from bench_master.reports.html import page_tables
from bench_master.reports.text import details
from bench_master.run_data import pressure as judged
from bench_master.run_data.pressure import MEASURES, MIN_TRIALS, outlier_factor, stands_out
from bench_worker.host import pressure
from bench_worker.host.pressure import (
    UNITS,
    PressureSampler,
    parse_pressure,
    parse_run_delay,
    parse_shares,
)

S = 10**9
CPU = """\
some avg10=21.05 avg60=26.79 avg300=13.65 total=58059577
full avg10=0.00 avg60=0.00 avg300=0.00 total=0
"""
OLD_CPU = "some avg10=0.00 avg60=0.12 avg300=0.08 total=1443104\n"
"""Before Linux 5.13 there is no line ``full`` for CPUs."""
IO = """\
some avg10=7.23 avg60=2.32 avg300=1.59 total=11170746
full avg10=5.41 avg60=1.66 avg300=1.29 total=9616793
"""
IDLE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
STAT = "cpu  38890 0 8603 52684 1389 0 467 1376 0 0\ncpu0 19000 0 4300 26000 700 0 233 700 0 0\nintr 1\n"
HOST = {
    "/proc/pressure/cpu": CPU,
    "/proc/pressure/io": IO,
    "/proc/pressure/memory": IDLE,
    "/proc/stat": STAT,
    "/proc/77/schedstat": "5000000000 97693000 1200",
}


# -- reading a host ------------------------------------------------------------------------------------------------


def test_the_files_of_several_kernels_are_read():
    """Totals are microseconds in the file; an old kernel has fewer lines and columns; anything else is unknown."""
    assert [parse_pressure(text) for text in (CPU, OLD_CPU, IDLE)] == [58059577000, 1443104000, 0]
    assert [parse_pressure(text) for text in (None, "", "full avg10=0.00 total=3", "some total=x")] == [None] * 4
    assert parse_shares(STAT) == {"cpu_ticks": 103409, "steal_ticks": 1376, "softirq_ticks": 467}
    assert parse_shares("cpu 10 20 30 40\n") == {"cpu_ticks": 100, "steal_ticks": 0, "softirq_ticks": 0}
    assert parse_shares("cpu 10 20 30 40 50 60 70\n") == {"cpu_ticks": 280, "steal_ticks": 0, "softirq_ticks": 70}
    assert [parse_shares(text) for text in (None, "intr 1 2 3 4 5 6 7", "cpu 1 2 3 x", "cpu 1")] == [None] * 4
    assert parse_run_delay("5000000000 97693000 1200") == 97693000
    assert [parse_run_delay(text) for text in (None, "", "5", "5 x")] == [None] * 4


def rows(*states, pids=(77,), at=(1_000, 2_500, 3_000, 4_000)):
    """Return the sampler, begun on the first state of a host, and the rows that it gives on the others."""
    texts, times, known = dict(states[0]), iter(at), list(pids)
    sampler = PressureSampler(
        lambda: known.pop(0) if len(known) > 1 else known[0], RecordedHostFiles(texts), clock=lambda: next(times)
    )
    found = []
    for state in states[1:]:
        texts.clear()
        texts.update(state)
        found.append(sampler.sample())
    return sampler, found


def test_a_row_has_what_happened_since_the_last():
    """Each column is a growth in its unit, and the interval is the real one."""
    after = HOST | {
        "/proc/pressure/cpu": CPU.replace("58059577", "58059777"),
        "/proc/stat": STAT.replace("467 1376", "469 1380"),
        "/proc/77/schedstat": "5000000000 97693500 1201",
    }
    sampler, (row, same) = rows(HOST, after, after)
    assert row == {
        "time_ns": 2_500,
        "interval_ns": 1_500,
        "cpu_some_ns": 200_000,
        "io_some_ns": 0,
        "memory_some_ns": 0,
        "load_wait_ns": 500,
        "cpu_ticks": 6,
        "steal_ticks": 4,
        "softirq_ticks": 2,
    }
    assert tuple(row) == tuple(UNITS) == sampler.columns
    assert [same[name] for name in UNITS if name != "time_ns"] == [500, *[0] * 7]


def test_what_a_host_does_not_show_has_no_column():
    """One without PSI still tells of steal; one without a load process has an unknown wait, not 0."""
    bare = {"/proc/stat": STAT}
    sampler, (row,) = rows(bare, bare, pids=(None,))
    ticks = ("cpu_ticks", "steal_ticks", "softirq_ticks")
    assert tuple(row) == sampler.columns == ("time_ns", "interval_ns", "load_wait_ns", *ticks)
    assert math.isnan(row["load_wait_ns"])


def test_another_load_process_is_no_growth():
    """Its wait is a count of its own; a file that vanished makes its column unknown."""
    other = {path: text for path, text in HOST.items() if path != "/proc/pressure/io"}
    other["/proc/78/schedstat"] = "1 1 1"
    _, (changed, kept) = rows(HOST, other, other, pids=(77, 78))
    assert math.isnan(changed["load_wait_ns"])
    assert math.isnan(changed["io_some_ns"])
    assert kept["load_wait_ns"] == 0


def test_both_sides_name_the_same_columns():
    """The master reads what a worker writes; neither imports the other."""
    assert judged.SOURCE == pressure.SOURCE
    assert {measure.column for measure in MEASURES} | {measure.of for measure in MEASURES} <= UNITS.keys()


# -- judging trials ------------------------------------------------------------------------------------------------


def test_a_trial_stands_out_only_among_enough_others_and_by_enough():
    """A treatment that always waits as long has no outlier; a small excess is none, however steady the others are."""
    steady = np.array([0.5] * 9 + [0.9])
    assert stands_out(steady, 0.2).tolist() == [False] * 9 + [True]
    assert not stands_out(steady, 0.41).any()
    assert not stands_out(np.full(10, 0.9), 0.2).any()
    assert not stands_out(steady[-MIN_TRIALS + 1 :], 0.2).any()
    assert stands_out(steady[-MIN_TRIALS:], 0.2).sum() == 1
    # Less than usual is no disturbance, and one of many that are spread as widely is none.
    assert not stands_out(np.array([0.9] * 9 + [0.1]), 0.2).any()
    assert not stands_out(np.linspace(0.0, 0.9, 10), 0.2).any()


def test_fewer_trials_need_a_larger_excess():
    """Their spread is uncertain."""
    factors = [outlier_factor(trials) for trials in range(MIN_TRIALS, 200)]
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] > 8


COLUMNS = tuple(name for name in UNITS if name not in ("time_ns", "interval_ns"))
TRIALS = 10


def report(path, *held_up, without=(), treatments=1, workers=("vm",), busy=False, second_s=1.0, write=None):
    """Report on ten trials of two seconds of each treatment in turn, with two readings of each worker in each.

    `held_up` are (trial, column, share) that differ from 1 % of the time, or of 1000 ticks.
    """
    wires = [treatment_wire(place, {"engine": f"e{place}"}, ("start",)) for place in range(treatments)]
    plan = [(place, block, False) for block in range(TRIALS) for place in range(treatments)]
    builder = StatsBuilder(path, header(wires, plan))
    for worker, host in enumerate(workers):
        builder.add("host", {"worker": worker, "worker_id": f"w{worker}", "host": host})
    everyone = [*range(len(workers))]
    times = []
    for trial in range(len(plan)):
        begin = (10 + 3 * trial) * S
        builder.add("event", {"kind": "trial-begin", "at_ns": begin, "trial": trial, "workers": everyone})
        job = {"ticket": ticket_of(trial), "treatment": trial % treatments, "trial": trial, "outcome": Outcome.DONE}
        builder.add_jobs(job | {"start_ns": begin, "end_ns": begin + 2 * S})
        builder.add("event", {"kind": "trial-end", "at_ns": begin + 2 * S, "trial": trial, "complete": True})
        times += [(trial, begin + round(second_s * S)), (trial, begin + 2 * S)]
    given = [name for name in COLUMNS if name not in without]
    for worker in everyone:
        columns = {"time_ns": [at for _, at in times], "interval_ns": [S] * len(times)}
        for name in given:
            whole = 1000 if name.endswith("_ticks") else S
            share = {trial: part for trial, column, part in held_up if column == name}
            columns[name] = [round(whole * share.get(trial, 0.01)) for trial, _ in times]
        if "cpu_ticks" in columns:
            columns["cpu_ticks"] = [1000] * len(times)
        builder.writer.samples(worker, "pressure", (write or dict)(columns), {})
        ticks = {f"cpu_{name}_ticks": [0] * len(times) for name in ("user", "system", "iowait", "steal", "idle")}
        ticks["cpu_user_ticks"] = [1000 if busy else 100] * len(times)
        ticks["cpu_idle_ticks"] = [0 if busy else 900] * len(times)
        host_rows = {name: columns[name] for name in ("time_ns", "interval_ns")} | ticks
        builder.writer.samples(worker, "host", host_rows, {})
    return build_document(StatsFile(builder.close(footer())))


def marks(document):
    """Return trial, kind and share of each mark."""
    found = as_json(document)["treatments"]
    return [(one["trial"], one["kind"], one["share"]) for entry in found for one in entry["disturbances"]]


@pytest.mark.parametrize(
    ("kind", "column", "words"),
    [
        ("cpu-pressure", "cpu_some_ns", "tasks on host vm waited for a CPU"),
        ("io-pressure", "io_some_ns", "tasks on host vm waited for input and output"),
        ("memory-pressure", "memory_some_ns", "tasks on host vm waited for memory"),
        ("run-queue", "load_wait_ns", "the load process on host vm waited for a CPU"),
        ("softirq", "softirq_ticks", "soft interrupts took CPU time of host vm"),
    ],
)
def test_a_trial_that_was_held_up_is_marked_with_cause_and_value(tmp_path, kind, column, words):
    """In one sentence for the trial, and in one warning for the run, which the page's trust follows."""
    document = report(tmp_path / "a.stats.gz", (4, column, 0.6))
    assert marks(document) == [(4, kind, pytest.approx(0.6))]
    (one,) = document.treatments[0].disturbances
    is_ticks = column.endswith("_ticks")
    share = ": 60% of it" if is_ticks else " for 60% of the time"
    assert one.text == f"{words}{share}, where 1% is usual for the treatment"
    assert (one.what, one.from_s, one.to_s) == ("vm", 0.0, 2.0)
    unusually = "more than usual" if is_ticks else "unusually long"
    assert list(document.warnings) == [
        f"{words} {unusually} in 1 of 10 trials (4): 60% in trial 4, where 1% is usual"
    ]
    assert document.trust.word == "fair"
    assert words in document.trust.reason


def test_stolen_time_needs_no_comparison(tmp_path):
    """No job takes it: a host that always loses it is disturbed in every trial."""
    document = report(tmp_path / "a.stats.gz", *((trial, "steal_ticks", 0.25) for trial in range(TRIALS)))
    assert marks(document) == [(trial, "steal", pytest.approx(0.25)) for trial in range(TRIALS)]
    assert list(document.warnings) == ["the hypervisor took CPU time from host vm in all 10 trials: 25% in trial 0"]
    (one, *_) = document.treatments[0].disturbances
    assert one.text == "the hypervisor took CPU time from host vm: 25% of it"


def test_a_few_ticks_mark_nothing(tmp_path):
    """Of a short trial a single tick is a large share."""

    def coarse(columns):
        return columns | {
            name: [each // 100 for each in columns[name]] for name in COLUMNS if name.endswith("_ticks")
        }

    held_up = [(4, "steal_ticks", 0.4), (5, "softirq_ticks", 0.4)]
    assert marks(report(tmp_path / "a.stats.gz", *held_up, write=coarse)) == []
    assert [kind for _, kind, _ in marks(report(tmp_path / "b.stats.gz", *held_up))] == ["steal", "softirq"]


def test_a_job_s_own_waits_are_no_disturbance(tmp_path):
    """A treatment whose every trial waits for the disk is beside one that does not: neither is marked."""
    own = [(trial, "io_some_ns", 0.9) for trial in range(0, 2 * TRIALS, 2)]
    document = report(tmp_path / "a.stats.gz", *own, treatments=2)
    assert marks(document) == []
    assert document.warnings == []
    middle = [entry.pressure["io-pressure"].median for entry in document.treatments]
    assert middle == [pytest.approx(0.9), pytest.approx(0.01)]


def test_a_host_that_had_no_cpu_is_told_once(tmp_path):
    """That it had no idle CPU names who took it; that tasks waited for one then says nothing more."""
    held_up = [(4, "cpu_some_ns", 0.9), (4, "load_wait_ns", 0.9), (4, "io_some_ns", 0.9)]
    kinds = [kind for trial, kind, _ in marks(report(tmp_path / "a.stats.gz", *held_up, busy=True)) if trial == 4]
    assert kinds == ["no-idle-cpu", "io-pressure"]


def test_several_workers_of_a_host_tell_of_it_once(tmp_path):
    """Each has a load process of its own; hosts are apart."""
    held_up = [(4, "io_some_ns", 0.6), (4, "load_wait_ns", 0.6)]
    document = report(tmp_path / "a.stats.gz", *held_up, workers=("vm", "vm", "other"))
    assert [kind for _, kind, _ in marks(document)].count("io-pressure") == 2
    assert [kind for _, kind, _ in marks(document)].count("run-queue") == 3
    assert document.treatments[0].pressure["io-pressure"].n == 2 * TRIALS
    assert document.treatments[0].pressure["run-queue"].n == 3 * TRIALS
    assert len(document.warnings) == 4


def test_readings_that_lie_outside_of_a_trial_do_not_count(tmp_path):
    """One that begins before its trial by more than a quarter says nothing of it; half of a trial must be covered."""
    document = report(tmp_path / "a.stats.gz", (4, "io_some_ns", 0.6), second_s=0.5)
    assert marks(document) == [(4, "io-pressure", pytest.approx(0.6))]

    def without_ends(columns):
        return {name: values[::2] for name, values in columns.items()}

    early = report(tmp_path / "b.stats.gz", (4, "io_some_ns", 0.6), second_s=0.5, write=without_ends)
    assert (marks(early), early.treatments[0].pressure) == ([], None)


def test_a_host_without_pressure_says_so_once(tmp_path):
    """Steal and the load process's wait are judged all the same."""
    blind = [name for name in COLUMNS if name.endswith("_some_ns")]
    document = report(tmp_path / "a.stats.gz", (4, "steal_ticks", 0.5), without=blind)
    assert [kind for _, kind, _ in marks(document)] == ["steal"]
    (told,) = [text for text in document.remarks if "PSI" in text]
    assert told.startswith("host vm tells nothing of waits for CPU, input and output, and memory")


def test_unknown_values_mark_nothing(tmp_path):
    """A wait that is not a number in a part of a trial leaves that trial out; odd times are passed over."""

    def odd(columns):
        columns["load_wait_ns"][8] = math.nan
        columns["io_some_ns"][8] = -5
        columns["interval_ns"][0] = 0
        return columns

    document = report(tmp_path / "a.stats.gz", (4, "load_wait_ns", 0.6), write=odd)
    assert marks(document) == []
    assert document.treatments[0].pressure["run-queue"].n == TRIALS - 1


def test_the_tables_of_text_and_page_have_the_readings(tmp_path):
    """The middle trial and the largest one, in percent; trials that one thing held up share a line."""
    held_up = ((4, "io_some_ns", 0.6), (6, "io_some_ns", 0.7))
    document = report(tmp_path / "a.stats.gz", *held_up, treatments=2)
    lines = [" ".join(line.split()) for line in details(document)]
    assert "e0 middle 1.0% 1.0% 1.0% 1.0% 1.0% 1.0%" in lines
    assert "e0 largest 1.0% 70.0% 1.0% 1.0% 1.0% 1.0%" in lines
    (marked,) = [one for one in page_tables(document) if one.name == "Disturbances"]
    assert [cell.text for cell in marked.rows[0]][:2] == ["e0", "4, 6 (at worst 6)"]
    (table,) = [one for one in page_tables(document) if one.name == "Pressure"]
    assert [cell.text for cell in table.rows[1]][:4] == ["e0", "largest", "1.0%", "70.0%"]
