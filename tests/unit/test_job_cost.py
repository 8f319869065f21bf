"""What a job costs: which measures a scenario has and may ask for, and what a worker makes of counters."""

import errno
import os
import resource
from types import SimpleNamespace

import msgspec
import pytest
from builders import stored
from msgspec.structs import replace

from bench_common.cost import COST_UNITS
from bench_common.engine_traits import engine_traits
from bench_common.errors import ScenarioError
from bench_common.job_kind import read_job
from bench_common.records import JobReport
from bench_common.requirements import ignored_settings
from bench_common.stats.block_types import as_stored
from bench_common.treatment import ContainerSettings, Treatment
from bench_master.analysis.parameters import parameter_differences
from bench_master.plan import make_plan
from bench_master.run.preflight import check_compatibility
from bench_master.scenario import load
from bench_master.scenario.load import parse_scenario
from bench_master.scenario.yaml_tree import Source
from bench_worker.engines.base import Container, EngineOptions, OperationResult
from bench_worker.engines.cost_group import SYSTEMD, CostGroup, CostGroups, no_parent_reason, tell_once
from bench_worker.engines.docker.engine import DockerEngine
from bench_worker.engines.docker.podman import PodmanEngine
from bench_worker.engines.native.engine import cost_of_processes
from bench_worker.engines.oci.cgroups import Cgroups
from bench_worker.operation_runner import OperationRunner
from bench_worker.timing import perf_counters
from bench_worker.timing.perf_counters import Counters, _tell_turns, totals
from bench_worker.timing.perf_counters import _reason as untold_reason
from bench_workloads.script import job_metrics

LIFE = "job: {operations: [create, start, wait, remove], container: {image: a, command: [b]}}"
OF_PROCESSES = [name for name in COST_UNITS if name not in ("memory_peak", "io_read", "io_written")]


def scenario(rest, job=LIFE, engine="native"):
    return parse_scenario(Source("s.yaml", f"name: a\nengines: [{engine}]\n{job}\n{rest}\n"))


def usage(**counters):
    blank = dict.fromkeys(
        ("ru_utime", "ru_stime", "ru_maxrss", "ru_nvcsw", "ru_nivcsw", "ru_inblock", "ru_oublock"), 0
    )
    return SimpleNamespace(**blank | counters)


def test_the_measures_are_metrics_of_those_who_ask():
    """Each has its unit, and less is better; without the key a job has none, and the key travels to the worker."""
    (asked,), (other,) = (scenario(rest).treatments for rest in ("cost: true", ""))
    assert {name: one["unit"] for name, one in job_metrics(asked).items()} == {
        name: COST_UNITS[name] for name in OF_PROCESSES
    }
    better = {name: one["direction"] for name, one in job_metrics(asked).items()}
    assert better.pop("cpu_frequency") == "higher"
    assert set(better.values()) == {"lower"}
    assert job_metrics(other) == {}
    assert msgspec.convert(asked.to_dict(), Treatment, dec_hook=read_job) == asked
    assert scenario("cost: true\nprimary: cpu_total").primary == ("cpu_total",)


def test_reading_the_cost_is_a_parameter_of_a_run():
    """It takes time between the operations of a job: runs with and without it are not compared unasked."""
    plain, asked = (as_stored(scenario(rest).treatments[0]) for rest in ("", "cost: true"))
    assert [(one.name, one.effect) for one in parameter_differences(plain, asked)] == [("cost", "refusal")]
    assert not parameter_differences(plain, as_stored(scenario("cost: false").treatments[0]))


def test_engines_that_tell_different_measures_are_compared_by_those_that_both_tell():
    """Only native counts switches, only containers have a peak of memory: that is no difference of the jobs."""
    units = [
        stored({"engine": engine, "labels": {"engine": engine}, "metrics": job_metrics(made)})
        for engine in ("native", "runc")
        for made in scenario("cost: true", engine=engine).treatments
    ]
    assert units[0].metrics.keys() != units[1].metrics.keys()
    assert not parameter_differences(*units)


