"""What a job costs, as the kernel counted it of real processes, in whole runs."""

import os
import signal
from pathlib import Path

import pytest
from deadlines import ANSWER_S, LONG_END_S
from runtime_bench import ENGINES, RuntimeBench, require
from test_engine_native import FOREVER, container, engine, running  # noqa: F401  a fixture

from bench_common.cost import COST_UNITS, cost_metrics
from bench_worker.engines.docker.cli import DockerCliEngine
from bench_worker.engines.docker.engine import DockerEngine
from bench_worker.engines.docker.podman import PodmanEngine
from bench_worker.engines.oci.cgroups import PARENT, ROOT, are_writable
from bench_worker.timing.perf_counters import totals, unavailable
from bench_worker.timing.processes import spawn

WITH_GROUPS = {kind.name: kind for kind in (DockerEngine, DockerCliEngine, PodmanEngine)}
"""Engines whose containers get a control group of ours around their own."""
COUNTED = ("task_clock", "cycles", "instructions", "cpu_frequency")
MIB = 1 << 20
TICK_S = 0.01
"""What `times` is rounded to."""
BURN = """
import os, time
memory = bytearray(600 << 20)
while os.times().user < 0.3: pass
for _ in range(50): time.sleep(0.001)
"""


def cost_of(opened, made):
    """Return what a container has cost, read as a job's last operation reads it."""
    meter = opened.cost_meter(made)
    opened.remove(made, timeout_s=ANSWER_S)
    return meter()


def seconds_of(printed):
    """Return the times that busybox's `times` prints: in user mode and in the kernel, of a shell and its children."""
    own = [float(word.partition("m")[2].rstrip("s")) for line in printed.splitlines() for word in line.split()]
    assert len(own) == 4
    return own


def groups_of(made):
    return [*Path(ROOT).glob(f"*/{PARENT}/{made.name}"), *Path(ROOT).glob(f"{PARENT}/{made.name}")]


def test_a_job_of_plain_processes_tells_its_cost(workspace):
    """What a program says of itself is in the report: at least that CPU time, memory and so many waits."""
    run = workspace.run(
        workspace.scenario(
            engines=["native"],
            cost=True,
            primary="cpu_total",
            iterations=2,
            thresholds=["metrics.cpu_user.min >= 300ms", "metrics.max_rss.min > 600MiB"],
            job={
                "operations": ["create", "start", "wait", "remove"],
                "container": {"command": ["python3", "-c", BURN]},
            },
        )
    )
    (row,) = run.document["treatments"]
    metrics = row["metrics"]
    assert metrics["cpu_user"]["min"] >= 0.3
    assert metrics["cpu_total"]["mean"] == pytest.approx(metrics["cpu_user"]["mean"] + metrics["cpu_system"]["mean"])
    assert metrics["max_rss"]["min"] > 600 * MIB
    assert metrics["ctx_voluntary"]["min"] >= 50
    assert {name: one["unit"] for name, one in metrics.items()} == {
        **dict.fromkeys(("cpu_total", "cpu_user", "cpu_system"), "s"),
        **dict.fromkeys(("max_rss", "block_read", "block_written"), "B"),
        **dict.fromkeys(("ctx_voluntary", "ctx_involuntary"), "1"),
        **{name: COST_UNITS[name] for name in COUNTED},
    }
    assert metrics["task_clock"]["min"] >= 0.3
    # Without counters in the CPU, as in most virtual machines, the report says why once, and the rest stays.
    assert {name: metrics[name]["n"] for name in COUNTED} == {
        name: int(name not in unavailable()) for name in COUNTED
    }
    for name, reason in unavailable().items():
        (told,) = [one for one in run.document["remarks"] if reason in one]
        assert name in told
    assert "ctx_involuntary" in run.report("text")
    assert "ctx_involuntary" in run.report("csv")


def test_instructions_are_a_primary_measure_where_they_can_be_counted(workspace):
    """Where they cannot, the run is refused with the reason before any job: no round would have a value."""
    job = {"operations": ["create", "start", "wait", "remove"], "container": {"command": ["true"]}}
    scenario = workspace.scenario(engines=["native"], cost=True, primary="instructions", iterations=1, job=job)
    program, stats = workspace.start_run(scenario)
    reason = unavailable().get("instructions")
    if reason is None:
        (row,) = workspace.finish(program, stats).document["treatments"]
        assert row["metrics"]["instructions"]["min"] > 0
    else:
        ended = program.wait_for_exit(LONG_END_S)
        assert ended.status == 2
        assert f"cannot tell instructions here, which is the primary measure: {reason}" in ended.err


def test_programs_that_run_at_once_have_counters_of_their_own():
    """With all that each starts, whether it waits for it or not; not what another one does that was started later."""
    burn = "import os\nwhile os.times().user < 0.3: pass"
    argv = ("python3", "-c", f"import os\nif not os.fork(): os.setsid()\n{burn}")
    both = spawn(argv, env=os.environ, cwd="/", counted=True)
    idle = spawn(("sh", "-c", "read line < /dev/null; exit 0"), env=os.environ, cwd="/", counted=True)
    try:
        alone = totals([idle.counters]) if idle.wait(LONG_END_S).code == 0 else {}
        assert both.wait(LONG_END_S).code == 0
        own_s = sum(both.exit.cpu_s)
        # Its child was not waited for: the counters have it as far as it has run.
        found = totals([both.counters])
        assert found["task_clock"] >= 0.3
        assert own_s >= 0.3
        assert 0 < alone["task_clock"] < 0.3
        names = {name for name in COUNTED if name not in unavailable()}
        assert found.keys() == alone.keys() == names
        if "instructions" in names:
            assert found["instructions"] > alone["instructions"] > 0
            assert found["cpu_frequency"] == pytest.approx(found["cycles"] / found["task_clock"])
        else:
            assert "has no such counter" in unavailable()["instructions"] or "permit" in unavailable()["instructions"]
    finally:
        for process in (both, idle):
            process.signal_group(signal.SIGKILL)
    assert totals([idle.counters]) == alone


