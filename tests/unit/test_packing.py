"""Packing: containers one after another, held together, until all are up or the host is full."""

import io
import json
import re
from functools import partial
from html import unescape
from types import SimpleNamespace

import gevent
import msgspec
import numpy as np
import pytest
from builders import S, StatsBuilder, footer, header, host, treatment_wire, write_report
from deadlines import wait_until
from msgspec import convert
from msgspec.structs import replace
from places import ROOT
from recorded_host import RecordedHostFiles

from bench_common.cost import held_metrics
from bench_common.errors import ScenarioError
from bench_common.job_kind import read_job
from bench_common.records import MetricRecord, Outcome
from bench_common.safe_text import escape_unprintable
from bench_common.stats.block_types import Header
from bench_common.stats.reader import StatsFile
from bench_common.treatment import ContainerSettings, HostState, Lifecycle, Operation, Treatment, parse_stop_condition
from bench_master.analysis.document import build_document
from bench_master.analysis.report_types import as_json
from bench_master.plan import allows_look_ahead, estimate_seconds, make_plan
from bench_master.reports.text import lines
from bench_master.reports.values_text import fill_text, host_text, knee_text, only_value
from bench_master.run_data.packed_hosts import add_host_slopes, host_slopes
from bench_master.run_data.packed_jobs import PackedJobs
from bench_master.run_data.packing import PackingStats
from bench_master.run_data.treatment_types import HostCurveReport, PackingTrialReport, SampleReport, StartCurveReport
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.operations import DEFAULT_MAX_CONTAINERS
from bench_master.scenario.yaml_tree import Source
from bench_worker.engines.base import OperationFailed, OperationResult
from bench_worker.engines.noop import NoopEngine
from bench_worker.engines.oci.cgroups import cgroup_path
from bench_worker.hold_meter import HoldMeter
from bench_worker.job_executor import JobExecutor, RunContext
from bench_worker.outbox import Outbox
from bench_worker.packing import ALL_PACKED, HostStateReader
from bench_workloads.script import job_limit_s

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
    """Up to the limit there is no reason to stop; beyond it the reason has the measure."""
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


def test_a_container_that_is_held_tells_what_its_own_control_group_counted(monkeypatch):
    """From when all are up to the end of the hold, as metrics of its job."""
    texts = {}
    group = "/sys/fs/cgroup/own/{}/{}"
    for ticket in range(3):
        texts |= {
            group.format(ticket, "memory.current"): str((ticket + 2) << 20),
            group.format(ticket, "memory.stat"): f"anon 1\ninactive_file {1 << 20}",
            group.format(ticket, "cpu.stat"): "usage_usec 1000000",
        }
    monkeypatch.setattr(Log, "cgroup", lambda _, container: f"/own/{container.ticket}", raising=False)
    made = partial(HoldMeter, files=RecordedHostFiles(texts))
    monkeypatch.setattr("bench_worker.container_jobs.HoldMeter", made)
    begin = HoldMeter.begin

    def begin_and_work(self):
        begin(self)
        texts[f"/sys/fs/cgroup{self._path}/cpu.stat"] = "usage_usec 1002000"

    monkeypatch.setattr(HoldMeter, "begin", begin_and_work)
    packs = Packs(3).settle()
    assert packs.packed[0].unread == ""
    for ticket, report in packs.reports.items():
        assert report.metrics["container_memory"] == (ticket + 1) << 20
        # 2 ms within a hold of 20 ms or longer, in percent of one CPU.
        assert 0 < report.metrics["container_cpu"] <= 100 * 0.002 / 0.02


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (None, "noop shows no control group of a container on this host"),
        ("/a/b", "there is no control group /a/... below /sys/fs/cgroup"),
    ],
)
def test_why_no_control_group_is_read_is_said_once(monkeypatch, path, why):
    """For the packing as a whole; the containers are held all the same."""
    monkeypatch.setattr(Log, "cgroup", lambda *_: path, raising=False)
    made = partial(HoldMeter, files=RecordedHostFiles({}))
    monkeypatch.setattr("bench_worker.container_jobs.HoldMeter", made)
    packs = Packs(3).settle()
    assert [packed.unread for packed in packs.packed] == [why]
    assert {report.outcome for report in packs.reports.values()} == {Outcome.DONE}
    assert not any(report.metrics for report in packs.reports.values())


