"""Jobs with servers beside them: a real MariaDB in containers and natively, and what is left of it when it fails."""

import importlib.util
import os
import shutil

import pytest
from busybox_image import skip_or_fail
from deadlines import LONG_END_S, START_S, wait_until
from service_runs import left_behind, outputs_of, require_tools, server_of_running
from workspace import Workspace, require_images

pytestmark = pytest.mark.docker

OLTP = {
    "workload": "sysbench-oltp",
    "params": {"test": "read_write", "tables": 2, "table_size": 500, "time": "1s", "buffer_pool_size": "16MiB"},
}
SETTINGS = "/etc/weighbridge/my.cnf"


@pytest.fixture(scope="module")
def client():
    require_tools("mariadbd", "sysbench")
    opened = require_images(*(f"weighbridge/{name}" for name in ("sysbench", "mariadb", "ab", "webbench")))
    yield opened
    opened.close()


def test_transactions_in_containers_and_natively(workspace, client):
    """One server a treatment, its tables made once; a job's time is the run's alone, and nothing is left."""
    params = {**OLTP["params"], "warmup": "1s"}
    scenario = workspace.scenario(
        engines=["docker", "native"], order="blocked", repeats=2, job={**OLTP, "params": params}
    )
    run = workspace.run(scenario, seconds=LONG_END_S)
    assert run.outcomes() == {"done": 4}
    outputs = outputs_of(run)
    for job in run.jobs:
        assert set(job["operations"]) == {"create", "start", "warmup", "run", "remove"}
        assert job["start_s"] == job["operations"]["run"]["start_s"]
        assert job["duration_s"] == pytest.approx(job["operations"]["run"]["duration_s"], abs=1e-6)
        assert job["metrics"]["transactions_per_second"] > 1
        assert job["metrics"]["reconnects"] == 0
        assert b"16777216" in outputs[job["id"], "mariadb-ready"].stdout
        assert b"Threads started!" in outputs[job["id"], "run"].stdout
    prepared = [ticket for ticket, step in outputs if step == "prepare"]
    assert len(prepared) == 2
    for row in run.document["treatments"]:
        assert row["metrics"]["transactions_per_second"]["n"] == 2
    assert left_behind(client, workspace, run) == []


@pytest.mark.slow
def test_storage_and_networks_of_a_server(workspace, client):
    """A host directory over the host's network and a data container over a bridge; both keep their tables."""
    cells = [
        ("host", {"host": None, "target": "/var/lib/mysql"}),
        ("bridge", {"data_container": None, "target": "/var/lib/mysql"}),
    ]
    include = [
        {"engine": "docker", "services.mariadb.network": network, "services.mariadb.storage": [storage]}
        for network, storage in cells
    ]
    scenario = workspace.scenario(
        engines=["docker"], repeats=2, order="as-written", matrix={"include": include}, job=OLTP
    )
    run = workspace.run(scenario, seconds=LONG_END_S)
    assert run.outcomes() == {"done": 4}
    labels = [(row["treatment"]["network"], row["treatment"]["storage"]) for row in run.document["treatments"]]
    assert labels == [("host", "host"), ("bridge", "data_container")]
    for row in run.document["treatments"]:
        assert row["metrics"]["transactions_per_second"]["n"] == 2
    assert left_behind(client, workspace, run) == []


FAILING = {
    "setting": {"files": {SETTINGS: "[mariadbd]\nno_such_setting = 1\n"}},
    "memory": {"memory": "24MiB"},
    "read-only": {"files": {SETTINGS: "[mariadbd]\nread_only = 1\n"}},
    "disk": {"network": "host", "storage": [{"tmpfs": "4MiB", "target": "/var/lib/mysql"}]},
}
"""What a MariaDB is given so that its job fails, by the job's name."""


