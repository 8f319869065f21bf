"""How a run ends: the exit code, and one clear message that says why."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
import time

import pytest
from deadlines import END_S
from workspace import NAP, Workspace, free_ports, require_images

from bench_common.stats.frame import FrameReader
from bench_common.stats.reader import StatsFile

TRUE = {"operations": ["run", "wait", "remove"], "container": {"command": ["true"]}}


def run_words(workspace, scenario, *flags):
    """Return the arguments of a run that prints errors only."""
    return ("-q", "run-scenario", "-f", scenario, "-s", workspace.folder / "x.stats.gz", *flags)


def complaint(ended, status):
    """Return the one message of a quiet command that ended with `status`: it is all that it printed."""
    assert ended.status == status, ended.err
    assert "Traceback" not in ended.err
    assert ended.out == ""
    lines = ended.err.splitlines()
    assert lines == [f"bench-master: {line}" for line in ended.errors]
    assert lines
    return "\n".join(ended.errors)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A good run on a host with a busy neighbour."""
    with (
        Workspace(tmp_path_factory.mktemp("good")) as workspace,
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) as neighbour,
    ):
        if os.geteuid() == 0:
            # However many others want a CPU, this one gets its share of one.
            os.setpriority(os.PRIO_PROCESS, neighbour.pid, -10)
        try:
            return workspace.run(workspace.scenario(job=TRUE, thresholds=["jobs.failed == 0"]))
        finally:
            neighbour.kill()


def test_a_good_run_ends_with_0_and_says_where_the_file_is(good):
    """Exit code 0, the report on stdout, the stats file's place on stderr."""
    assert good.out.partition("\n")[0].endswith(f", on host {socket.gethostname()}")
    assert f"stats file: {good.stats}\n" in good.err
    assert good.errors == []


def test_a_noop_run_without_a_name_gets_one_and_is_not_compared_with_thresholds(workspace):
    """Without -s the file is a new one in weighbridge-results/, named after the scenario and the time.

    What a no-op run measures is the harness, so its thresholds decide nothing.
    """
    scenario = workspace.scenario(job=TRUE, thresholds=["operations.run.p95_s < 1ns"])
    ended = workspace.master("run-scenario", "-f", scenario, "--workers", 1, "--noop", "-R")
    assert (ended.status, ended.errors) == (0, []), ended.err
    (path,) = workspace.folder.glob("weighbridge-results/*")
    assert path.name.startswith("workspace.noop.20")
    assert path.name.endswith("Z.stats.gz")
    assert f"stats file: weighbridge-results/{path.name}\n" in ended.err


def test_a_missed_threshold_ends_with_1(workspace):
    """A threshold that does not hold gives exit code 1, its measure and the demand, again from the stats file."""
    scenario = workspace.scenario(job=TRUE, thresholds=["operations.run.p95_s < 1ns", "jobs.failed == 0"])
    run = workspace.run(scenario, "-R", status=1)
    (message,) = run.errors
    assert message.startswith("threshold failed: ")
    assert "operations.run.p95_s" in message
    assert "wanted < 1 ns" in message
    again = workspace.master("report-scenario", "-s", run.stats, "--csv")
    assert (again.status, again.errors) == (1, [message])


def test_gates_on_verdicts(workspace):
    """What is shown to be slower ends a run with 1; the same file passes another gate, or cannot be judged (4).

    Five rounds have no interval: they show what is far apart, and nothing else.
    """
    jobs = {
        name: {"operations": ["run", "wait", "remove"], "container": {"command": ["sleep", seconds]}}
        for name, seconds in (("short", "0.1"), ("alike", "0.1"), ("long", "2.4"))
    }
    wanted = ["job=long not slower by 200 times"]
    scenario = workspace.scenario(jobs=jobs, baseline={"job": "short"}, repeats=5, thresholds=wanted)
    run = workspace.run(scenario, "-R", "--fail-on", "job=long slower by 50%", status=1)
    assert run.errors[0].startswith('--fail-on "job=long slower by 50%": failed: ')
    for words, status in ((("--fail-on", "job=long faster"), 0), (("--require", "job=alike same"), 4)):
        again = workspace.master("report-scenario", "-s", run.stats, *words, "--csv")
        assert again.status == status, again.err