V2 = {
    "/sys/fs/cgroup/a/1/memory.current": "5242880",
    "/sys/fs/cgroup/a/1/memory.stat": "anon 1\ninactive_file 1048576",
    "/sys/fs/cgroup/a/1/cpu.stat": "usage_usec 500000\nuser_usec 1",
}
V1 = {
    "/sys/fs/cgroup/memory/a/1/memory.usage_in_bytes": "5242880",
    "/sys/fs/cgroup/memory/a/1/memory.stat": "inactive_file 7\ntotal_inactive_file 1048576",
    "/sys/fs/cgroup/cpuacct/a/1/cpuacct.usage": "500000000",
}


@pytest.mark.parametrize("texts", [V1, V2], ids=["version 1", "version 2"])
def test_both_versions_of_control_groups_give_the_same_readings(texts):
    """What is charged less the file pages that were not used lately; without a controller its measure is left out."""
    engine = SimpleNamespace(name="e", cgroup=lambda _: "/a/1")
    meter = HoldMeter(engine, None, RecordedHostFiles(texts))
    meter.begin()
    meter.end()
    assert (meter.unread, meter.readings) == ("", {"container_memory": 4 << 20, "container_cpu": 0.0})
    memory = {path: text for path, text in texts.items() if "memory" in path}
    meter = HoldMeter(engine, None, RecordedHostFiles(memory))
    meter.begin()
    meter.end()
    assert meter.readings == {"container_memory": 4 << 20}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("0::/system.slice/docker-abc.scope", "/system.slice/docker-abc.scope"),
        ("5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n0::/x", "/docker/abc"),
        ("0::/docker/another", None),
        ("", None),
    ],
    ids=["version 2", "version 1", "of another host", "no process"],
)
def test_a_containers_group_is_found_by_its_first_process(text, path):
    """Where the path has the container's id; else the number is that of a process on another host."""
    assert cgroup_path(7, "abc", RecordedHostFiles({"/proc/7/cgroup": text})) == path


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
    assert f"<{change:.2f}MiB" in text
    assert "< in each: not distinguishable from what the host's memory changed by itself" in text
    assert "-3.64MiB" not in text


def test_memory_beyond_the_hosts_own_changes_is_shown(stats):
    """As a measure of each container, without a remark."""
    text = report(stats, "text")
    assert re.search(r"1 on w0 +11 +n/a +n/a +n/a +650MiB +50MiB ", text)
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


def test_a_trial_that_was_packed_again_counts_once():
    """A worker that was lost while it held packs again; what it held before is no packing of its own."""
    packings = PackingStats([(0, 0, False)], ["docker"])
    event = {"trial": 0, "worker": 0, "at_ns": 1, "hold_s": 1.0, "full": False, "reason": "", "memory_before": 0}
    for count in (2, 5):
        packings.add_event(event | {"containers": count})
    run = SimpleNamespace(sums=SimpleNamespace(treatments=[], packings=packings), header=Header())
    assert as_json(packings.report(0, {}, PackedJobs(run)))["containers"] == {"n": 1, "min": 5, "median": 5, "max": 5}


# -- containers one by one ----------------------------------------------------------------------------------------


