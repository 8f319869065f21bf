"""Guests that fail, in a container and as a process: each a failed job with a plain reason, and nothing left."""

import io
import shutil
import tarfile
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from deadlines import START_S, wait_until
from service_runs import left_behind, require_tools
from small_disk import mounted_disk
from workspace import Workspace, containers_of, require_images

from bench_common.errors import StatsFileError
from bench_common.stats.reader import StatsFile

pytestmark = pytest.mark.docker

GARBAGE = "#!/bin/sh\necho 'sysbench 1.0.20 (using bundled LuaJIT 2.1.0-beta2)'\necho 'all is well, 42 events'\n"


@pytest.fixture(scope="module")
def client():
    require_tools("sysbench")
    opened = require_images("weighbridge/base", "weighbridge/sysbench")
    yield opened
    opened.close()


@pytest.fixture
def small_disk():
    """A file system of 4 MiB."""
    temporary = tempfile.TemporaryDirectory(prefix="wb-", dir="/tmp", ignore_cleanup_errors=True)
    with temporary as folder, mounted_disk(Path(folder), "4m") as disk:
        yield disk


@pytest.fixture
def garbage_image(client):
    """An image whose sysbench says something, and ends with 0."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        entry = tarfile.TarInfo("sysbench")
        entry.size, entry.mode = len(GARBAGE), 0o755
        archive.addfile(entry, io.BytesIO(GARBAGE.encode()))
    image = f"weighbridge-test/garbage-{uuid.uuid4().hex[:12]}"
    made = client.create_container("weighbridge/sysbench", command=["true"])["Id"]
    try:
        client.put_archive(made, "/usr/local/bin", packed.getvalue())
        client.commit(made, repository=image)
    finally:
        client.remove_container(made, force=True)
    yield image
    client.remove_image(image, force=True)


def failures(workspace, client, jobs, home=None):
    """Run a job on each engine, all of which fail; return their errors by engine. Nothing of them may be left."""
    given = {engine: {**job, "engines": [engine]} for engine, job in jobs.items()}
    # Tests put programs of their own on the worker's PATH.
    scenario = workspace.scenario(jobs=given, environment="inherit")
    return checked(workspace, client, workspace.run(scenario, status=3), home)


def checked(workspace, client, run, home=None):
    assert {(job["outcome"], *job["metrics"]) for job in run.jobs} == {("failed",)}
    assert left_behind(client, workspace, run) == []
    assert not [*(home or workspace.folder).glob("**/weighbridge-native-*/*")]
    return {job["treatment"]["engine"]: job["error"] for job in run.jobs}


def test_a_full_disk(workspace, client, small_disk):
    """Where a benchmark's files do not fit, it says so, in a container and natively."""
    job = {"workload": "sysbench-fileio", "params": {"total_size": "64MiB", "file_num": 4, "time": "1s"}}
    contained = {**job, "container": {"storage": [{"tmpfs": "1MiB", "target": "/srv/sysbench"}]}}
    workspace.environ["TMPDIR"] = str(small_disk)
    errors = failures(workspace, client, {"docker": contained, "native": job}, small_disk)
    assert set(errors) == {"docker", "native"}
    for error in errors.values():
        assert (error["operation"], error["kind"]) == ("prepare", "exit-code")
        assert "No space left on device" in error["message"]


def test_the_program_of_a_workload_that_an_image_lacks_is_found_before_the_run(workspace):
    """The message has the engine, the image and the program."""
    container = {"image": "weighbridge/base"}
    job = {"workload": "sysbench-cpu", "params": {"time": "1s"}, "container": container}
    program, stats = workspace.start_run(workspace.scenario(engines=["docker", "runc"], job=job))
    ended = program.wait_for_exit()
    assert ended.status == 2, ended.err
    for line, engine in zip(ended.errors[1:], ("docker", "runc"), strict=True):
        assert f"engine {engine}: image 'weighbridge/base' has no program 'sysbench' in /usr" in line
    assert not stats.exists()


def test_a_command_that_an_image_lacks_is_found_before_the_run(workspace):
    """Docker is asked, an unpacked image is looked into; the message has the place, the image and a near spelling."""
    job = {
        "workload": "command",
        "command": ["sleeep", "0.01"],
        "container": {"image": "weighbridge/base"},
    }
    scenario = workspace.scenario(engines=["docker", "runc"], job=job)
    program, stats = workspace.start_run(scenario)
    ended = program.wait_for_exit()
    assert ended.status == 2, ended.err
    docker, runc = ended.errors[1:]
    what = "image 'weighbridge/base' has no program 'sleeep' in "
    assert f"{scenario}:" in docker
    assert f": engine docker: {what}" in docker
    assert f": engine runc: {what}" in runc
    assert runc.endswith(" (did you mean 'sleep'?)")
    assert not stats.exists()
    job["command"] = ["awk", "BEGIN { print 1 }"]  # behind two links
    workspace.run(workspace.scenario(engines=["docker", "runc"], job=job))


