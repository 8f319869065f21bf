"""Packing: containers one after another, held together, until all are up or the host is full."""

import csv
import io
import json
import re

import gevent
import msgspec
import numpy as np
import pytest
from builders import S, StatsBuilder, footer, header, host, treatment_wire, write_report
from deadlines import wait_until
from recorded_host import RecordedHostFiles

from bench_common.errors import ScenarioError
from bench_common.job_kind import read_job
from bench_common.records import Outcome
from bench_common.safe_text import escape_unprintable
from bench_common.treatment import ContainerSettings, HostState, Lifecycle, Operation, Treatment, parse_stop_condition
from bench_master.analysis.report_types import as_json
from bench_master.plan import allows_look_ahead, estimate_seconds, make_plan
from bench_master.run_data.packing import PackingStats
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.operations import DEFAULT_MAX_CONTAINERS
from bench_master.scenario.yaml_tree import Source
from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.engines.noop import NoopEngine
from bench_worker.job_executor import JobExecutor, RunContext
from bench_worker.outbox import Outbox
from bench_worker.packing import ALL_PACKED, HostStateReader
from workloads.script import job_limit_s

GIB = 1 << 30


# -- conditions ---------------------------------------------------------------------------------------------------


def state(available=8 * GIB, swap_used=0, idle=50.0):
    return HostState(16 * GIB, available, 4 * GIB, swap_used, idle)


@pytest.mark.parametrize(
    ("text", "below", "beyond", "why"),
    [
        ("memory < 10%", state(2 * GIB), state(GIB), "6.25% of memory available"),
        ("memory<512MiB", state(GIB), state(1 << 20), "1MiB of memory available"),
        ("swap > 64MiB", state(swap_used=1 << 20), state(swap_used=GIB), "1GiB of swap used"),
        ("swap > 5%", state(), state(swap_used=GIB), "25.00% of swap used"),
        ("cpu < 5%", state(idle=5.0), state(idle=4.5), "4.50% of CPU time idle"),
    ],
)
def test_a_condition_holds_beyond_its_limit_and_says_why(text, below, beyond, why):
    """Up to the limit there is no reason to stop; beyond it the reason has the figure."""
    until = parse_stop_condition(text)
    assert until.reason_if_met(below) is None
    assert until.reason_if_met(beyond) == why
    assert parse_stop_condition(str(until)) == until


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("memory", "expected a condition such as"),
        ("memroy < 10%", "did you mean 'memory'?"),
        ("memory > 10%", "a host is full when memory < something"),
        ("memory < 120%", "no share between 0% and 100%"),
        ("cpu < 5GiB", "expected a percentage of CPU time"),
        ("memory < some", "memory < some"),
    ],
)
def test_what_is_no_condition_is_refused(text, words):
    """Quantity, direction and amount are checked, each with what was expected."""
    with pytest.raises(ValueError, match=r"expected|mean|share|some") as refused:
        parse_stop_condition(text)
    assert words in str(refused.value)


def test_a_host_without_swap_never_has_a_share_of_it_in_use():
    """A share of nothing is nothing, and no division by zero."""
    assert parse_stop_condition("swap > 5%").reason_if_met(HostState(GIB, GIB, 0, 0, 0.0)) is None


def test_cpu_time_is_that_since_the_look_before():
    """Idle time of all CPUs by all time between two looks, iowait with it."""
    texts = {"/proc/stat": "cpu 10 0 0 100 0", "/proc/meminfo": "MemTotal: 8 kB\nMemFree: 4 kB\nMemAvailable: 6 kB"}
    look = HostStateReader(RecordedHostFiles(texts))
    texts["/proc/stat"] = "cpu 40 0 0 109 1"
    found = look()
    assert found.cpu_idle_percent == pytest.approx(100 * 10 / 40)
    assert (found.memory_total, found.memory_available) == (8192, 6144)


# -- the scenario -------------------------------------------------------------------------------------------------

PACK = "job: {operations: [create, start, hold: 5s, stop, remove], container: {image: i}}"


def scenario(text):
    return parse_scenario(Source("s.yaml", f"name: a\n{text}\n"))


def test_a_packing_has_its_condition_and_no_look_ahead():
    """`until` is read in its usual form, travels to workers, and containers wait for each other."""
    (treatment,) = scenario(f"{PACK}\nconcurrency: 20\nuntil: memory<1024MiB").treatments
    assert treatment.is_packing
    assert treatment.until == "memory < 1GiB"
    assert msgspec.convert(treatment.to_dict(), Treatment, dec_hook=read_job) == treatment
    assert not allows_look_ahead(treatment)
    assert scenario(f"{PACK}\nmatrix: {{until: [memory < 10%, memory < 20%]}}").treatments[1].until == "memory < 20%"


