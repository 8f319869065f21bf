"""The files of sysbench fileio made once for many jobs, by real engines."""

import pytest
from workspace import containers_of, require_images

FILES = {"total_size": "1MiB", "file_num": 2, "block_size": "4KiB", "time": "0s", "events": 20, "prepare": "once"}


@pytest.mark.docker
def test_files_are_made_once_for_each_engine_and_go_with_the_run(workspace):
    """Four jobs of two modes use the same files, natively and in a container, and each is measured alone."""
    client = require_images("weighbridge/sysbench")
    scenario = workspace.scenario(
        engines=["native", "docker"],
        repeats=2,
        container={"network": "none"},
        job={"workload": "sysbench-fileio", "params": FILES, "matrix": {"params.mode": ["rndrd", "rndwr"]}},
    )
    run = workspace.run(scenario)
    assert run.outcomes() == {"done": 8}
    steps = [record.step for block in run.blocks("outputs") for record in block]
    assert (steps.count("prepare"), steps.count("run"), steps.count("cleanup")) == (2, 8, 0)
    for row in run.document["treatments"]:
        assert set(row["operations"]) == {"job", "run"}
        assert row["metrics"]["total_events"]["median"] == 20
    assert containers_of(client, run.run_id) == []
    client.close()