@pytest.mark.parametrize(
    ("rest", "job", "problem"),
    [
        ("primary: cpu_user", LIFE, "s.yaml:4:10: 'primary': the jobs do not tell cpu_user; add 'cost: true'"),
        ("cost: true\nprimary: memory_peak", LIFE, "'primary': nobody tells memory_peak of a job of native"),
        (
            "cost: true",
            "job: {workload: sysbench-fileio, params: {prepare: once}}",
            "'cost: true': the jobs run in one container",
        ),
        ("cost: 1", LIFE, "s.yaml:4:7: "),
        (
            "",
            "job: {workload: command, command: [a], metrics: {max_rss: {regex: '(.)'}}}",
            "'max_rss' is a measure that Weighbridge takes itself",
        ),
    ],
)
def test_what_nobody_could_tell_is_refused(rest, job, problem):
    """With the place of the key and what to do."""
    with pytest.raises(ScenarioError) as caught:
        scenario(rest, job)
    assert problem in str(caught.value)


def test_an_engine_that_tells_nothing_is_named_in_the_notes(monkeypatch):
    """Its jobs run all the same: their times are there."""
    with monkeypatch.context() as patched:
        patched.setattr(load, "engine_traits", lambda name: replace(engine_traits(name), cost=""))
        (note,) = [one for one in scenario("cost: true", engine="docker").notes if "cost" in one]
    assert "nobody tells the cost of a job of docker;" in note
    (note,) = [one for one in scenario("cost: true").notes if "cost" in one]
    assert "no max_rss unless they take more memory than the worker" in note
    assert not [one for one in scenario("").notes if "cost" in one]


def test_the_counters_of_several_processes_are_added_up():
    """CPU time, switches and blocks of 512 bytes are sums; memory is the largest peak."""
    own_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    small = usage(ru_utime=0.5, ru_stime=0.25, ru_maxrss=own_kib, ru_nvcsw=3, ru_nivcsw=1, ru_inblock=8, ru_oublock=2)
    large = usage(ru_utime=1.0, ru_stime=0.5, ru_maxrss=4 * own_kib, ru_nvcsw=4)
    assert cost_of_processes([small, large]) == {
        "cpu_total": 2.25,
        "cpu_user": 1.5,
        "cpu_system": 0.75,
        "max_rss": 4.0 * own_kib * 1024,
        "ctx_voluntary": 7.0,
        "ctx_involuntary": 1.0,
        "block_read": 4096.0,
        "block_written": 1024.0,
    }


