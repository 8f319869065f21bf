"""What the doctor says of a host before a run: nothing of an idle one, and what else runs on a busy one."""

import os

import pytest
from builders import StatsBuilder, header, treatment_wire
from test_contention import Processes

from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import build_document
from bench_master.analysis.report_types import as_json
from bench_worker.doctor.before_run import MIN_SAMPLE_S, NeighbourSample, neighbour_findings

TICKS = os.sysconf("SC_CLK_TCK")
CONTAINER = "c0ffee" * 10 + "beef"
DAEMONS = frozenset({"dockerd"})


class Host(Processes):
    """A host with two CPUs, whose times a test sets."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.user = self.idle = self.steal = 0
        self.load = 0.05
        self.cgroups = {}
        for pid, name, parent in (
            (1, "init", 0),
            (2, "kthreadd", 0),
            (3, "kworker/0:1", 2),
            (9, "pytest", 1),
            (10, "bench-master", 9),
            (11, "python3", 10),
            (20, "dockerd", 1),
            (30, "cc1", 1),
        ):
            self.start(pid, name, parent)

    def pass_time(self, seconds, steal=0.0):
        self.now += seconds
        self.user += round(seconds * TICKS)
        self.idle += round(seconds * (1 - steal) * TICKS)
        self.steal += round(seconds * steal * TICKS)

    def text(self, path):
        if path == "/proc/stat":
            cpu = f"{self.user} 0 0 {self.idle} 0 0 0 {self.steal} 0 0"
            return f"cpu  {cpu}\ncpu0 {cpu}\ncpu1 {cpu}\nprocs_running 1\n"
        if path == "/proc/loadavg":
            return f"{self.load} 0.1 0.1 1/100 4242\n"
        if path.endswith("/cgroup"):
            return self.cgroups.get(int(path.split("/")[2]), "0::/\n")
        return super().text(path)


@pytest.fixture
def host():
    return Host()


def checked(host, seconds=1.0, work=(), steal=0.0):  # subject: time of a clock that is passed in
    """Return what is found when a run begins after some seconds in which processes `work` (pid: CPU seconds)."""
    sample = NeighbourSample(10, host, lambda: host.now)
    sample.begin()
    host.pass_time(seconds, steal)
    for pid, spent in work:
        host.run(pid, spent)
    return {one.check: one.finding for one in neighbour_findings(sample.end(DAEMONS))}


def test_an_idle_host_gets_nothing(host):
    """Nor one whose only load is the harness, what started it, an engine's daemon or the kernel."""
    assert checked(host) == {}
    assert checked(host, work=[(9, 0.9), (10, 0.5), (11, 0.9), (20, 0.9), (3, 0.9)]) == {}


def test_a_server_that_jobs_use_is_no_neighbour(host):
    """Whatever it is called; nor is what it started."""
    host.start(33, "python3", parent=30)
    sample = NeighbourSample(10, host, lambda: host.now)
    sample.begin()
    host.pass_time(1.0)
    for pid in (30, 33):
        host.run(pid, 0.9)
    assert list(neighbour_findings(sample.end(DAEMONS, [30]))) == []


def test_a_load_average_without_anything_that_runs_is_none(host):
    """It lasts for a minute after what caused it, such as our own last run."""
    host.load = 1.7
    assert checked(host) == {}
    found = checked(host, work=[(30, 0.5)])
    assert found == {
        "load": "load average 1.70 on 2 CPUs",
        "processes": "other busy processes: cc1 (30) 50 % of a CPU",
    }


def test_a_process_that_began_meanwhile_counts(host):
    """With all of its time; one with the id of another that has ended does not inherit its time."""
    sample = NeighbourSample(10, host, lambda: host.now)
    host.run(30, 50.0)
    sample.begin()
    host.pass_time(1.0)
    host.start(30, "ld", started=77)
    host.start(31, "make", started=78)
    host.run(31, 0.5)
    (one,) = neighbour_findings(sample.end(DAEMONS))
    assert one.finding == "other busy processes: make (31) 50 % of a CPU"


