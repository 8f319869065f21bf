"""Who takes the CPU of a host that has none left: found among made-up processes, and told in the report."""

import os

import pytest
from builders import StatsBuilder, header, treatment_wire

from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import build_document
from bench_master.analysis.report_types import as_json
from bench_worker.host.contention import ContentionWatch, HostLeader

S = 10**9
TICKS = os.sysconf("SC_CLK_TCK")


class Processes:
    """A /proc with processes that a test lets run."""

    def __init__(self):
        self.table = {}
        self.words = {}

    def start(self, pid, name, parent=1, started=1):
        self.table[pid] = [name, parent, started, 0]

    def run(self, pid, seconds):
        self.table[pid][3] += round(seconds * TICKS)

    def names(self, _path):
        return [*map(str, self.table), "meminfo"]

    def text(self, path):
        _, _, pid, what = path.split("/")
        if what == "cmdline":
            return self.words.get(int(pid), "")
        name, parent, started, ticks = self.table[int(pid)]
        fields = ["S", parent, *[0] * 9, ticks, 0, 0, 0, 20, 0, 1, 0, started, 0, 0]
        return f"{pid} ({name}) {' '.join(map(str, fields))}"


@pytest.fixture
def host():
    processes = Processes()
    for pid, name, parent in (
        (10, "bench-master", 1),
        (11, "python3", 10),
        (12, "python3", 11),
        (2, "kthreadd", 0),
        (3, "kworker/0:1", 2),
        (20, "dockerd", 1),
        (21, "containerd-shim", 1),
        (22, "stranger", 21),
        (30, "python3", 1),
        (31, "cc1", 1),
    ):
        processes.start(pid, name, parent)
    processes.words[30] = "python3\0/home/me/spin.py\0--password=secret"
    return processes


def watch(host, leads=True):
    found, now = [], [0]
    watched = ContentionWatch(
        10,
        frozenset({"dockerd", "containerd-shim"}),
        found.append,
        leads=lambda: leads,
        files=host,
        clock=lambda: now[0],
    )
    return watched, found


def row(second, idle):
    return {"time_ns": second * S, "interval_ns": S, "cpu_idle_percent": idle, "cpu_iowait_percent": 0.0}


def test_the_largest_other_consumer_is_named(host):
    """Not the harness, its jobs, the engine, the kernel, nor a container that was started since the run began."""
    watched, found = watch(host)
    host.start(40, "container", parent=21, started=9)
    for pid in (11, 12, 3, 20, 21, 40):
        host.run(pid, 100)
    host.run(30, 0.9)
    host.run(31, 0.5)
    host.run(22, 0.4)
    watched.add(row(1, 0.0))
    assert found == []
    watched.add(row(2, 60.0))
    (period,) = found
    assert (period.begin_ns, period.end_ns) == (0, S)
    assert (period.consumer, period.pid, period.processes) == ("python3 spin.py", 30, 1)
    assert period.consumer_ns == round(0.9 * S)
    assert period.others_ns == round(1.8 * S)


def test_many_processes_of_one_name_count_together(host):
    """A compilation is many short processes; a name without an interpreter's script is kept as it is."""
    watched, found = watch(host)
    for pid in range(100, 120):
        host.start(pid, "cc1plus", started=5)
        host.run(pid, 0.1)
    host.run(30, 0.9)
    watched.add(row(1, 1.9))
    watched.flush()
    assert (found[0].consumer, found[0].processes) == ("cc1plus", 20)


def test_a_host_with_idle_cpu_is_not_looked_at(host):
    """Nor by a worker of the run beside the one that looks."""
    for watched, found, idle in ((*watch(host), 2.1), (*watch(host, leads=False), 0.0)):
        host.run(30, 1)
        watched.add(row(1, idle))
        watched.flush()
        assert found == []


def test_of_several_workers_on_a_host_one_leads():
    """Another follows when that one has ended; other runs have leaders of their own."""
    first, second, other = HostLeader(f"run-{os.getpid()}"), HostLeader(f"run-{os.getpid()}"), HostLeader("other-run")
    try:
        assert (first.holds(), second.holds(), first.holds(), other.holds()) == (True, False, True, True)
        first.close()
        assert second.holds()
    finally:
        for one in (first, second, other):
            one.close()


TREATMENTS = (
    treatment_wire(0, {"engine": "docker"}, ("start",)),
    treatment_wire(1, {"engine": "native"}, ("start",)) | {"job": {"workload": "sysbench-cpu"}},
)


