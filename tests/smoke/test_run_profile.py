"""`--profile`: where the master and the load processes spend their time, beside the stats file."""

import json

from workspace import free_ports

MANY = {"operation_count": 20_000, "concurrency": 16}


def functions(path):
    """Return the names of the functions in a drawing, after a check of its events."""
    document = json.loads(path.read_text())
    frames = document["shared"]["frames"]
    (drawn,) = document["profiles"]
    assert drawn["type"] == "evented"
    assert all(0 <= event["frame"] < len(frames) for event in drawn["events"])
    return {frame["name"] for frame in frames}


def test_a_profile_shows_our_own_functions(workspace):
    """Master and worker each have a text and a drawing, in which their own parts are."""
    run = workspace.run(workspace.scenario(**MANY), "--noop", "--profile")
    stem = run.stats.name.removesuffix(".stats.gz")
    master, worker = (run.stats.with_name(f"{stem}.{who}.profile.txt") for who in ("master", "worker-local-0"))
    assert [line for line in run.err.splitlines() if line.startswith("profile: ")] == [
        f"profile: {master}",
        f"profile: {worker}",
    ]
    for path, where in ((master, "bench_master/"), (worker, "bench_worker/slots.py")):
        assert where in path.read_text()
    assert "on_result_frames" in functions(master.with_suffix(".speedscope.json"))
    assert "_serve" in functions(worker.with_suffix(".speedscope.json"))


def test_a_worker_by_hand_sends_its_profile_to_the_master(workspace):
    """Over TCP too the file is the master's, and the worker serves the next run, without a profile, as ever."""
    control, results, work = free_ports(3)
    flags = ("--zmq-control-port", control, "--zmq-results-port", results, "--zmq-work-port", work, "--noop")
    workspace.start("bench-worker", "--zmq-control-port", control, "-c", 16, "by-hand")
    scenario = workspace.scenario(**MANY)
    run = workspace.run(scenario, *flags, "--profile", workers=0)
    stem = run.stats.name.removesuffix(".stats.gz")
    assert "bench_worker/" in run.stats.with_name(f"{stem}.worker-by-hand.profile.txt").read_text()
    plain = workspace.run(scenario, *flags, workers=0)
    stem = plain.stats.name.removesuffix(".stats.gz")
    assert [path.name for path in plain.stats.parent.glob(f"{stem}.*")] == [plain.stats.name]
