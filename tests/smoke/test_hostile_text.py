"""Hostile text of a worker, a scenario and a stats file: through the real programs, byte by byte to the terminal."""

import json
import sys

import pytest
from builders import footer, header, lifecycle_run, treatment_wire
from deadlines import END_S
from workspace import PROGRAMS, free_ports

CLAIM = "bench-master: all thresholds passed"
EVIL = f"x\x1b]0;owned\x07\x1b[2J\x9b31m\u202eabc\u2066\x7f\u2028\r\n{CLAIM}\nERROR: forged\n=1+1"
FORMATS = (
    *(
        "bucketbench",
        "csv",
        "github",
        "html",
        "json",
        "jsonl",
        "junit",
        "markdown",
        "openmetrics",
        "samples",
        "svg",
        "text",
    ),
)

WORKER = f"""
from gevent import monkey; monkey.patch_all()
import sys
from bench_common.streams import harden_streams
from bench_worker import cli, load_process
EVIL = {EVIL!r}
honest = cli.describe_host
def describe_host(offer):
    info = honest(offer)
    info["host"], info["version"] = EVIL, EVIL
    for status in info["engines"].values():
        status["version"] = status["reason"] = EVIL
    info["fingerprint"] |= {{"kernel": EVIL, "cpu_model": EVIL}}
    return info
cli.describe_host = describe_host
harden_streams()
sys.exit(cli.run_command_line(sys.argv[1:]))
"""


def assert_safe(*texts):
    """Nothing but text and line ends gets to the terminal, and no line is one that a value made up."""
    for text in texts:
        content = text.decode() if isinstance(text, bytes) else text
        lines = content.replace("\t", " ").split("\n")
        assert [line for line in lines if not line.isprintable()] == []
        forged = [line for line in content.splitlines() if line.startswith((CLAIM, "ERROR: forged", "=1+1"))]
        assert forged == []


def test_a_worker_cannot_steer_the_masters_terminal(workspace, monkeypatch):
    """Neither with its description, nor with the output of its jobs: while it runs, in the report, in a refusal."""
    monkeypatch.setitem(PROGRAMS, "hostile-worker", (sys.executable, "-c", WORKER))
    control, results, work = free_ports(3)
    ports = ("--zmq-control-port", control, "--zmq-results-port", results, "--zmq-work-port", work)
    workspace.start(
        "hostile-worker", "--zmq-control-port", control, "--allow-native", "--environment", "local", "-c", 2, "evil"
    )
    shout = f"import sys; sys.stderr.write({EVIL!r}); sys.exit(3)"
    job = {"operations": ["run", "wait", "logs", "remove"], "container": {"command": [sys.executable, "-c", shout]}}
    scenario = workspace.scenario(
        name="n" + EVIL[1:9], description=EVIL, job=job, matrix={"container.env.NOTE": [EVIL, "=2+2"]}, warmup=0
    )
    program, stats = workspace.start_run(scenario, "--expect", 1, "--progress", "chars", *ports, workers=0)
    ended = program.wait_for_exit(END_S)
    assert "x\\u001b]0;owned" in ended.out, ended.err
    assert_safe(ended.out, ended.err)
    for name in ("csv", "jsonl"):
        shown = workspace.master("report-scenario", "-s", stats, "--format", name)
        assert_safe(shown.out, shown.err)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """A stats file in which every text is hostile."""
    treatments = [
        treatment_wire(index, {"engine": engine, "note": EVIL, EVIL: "=2+2"}, ("start", "exec", "remove"),
                       {"events_per_second": {"unit": EVIL, "direction": "higher"}}) | {"jobs_per_trial": 1}
        for index, engine in enumerate(("docker", "native"))
    ]  # fmt: skip
    trials = [(index, block, block == 0) for block in range(4) for index in range(2)]
    head = header(treatments, trials, argv=[EVIL], versions={EVIL: EVIL})
    head["scenario"] |= {"name": EVIL, "description": EVIL, "path": EVIL}
    counts = {"planned": 8, "done": 7, "failed": 1, "lost": 0, "aborted": 0}
    foot = footer(counts=counts, status="cancelled", warnings=[EVIL], remarks=[EVIL], reasons=[EVIL])
    return lifecycle_run(tmp_path_factory.mktemp("stats") / "evil.stats.gz", head=head, foot=foot)


@pytest.mark.parametrize("name", FORMATS)
def test_a_stats_file_cannot_steer_the_terminal(workspace, damaged, name):
    """In no format, printed or in a file; JSON stays JSON, with the text as it was."""
    shown = workspace.master("report-scenario", "-s", damaged, "--format", name)
    assert "Traceback" not in shown.err
    assert_safe(shown.out, shown.err)
    if name in ("csv", "json"):
        written = workspace.folder / "report"
        workspace.master("report-scenario", "-s", damaged, "--format", name, "--report-file", written)
        assert_safe(written.read_bytes())
        assert written.read_text("utf-8") == shown.out
    if name == "json":
        assert json.loads(shown.out)["scenario"]["description"] == EVIL
    if name == "csv":
        assert ",'=2+2," in shown.out
        assert all("=1+1" in line or "run_id" not in line for line in shown.out.splitlines())


def test_a_scenario_cannot_steer_the_terminal(workspace):
    """Neither a plan, nor the errors of one that is wrong, nor one that is no YAML; nor a wrong word of a command."""
    good = workspace.scenario(description=EVIL, matrix={"container.env.NOTE": [EVIL]})
    wrong = workspace.scenario(description=[EVIL], **{EVIL: 1}, engines=[EVIL], job={"operations": [EVIL]})
    broken = workspace.folder / "broken.yaml"
    broken.write_text(f"name: 'x\n  {EVIL.replace(chr(10), ' ')}: [\n")
    well = [("run-scenario", "-f", good, "--dry-run"), ("validate-scenario", "-f", good)]
    commands = [
        *well,
        *(("validate-scenario", "-f", path) for path in (wrong, broken)),
        ("run-scenario", "-f", wrong),
        ("run-scenario", "-f", f"no\x1b{EVIL}"),
        ("report-scenario", "-s", f"no{EVIL}"),
        ("fleet", "list", "--no\x1b[2J"),
        ("run-scenario", "-f", good, "--set", f"matrix={EVIL}"),
    ]
    for command in commands:
        ended = (workspace.master if command in well else workspace.refused)(*command)
        assert ended.status == (0 if command in well else 2), ended.err
        assert_safe(ended.out, ended.err)
        assert "Traceback" not in ended.err