def test_processes_that_take_little_are_counted_and_not_named(host):
    """Below a fifth of a CPU nobody has to look for a name: what all of them take together is what disturbs."""
    for pid in (30, 31, 32):
        host.start(pid, f"job{pid}")
    found = checked(host, work=[(30, 0.5), (31, 0.12), (32, 0.06)])
    assert found == {"processes": "other busy processes: job30 (30) 50 %, 2 more 18 % of a CPU"}
    found = checked(host, work=[(30, 0.1), (31, 0.08)])
    assert found == {"processes": "other busy processes: 2 with together 18 % of a CPU"}


def test_an_interpreter_is_named_with_its_script(host):
    """Who is told to stop 'python' does not know which; other arguments may be secret."""
    host.start(30, "python3")
    host.words[30] = "python3\0/home/me/spin.py\0--password=secret"
    found = checked(host, work=[(30, 0.5)])
    assert found == {"processes": "other busy processes: python3 spin.py (30) 50 % of a CPU"}


def test_stolen_time_and_other_containers_are_found(host):
    """Also those that are idle; the stats file keeps them, and only the former limits belief."""
    host.cgroups[30] = f"0::/system.slice/docker-{CONTAINER}.scope\n"
    assert checked(host, steal=0.1) == {
        "steal": "5.0 % of CPU time goes to other guests of the hypervisor",
        "containers": f"1 already running, such as {CONTAINER[:12]}",
    }


def test_the_container_that_the_worker_is_in_is_no_neighbour(host):
    """Its other processes are none of another container, either; one beside it is."""
    own, other = f"0::/docker/{'ab' * 32}\n", f"0::/docker/{CONTAINER}\n"
    host.cgroups |= {9: own, 10: own, 11: own, 30: own}
    assert checked(host) == {}
    host.cgroups[30] = other
    assert checked(host) == {"containers": f"1 already running, such as {CONTAINER[:12]}"}


def test_a_sample_that_is_too_short_says_nothing_of_cpu_time(host):
    """A tick is 10 ms."""
    assert checked(host, seconds=MIN_SAMPLE_S / 2, work=[(30, 0.1)]) == {}


def test_how_long_a_sample_has_to_last_is_known(host):
    """Whoever joins too soon waits for so long."""
    sample = NeighbourSample(10, host, lambda: host.now)
    assert sample.missing_s() == 0.0
    sample.begin()
    assert sample.missing_s() == pytest.approx(MIN_SAMPLE_S)
    host.pass_time(MIN_SAMPLE_S / 2)
    assert sample.missing_s() == pytest.approx(MIN_SAMPLE_S / 2)
    host.pass_time(MIN_SAMPLE_S)
    assert sample.missing_s() == 0.0


def test_a_worker_that_waits_samples_anew(host):
    """What ran long before the run is none of its neighbours."""
    sample = NeighbourSample(10, host, lambda: host.now)
    sample.begin()
    host.run(30, 20.0)
    host.pass_time(31.0)
    sample.begin()
    host.pass_time(1.0)
    sample.begin()
    assert list(neighbour_findings(sample.end(DAEMONS))) == []


def test_a_report_says_that_a_host_was_busy(tmp_path):
    """Its warnings have load, processes and steal, and its hosts also the containers; an odd event is passed over."""
    builder = StatsBuilder(
        tmp_path / "a.stats.gz", header([treatment_wire(0, {"engine": "native"}, ("start",))], [(0, 0, False)])
    )
    builder.add("host", {"worker": 0, "worker_id": "w0", "host": "vm"})
    event = {"kind": "host-finding", "at_ns": 1, "worker": 0}
    for check, finding in (("processes", "other busy processes: cc1"), ("containers", "2 already running")):
        builder.add("event", event | {"check": check, "finding": finding, "advice": "stop them"})
    builder.add("event", event)
    found = as_json(build_document(StatsFile(builder.close())))
    assert found["warnings"] == ["host vm was busy when the run began: other busy processes: cc1"]
    assert [one["check"] for one in found["hosts"][0]["findings"]] == ["processes", "containers"]
