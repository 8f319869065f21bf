"""Two masters with one inventory: the second is told whose the workers are, and touches nothing of the first."""

import re

from deadlines import ANSWER_S, START_S, wait_until
from history import faults_of
from live_run import LIFE
from workspace import UNHURRIED, free_ports, held_until


def scenario_until(going_on):
    """Return twelve jobs on each of two workers, none of which ends before there is such a file."""
    job = {"operations": LIFE, "container": {"command": held_until(going_on)}}
    return {"concurrency": 2, "iterations": 6, "job": job}


def flags(inventory):
    """Return the words of a master with ports of its own."""
    names = ("--zmq-control-port", "--zmq-results-port", "--zmq-work-port")
    ports = [word for pair in zip(names, free_ports(3), strict=True) for word in pair]
    return ("-i", inventory, *ports, "--zmq-bind-ip", "127.0.0.1", "--worker-timeout", f"{START_S:g}s", *UNHURRIED)


def test_a_second_master_takes_no_worker_of_the_first(workspace):
    """Nor while these are starting, nor when they work; `fleet start` neither; the first run loses nothing."""
    inventory = workspace.folder / "hosts.yaml"
    inventory.write_text("hosts: {here: {launcher: local, workers: 2, concurrency: 2}}\n")
    going_on = workspace.folder / "going-on"
    scenario = workspace.scenario(**scenario_until(going_on))
    first, stats = workspace.start_run(scenario, *flags(inventory), "--progress", "chars", workers=0)
    states = workspace.folder / "home/.local/share/weighbridge/workers"
    wait_until(lambda: list(states.glob("*.json")), START_S, "the first worker")
    early = workspace.master("run-scenario", "-f", scenario, *flags(inventory))
    wait_until(
        lambda: len(list(states.glob("*.run"))) == 2, START_S, f"workers that serve the first master; {first.err}"
    )
    late = workspace.master("run-scenario", "-f", scenario, *flags(inventory))
    started = workspace.master("fleet", "start", "-i", inventory, "--zmq-control-port", free_ports(1)[0])
    pid = first.process.pid
    assert {early.status, late.status, started.status} == {3}, (early.err, late.err, started.err)
    whose = rf"of \S+@\S+ \(process {pid}\)"
    assert re.search(rf"worker here-1 (was started for a run|serves run \w+) {whose}", early.err)
    serves = rf"worker here-1 serves run \w+ {whose} since \S+: wait for its end"
    assert re.search(serves, late.err)
    assert re.search(serves, started.out)
    assert "they were left running" in late.err
    assert "Traceback" not in early.err + late.err + started.err
    going_on.touch()
    run = workspace.finish(first, stats)
    assert not faults_of(stats)
    assert run.outcomes() == {"done": 24}
    assert not any(job["attempt"] for job in run.jobs)
    assert "worker-lost" not in {event["kind"] for event in run.blocks("event")}
    assert list(states.iterdir()) == [], "the first master has stopped its workers"
    # Now they are free; and again at once when a master of this machine was killed.
    going_on.unlink()
    killed, _ = workspace.start_run(scenario, *flags(inventory), workers=0)
    wait_until(lambda: len(list(states.glob("*.run"))) == 2, START_S, "workers that serve the next master")
    killed.process.kill()
    killed.process.wait(ANSWER_S)
    again = workspace.run(workspace.scenario(iterations=1, concurrency=2), *flags(inventory), workers=0)
    assert again.outcomes() == {"done": 4}