def test_a_condition_that_is_to_end_a_packing_is_not_forestalled_by_the_usual_one_job_in_flight():
    """Without a number of containers there are many, and with one there are so many at most."""
    assert scenario(f"{PACK}\nuntil: memory < 10%").treatments[0].concurrency == DEFAULT_MAX_CONTAINERS
    assert scenario(f"{PACK}\nuntil: memory < 10%\nconcurrency: 3").treatments[0].concurrency == 3
    assert scenario(PACK).treatments[0].concurrency == 1


def test_a_packing_is_given_time_for_every_container():
    """Its jobs wait for each other, so the bound of one is that of all and the hold once."""
    loaded = scenario(f"{PACK}\nconcurrency: 20\ntimeout: 10s")
    (treatment,) = loaded.treatments
    assert job_limit_s(treatment) >= 20 * 40 + 5
    plan = make_plan(loaded, 1)
    seconds, _ = estimate_seconds(plan, [1] * len(plan.treatments))
    assert seconds == pytest.approx(20 * 4 * 0.1 + 5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{PACK}\niterations: 2", "run once in a trial"),
        (f"{PACK}\nrun_seconds: 5s", "run once in a trial"),
        (f"{PACK}\nuntil: memory > 5%", "a host is full when"),
        ("until: memory < 5%\njob: {operations: [run], container: {image: i}}", "requires"),
        ("job: {operations: [hold: 5s, run], container: {image: i}}", "'hold' cannot work here"),
        ("job: {operations: [run, hold: 5s, hold: 5s], container: {image: i}}", "one 'hold'"),
    ],
)
def test_what_a_packing_cannot_have_is_refused(text, words):
    """Other sizes of a trial, a condition without a hold, a hold of nothing, two of them."""
    with pytest.raises(ScenarioError) as refused:
        scenario(text)
    assert words in str(refused.value)


def test_a_worker_takes_no_condition_that_is_none():
    """What comes over the wire is read as strictly as a scenario."""
    wire = scenario(PACK).treatments[0].to_dict() | {"until": "memory > 1"}
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wire, Treatment, dec_hook=read_job)


# -- the worker ---------------------------------------------------------------------------------------------------


class Log(NoopEngine):
    """Notes what was done to which container; each takes a moment."""

    def __init__(self, options):
        super().__init__(options)
        self.log = []
        self.fails_at = None

    def did(self, what, container, **_):
        gevent.sleep(0.001)
        self.log.append((what, container.ticket))
        if what == "create" and container.ticket == self.fails_at:
            raise OperationFailed("engine", "no more addresses", start_ns=1, end_ns=2)
        return OperationResult(1, 2)

    def create(self, container, *, timeout_s):
        return self.did("create", container)

    def start(self, container, *, timeout_s):
        return self.did("start", container)

    def stop(self, container, *, grace_s, timeout_s):
        return self.did("stop", container)

    def remove(self, container, *, timeout_s):
        return self.did("remove", container)


class Packs:
    """A crew that packs `count` containers, and what came of it."""

    def __init__(self, count, until=None, hold_s=0.02, fails_at=None, look=None, monkeypatch=None):
        self.packed, self.reports = [], {}
        outbox = Outbox(1, lambda frame: True)
        outbox.add = lambda ticket, report: self.reports.update({ticket: report}) or 0

        def open_engine(_name, options):
            self.engine = Log(options)
            self.engine.fails_at = fails_at
            return self.engine

        if look is not None:
            monkeypatch.setattr("bench_worker.packing.HostStateReader", lambda: look)
        assignment = RunContext("run", "w", count, noop=False, keep=False, allow_host_mounts=False)
        self.crew = JobExecutor(assignment, outbox, open_engine, self.packed.append)
        kinds = ("create", "start", "hold", "stop", "remove")
        operations = tuple(Operation(kind, kind, seconds=hold_s if kind == "hold" else None) for kind in kinds)
        settings = ContainerSettings(image="i")
        self.crew.define(
            Treatment(0, {}, None, "log", Lifecycle(operations), settings, concurrency=count, until=until)
        )
        self.crew.take(0, 3, [(ticket, 0, 0) for ticket in range(count)], concurrency=count, batch=1)

    def settle(self):
        wait_until(lambda: self.crew.idle, sleep=gevent.sleep)
        return self

    def outcomes(self):
        return {ticket: report.outcome for ticket, report in sorted(self.reports.items())}