def test_a_tool_that_this_host_lacks_is_found_before_the_run(workspace):
    """A plain process needs it here: the run does not begin, and says which package has it."""
    folder = workspace.folder / "bin"
    folder.mkdir()
    for tool in ("sh", "sleep"):
        (folder / tool).symlink_to(shutil.which(tool))
    workspace.environ["PATH"] = str(folder)
    job = {"workload": "sysbench-cpu", "params": {"time": "1s"}}
    program, stats = workspace.start_run(workspace.scenario(engines=["native"], job=job))
    ended = program.wait_for_exit()
    assert ended.status == 3, ended.err
    assert "program sysbench is not installed on this host: apt-get install sysbench" in "\n".join(ended.errors)
    assert not stats.exists()


def guest_of(client, stats, engine):
    """Return what kills the guest of the run with this stats file, once it is under way."""
    try:
        run_id = StatsFile(stats).header.run_id
    except StatsFileError:
        return None
    if engine == "docker":
        running = [one for one in containers_of(client, run_id) if one["State"] == "running"]
        return (lambda: client.kill(running[0]["Id"])) if running else None
    for process in psutil.process_iter(["name"]):
        with suppress(psutil.Error):  # somebody else's has just ended
            if process.info["name"] == "sysbench" and f"wb-{run_id}-" in (process.cwd() or ""):
                return process.kill
    return None


def test_a_guest_that_is_killed(workspace, client):
    """By somebody else, in the middle of its work."""
    job = {"workload": "sysbench-cpu", "params": {"time": "1000s"}}
    program, stats = workspace.start_run(
        workspace.scenario(engines=["docker", "native"], order="as-written", job=job)
    )
    for engine in ("docker", "native"):
        wait_until(lambda engine=engine: guest_of(client, stats, engine), START_S, f"sysbench runs under {engine}")()
    errors = checked(workspace, client, workspace.finish(program, stats, status=3))
    assert set(errors) == {"docker", "native"}
    for error in errors.values():
        assert (error["operation"], error["kind"]) == ("run", "exit-code")
        assert "exit code 137 of 'sysbench'" in error["message"]


ALONE = {"workload": "sysbench-memory", "params": {"block_size": "256MiB", "time": "5s"}}
IN_STEPS = {"workload": "sysbench-fileio", "params": {"file_num": 1, "block_size": "256MiB"}}
STEP_ENGINES = {"docker": None, "docker-cli": None, "runc": "runc", "containerd": "containerd", "podman": "podman"}
"""The engines that tell which step met the memory limit, and the tool that each needs."""


@pytest.fixture(scope="module")
def over_limit(tmp_path_factory, client):
    """The errors of guests over their memory limit, by job and engine."""
    limit = {"container": {"memory": "24MiB", "network": "none"}}
    engines = [engine for engine, tool in STEP_ENGINES.items() if tool is None or shutil.which(tool)]
    jobs = {
        "alone": {**ALONE, **limit, "engines": ["docker"]},
        "steps": {**IN_STEPS, **limit, "engines": engines},
    }
    with Workspace(tmp_path_factory.mktemp("limit")) as workspace:
        run = workspace.run(workspace.scenario(jobs=jobs), status=3)
        checked(workspace, client, run)
    return {(job["treatment"]["job"], job["treatment"]["engine"]): job["error"] for job in run.jobs}


@pytest.mark.parametrize(
    ("job", "engine", "step"),
    [("alone", "docker", "run"), *(("steps", engine, "prepare") for engine in STEP_ENGINES)],
)
def test_a_guest_over_its_memory_limit(over_limit, job, engine, step):
    """Whether it is the container's own command or one beside it, the error tells it from any other kill."""
    if STEP_ENGINES[engine]:
        require_tools(STEP_ENGINES[engine])
    error = over_limit[job, engine]
    assert (error["operation"], error["kind"]) == (step, "oom-killed"), error
    assert "killed by the OOM killer (memory limit)" in error["message"]


def test_a_memory_limit_that_a_process_cannot_have_is_refused(workspace):
    """A native process has no memory limit: the run is refused before anything starts."""
    job = {"workload": "sysbench-memory", "container": {"memory": "24MiB"}}
    program, stats = workspace.start_run(workspace.scenario(engines=["native"], job=job))
    ended = program.wait_for_exit()
    assert ended.status == 2
    assert "a plain process has no memory limit of its own" in ended.err
    assert not stats.exists()


def test_output_that_no_parser_understands(workspace, client, garbage_image):
    """Of a tool that ends with 0: the error quotes the line, and no number is taken from it."""
    job = {"workload": "sysbench-cpu", "params": {"time": "1s"}}
    folder = workspace.folder / "bin"
    folder.mkdir()
    (folder / "sysbench").write_text(GARBAGE)
    (folder / "sysbench").chmod(0o755)
    workspace.environ["PATH"] = f"{folder}:{workspace.environ['PATH']}"
    errors = failures(workspace, client, {"docker": {**job, "container": {"image": garbage_image}}, "native": job})
    assert set(errors) == {"docker", "native"}
    for error in errors.values():
        assert (error["operation"], error["kind"]) == ("run", "parse-error")
        assert "line 2: not a line that a run of sysbench cpu prints here" in error["message"]
        assert "all is well, 42 events" in error["message"]
