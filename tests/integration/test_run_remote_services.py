"""Servers on another worker than their jobs: ab here, its web server there; and what may go wrong between."""

import psutil
import pytest
from deadlines import ANSWER_S, END_S, LONG_END_S, START_S, wait_until
from service_runs import left_behind, outputs_of, require_tools, server_of_running
from workspace import containers_of, require_images

pytestmark = pytest.mark.docker

AB = {"workload": "ab", "params": {"requests": 300, "concurrency": 2}}
THERE = {"webbench": {"placement": "local-1"}}


@pytest.fixture(scope="module")
def client():
    require_tools("ab", "apache2", "php")
    opened = require_images(*(f"weighbridge/{name}" for name in ("sysbench", "mariadb", "ab", "webbench")))
    yield opened
    opened.close()


def test_a_remote_web_server_in_containers_and_natively(workspace, client, open_folder):
    """The jobs are the one worker's, the server the other's; published, in the host's network, and as a process."""
    workspace.environ["TMPDIR"] = str(open_folder)
    in_host_network = {"webbench": {**THERE["webbench"], "network": "host"}}
    scenario = workspace.scenario(
        jobs={
            "published": {**AB, "services": THERE, "engines": ["docker", "docker-cli", "native"]},
            "host": {**AB, "services": in_host_network, "engines": ["docker"]},
        }
    )
    run = workspace.run(scenario, workers=2, seconds=LONG_END_S)
    assert run.outcomes() == {"done": 4}
    outputs = outputs_of(run)
    for job in run.jobs:
        assert job["worker"] == "local-0"
        assert job["metrics"]["requests"] == 300
        assert b"Content-Length: 12" in outputs[job["id"], "webbench-ready"].stdout
        assert b"Server Hostname:        127.0.0.1" not in outputs[job["id"], "run"].stdout
    assert "docker: webbench of jobs on worker local-0 ran on worker local-1 (local)" in run.details
    assert left_behind(client, workspace, run) == []
    assert [*next(open_folder.glob("weighbridge-native-*")).iterdir()] == []


def test_tables_in_a_remote_server_are_created_once(workspace, client):
    """Prepared from here, kept there from job to job, and gone at the end."""
    params = {"test": "read_only", "tables": 1, "table_size": 500, "time": "1s", "buffer_pool_size": "16MiB"}
    job = {"workload": "sysbench-oltp", "params": params, "services": {"mariadb": {"placement": "local-1"}}}
    run = workspace.run(workspace.scenario(engines=["docker"], job=job, repeats=2), workers=2, seconds=LONG_END_S)
    assert run.outcomes() == {"done": 2}
    assert [step for _, step in outputs_of(run)].count("prepare") == 1
    assert left_behind(client, workspace, run) == []


@pytest.mark.slow
def test_the_ready_made_scenario_runs_with_two_workers(workspace, client):
    """Client and server on one worker and on two, in containers and natively, as the scenario's comment says."""
    sizes = ("--set", "scale=small", "--set", "environments=[local]")
    places = ("--set", "matrix.services.mariadb.placement=[local-0, local-1]")
    run = workspace.run("remote-database", *sizes, *places, workers=2, seconds=LONG_END_S)
    assert run.outcomes() == {"done": 4}
    assert left_behind(client, workspace, run) == []


def test_a_remote_server_that_does_not_start_is_a_failed_job(workspace, client):
    """With the worker that it was placed at, and what its log says; nothing is left on either."""
    broken = {"webbench": {"placement": "local-1", "env": {"LISTEN_HOST": "x"}, "files": {"/srv/webbench": "a file"}}}
    run = workspace.run(workspace.scenario(engines=["docker"], job={**AB, "services": broken}), workers=2, status=3)
    (job,) = run.jobs
    assert (job["error"]["operation"], job["error"]["kind"]) == ("webbench", "service")
    assert "webbench ended with exit code" in job["error"]["message"]
    assert "(on worker local-1)" in job["error"]["message"]
    assert left_behind(client, workspace, run) == []


def test_a_placement_without_a_worker_is_refused_before_anything_runs(workspace, client):
    """With the name that was probably meant."""
    scenario = workspace.scenario(engines=["docker"], job={**AB, "services": {"webbench": {"placement": "local-9"}}})
    program, stats = workspace.start_run(scenario, "--worker-timeout", 6)
    ended = program.wait_for_exit()
    assert ended.status == 3
    assert "no worker 'local-9', by id or environment, for the service webbench" in ended.err
    assert not stats.exists()


def test_losing_the_servers_host_fails_the_job_at_once(workspace, client):
    """Not when the benchmark would have noticed: it is in the middle of work that lasts longer than we wait."""
    params = {"test": "read_only", "table_size": 500, "time": "1000s", "buffer_pool_size": "16MiB"}
    job = {"workload": "sysbench-oltp", "params": params, "services": {"mariadb": {"placement": "local-1"}}}
    program, stats = workspace.start_run(workspace.scenario(engines=["docker"], job=job), workers=2)
    wait_until(lambda: server_of_running(client, stats), START_S, "sysbench runs")
    agents = psutil.Process(program.process.pid).children()
    (lender,) = [agent for agent in agents if agent.cmdline()[-1] == "local-1"]
    lender.kill()
    run = workspace.finish(program, stats, status=3, seconds=END_S)
    (job,) = run.jobs
    assert (job["outcome"], job["error"]["operation"], job["error"]["kind"]) == ("failed", "mariadb", "service")
    assert job["error"]["message"].startswith("mariadb was lost with worker local-1: ")
    wait_until(lambda: not containers_of(client, run.run_id), ANSWER_S, "what was there is removed")
    assert left_behind(client, workspace, run) == []


def test_an_aborted_run_leaves_no_remote_server(workspace, client):
    """As by two Ctrl-C: the job is aborted here, and its server removed there."""
    params = {"test": "read_only", "table_size": 500, "time": "1000s", "buffer_pool_size": "16MiB"}
    job = {"workload": "sysbench-oltp", "params": params, "services": {"mariadb": {"placement": "local-1"}}}
    program, stats = workspace.start_run(workspace.scenario(engines=["docker"], job=job), workers=2)
    wait_until(lambda: server_of_running(client, stats), START_S, "sysbench runs")
    program.process.terminate()
    run = workspace.finish(program, stats, status=130, seconds=END_S)
    assert run.outcomes() == {"aborted": 1}
    assert left_behind(client, workspace, run) == []