@pytest.fixture(scope="module")
def failing(tmp_path_factory, client):
    """A run in which every job fails with its server, and after which nothing is left."""
    jobs = {name: {**OLTP, "services": {"mariadb": given}, "engines": ["docker"]} for name, given in FAILING.items()}
    jobs["setting"]["engines"] = ["docker", "native"]
    with Workspace(tmp_path_factory.mktemp("failing")) as workspace:
        run = workspace.run(workspace.scenario(jobs=jobs), status=3, seconds=LONG_END_S)
        assert run.outcomes() == {"failed": 5}
        assert left_behind(client, workspace, run) == []
        return run


def failed_jobs(run, name):
    """Return what became of a job of a run, by engine."""
    return {job["treatment"]["engine"]: job for job in run.jobs if job["treatment"]["job"] == name}


@pytest.mark.parametrize("engine", ["docker", "native"])
def test_a_server_that_does_not_start_is_a_failed_job(failing, engine):
    """Of the kind `service`, with the end of its log, kept whole."""
    job = failed_jobs(failing, "setting")[engine]
    assert (job["outcome"], job["error"]["operation"], job["error"]["kind"]) == ("failed", "mariadb", "service")
    assert "before it was ready" in job["error"]["message"]
    assert "no_such_setting" in job["error"]["message"]
    assert job["operations"] == {}
    assert b"no_such_setting" in outputs_of(failing)[job["id"], "mariadb"].stderr


def test_a_server_without_its_image_is_refused_before_anything_runs(workspace):
    """With the engine's reason and what to do, as for a job's own image."""
    services = {"mariadb": {"image": "weighbridge/no-such-image"}}
    scenario = workspace.scenario(engines=["docker"], job={**OLTP, "services": services})
    program, stats = workspace.start_run(scenario)
    ended = program.wait_for_exit()
    assert ended.status == 3
    assert "image 'weighbridge/no-such-image' is not on this host" in ended.err
    assert not stats.exists()


def test_a_preparation_that_the_tool_refuses_is_a_failed_job(failing):
    """In the tool's words."""
    job = failed_jobs(failing, "read-only")["docker"]
    assert (job["error"]["operation"], job["error"]["kind"]) == ("prepare", "exit-code")
    assert "read-only" in job["error"]["message"]


def test_requests_in_containers_and_natively(workspace, client, open_folder):
    """ab against Apache and PHP: every request answered with the page, a closed model by name, and nothing left."""
    require_tools("ab", "apache2", "php")
    workspace.environ["TMPDIR"] = str(open_folder)
    params = {"requests": 300, "concurrency": 2, "warmup": 20}
    scenario = workspace.scenario(engines=["docker", "native"], job={"workload": "ab", "params": params})
    run = workspace.run(scenario)
    assert run.outcomes() == {"done": 2}
    assert "ab: a closed model" in run.details
    outputs = outputs_of(run)
    for job in run.jobs:
        assert set(job["operations"]) == {"create", "start", "warmup", "run", "remove"}
        assert job["metrics"]["requests"] == 300
        assert job["metrics"]["requests_per_second"] > 10
        assert b"Content-Length: 12" in outputs[job["id"], "webbench-ready"].stdout
        assert b"Document Length:        12 bytes" in outputs[job["id"], "run"].stdout
    assert left_behind(client, workspace, run) == []
    assert [*(open_folder / f"weighbridge-native-{os.geteuid()}").iterdir()] == []


def test_insertions_in_containers_and_natively(workspace, client):
    """iibench with readers beside it: every row stored, both rates measured, each report kept."""
    require_images("weighbridge/iibench").close()
    if importlib.util.find_spec("pymysql") is None:
        skip_or_fail("PyMySQL is missing; it is among the packages of the extra `test`")
    # Rows for some seconds: 4,000 were stored in 0.3 s, before a reader on a busy machine had asked once.
    params = {"max_rows": 40_000, "rows_per_report": 10_000, "rows_per_commit": 500, "query_threads": 2}
    job = {"workload": "iibench", "params": params, "services": {"mariadb": {"network": "host"}}}
    run = workspace.run(workspace.scenario(engines=["docker", "native"], job=job), seconds=LONG_END_S)
    assert run.outcomes() == {"done": 2}
    outputs = outputs_of(run)
    for job in run.jobs:
        assert set(job["operations"]) == {"create", "start", "run", "remove"}
        assert job["metrics"]["rows"] == 40_000
        assert job["metrics"]["inserts_per_second"] > 10
        assert job["metrics"]["queries_per_second"] > 0
        assert len(outputs[job["id"], "run"].stdout.splitlines()) == 6
    assert left_behind(client, workspace, run) == []