def packings_of(tmp_path, starts, *, unread="", memory=None, used=None):
    """Write a run whose packings, a trial each, have containers that take so long (s) until they are up.

    `used` gives how much more memory the host has in use, by the number of containers that are up.
    """
    names = ("create", "start", "sleep", "hold")
    wire = treatment_wire(0, {"engine": "docker"}, names, held_metrics())
    builder = StatsBuilder(
        tmp_path / "run.stats.gz", header([wire], [(0, block, False) for block in range(len(starts))])
    )
    builder.add("host", host(0))
    ticket = 0
    for trial, times in enumerate(starts):
        clock = begin = (1000 + 1000 * trial) * S
        builder.add("event", {"at_ns": begin, "kind": "trial-begin", "trial": trial})
        for place, took in enumerate(times):
            half, row = round(took * S / 2), {"ticket": ticket, "trial": trial}
            up = clock + 2 * half
            builder.add_jobs(row | {"start_ns": begin, "end_ns": begin + 900 * S})
            spans = [(clock, half), (clock + half, half), (up, S), (up + S, begin + 900 * S - up - S)]
            builder.add_operations(
                *(
                    row | {"operation": number, "start_ns": start, "duration_ns": duration}
                    for number, (start, duration) in enumerate(spans)
                )
            )
            if memory is not None:
                builder.writer.metrics([MetricRecord(ticket, 0, trial, "container_memory", float(memory + place))])
            clock = up
            ticket += 1
        if used is not None:
            ups = np.cumsum(times)
            instants = np.arange(0.1, ups[-1] + 5.0, 0.1)
            filled = [used(int(np.searchsorted(ups, at, side="right"))) for at in instants]
            columns = {
                "time_ns": begin + np.round(instants * S).astype(int),
                "memory_used_bytes": (1 << 30) + np.array(filled),
            }
            builder.writer.samples(0, "host", columns, {})
        packed = {"worker": 0, "trial": trial, "containers": len(times), "full": False, "reason": ALL_PACKED}
        more = {"returned": 0, "hold_s": 20.0, "memory_before": 1 << 30, "unread": unread}
        builder.add("event", {"at_ns": begin + 800 * S, "kind": "packed", **packed, **more})
        builder.add("event", {"at_ns": begin + 900 * S, "kind": "trial-end", "trial": trial})
    return builder.close(footer(counts={"planned": ticket, "done": ticket, "failed": 0}))


def packing_report(path):
    (entry,) = json.loads(report(path, "json"))["treatments"]
    return entry["packing"]


def test_each_container_counts_with_what_it_took_until_it_was_up(tmp_path):
    """Its operations before the hold, without sleep and the wait for its turn; of few packings with their range."""
    packing = packing_report(packings_of(tmp_path, [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], memory=1000))
    assert [trial["start_s"] for trial in packing["trials"]] == pytest.approx([0.2, 0.5])
    start, memory = packing["each"]["start_s"], packing["each"]["memory_bytes"]
    assert (start["n"], start["containers"], start["is_interval"]) == (2, 6, False)
    assert (start["middle"], start["low"], start["high"]) == pytest.approx((0.35, 0.1, 0.6))
    assert (memory["unit"], memory["middle"], memory["low"], memory["high"]) == ("B", 1001, 1000, 1002)
    assert packing["trials"][0]["steady"]["container_memory_bytes"] == {
        "unit": "B",
        "n": 3,
        "mean": 1001,
        "min": 1000,
        "max": 1002,
    }
    assert packing["starts"]["reason"].startswith("it takes the start-up times of 24 containers, 8 of them at a time")


def test_six_packings_have_an_interval(tmp_path):
    """By signed ranks over the packings, each of which counts as one value: its containers are not independent."""
    starts = [[0.1 + 0.01 * trial] * 2 for trial in range(6)]
    each = packing_report(packings_of(tmp_path, starts))["each"]["start_s"]
    assert (each["n"], each["containers"], each["is_interval"]) == (6, 12, True)
    assert (each["middle"], each["low"], each["high"]) == pytest.approx((0.125, 0.1, 0.15))
    assert "the ends are the 95 % interval of 6 packings" in " ".join(
        report(tmp_path / "run.stats.gz", "text").split()
    )


def knee_starts(at, count=60, trials=3):
    rng = np.random.default_rng(4)
    numbers = np.arange(1, count + 1)
    return [list(0.2 + 0.02 * np.maximum(0, numbers - at) + 0.01 * rng.standard_normal(count)) for _ in range(trials)]


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_every_format_says_the_same_of_the_knee(tmp_path, form):
    """Where start-up times begin to grow faster, with the ends of where that may be."""
    path = packings_of(tmp_path, knee_starts(40))
    starts = packing_report(path)["starts"]
    knee = starts["knee"]
    assert knee["low"] <= knee["containers"] <= knee["high"]
    assert knee["containers"] == pytest.approx(40, abs=2)
    assert knee["after_s"] == pytest.approx(0.02, rel=0.2)
    assert (starts["most"], starts["reason"], len(starts["line"])) == (60, "", 3)
    text = unescape(" ".join(report(path, form).split())).replace("\\", "")
    sentence = knee_text(convert(starts, StartCurveReport))
    assert sentence.startswith(
        f"Knee at {knee['containers']:.0f} containers [{knee['low']:.0f}, {knee['high']:.0f}]: "
    )
    assert sentence in text