def test_containers_are_made_one_after_another_and_held_together():
    """No container is begun before the one in front is up; none is stopped before the last is."""
    packs = Packs(4).settle()
    kinds = [what for what, _ in packs.engine.log]
    assert kinds == ["create", "start"] * 4 + ["stop"] * 4 + ["remove"] * 4
    assert packs.outcomes() == dict.fromkeys(range(4), Outcome.DONE)
    (packed,) = packs.packed
    assert (packed.trial, packed.containers, packed.reason, packed.full) == (3, 4, ALL_PACKED, False)
    assert packed.memory_before > 0
    assert packed.returned == ()
    holds = [report.stamps[4:6] for report in packs.reports.values()]
    assert all(duration >= 0.02e9 for _, duration in holds)
    ends = [start + duration for start, duration in holds]
    assert max(ends) - min(ends) < 1e9


def test_a_full_host_gives_back_the_jobs_that_do_not_fit(monkeypatch):
    """The look after each container decides; what was not begun is returned and never reported."""
    states = iter([state()] * 3 + [state(GIB)])
    packs = Packs(6, until="memory < 10%", look=lambda: next(states), monkeypatch=monkeypatch).settle()
    (packed,) = packs.packed
    assert (packed.containers, packed.full) == (3, True)
    assert packed.reason == "6.25% of memory available"
    assert packs.outcomes() == dict.fromkeys(range(3), Outcome.DONE)
    assert sorted(packed.returned) == [3, 4, 5]
    assert {ticket for _, ticket in packs.engine.log} == {0, 1, 2}


def test_a_container_that_cannot_be_made_ends_a_packing_to_the_limit(monkeypatch):
    """Its job has failed, the host is full, the others are held and go on."""
    look = state
    packs = Packs(5, until="memory < 10%", fails_at=2, look=look, monkeypatch=monkeypatch).settle()
    (packed,) = packs.packed
    assert (packed.containers, packed.full) == (2, True)
    assert packed.reason == "a container could not be made: no more addresses"
    assert packs.outcomes() == {0: Outcome.DONE, 1: Outcome.DONE, 2: Outcome.FAILED}
    assert sorted(packed.returned) == [3, 4]


def test_where_not_even_the_first_can_be_made_all_others_are_given_back(monkeypatch):
    """Nobody is left to wait for, and nothing is forgotten."""
    packs = Packs(3, until="memory < 10%", fails_at=0, look=state, monkeypatch=monkeypatch).settle()
    (packed,) = packs.packed
    assert (packed.containers, sorted(packed.returned)) == (0, [1, 2])
    assert packs.outcomes() == {0: Outcome.FAILED}


def test_without_a_limit_a_failure_is_that_jobs_own():
    """A packing of so many goes on with the next; the others are held together all the same."""
    packs = Packs(4, fails_at=1).settle()
    (packed,) = packs.packed
    assert (packed.containers, packed.full) == (3, False)
    assert packs.outcomes() == {0: Outcome.DONE, 1: Outcome.FAILED, 2: Outcome.DONE, 3: Outcome.DONE}


def test_a_packing_that_is_called_off_ends_at_once():
    """Those that hold and those that wait for their turn are aborted; their containers are removed."""
    packs = Packs(4, hold_s=600.0)
    gevent.sleep(0.005)
    packs.crew.abort()
    packs.settle()
    assert set(packs.outcomes().values()) == {Outcome.ABORTED}
    assert len(packs.reports) == 4
    made = {ticket for what, ticket in packs.engine.log if what == "create"}
    assert {ticket for what, ticket in packs.engine.log if what == "remove"} >= made


# -- the reports --------------------------------------------------------------------------------------------------


@pytest.fixture
def stats(tmp_path):
    return packed_run(tmp_path)


