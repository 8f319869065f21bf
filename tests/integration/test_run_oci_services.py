"""Jobs with servers beside them under engines that make no networks: in the host's, or refused beforehand."""

import pytest
from deadlines import LONG_END_S
from runtime_bench import ENGINES, require
from workspace import Workspace, require_images

OLTP = {
    "workload": "sysbench-oltp",
    "params": {"test": "read_write", "tables": 1, "table_size": 200, "time": "1s", "buffer_pool_size": "16MiB"},
}

pytestmark = pytest.mark.docker


@pytest.fixture
def workspace(tmp_path):
    require_images("weighbridge/sysbench", "weighbridge/mariadb").close()
    with Workspace(tmp_path) as made:
        yield made


@pytest.mark.parametrize("name", [pytest.param("runc", marks=pytest.mark.slow), "containerd"])
def test_a_server_in_the_hosts_network_is_reached(workspace, name):
    """Its files are in place before it starts, it finds its own name, and nothing of it is left."""
    require(ENGINES[name])
    job = {**OLTP, "services": {"mariadb": {"network": "host"}}}
    run = workspace.run(workspace.scenario(engines=[name], job=job), seconds=LONG_END_S)
    assert run.outcomes() == {"done": 1}
    listed = workspace.master("cleanup-containers", "--dry-run", "--run", run.run_id)
    assert run.run_id not in listed.out


def test_a_server_in_another_network_is_refused_before_anything_runs(workspace):
    """With the service, and with what to write."""
    require(ENGINES["runc"])
    program, _ = workspace.start_run(workspace.scenario(engines=["runc"], job=OLTP))
    ended = program.wait_for_exit()
    assert ended.status == 2
    assert "services: {mariadb: {network: host}}" in " ".join(ended.err.split())