def bent(at, before=1 << 20, after=4 << 20, seed=3):
    """Return the memory in use by containers that take `before` bytes each up to `at`, then `after`, with noise."""
    rng = np.random.default_rng(seed)
    return lambda count: int(count * before + max(0, count - at) * (after - before) + rng.normal(0, 1 << 18))


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_every_format_says_where_the_hosts_memory_begins_to_grow_faster(tmp_path, form):
    """By the readings while packings are filled, with the ends of where that may be."""
    path = packings_of(tmp_path, [[0.2] * 60] * 2, used=bent(40))
    fill = packing_report(path)["fill"]
    knee = fill["knee"]
    assert knee["low"] <= knee["containers"] <= knee["high"]
    assert knee["containers"] == pytest.approx(40, abs=2)
    assert (knee["before_bytes"], knee["after_bytes"]) == pytest.approx((1 << 20, 4 << 20), rel=0.1)
    sentence = fill_text(convert(fill, HostCurveReport))
    assert sentence.startswith(f"Knee of the host's memory at {knee['containers']:.0f} containers [")
    assert sentence in unescape(" ".join(report(path, form).split())).replace("\\", "")
    assert sentence in only_value(build_document(StatsFile(path)))


def test_a_host_whose_memory_grows_evenly_has_no_knee(tmp_path):
    """Which is said; where too few containers started for a curve, JSON alone says what it takes."""
    path = packings_of(tmp_path, [[0.2] * 60], used=bent(99))
    assert "No knee of the host's memory up to 60 containers." in " ".join(report(path, "text").split())
    (tmp_path / "few").mkdir()
    few = packings_of(tmp_path / "few", [[0.2] * 5], used=bent(99))
    assert packing_report(few)["fill"]["reason"].startswith("it takes 24 readings of the host's memory while ")
    assert "of the host's memory" not in " ".join(report(few, "text").split())


def test_the_page_says_once_why_no_control_group_was_read(tmp_path):
    """Below the tables, with the reason that the worker gave."""
    path = packings_of(tmp_path, [[0.1], [0.2]], unread="docker shows no control group of a container on this host")
    text = " ".join(report(path, "text").split())
    assert text.count("memory and CPU of each container are unknown: docker shows no control group") == 1


def packing(count, busy_percent, memory, *, change=0.0, warmup=False, worker="w0"):
    """Return a packing of some containers on a host that was so busy, and what each took of its memory."""
    return PackingTrialReport(
        trial=0, worker=worker, warmup=warmup, containers=count, full=False, reason="as asked for", hold_s=4.0,
        memory_before_bytes=0, memory_per_container_bytes=memory, memory_change_per_container_bytes=change,
        start_s=0.1,
        steady={"cpu_busy_percent": SampleReport(unit="%", n=4, mean=busy_percent, min=0.0, max=100.0)},
    )  # fmt: skip


def test_the_slope_of_the_hosts_cpu_is_what_one_container_costs():
    """Of packings of some numbers, in percent of one CPU; the interval is that of a line's slope (Student's t)."""
    rng = np.random.default_rng(5)
    counts = [5, 20, 40] * 8
    busy = [3.0 + 0.25 * count + 0.2 * float(rng.standard_normal()) for count in counts]
    slopes = host_slopes([packing(*one, 1e6) for one in zip(counts, busy, strict=True)], {"w0": 4})
    cpu = slopes["cpu_percent"]
    (slope, _), variances = np.polyfit(counts, [4 * one for one in busy], 1, cov=True)
    reach = 2.07387 * np.sqrt(variances[0, 0])  # Student's t for 22 degrees of freedom, from a printed table
    assert (cpu.middle, cpu.low, cpu.high) == pytest.approx((slope, slope - reach, slope + reach), rel=1e-4)
    assert cpu.low < 1.0 < cpu.high
    assert (cpu.n, cpu.is_interval, cpu.unit) == (24, True, "%")