def report(path, *events, idle=0.0, ticks=1000):
    """Report on two trials of ten seconds each, the second one of a benchmark, on a host with so much idle CPU."""
    builder = StatsBuilder(path, header(list(TREATMENTS), [(0, 0, False), (1, 0, False)]))
    builder.add("host", {"worker": 0, "worker_id": "w0", "host": "vm"})
    for trial in (0, 1):
        builder.add("event", {"kind": "trial-begin", "at_ns": (10 + 10 * trial) * S, "trial": trial, "workers": [0]})
        for event in events:
            if event.get("trial", 0) == trial:
                builder.add("event", event)
        builder.add("event", {"kind": "trial-end", "at_ns": (20 + 10 * trial) * S, "trial": trial, "complete": True})
    names = ("user", "system", "iowait", "steal", "idle")
    columns = {f"cpu_{name}_ticks": [0] * 20 for name in names}
    columns["cpu_user_ticks"] = [round(ticks * (1 - idle))] * 20
    columns["cpu_idle_ticks"] = [round(ticks * idle)] * 20
    times = [(10 + second) * S for second in range(1, 21)]
    builder.writer.samples(0, "host", {"time_ns": times, "interval_ns": [S] * 20, **columns}, {})
    return as_json(build_document(StatsFile(builder.close())))


CONTENTION = {
    "kind": "cpu-contention",
    "at_ns": 19 * S,
    "worker": 0,
    "begin_ns": 12 * S,
    "end_ns": 17 * S,
    "consumer": "spin.py",
    "pid": 30,
    "processes": 1,
    "consumer_share": 0.5,
    "others_share": 0.6,
}


def test_a_trial_without_idle_cpu_is_marked_with_who_took_it(tmp_path):
    """The warning and the treatment name the program; a benchmark that fills a host by itself is no disturbance."""
    found = report(tmp_path / "a.stats.gz", CONTENTION)
    (marked,) = found["treatments"][0]["disturbances"]
    assert (marked["trial"], marked["kind"], marked["what"], marked["share"]) == (0, "no-idle-cpu", "spin.py", 0.25)
    assert found["treatments"][1]["disturbances"] == []
    (told,) = found["warnings"]
    assert told.startswith(
        "disturbed in 1 trial (0): host vm had no idle CPU; spin.py (process 30), which is no part"
    )
    assert told.endswith("of this run, took 25% of it; end spin.py and run again")


def test_a_load_that_fills_its_host_by_itself_is_told_as_that(tmp_path):
    """Without another consumer the advice is not to look for one; with idle CPU there is no warning at all."""
    found = report(tmp_path / "a.stats.gz")
    assert "the load itself fills the host" in found["warnings"][0]
    assert report(tmp_path / "b.stats.gz", CONTENTION, idle=0.1)["warnings"] == []


def test_an_outage_of_an_engine_is_marked_from_when_to_when(tmp_path):
    """Its last report counts; one that has no end lasted until the end of its trial."""
    began = {"kind": "engine-outage", "at_ns": 12 * S, "worker": 0, "trial": 0, "engine": "docker", "state": "began"}
    began |= {"began_ns": 12 * S, "ended_ns": 12 * S, "failed": 0, "reason": "refused"}
    ended = began | {"state": "ended", "ended_ns": 15 * S, "failed": 2}
    (marked,) = report(tmp_path / "a.stats.gz", began, ended, idle=0.5)["treatments"][0]["disturbances"]
    assert (marked["kind"], marked["from_s"], marked["to_s"], marked["failed_jobs"]) == (
        "engine-unreachable",
        2,
        5,
        2,
    )
    assert marked["text"] == "engine docker did not answer for 3.0 s; 2 jobs failed by it"
    (open_end,) = report(tmp_path / "b.stats.gz", began, idle=0.5)["treatments"][0]["disturbances"]
    assert open_end["to_s"] == 10


def test_odd_events_disturb_nothing(tmp_path):
    """A file may come from anywhere."""
    odd = [
        CONTENTION | {"worker": [0]},
        CONTENTION | {"begin_ns": 1 << 63},
        CONTENTION | {"consumer_share": float("nan"), "others_share": "x", "pid": None},
        {"kind": "engine-outage", "trial": 0, "at_ns": 1, "worker": 0, "began_ns": "x"},
    ]
    assert len(report(tmp_path / "a.stats.gz", *odd)["treatments"][0]["disturbances"]) == 1
