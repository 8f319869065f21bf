"""Who takes the CPU of a host that has none left: found among made-up processes, and told in the report."""

import os
import re
from pathlib import Path

import pytest
from builders import StatsBuilder, header, treatment_wire

from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import build_document
from bench_master.analysis.report_types import as_json
from bench_master.reports.tables import disturbances
from bench_worker.host.contention import ContentionWatch, HostLeader
from bench_worker.host.procfs import read_processes

S = 10**9
PACKING = Path(__file__).parents[2] / "docs" / "data" / "packing.stats.gz"
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


def watch(host, leads=True, family=10, servers=(), processes=None):
    found, now = [], [0]
    watched = ContentionWatch(
        family,
        frozenset({"dockerd", "containerd-shim"}),
        found.append,
        leads=lambda: leads,
        processes=processes,
        servers=frozenset(servers),
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


def test_processes_that_were_just_read_are_not_read_again(host):
    """What they have taken since is told, and who came since is none of them."""
    processes = read_processes(host)
    host.run(30, 0.9)
    host.start(40, "container", parent=21, started=9)
    host.run(40, 100)
    watched, found = watch(host, processes=processes)
    watched.add(row(1, 0.0))
    watched.add(row(2, 60.0))
    assert [(period.consumer, period.consumer_ns) for period in found] == [("python3 spin.py", round(0.9 * S))]


def test_a_server_that_jobs_use_is_no_other_consumer(host):
    """Whatever it is called; nor is what it started."""
    host.start(32, "python3", parent=30)
    watched, found = watch(host, servers={30})
    for pid, spent in ((30, 0.9), (32, 0.9), (31, 0.1)):
        host.run(pid, spent)
    watched.add(row(1, 0.0))
    watched.flush()
    (period,) = found
    assert (period.consumer, period.others_ns) == ("cc1", round(0.1 * S))


def test_the_harness_is_known_where_its_first_process_is_that_of_a_container(host):
    """Process 1 is the master there, and all that it started is its own."""
    host.table.clear()
    for pid, name, parent in ((1, "bench-master", 0), (7, "python3", 1), (37, "python3", 7), (50, "cc1", 0)):
        host.start(pid, name, parent)
    watched, found = watch(host, family=1)
    host.run(37, 0.9)
    host.run(50, 0.2)
    watched.add(row(1, 0.0))
    watched.flush()
    (period,) = found
    assert (period.consumer, period.others_ns) == ("cc1", round(0.2 * S))


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
    assert told == "host vm was fully busy in 1 of 2 trials (0): mostly spin.py, 25% of its CPUs"


def test_who_took_little_is_not_named(tmp_path):
    """Below a tenth of the host: what all others took together is what the trial lacked."""
    little = CONTENTION | {"consumer_share": 0.16, "others_share": 0.3}
    (marked,) = report(tmp_path / "a.stats.gz", little)["treatments"][0]["disturbances"]
    assert marked["text"] == "host vm had no idle CPU; programs that are no part of this run took 15% of it"


def test_trials_of_a_host_without_idle_cpu_are_one_line():
    """The packing of the documents had one for each trial, each with a share of a few percent."""
    document = build_document(StatsFile(PACKING))
    (entry,) = document.treatments
    assert len(entry.disturbances) == 3
    ((trials, what),) = disturbances(entry)
    assert re.fullmatch(r"0, 1, 2 \(at worst \d\)", trials)
    assert re.fullmatch("host vm had no idle CPU; [^;]+", what)


def test_a_load_that_fills_its_host_by_itself_is_told_as_that(tmp_path):
    """Without another consumer the advice is not to look for one; with idle CPU there is no warning at all."""
    found = report(tmp_path / "a.stats.gz")
    assert "the load itself fills it" in found["warnings"][0]
    assert report(tmp_path / "b.stats.gz", CONTENTION, idle=0.1)["warnings"] == []


def test_a_pause_for_want_of_room_is_marked_from_when_to_when(tmp_path):
    """The trial's figures hold the pause, so its report says so, and what to do."""
    pause = {"kind": "disk-full", "at_ns": 16 * S, "trial": 0, "seconds": 3.5, "dropped_samples": 0}
    found = report(tmp_path / "a.stats.gz", pause, idle=0.5)
    (marked,) = found["treatments"][0]["disturbances"]
    assert (marked["kind"], marked["worker"], marked["from_s"], marked["to_s"]) == ("disk-full", None, 2.5, 6)
    assert "paused for 3.5 s, for want of room on the disk of the stats file" in found["warnings"][0]
    between = pause | {"trial": None}
    assert report(tmp_path / "b.stats.gz", between, idle=0.5)["treatments"][0]["disturbances"] == []


def test_odd_events_disturb_nothing(tmp_path):
    """A file may come from anywhere."""
    odd = [
        CONTENTION | {"worker": [0]},
        CONTENTION | {"begin_ns": 1 << 63},
        CONTENTION | {"consumer_share": float("nan"), "others_share": "x", "pid": None},
        {"kind": "disk-full", "trial": 0, "at_ns": 1, "seconds": "x"},
        {"kind": "disk-full", "trial": [0], "at_ns": 1, "seconds": 1},
        {"kind": "disk-full", "trial": 0, "at_ns": 1, "seconds": float("inf")},
    ]
    assert len(report(tmp_path / "a.stats.gz", *odd)["treatments"][0]["disturbances"]) == 1