def test_scenario_errors_end_with_2_all_at_once(workspace):
    """All errors of a scenario are reported at once, each with its place, and nothing is started."""
    path = workspace.folder / "bad.yaml"
    path.write_text("name: bad\nrepaets: 2\nengines: [native]\njob:\n  operations: [run, wiat, remove]\n")
    ended = workspace.refused(*run_words(workspace, path, "--workers", 1))
    message = complaint(ended, 2).splitlines()
    assert [line.split(": ")[0] for line in message] == [f"{path}:2:1", f"{path}:5:21"]
    assert "did you mean 'repeats'?" in message[0]
    assert "did you mean 'wait'?" in message[1]
    assert not (workspace.folder / "x.stats.gz").exists()


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (("--set", "repaets=9"), "--set repaets=9: unknown key 'repaets' in the scenario (did you mean 'repeats'?)"),
        (("--workers", "0", "--expect", "0"), "no worker would run the jobs"),
        (("--zmq-bind-ip", "0.0.0.0"), "bench-master keygen --worker NAME"),
    ],
)
def test_usage_errors_end_with_2(workspace, flags, expected):
    """The error names the wrong flag or override and what was expected or what to do; nothing is started."""
    control, results, work = free_ports(3)
    ports = ("--zmq-control-port", control, "--zmq-results-port", results, "--zmq-work-port", work)
    ended = workspace.refused(*run_words(workspace, workspace.scenario(), *ports, *flags))
    assert expected in complaint(ended, 2)
    assert not (workspace.folder / "x.stats.gz").exists()


def test_an_address_of_another_host_ends_with_2(workspace):
    """An address of another host is refused, after the warning that --insecure always prints."""
    flags = ("--zmq-bind-ip", "203.0.113.7", "--insecure")
    ended = workspace.refused(*run_words(workspace, workspace.scenario(), *flags))
    assert ended.err.startswith("--insecure: 203.0.113.7 accepts everybody who can reach it")
    (message,) = ended.errors
    assert message.startswith("--zmq-bind-ip 203.0.113.7: not an address of this host")


def footer_offset(stats):
    """Return at which byte the footer of a whole stats file begins."""
    with stats.open("rb") as file:
        reader = FrameReader(file)
        while True:
            offset = reader.offset
            if reader.read({"footer"})[0] == "footer":
                return offset


def test_a_footer_that_cannot_be_written_is_no_success(workspace):
    """When only the last bytes of the stats file are refused, the jobs are all done and the run still ends with 3."""
    # Without samples on the way a slow machine's file is as long as a quick one's.
    scenario = workspace.scenario(job=TRUE, iterations=1, sampling_interval="60s")
    # Python keeps what it compiled cut off where a file may not be as long, and every later program would fail by it.
    workspace.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for _ in range(20):
        # What the worker says of this machine's load and neighbours is now longer, now shorter: then once more.
        whole = workspace.run(scenario, "--noop", "--seed", 1)
        middle = (footer_offset(whole.stats) + whole.stats.stat().st_size) // 2
        resource.setrlimit(resource.RLIMIT_FSIZE, (middle, hard))
        try:
            program, stats = workspace.start_run(scenario, "-q", "--noop", "--seed", 1, "-R")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        program.wait_for_exit(END_S)
        kinds = {block.kind for block in StatsFile(stats).blocks()}
        if "jobs" in kinds and "footer" not in kinds:
            break
    run = workspace.finish(program, stats, status=3)
    (message,) = run.errors
    assert f"{stats}: writing failed at byte " in message
    assert run.outcomes() == {"done": 1}
    assert run.blocks("footer") == []