@pytest.mark.parametrize(
    "engines", [("docker", "native"), pytest.param(("native", "docker"), marks=pytest.mark.slow)], ids="-".join
)
def test_a_server_is_reached_by_its_socket(workspace, client, engines):
    """In a container that shares the server's volumes, and natively by a path that is short enough for one.

    Each engine and each tool once; the other pairs are slow.
    """
    require_images("weighbridge/iibench").close()
    params = {**OLTP["params"], "connection": "socket"}
    jobs = {
        "oltp": {
            **OLTP,
            "engines": engines[:1],
            "params": params,
            "services": {"mariadb": {"network": "none"}},
        },
        "iibench": {
            "engines": engines[1:],
            "workload": "iibench",
            "params": {"max_rows": 2000, "rows_per_report": 1000, "connection": "socket"},
        },
    }
    run = workspace.run(workspace.scenario(jobs=jobs), seconds=LONG_END_S)
    assert run.outcomes() == {"done": 2}
    for job in run.jobs:
        rate = "transactions_per_second" if job["treatment"]["job"] == "oltp" else "inserts_per_second"
        assert job["metrics"][rate] > 1
    assert left_behind(client, workspace, run) == []


def test_a_server_on_a_full_disk_is_a_failed_job(failing):
    """The server says so before a page of good advice, and the error repeats that part."""
    job = failed_jobs(failing, "disk")["docker"]
    assert (job["error"]["operation"], job["error"]["kind"]) == ("mariadb", "service")
    assert "mariadb ended with exit code 65 before it was ready" in job["error"]["message"]
    assert "Probably out of disk space" in job["error"]["message"]
    assert b"error 28" in outputs_of(failing)[job["id"], "mariadb"].stderr


def test_a_server_that_is_killed_under_its_job_is_named(workspace, client):
    """What the tool says of a lost connection is not the whole story."""
    params = {**OLTP["params"], "time": "1000s"}
    services = {"mariadb": {"network": "host"}}
    scenario = workspace.scenario(engines=["docker"], job={**OLTP, "params": params, "services": services})
    program, stats = workspace.start_run(scenario)

    server = wait_until(lambda: server_of_running(client, stats), START_S, "sysbench runs")
    client.kill(server["Id"])
    run = workspace.finish(program, stats, status=3)
    (job,) = run.jobs
    assert (job["error"]["operation"], job["error"]["kind"]) == ("mariadb", "service")
    assert "mariadb ended with exit code 137 during the job; run: exit code 1" in job["error"]["message"]
    assert job["metrics"] == {}
    assert left_behind(client, workspace, run) == []


def test_a_server_whose_program_is_missing_is_a_failed_job(workspace, client):
    """Natively: the program is named."""
    folder = workspace.folder / "bin"
    folder.mkdir()
    for tool in ("sh", "sleep", "mkdir", "id", "cat", "sysbench"):
        (folder / tool).symlink_to(shutil.which(tool))
    workspace.environ["PATH"] = str(folder)
    run = workspace.run(workspace.scenario(engines=["native"], job=OLTP), status=3)
    (job,) = run.jobs
    assert (job["error"]["operation"], job["error"]["kind"]) == ("mariadb", "command-not-found")
    assert job["error"]["message"] == "there is no program mariadbd on PATH"
    assert left_behind(client, workspace, run) == []