@pytest.mark.parametrize(
    ("packings", "reason"),
    [
        ([packing(10, 5.0, 1e6)] * 3, "there are 3 packings of 10"),
        ([packing(10, 5.0, 1e6)], "there is 1 packing of 10"),
        ([packing(10, 5.0, 1e6), packing(20, 9.0, 1e6)], "there are 2 packings of 10 and 20"),
    ],
)
def test_cpu_by_the_number_of_containers_takes_packings_of_two_numbers(packings, reason):
    """Else the reports say why there is no figure, and have none."""
    cpu = host_slopes(packings, {"w0": 2})["cpu_percent"]
    assert (cpu.middle, cpu.low, cpu.high) == (None, None, None)
    assert cpu.reason.endswith(reason)
    assert "cpu_percent" not in host_slopes(packings, {}), "the number of its CPUs is not known"


def test_a_host_without_idle_cpu_tells_no_slope():
    """It is at its end with any number of containers: the line through such packings was one of no cost."""
    path = ROOT / "tests" / "data" / "pages" / "packing-counts.stats.gz"
    for entry in build_document(StatsFile(path)).treatments:
        assert entry.packing.host["cpu_percent"].middle is None
        assert "CPU for each is not known: the host had no idle CPU in 4 of 4 packings." in host_text(entry.packing)
    mixed = [packing(5, 40.0, 1e6), packing(10, 50.0, 1e6), packing(20, 99.0, 1e6)]
    assert host_slopes(mixed, {"w0": 2})["cpu_percent"].reason == "the host had no idle CPU in 1 of 3 packings"


def test_memory_by_the_hosts_total_is_a_value_a_packing():
    """With the interval by signed ranks of six; an upper limit where the host's own changes are as large in half."""
    six = [packing(10, 5.0, 1e6 + 1e4 * number) for number in range(6)]
    memory = host_slopes(six, {})["memory_bytes"]
    assert (memory.n, memory.is_interval, memory.limit) == (6, True, None)
    assert (memory.middle, memory.low, memory.high) == pytest.approx((1.025e6, 1e6, 1.05e6))
    unsure = [packing(10, 5.0, 1e6, change=2e6)] * 3
    assert host_slopes([*six[:3], *unsure], {})["memory_bytes"].limit == 2e6
    assert host_slopes([*six[:4], *unsure], {})["memory_bytes"].limit is None
    assert host_slopes([], {}) == {}


def test_treatments_that_differ_in_the_number_alone_are_fitted_together():
    """Each of them has the figures of all; another engine has its own; warm-up counts nowhere."""
    path = ROOT / "docs" / "data" / "packing.stats.gz"
    (ten,) = build_document(StatsFile(path)).treatments

    def treatment(engine, count, packings):
        labels = {**ten.treatment, "engine": engine, "concurrency": count}
        return replace(ten, treatment=labels, packing=replace(ten.packing, trials=packings))

    few, many = (
        [packing(5, 4.0, 1e6), packing(5, 4.2, 1e6)],
        [packing(9, 6.0, 1e6), packing(9, 60.0, 9e6, warmup=True)],
    )
    found = add_host_slopes(
        [treatment("docker", 5, few), treatment("docker", 9, many), treatment("podman", 5, few)], {"w0": 1}
    )
    first, second, other = (one.packing.host for one in found)
    assert first == second
    assert first["cpu_percent"].n == first["memory_bytes"].n == 3
    assert first["cpu_percent"].middle == pytest.approx((6.0 - 4.1) / 4)
    assert other["cpu_percent"].reason


def test_the_sentence_of_a_packing_has_the_knee_only_where_one_was_looked_for():
    """Why none was looked for is below the table."""
    document = build_document(StatsFile(ROOT / "docs" / "data" / "packing.stats.gz"))
    (entry,) = document.treatments
    starts = replace(entry.packing.starts, reason="it takes more containers")
    changed = replace(document, treatments=[replace(entry, packing=replace(entry.packing, starts=starts))])
    assert "No knee up to 10" in only_value(document)
    assert "knee" not in only_value(changed)
    assert "No knee was looked for: it takes more containers." in " ".join(" ".join(lines(changed)).split())
