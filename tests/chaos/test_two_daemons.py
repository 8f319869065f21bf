"""Two Docker daemons of a host, with containers of the same names and labels: a clean-up keeps to its own."""

import docker
import pytest
from busybox_image import require_docker
from deadlines import ANSWER_S
from private_engine import private_engine
from workspace import containers_of

pytestmark = pytest.mark.docker
SLEEPS = {"operations": ["run"], "container": {"command": ["sleep", "600"], "network": "none"}}


def copy_containers(run_id, source, target, image):
    """Make the containers of a run once more at another daemon, with the same names and labels; return their ids."""
    made = []
    for row in containers_of(source, run_id):
        config = target.create_host_config(network_mode="none")
        name = row["Names"][0].removeprefix("/")
        given = {"name": name, "labels": row["Labels"], "host_config": config}
        made.append(target.create_container(image, ["sleep", "600"], **given)["Id"])
        target.start(made[-1])
    return sorted(made)


def test_a_clean_up_touches_no_other_daemons_containers(workspace, image, monkeypatch):
    """Neither by run nor at the end of another run; that of the other daemon finds its own."""
    require_docker()
    usual = docker.APIClient(timeout=ANSWER_S)
    with private_engine(monkeypatch) as (daemon, own_image):
        client = docker.APIClient(base_url=daemon.address, timeout=ANSWER_S)
        job = {**SLEEPS, "container": {**SLEEPS["container"], "image": own_image}}
        scenario = workspace.scenario(engines=["docker"], iterations=2, job=job)
        ends = workspace.scenario(engines=["docker"], job={**job, "operations": ["run", "kill", "remove"]})
        named = dict(workspace.environ)
        workspace.environ["DOCKER_HOST"] = daemon.address
        with workspace.kept_run(scenario, "--keep") as run:
            twins = copy_containers(run.run_id, client, usual, image)
            assert len(twins) == 2
            swept = workspace.master("cleanup-containers", "--run", run.run_id)
            assert swept.status == 0, swept.err
            assert containers_of(client, run.run_id) == []
            again = workspace.master("cleanup-containers", "--run", run.run_id, "--dry-run")
            assert "nothing was left behind" in again.out
            assert workspace.run(ends).outcomes() == {"done": 1}
            rows = containers_of(usual, run.run_id)
            assert sorted(row["Id"] for row in rows) == twins
            assert {row["State"] for row in rows} == {"running"}
            workspace.environ = named
            swept = workspace.master("cleanup-containers", "--run", run.run_id)
            assert swept.status == 0, swept.err
            assert containers_of(usual, run.run_id) == []
        client.close()
    usual.close()
