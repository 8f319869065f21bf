"""Containers that are packed tell what their own control groups counted, under real engines, in whole runs."""

import pytest
from busybox_image import skip_or_fail
from runtime_bench import ENGINES, require
from workspace import require_images

from bench_worker.engines.oci.cgroups import are_writable

MIB = 1 << 20
HELD = 24 * MIB


def pack(workspace, engine, **settings):
    """Run a packing of three containers, each of which keeps so much memory before it is held."""
    container = {"image": "weighbridge/base", "command": ["sleep", "infinity"], "network": "none"}
    fill = f"head -c {HELD} /dev/zero > /dev/shm/held"
    job = {
        "operations": ["create", "start", {"exec": ["sh", "-c", fill]}, {"hold": "1s"}, "kill", "remove"],
        "container": container,
    }
    return workspace.run(workspace.scenario(engines=[engine], concurrency=3, job=job, **settings))


@pytest.mark.parametrize("engine", ["docker", "runc"])
def test_each_container_tells_what_its_own_control_group_holds(workspace, engine):
    """At least the memory that it keeps, and nothing of the others'; the text has it, and it is a metric."""
    require_images("weighbridge/base").close()
    if engine != "docker":
        require(ENGINES[engine])
        if not are_writable():
            skip_or_fail("this host's control groups cannot be written")
    run = pack(workspace, engine, thresholds=["metrics.container_memory.min >= 24MiB"])
    (entry,) = run.document["treatments"]
    packing = entry["packing"]
    (trial,) = packing["trials"]
    assert packing["unread"] == ""
    memory, cpu = (packing["each"][name] for name in ("memory_bytes", "cpu_percent"))
    assert (memory["n"], memory["containers"], memory["is_interval"]) == (1, 3, False)
    # Three times as much would be that of all of them.
    assert HELD <= memory["low"] <= memory["high"] < 3 * HELD
    assert cpu["low"] >= 0
    assert packing["each"]["start_s"]["containers"] == 3
    assert trial["steady"]["container_memory_bytes"]["n"] == 3
    assert trial["start_s"] > 0
    assert "of memory [" in " ".join(run.details.split())


@pytest.mark.parametrize("engine", ["native"])
def test_plain_processes_have_no_control_group_of_their_own(workspace, engine):
    """The report says so in a line; their start-up times are there."""
    job = {
        "operations": ["create", "start", {"hold": "1s"}, "kill", "remove"],
        "container": {"command": ["sleep", "600"]},
    }
    run = workspace.run(workspace.scenario(engines=[engine], concurrency=3, job=job))
    (entry,) = run.document["treatments"]
    assert list(entry["packing"]["each"]) == ["start_s"]
    words = " ".join(run.details.split())
    assert words.count("memory and CPU of each container are unknown: native shows no control group") == 1