def test_what_an_engine_cannot_enforce_ends_with_2(workspace):
    """A memory limit on plain processes is refused before anything runs, with the engine and the setting."""
    scenario = workspace.scenario(job=TRUE, container={"memory": "64MiB"})
    message = complaint(workspace.master(*run_words(workspace, scenario, "--workers", 1)), 2)
    assert "native" in message
    assert "memory" in message
    assert not (workspace.folder / "x.stats.gz").exists()


def test_no_worker_ends_with_3(workspace):
    """If no worker joins, the run gives up in time, says how many joined, and leaves no file."""
    control, results, work = free_ports(3)
    ports = ("--workers", 0, "--zmq-control-port", control, "--zmq-results-port", results, "--zmq-work-port", work)
    began = time.monotonic()
    ended = workspace.master(*run_words(workspace, workspace.scenario(), "--worker-timeout", "1s", *ports))
    assert time.monotonic() - began < 30, "that long it waits without the option"
    assert ended.status == 3
    assert ended.err.startswith("bench-master: the run did not start: not enough workers: 0 of 1 joined\n")
    assert "  1 worker to be started by hand did not connect; to do: start bench-worker" in ended.err
    assert not (workspace.folder / "x.stats.gz").exists()


def test_a_taken_port_ends_with_3(workspace):
    """If the master's port is taken, the error says so and names the flag that chooses another."""
    control, results, work = free_ports(3)
    ports = ("--zmq-control-port", control, "--zmq-results-port", results, "--zmq-work-port", work)
    words = (
        *run_words(workspace, workspace.scenario(), "--worker-timeout", "1s", *ports),
        "--zmq-bind-ip",
        "127.0.0.1",
    )
    with socket.create_server(("127.0.0.1", control)):
        assert workspace.master("keygen", "--worker", "one").status == 0
        ended = workspace.master(*words)
    message = complaint(ended, 3)
    assert f"port {control} of 127.0.0.1 is taken" in message
    assert "--zmq-control-port" in message


@pytest.mark.docker
def test_too_few_ports_for_the_lanes_end_with_3(workspace):
    """Where a worker can be given no lane the run is called off with the flag to change, and its worker goes on."""
    control, results = free_ports(2)
    flags = ("--zmq-control-port", control, "--zmq-results-port", results, "--zmq-work-port", 65535)
    flags += ("--zmq-bind-ip", "127.0.0.1", "--key-dir", workspace.folder)
    assert workspace.master("keygen", "--key-dir", workspace.folder, "--worker", "one").status == 0
    reach = ("--zmq-host", "127.0.0.1", "--zmq-control-port", control)
    worker = workspace.start("bench-worker", *reach, "--key", workspace.folder / "worker-one.key")
    with contextlib.ExitStack() as held:
        # Somebody else may have it for a moment, which is as good.
        with contextlib.suppress(OSError):
            held.enter_context(socket.create_server(("127.0.0.1", 65535)))
        ended = workspace.master(*run_words(workspace, workspace.scenario(), "--noop", "--expect", 1, *flags))
    assert complaint(ended, 3) == (
        "the run did not start: no port is free for a lane from 65535 on; try another --zmq-work-port"
    )
    assert worker.process.poll() is None


def test_what_containers_would_lack_is_found_before_anything_runs(workspace):
    """Image, network and log driver are named, all at once, with what to do. The host lacks them: it ends with 3."""
    require_images().close()
    lacking = {
        "image": "weighbridge-test/no-such-image:none",
        "network": "weighbridge-test-nowhere",
        "log_driver": "json-fiel",
    }
    scenario = workspace.scenario(
        engines=["docker", "docker-cli"], repeats=2, job={**NAP, "container": {**NAP["container"], **lacking}}
    )
    program, stats = workspace.start_run(scenario)
    ended = program.wait_for_exit()
    assert ended.status == 3, ended.err
    message = "\n".join(ended.errors)
    for word in (
        *lacking.values(),
        "build-images",
        "did you mean 'json-file'?",
        "engine docker:",
        "engine docker-cli:",
    ):
        assert word in message
    assert not stats.exists()


