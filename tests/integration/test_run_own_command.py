"""The workload `command` and metrics of `exec`, in whole runs, natively and in containers."""

import pytest
from workspace import Run, require_images

NUMBERS = """echo "score: 12.5"; echo "latency: 3" >&2"""
METRICS = {
    "score": {"regex": r"^score: ([\d.]+)$", "unit": "1/s", "better": "higher"},
    "latency": {"regex": r"latency: (\d+)", "stream": "stderr", "unit": "ms", "better": "lower"},
}
JSON = """echo '{"runs": [{"p95": 1.5}, {"p95": 2.5}]}'"""
NEVER = {"never": {"regex": "never: (.)"}}


def shell(text):
    """Return a command that a shell runs."""
    return ["sh", "-c", text]


def jobs(marks):
    """Return jobs of each kind; `marks` is where `setup` leaves a mark for each time that it runs."""
    command = {"workload": "command"}
    return {
        "plain": {**command, "command": shell(NUMBERS), "metrics": METRICS},
        "steps": {
            **command,
            "setup": shell(f"echo x >> {marks}/setup"),
            "prepare": shell("echo 7 > number"),
            "command": shell(f"cat number {marks}/setup"),
            "cleanup": shell("rm number"),
            "metrics": {"number": {"regex": r"^(\d+)$"}},
            "iterations": 2,
            "concurrency": 2,
        },
        "json": {**command, "command": shell(JSON), "metrics": {"p95": {"json": "$.runs[-1].p95", "unit": "ms"}}},
        "exec": {
            "operations": ["create", "start", {"exec": {"command": shell(NUMBERS), "metrics": METRICS}}, "remove"],
            "container": {"command": ["sleep", "60"]},
        },
        "unmatched": {**command, "command": shell(NUMBERS), "metrics": NEVER},
        "failing": {**command, "command": shell("echo oh dear >&2; exit 7"), "metrics": NEVER},
        "unprepared": {**command, "prepare": ["false"], "command": ["true"]},
        "not-set-up": {**command, "setup": shell("echo no disk >&2; exit 3"), "command": ["true"]},
        "slow": {**command, "command": ["sleep", "60"], "timeout": "500ms"},
        "catastrophic": {
            **command,
            "command": shell("head -c 5000 /dev/zero | tr '\\0' a; echo b"),
            "metrics": {"none": {"regex": "(?:a|aa)+$(x)?"}},
        },
        "endless": {**command, "command": shell("head -c 4200000 /dev/zero | tr '\\0' a"), "metrics": NEVER},
    }


def finished(workspace, scenario):
    """Run a scenario of which jobs fail, whatever exit code that gives."""
    program, stats = workspace.start_run(scenario)
    ended = program.wait_for_exit()
    return Run(ended.status, ended.out, ended.err, stats)


def check(run, marks_text):
    """Check what each job gave."""
    rows = {row["treatment"]["job"]: row for row in run.document["treatments"]}
    medians = {
        name: {metric: (cell["unit"], cell["direction"], cell["median"]) for metric, cell in row["metrics"].items()}
        for name, row in rows.items()
    }
    measured = {"score": ("1/s", "higher", 12.5), "latency": ("ms", "lower", 3.0)}
    assert medians["plain"] == medians["exec"] == measured
    assert medians["steps"] == {"number": ("1", "", 7.0)}
    assert medians["json"] == {"p95": ("ms", "", 2.5)}
    assert marks_text == "x\n"
    assert [*rows["steps"]["operations"]][2:5] == ["prepare", "run", "cleanup"]
    by_job = {job["treatment"]["job"]: job for job in run.jobs}
    errors = {name: job["error"] for name, job in by_job.items() if job["error"] is not None}
    told = {name: (error["operation"], error["kind"], error["message"]) for name, error in errors.items()}
    assert told.keys() == {"unmatched", "failing", "unprepared", "not-set-up", "slow", "catastrophic", "endless"}
    assert told["unmatched"] == (
        "run",
        "parse-error",
        r"metric never: nothing in stdout matches 'never: (.)'; it begins: 'score: 12.5'",
    )
    assert told["failing"] == ("run", "exit-code", "run: exit code 7 of 'sh': oh dear")
    assert told["unprepared"][:2] == ("prepare", "exit-code")
    assert told["not-set-up"] == ("setup", "exit-code", "setup: exit code 3 of 'sh': no disk")
    assert told["slow"][1] == "timeout"
    assert told["catastrophic"][1] == "parse-error"
    assert "took more than 1 s: use a simpler expression" in told["catastrophic"][2]
    assert told["endless"][2] == (
        "metric never: stdout is longer than 4 MiB, so its middle was not kept: set 'take: first' or 'take: last'"
    )


def test_a_command_of_ones_own_natively(workspace):
    """Metrics come from both streams and from JSON, and each failure is the job's, with its reason."""
    marks = workspace.folder / "marks"
    marks.mkdir()
    check(finished(workspace, workspace.scenario(jobs=jobs(marks))), (marks / "setup").read_text())


@pytest.mark.docker
def test_a_command_of_ones_own_in_containers(workspace):
    """The same in an image of the user's; what `setup` leaves is in a host directory that the jobs share."""
    require_images("weighbridge/base").close()
    marks = workspace.folder / "marks"
    marks.mkdir(mode=0o777)
    container = {
        "image": "weighbridge/base",
        "network": "none",
        "storage": [{"host": str(marks), "target": str(marks)}],
    }
    scenario = workspace.scenario(engines=["docker"], container=container, jobs=jobs(marks))
    check(finished(workspace, scenario), (marks / "setup").read_text())


SERVE = """
use IO::Socket::INET;
my $listener = IO::Socket::INET->new(
    LocalAddr => $ENV{LISTEN_HOST}, LocalPort => $ENV{LISTEN_PORT}, Listen => 5, ReuseAddr => 1) or die "no: $!";
while (my $client = $listener->accept) { print $client "served: 42\\n"; close $client }
"""
ASK = 'use IO::Socket::INET; print IO::Socket::INET->new("$ARGV[0]:$ARGV[1]")->getline'
READY = 'use IO::Socket::INET; exit !IO::Socket::INET->new("127.0.0.1:$ENV{LISTEN_PORT}")'


@pytest.mark.parametrize("engine", ["native", pytest.param("docker", marks=pytest.mark.docker)])
def test_a_command_is_the_client_of_a_service_of_ones_own(workspace, engine):
    """The service is started and ready first, and the command gets its address."""
    if engine == "docker":
        require_images("weighbridge/base").close()
    service = {"command": ["perl", "-e", SERVE], "port": 4242, "ready": ["perl", "-e", READY]}
    job = {
        "workload": "command",
        "command": ["perl", "-e", ASK, "{answers.host}", "{answers.port}"],
        "metrics": {"served": {"regex": r"served: (\d+)"}},
        "services": {"answers": {"image": "weighbridge/base", **service}},
        "container": {"image": "weighbridge/base"},
    }
    run = workspace.run(workspace.scenario(engines=[engine], job=job))
    (row,) = run.document["treatments"]
    assert row["metrics"]["served"]["median"] == 42