def test_all_processes_of_a_container_count_and_each_once(engine):  # noqa: F811
    """The command, what ran beside it, their children, and those of an earlier start; what was killed, too."""
    burn = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    made = container("sh", "-c", burn)
    engine.create(made, timeout_s=ANSWER_S)
    for _ in range(2):
        engine.start(made, timeout_s=ANSWER_S)
        engine.wait(made, timeout_s=ANSWER_S)
    alone = running(engine, *FOREVER)
    used = engine.exec(alone, ("sh", "-c", f"sh -c '{burn}'"), timeout_s=ANSWER_S).cpu_s
    handle = made.handle
    mains = [one.exit.cpu_s for one in (*handle.earlier, handle.main)]
    assert len(mains) == 2
    found = cost_of(engine, made)
    assert found["cpu_total"] == pytest.approx(sum(map(sum, mains)))
    found = cost_of(engine, alone)
    assert found["cpu_total"] >= sum(used) > 0
    assert found["ctx_voluntary"] > 0


@pytest.mark.parametrize("name", sorted(ENGINES))
def test_a_container_tells_its_cost_after_it_is_gone(name, image):
    """At least what its processes say of themselves; the counters are read before they go away with it."""
    require(ENGINES[name])
    bench = RuntimeBench(ENGINES[name], image)
    try:
        script = (
            "dd if=/dev/zero of=/dev/null bs=64M count=4; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; times"
        )
        made = bench.running(*FOREVER)
        printed = bench.engine.exec(made, ("sh", "-c", script), timeout_s=LONG_END_S).stdout.decode()
        found = cost_of(bench.engine, made)
        if name == "runsc" and not are_writable():
            assert found == {}
            return
        assert found["cpu_user"] + found["cpu_system"] == pytest.approx(found["cpu_total"])
        assert found["memory_peak"] >= 64 * MIB
        own = seconds_of(printed)
        assert sum(own) > 0
        if name != "runsc":
            assert found["cpu_total"] >= 0.5 * sum(own) - TICK_S
    finally:
        bench.close()


@pytest.mark.docker
@pytest.mark.parametrize("name", sorted(WITH_GROUPS))
def test_a_container_that_ended_tells_its_cost(name, image):
    """Its engine removed its control group at its end, and the one around it still has the CPU time, of all of it."""
    require(WITH_GROUPS[name])
    bench = RuntimeBench(WITH_GROUPS[name], image, {"network": "none"})
    try:
        burn = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
        made = bench.container("sh", "-c", f"({burn}); {burn}; times")
        assert bench.engine.missing(made.settings) == []
        made.counts_cost = True
        bench.engine.run(made, timeout_s=LONG_END_S)
        bench.engine.wait(made, timeout_s=LONG_END_S)
        printed = bench.engine.logs(made, limit_bytes=999, timeout_s=ANSWER_S).stdout.decode()
        found = cost_of(bench.engine, made)
        # Where an engine writes them apart, the parts are of another instant than the sum.
        assert found["cpu_user"] + found["cpu_system"] == pytest.approx(found["cpu_total"], abs=2 * TICK_S)
        assert found["cpu_total"] >= 0.5 * sum(seconds_of(printed)) - TICK_S > 0
        assert ("memory_peak" in found) == (name != "podman")
    finally:
        bench.close()
    assert groups_of(made) == []


@pytest.mark.docker
@pytest.mark.parametrize("name", sorted(WITH_GROUPS))
def test_a_container_that_runs_tells_its_memory_and_bytes_too(name, image, tmp_path):
    """Up to its removal, with those of an exec; its monitor counts nowhere, and no control group stays behind."""
    require(WITH_GROUPS[name])
    bench = RuntimeBench(WITH_GROUPS[name], image, {"network": "none"})
    try:
        made = bench.container(*FOREVER)
        assert bench.engine.missing(made.settings) == []
        made.counts_cost = True
        bench.engine.run(made, timeout_s=LONG_END_S)
        script = (
            f"dd if=/dev/zero of=/dev/null bs=64M count=1; dd if=/dev/zero of=/file bs={MIB} count=4 oflag=direct"
        )
        assert bench.engine.exec(made, ("sh", "-c", script), timeout_s=LONG_END_S).exit_code == 0
        found = cost_of(bench.engine, made)
        assert found["memory_peak"] >= 64 * MIB
        assert found["io_written"] >= 4 * MIB
        assert found.keys() == cost_metrics("cgroup").keys()
    finally:
        bench.close()
    assert groups_of(made) == []


@pytest.mark.docker
def test_a_job_of_docker_that_fails_leaves_no_control_group(workspace, image):
    """Nor does one whose container was never made; those that end well tell what they cost."""
    run = workspace.run(
        workspace.scenario(
            engines=["docker"],
            cost=True,
            primary="cpu_total",
            iterations=3,
            allow_failures=True,
            matrix={"container.command": [["sh", "-c", "exit 0"], ["sh", "-c", "exit 3"], ["/bin"]]},
            job={"operations": ["run", "wait", "remove"], "container": {"image": image, "network": "none"}},
        ),
        "--allow-failures",
        status=3,
    )
    rows = run.document["treatments"]
    assert [row["jobs"]["failed"] for row in rows] == [0, 3, 3]
    assert rows[0]["metrics"]["cpu_total"]["min"] > 0
    assert not list(Path(ROOT).glob(f"*/{PARENT}/wb-{run.run_id}-*"))
