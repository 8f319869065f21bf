"""A runtime that hangs, floods its streams and its log, or is killed in a call: each job has one outcome."""

import json
import shutil

import psutil
import pytest
from deadlines import ANSWER_S, LONG_END_S, wait_until
from runtime_bench import ENGINES, require

FLOOD_BYTES = 100 << 20
PEAK_BYTES = 150 << 20
"""More than any process of such a run needs, which is some 70 MB, and less than that and what is printed."""
LIMIT_S = ANSWER_S / 8
"""Of an operation: what prints and ends is in time, and what hangs does not take the test long."""
FLOOD = f"head -c {FLOOD_BYTES} /dev/zero | tr '\\0' x"
MISCHIEF = {
    "hang": "sleep 87654",
    "stdout": f"{FLOOD}; exit 1",
    "stderr": f"{FLOOD} >&2; exit 1",
    "log": f'{FLOOD} > "$log"; exit 1',
    "entry": f"""{{ printf '{{"level":"error","msg":"'; {FLOOD}; printf '"}}'; }} > "$log"; exit 1""",
    "code": "exit 137",
    "killed": "kill -9 $$",
}
ENDING = """printf '%s\n' '{{"level":"error","msg":"{said}"}}' > "$log"; (sleep 1; exec {real} "$@") & exit 1"""
"""The signal arrives a second after the runtime said that there is nobody to send it to."""
WRAPPER = """#!/bin/sh
# The real program, but for the first calls of one verb, each of which does another mischief.
verb= log= before=
for word in "$@"; do
    [ "$before" = --log ] && log=${{word#file:}}
    [ "$word" = {verb} ] && verb=yes
    before=$word
done
if [ "$verb" ]; then
    {cases}
fi
exec {real} "$@"
"""


def odd_program(folder, real, verb, names, mischief=MISCHIEF):
    """Write a program that is the `real` one, but for the mischief of these names, each in one call of a verb."""
    folder.mkdir()
    cases = [f"if mkdir {folder}/{name} 2>&-; then {mischief[name]}; fi" for name in names]
    path = folder / real.rpartition("/")[2]
    path.write_text(WRAPPER.format(verb=verb, cases="\n    ".join(cases), real=real))
    path.chmod(0o755)
    return path


def odd_run(workspace, image, *flags, operations=("run", {"exec": ["/bin/true"]}, "kill", "remove"), **keys):
    """Run ten jobs one after the other to their end; return the run, and the memory of its largest process."""
    container = {"image": image, "command": ["sleep", "600"], "network": "none"}
    scenario = {
        "allow_failures": True,
        "iterations": 10,
        "timeout": f"{LIMIT_S:g}s",
        "job": {"operations": list(operations), "container": container},
        **keys,
    }
    program, stats = workspace.start_run(workspace.scenario(**scenario), *flags)
    peaks = [0]

    def is_over():
        for process in (master, *children()):
            try:
                peaks.append(process.memory_info().rss)
            except psutil.Error:
                continue
        return program.process.poll() is not None

    def children():
        try:
            return [one for one in master.children(recursive=True) if "python" in one.name()]
        except psutil.Error:
            return []

    master = psutil.Process(program.process.pid)
    wait_until(is_over, LONG_END_S, "the end of the run")
    return workspace.finish(program, stats), max(peaks)


def assert_each_ended_once(run, peak, names, operation):
    """Assert that each mischief cost the job that it was done to and nothing else, and that nothing is left."""
    assert run.outcomes() == {"done": 10 - len(names), "failed": len(names)}
    assert not any(job["attempt"] for job in run.jobs), "a worker was lost"
    errors = [job["error"] for job in run.jobs if job["outcome"] == "failed"]
    assert {error["operation"] for error in errors} == {operation}
    assert [error["kind"] for error in errors if error["kind"] != "engine"] == ["timeout"] * ("hang" in names)
    assert all(0 < len(error["message"]) <= 2000 for error in errors)
    assert peak < PEAK_BYTES, f"{peak >> 20} MiB"
    hung = [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "87654"]]
    assert not hung


@pytest.mark.parametrize(
    ("kind", "verb", "operation"),
    [
        ("crun", "run", "run"),
        ("runc", "kill", "kill"),
        pytest.param("crun", "delete", "remove", marks=pytest.mark.slow),
        pytest.param("crun", "kill", "kill", marks=pytest.mark.slow),
        pytest.param("runc", "run", "run", marks=pytest.mark.slow),
        pytest.param("runc", "delete", "remove", marks=pytest.mark.slow),
    ],
)
def test_a_runtime_that_hangs_floods_or_dies_costs_the_job_and_no_other(workspace, image, kind, verb, operation):
    """Each mischief fails its job, in time and with a short reason; the worker's memory stays within bounds."""
    require(ENGINES[kind])
    program = odd_program(workspace.folder / "odd", shutil.which(kind), verb, MISCHIEF)
    run, peak = odd_run(workspace, image, "--engine", f"odd={kind}:{program}", engines=["odd"])
    assert_each_ended_once(run, peak, MISCHIEF, operation)
    left = workspace.master("cleanup-containers", "--run", run.run_id, "--dry-run")
    assert "nothing was left behind" in left.out


def test_a_container_that_ends_when_it_is_to_be_stopped_is_awaited(workspace, image):
    """However long its end takes after its runtime said that it is over: gVisor's socket is closed before."""
    require(ENGINES["crun"])
    real = shutil.which("crun")
    said = {
        "refused": "connecting to control server at PID 7: connection refused",
        "stopped": "container not running",
        "gone": "kill: No such process",
    }
    mischief = {name: ENDING.format(said=words, real=real) for name, words in said.items()}
    program = odd_program(workspace.folder / "odd", real, "kill", mischief, mischief)
    run, _ = odd_run(
        workspace, image, "--engine", f"odd=crun:{program}", operations=("run", "kill", "remove"), engines=["odd"]
    )
    assert run.outcomes() == {"done": 10}
    assert sum(job["operations"]["kill"]["duration_s"] >= 1 for job in run.jobs) >= len(said)


def test_a_program_that_does_not_say_its_version_is_no_engine(workspace):
    """list engines says why within its time, and in few words."""
    require(ENGINES["crun"])
    late = "did not end within 20 s"
    # A slow machine does not write 100 MB within its time.
    expected = {"hang": [late], "stderr": ["failed: xxx", late], "code": ["exit code 137"]}
    labels = []
    for name in expected:
        program = odd_program(workspace.folder / name, shutil.which("crun"), "--version", [name])
        labels += ["--engine", f"odd-{name}=crun:{program}"]
    listed = workspace.master("list", "engines", *labels, "--format", "json")
    assert listed.status == 0, listed.err
    found = {one["name"]: one for one in json.loads(listed.out)}
    for name, words in expected.items():
        odd = found[f"odd-{name}"]
        assert not odd["usable"]
        assert any(word in odd["reason"] for word in words), odd["reason"]
        assert len(odd["reason"]) <= 500