def test_a_peak_that_may_be_the_workers_own_is_left_out():
    """The kernel gives a new process the peak of the one that made it: that says nothing of the program."""
    own_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "max_rss" not in cost_of_processes([usage(ru_maxrss=own_kib), usage(ru_maxrss=own_kib + own_kib // 20)])


@pytest.mark.parametrize("usages", [[], [None], [usage(ru_utime=1.0), None]])
def test_a_part_of_the_cost_is_not_told_as_the_whole(usages):
    """Where the counters of a process are lost, or none has ended, there is no figure at all."""
    assert cost_of_processes(usages) == {}


class Read(Counters):
    """Counters of a program that has ended: of each event the count, and when it was due and counted, in ns."""

    def __init__(self, **found):
        super().__init__({})
        self._found = found


def test_counters_of_programs_are_added_up():
    """Those that took turns are scaled by the time in which they were due, which is told once."""
    one = Read(task_clock=(2_000_000_000, 9, 9), cycles=(3_000, 8, 4), instructions=(10, 8, 8))
    other = Read(task_clock=(1_000_000_000, 9, 9), cycles=(3_000, 8, 8), instructions=(5, 8, 8))
    assert totals([one, other]) == {
        "task_clock": 3.0,
        "cycles": 9_000.0,
        "instructions": 15.0,
        "cpu_frequency": 3_000.0,
    }
    assert totals([]) == {}


def test_counters_that_took_turns_are_told_once(caplog):
    """Not for each of thousands of jobs."""
    _tell_turns.cache_clear()
    for _ in range(2):
        totals([Read(cycles=(3_000, 8, 4))])
    (line,) = caplog.messages
    assert "cycles and instructions are scaled up" in line


def test_what_was_never_counted_of_one_program_is_not_told_of_all():
    """An event that never had its turn, or that one of them had not; one in which nothing ran is zero."""
    known = {"task_clock": (10**9, 9, 9), "instructions": (7, 9, 9)}
    assert totals([Read(**known, cycles=(0, 9, 0)), Read(**known)]) == {"task_clock": 2.0, "instructions": 14.0}
    assert totals([Read(**known), Read(task_clock=(0, 0, 0))]) == {"task_clock": 1.0}


@pytest.mark.parametrize(
    ("number", "level", "told"),
    [
        (errno.ENOENT, "2", "the CPU has no such counter that this kernel can use; most virtual machines have none"),
        (errno.EACCES, "4", "does not permit it to this user (perf_event_paranoid is 4): run the worker as root"),
        (errno.EPERM, None, "(perf_event_paranoid is unknown)"),
        (errno.ENOSYS, "2", "perf_event_open: Function not implemented"),
    ],
)
def test_why_there_are_no_counters(tmp_path, monkeypatch, number, level, told):
    """With what to do where the kernel forbids it."""
    monkeypatch.setattr(perf_counters, "_PARANOID", tmp_path / "level")
    if level:
        (tmp_path / "level").write_text(f"{level}\n", encoding="ascii")
    assert told in untold_reason(OSError(number, os.strerror(number)))


def test_what_a_host_cannot_tell_is_told_once_for_each_reason():
    """Not where nobody asks."""
    status = {
        "name": "native",
        "details": {"cost.cycles": "none", "cost.instructions": "none", "cost.task_clock": "off"},
    }
    assert ignored_settings(status, scenario("cost: true").treatments[0]) == [
        "engine 'native' cannot tell task_clock of a job here: off",
        "engine 'native' cannot tell cycles, instructions of a job here: none",
    ]
    assert ignored_settings(status, scenario("").treatments[0]) == []


def test_a_primary_measure_that_a_host_cannot_tell_is_refused_before_the_run():
    """With the reason: no round would have a value."""
    status = {"name": "native", "usable": True, "details": {"cost.instructions": "no counter"}}
    info = {
        "allow_native": True,
        "engines": {"native": {**status, "operations": ["create", "start", "wait", "remove"]}},
    }

    def reasons(primary):
        asked = scenario(f"cost: true\nprimary: {primary}")
        plan = make_plan(asked, seed=1)
        return check_compatibility(
            plan.treatments, environment="local", slots=9, info=info, noop=False, primary=plan.primary
        ).reasons

    told = [one for one in reasons("instructions") if "primary" in one]
    assert told == [
        "engine 'native' cannot tell instructions here, which is the primary measure: no counter; name another one"
    ]
    assert not [one for one in reasons("cpu_total") if "primary" in one]


class CountingEngine:
    """An engine whose containers cost something, and which says when it was asked."""

    inapplicable = frozenset()
    name = "counting"

    def __init__(self):
        self.calls = []

    def __getattr__(self, verb):
        if verb not in ("create", "start", "wait", "remove", "pull"):
            raise AttributeError(verb)

        def act(container, *, timeout_s):
            del container, timeout_s
            self.calls.append(verb)
            return OperationResult(len(self.calls), len(self.calls))

        return act

    def cost_meter(self, container):
        del container
        self.calls.append("meter")
        return lambda: self.calls.append("read") or {"cpu_total": 2.0}


@pytest.mark.parametrize(
    ("rest", "free", "around", "metrics"),
    [
        ("cost: true", False, ["meter", "remove", "read"], {"cpu_total": 2.0}),
        ("cost: true", True, ["remove"], None),
        ("", False, ["remove"], None),
    ],
)
def test_the_cost_is_read_around_the_last_operation(rest, free, around, metrics):
    """Counters go away with the container; nothing is read where nobody asked, or in a no-op run."""
    engine = CountingEngine()
    runner = OperationRunner(engine, scenario(rest).treatments[0], None, free=free)
    container, report = Container("a", 1, runner.settings), JobReport()
    for position, step in enumerate(runner.steps):
        done = step.call(container)
        if step.needs_check:
            runner.check_result(container, position, done, report)
    assert engine.calls == ["create", "start", "wait", *around]
    assert report.metrics == metrics
    assert [step.needs_check for step in runner.steps] == [False, False, False, metrics is not None]


class Files:
    """The files of a host, by path."""

    def __init__(self, texts):
        self.texts = texts

    def text(self, path):
        return self.texts.get(path)


@pytest.mark.parametrize(
    ("version", "texts"),
    [
        (
            2,
            {
                "/w/a/cpu.stat": "usage_usec 3000000\nuser_usec 2250000\nsystem_usec 750000\nnr_periods 0",
                "/w/a/memory.peak": "8192",
                "/w/a/io.stat": "8:0 rbytes=1024 wbytes=2048 rios=1 wios=1 dbytes=4 dios=1\n7:1 rbytes=1 wbytes=0",
            },
        ),
        (
            1,
            {
                "/cpuacct/w/a/cpuacct.usage": "3000000000",
                "/cpuacct/w/a/cpuacct.usage_user": "300000000",
                "/cpuacct/w/a/cpuacct.usage_sys": "100000000",
                "/memory/w/a/memory.max_usage_in_bytes": "8192",
                "/blkio/w/a/blkio.throttle.io_service_bytes_recursive": (
                    "8:0 Read 1024\n8:0 Write 2048\n8:0 Sync 9\n8:0 Total 3072\n7:1 Read 1\n7:1 Write 0\nTotal 3073"
                ),
            },
        ),
    ],
)
def test_both_versions_of_control_groups_say_the_same(version, texts):
    """CPU time is exact; user and system are its shares by the kernel's ticks, which may be few."""
    files = Files({f"/sys/fs/cgroup{path}": text for path, text in texts.items()})
    found = Cgroups(version, swap_limit=True).cost("/w/a", files)
    cpu = {"cpu_total": 3.0, "cpu_system": 0.75, "cpu_user": 2.25}
    assert found == {**cpu, "memory_peak": 8192.0, "io_read": 1025.0, "io_written": 2048.0}
    assert found.keys() == job_metrics(scenario("cost: true", engine="runc").treatments[0]).keys()


def test_a_control_group_without_ticks_has_its_time_in_user_mode():
    """So the kernel does it for a process, too; a file that is not there is no zero."""
    root = "/sys/fs/cgroup/cpuacct/a/cpuacct.usage"
    files = Files({root: "5000000", f"{root}_user": "0", f"{root}_sys": "0"})
    found = Cgroups(1, swap_limit=True).cost("a", files)
    assert found == {"cpu_total": 0.005, "cpu_system": 0.0, "cpu_user": 0.005}
    assert Cgroups(1, swap_limit=True).cost("b", files) == {}


def test_counters_that_are_not_there_are_told_once(caplog):
    """Not for each of thousands of jobs: the log names the group above them."""
    cgroups = Cgroups(1, swap_limit=True)
    for name in ("a", "b"):
        assert cgroups.cost_meter(f"/nosuch-weighbridge/{name}")() == {}
    (line,) = caplog.messages
    assert "/sys/fs/cgroup (/nosuch-weighbridge)" in line


HERE = {"KernelVersion": "6.1", "CgroupDriver": "cgroupfs"}


@pytest.mark.parametrize(
    ("info", "here", "reason"),
    [
        ({}, True, ""),
        ({}, False, "the engine is not on this host, nor are the control groups of its containers"),
        ({"KernelVersion": "6.2"}, True, "the engine is not on this host (its kernel is 6.2, this one 6.1), nor are"),
        ({"CgroupDriver": "systemd"}, True, "systemd makes the control groups of the engine's containers"),
        ({"CgroupDriver": "none"}, True, "the engine's cgroup driver is 'none'"),
        ({"SecurityOptions": ["name=seccomp", "name=rootless"]}, True, "the engine runs without root"),
        ({"Rootless": True}, True, "the engine runs without root"),
    ],
)
def test_an_engine_whose_control_groups_are_not_ours_is_told(info, here, reason):
    """One on another host or in a virtual machine, one under systemd, one without root: with the reason."""
    found = no_parent_reason({**HERE, **info}, here=here, kernel="6.1")
    assert found.startswith(reason)
    assert bool(found) is bool(reason)


@pytest.mark.parametrize(
    ("kind", "path"),
    [(DockerEngine, "/system.slice/docker-0a1b.scope"), (PodmanEngine, "/machine.slice/libpod-0a1b.scope")],
)
def test_under_systemd_the_containers_own_group_is_read(kind, path):
    """By the name that systemd gives it; nothing is read of a job that does not ask, or has no container yet."""
    engine = kind(EngineOptions("r", "w", 1))
    vars(engine)["_cost_groups"] = SimpleNamespace(cgroups=SimpleNamespace(cost_meter=lambda place: lambda: place))
    engine._no_group = SYSTEMD
    container = Container("a", 1, ContainerSettings(image="i"))
    container.handle = "0a1b"
    assert engine.cost_meter(container)() == {}
    container.counts_cost = True
    assert engine.cost_meter(container)() == path
    container.handle = None
    assert engine.cost_meter(container)() == {}


class Figures:
    """The figures of control groups, by path."""

    def __init__(self, root, version, figures):
        self.root, self.version, self.figures = root, version, figures

    def cost(self, path):
        return dict(self.figures.get(path, {}))

    def memory_directory(self, path):
        return self.root / path.lstrip("/")


AROUND = {
    "cpu_total": 3.0,
    "cpu_user": 2.0,
    "cpu_system": 1.0,
    "memory_peak": 900.0,
    "io_read": 5.0,
    "io_written": 9.0,
}


@pytest.mark.parametrize(
    ("version", "inside", "left_out"),
    [
        (2, [], set()),
        (2, ["its-id"], set()),
        (1, ["its-id"], set()),
        (1, [], {"io_read", "io_written"}),
    ],
)
def test_a_group_around_a_container_keeps_its_figures(tmp_path, version, inside, left_out):
    """But for bytes under version 1, which the kernel forgets with the container's own group."""
    for name in inside:
        (tmp_path / "weighbridge/a" / name).mkdir(parents=True)
    group = CostGroup(CostGroups(Figures(tmp_path, version, {"/weighbridge/a": AROUND})), "a")
    assert group.meter()() == {name: value for name, value in AROUND.items() if name not in left_out}


def test_the_monitor_beside_a_container_is_not_its_cost(tmp_path):
    """What is added up is less by the monitor's; the peak is that of the container's own group, or none."""
    monitor = {"cpu_total": 1.0, "cpu_user": 0.75, "cpu_system": 0.25, "memory_peak": 800.0, "io_read": 5.0}
    figures = {
        "/weighbridge/a": AROUND,
        "/weighbridge/a/conmon": monitor,
        "/weighbridge/a/its-id": {"memory_peak": 100.0},
    }
    (tmp_path / "weighbridge/a/conmon").mkdir(parents=True)
    own = tmp_path / "weighbridge/a/its-id"
    own.mkdir()
    group = CostGroup(CostGroups(Figures(tmp_path, 2, figures)), "a")
    less = {"cpu_total": 2.0, "cpu_user": 1.25, "cpu_system": 0.75, "io_read": 0.0, "io_written": 9.0}
    assert group.cost() == {**less, "memory_peak": 100.0}
    own.rmdir()
    assert group.cost() == less


def test_a_group_in_which_nothing_ran_is_no_cost_of_zero(tmp_path, caplog):
    """An engine in a virtual machine makes its own elsewhere: that is told, once."""
    tell_once.cache_clear()
    group = CostGroup(
        CostGroups(Figures(tmp_path, 2, {"/weighbridge/a": {"cpu_total": 0.0, "memory_peak": 1.0}})), "a"
    )
    assert group.meter()() == group.meter()() == {}
    (line,) = caplog.messages
    assert "no process has run in the control group /weighbridge/a" in line