@pytest.mark.docker
def test_an_engine_that_cannot_be_asked_is_infrastructure(workspace, tmp_path):
    """No daemon at DOCKER_HOST: the host is at fault, not the scenario, so it ends with 3."""
    workspace.environ["DOCKER_HOST"] = f"unix://{tmp_path}/none.sock"
    job = {**NAP, "container": {**NAP["container"], "image": "weighbridge/base"}}
    program, stats = workspace.start_run(workspace.scenario(engines=["docker"], job=job))
    ended = program.wait_for_exit()
    assert ended.status == 3, ended.err
    assert "none.sock" in "\n".join(ended.errors)
    assert not stats.exists()


def test_a_program_that_is_not_there_is_found_before_the_run(workspace):
    """Nothing ran, so there is no stats file, and the message names the program."""
    job = {"operations": ["run", "wait", "remove"], "container": {"command": ["no-such-command-here"]}}
    program, stats = workspace.start_run(workspace.scenario(job=job))
    ended = program.wait_for_exit()
    assert ended.status == 2, ended.err
    assert "no program 'no-such-command-here' in this host's PATH" in "\n".join(ended.errors)
    assert not stats.exists()


def test_without_a_report_the_verdict_has_its_reason(workspace):
    """With -R nothing else shows why no job succeeded, so the first error's own words stand in the message."""
    job = {
        "operations": ["run", {"exec": ["no-such-command-here"]}, "kill", "remove"],
        "container": {"command": ["sleep", "600"]},
    }
    run = workspace.run(workspace.scenario(job=job), "-R", status=3)
    (message,) = run.errors
    assert message.startswith("no job succeeded in 1 of 1 treatment; exec: ")
    assert "no-such-command-here" in message


def test_a_dry_run_touches_nothing(workspace):
    """The plan is printed without a file, a worker, a port or an engine, and fits in 80 columns."""
    job = {**NAP, "container": {"image": "nowhere/none", "command": "true"}}
    scenario = workspace.scenario(engines=["docker", "native"], repeats=2, job=job)
    before = sorted(path for path in workspace.folder.rglob("*") if "program-" not in str(path))
    ended = workspace.master("run-scenario", "-f", scenario, "--dry-run", "--workers", 1, "--seed", 3)
    assert (ended.status, ended.errors) == (0, [])
    assert sorted(path for path in workspace.folder.rglob("*") if "program-" not in str(path)) == before
    assert "2 treatments, 4 trials, 4 jobs" in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80
    again = workspace.master("run-scenario", "-f", scenario, "--dry-run", "--workers", 1, "--seed", 3)
    assert again.out == ended.out


def test_failed_jobs_end_with_1_unless_they_are_allowed(workspace):
    """By the key or the option, also for the report of the same file; what failed is said once."""
    flaky = 'n=$(cat "$COUNT" || echo 0); echo $((n + 1)) > "$COUNT"; exit $((n % 2))'
    container = {"command": ["sh", "-c", flaky], "env": {"COUNT": str(workspace.folder / "count")}}
    given = {"job": {"operations": ["run", "wait", "remove"], "container": container}, "iterations": 2}
    run = workspace.run(workspace.scenario(**given), "-R", status=1)
    (message,) = run.errors
    assert message.startswith("threshold failed: jobs.failed is 1, wanted == 0 ")
    again = workspace.master("report-scenario", "-s", run.stats, "--csv")
    assert (again.status, again.errors) == (1, [message])
    assert workspace.master("report-scenario", "-s", run.stats, "--allow-failures").status == 0
    for keys, flags in (({"allow_failures": True}, ()), ({}, ("--allow-failures",))):
        run = workspace.run(workspace.scenario(**given, **keys), *flags)
        assert workspace.master("report-scenario", "-s", run.stats).status == 0