def packed_run(tmp_path, *, held=650 << 20, befores=(100 << 20, 100 << 20)):
    """Write a run of two packings, with `held` bytes in use during the holds and `befores` before them."""
    names = ("create", "start", "hold")
    builder = StatsBuilder(
        tmp_path / "run.stats.gz",
        header([treatment_wire(0, {"engine": "docker"}, names)], [(0, 0, True), (0, 1, False)]),
    )
    builder.add("host", host(0))
    for trial in range(2):
        begin = (1000 + 100 * trial) * S
        builder.add("event", {"at_ns": begin, "kind": "trial-begin", "trial": trial})
        builder.add_jobs({"ticket": trial, "trial": trial, "start_ns": begin, "end_ns": begin + 60 * S})
        packed = {"worker": 0, "trial": trial, "containers": 10 + trial, "full": True, "reason": "6% of memory"}
        more = {"returned": 5, "hold_s": 20.0, "memory_before": befores[trial]}
        builder.add("event", {"at_ns": begin + 30 * S, "kind": "packed", **packed, **more})
        builder.add("event", {"at_ns": begin + 60 * S, "kind": "trial-end", "trial": trial})
    seconds = np.arange(1000, 1170, 5)
    used = np.where((seconds % 100 >= 30) & (seconds % 100 <= 50), held, 100 << 20)
    columns = {
        "time_ns": seconds * S,
        "memory_used_bytes": used,
        "cpu_idle_percent": np.full(len(seconds), 90.0),
        "cpu_iowait_percent": np.full(len(seconds), 4.0),
    }
    builder.writer.samples(0, "host", columns, {})
    engine = {"time_ns": seconds * S, "interval_ns": np.full(len(seconds), 5 * S), "rss_bytes": used // 2}
    builder.writer.samples(0, "engine:docker", engine | {"cpu_ns": np.full(len(seconds), S)}, {})
    builder.writer.samples(0, "engine:podman", engine | {"cpu_ns": np.full(len(seconds), 9 * S)}, {})
    return builder.close(footer(counts={"planned": 2, "done": 2, "failed": 0}))


def report(stats, form):
    out = io.StringIO()
    write_report(stats, out, form)
    return out.getvalue()


@pytest.mark.parametrize(
    ("held", "befores", "change"),
    [(60 << 20, (100 << 20,) * 2, 40 / 11), (130 << 20, (55 << 20, 100 << 20), 45 / 11)],
    ids=["a decrease", "less than between packings"],
)
def test_memory_within_the_hosts_own_changes_is_no_containers_memory(tmp_path, held, befores, change):
    """A container never takes less than nothing, nor can less be told than what changes without it."""
    path = packed_run(tmp_path, held=held, befores=befores)
    (entry,) = json.loads(report(path, "json"))["treatments"]
    measured = entry["packing"]["trials"][1]
    assert measured["memory_change_per_container_bytes"] == pytest.approx(change * (1 << 20))
    text = report(path, "text")
    assert escape_unprintable(text) == text
    text = " ".join(text.split())
    assert f"trial 1 on w0: not distinguishable from the host's own changes (± {change:.2f}MiB)" in text
    assert "-3.64MiB" not in text


def test_memory_beyond_the_hosts_own_changes_is_shown(stats):
    """As a figure of each container, without a remark."""
    text = report(stats, "text")
    assert re.search(r"trial 1 on w0 +11 +650MiB +50MiB ", text)
    assert "not distinguishable" not in text


def test_the_steady_state_is_of_the_hold_alone(stats):
    """Readings while all containers were held, and how much memory each of them took."""
    (entry,) = json.loads(report(stats, "json"))["treatments"]
    packing = entry["packing"]
    assert packing["containers"] == {"n": 1, "min": 11, "median": 11, "max": 11}
    warmup, measured = packing["trials"]
    assert (warmup["warmup"], warmup["containers"], measured["worker"]) == (True, 10, "w0")
    assert measured["steady"]["memory_used_bytes"] == {
        "unit": "B",
        "n": 5,
        "mean": 650 << 20,
        "min": 650 << 20,
        "max": 650 << 20,
    }
    assert measured["steady"]["cpu_busy_percent"]["mean"] == pytest.approx(6.0)
    assert measured["steady"]["engine_rss_bytes"]["mean"] == 325 << 20
    assert measured["steady"]["engine_cpu_percent"]["mean"] == pytest.approx(20.0)
    assert measured["memory_per_container_bytes"] == pytest.approx(550 / 11 * (1 << 20))


def test_text_and_csv_say_how_many_and_why(stats):
    """A line for each packing, the reason once, and in CSV the count as a figure of trials."""
    text = report(stats, "text")
    assert "trial 1 on w0" in text
    assert "trial 0 on w0 (warm-up)" in text
    assert "stopped because: 6% of memory" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    (row,) = [row for row in csv.DictReader(io.StringIO(report(stats, "csv"))) if row["kind"] == "packing"]
    assert (row["name"], row["n"], row["min"], row["p50"]) == ("containers", "1", "11", "11")


def test_a_trial_that_was_packed_again_counts_once():
    """A worker that was lost while it held packs again; what it held before is no packing of its own."""
    packings = PackingStats([(0, 0, False)], ["docker"])
    event = {"trial": 0, "worker": 0, "at_ns": 1, "hold_s": 1.0, "full": False, "reason": "", "memory_before": 0}
    for count in (2, 5):
        packings.add_event(event | {"containers": count})
    packings.add_event(event | {"trial": 9, "containers": 7})
    assert as_json(packings.report(0, {}))["containers"] == {"n": 1, "min": 5, "median": 5, "max": 5}


def test_a_run_that_packed_nothing_says_nothing(tmp_path):
    """Without packings there is neither a table nor a key with anything in it."""
    path = StatsBuilder(
        tmp_path / "r.stats.gz", header([treatment_wire(0, {"engine": "docker"})], [(0, 0, False)])
    ).close(footer())
    assert "packed" not in report(path, "text")
    assert json.loads(report(path, "json"))["treatments"][0]["packing"] is None
