"""`runtime` under Docker: whole runs on a private daemon with other OCI runtimes registered than its own runc."""

import shutil
from pathlib import Path

import docker
import pytest
from busybox_image import skip_or_fail
from deadlines import ANSWER_S, LONG_END_S, LONG_TEST_S
from private_engine import private_engine
from workspace import Workspace, containers_of

pytestmark = pytest.mark.docker

RUNTIMES = ("runc", "crun", "runsc")
LIFE = ["create", "start", {"exec": ["cat", "/proc/version"]}, "pause", "unpause", "kill", "remove"]
HYBRID = Path("/sys/fs/cgroup/unified")


def registered(folder):
    """Return how crun and runsc are told to a daemon of this machine, as its administrator would."""
    programs = {name: shutil.which(name) for name in ("crun", "runsc")}
    for name, program in programs.items():
        if program is None:
            skip_or_fail(f"there is no {name}; script/engines {name}")
    crun = programs["crun"]
    if HYBRID.is_dir():
        # crun starts nothing where both versions of cgroups are mounted: it gets to see one of them only.
        crun = folder / "crun-alone"
        inner = f'umount -l {HYBRID}; exec {programs["crun"]} "$@"'
        crun.write_text(f"#!/bin/sh\nexec unshare --mount --propagation slave sh -c '{inner}' - \"$@\"\n")
        crun.chmod(0o755)
    # Not the default platform, which needs virtualisation; no network of its own, so no privileges for one.
    sandbox = ["--platform=ptrace", "--ignore-cgroups", "--network=none"]
    return {"crun": {"path": str(crun)}, "runsc": {"path": programs["runsc"], "runtimeArgs": sandbox}}


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """A daemon that knows three runtimes, and the name of an image that it has."""
    with pytest.MonkeyPatch.context() as patch:
        configuration = {"runtimes": registered(tmp_path_factory.mktemp("programs"))}
        with private_engine(patch, **configuration) as started:
            yield started


@pytest.fixture
def workspace(tmp_path, engine):
    with Workspace(tmp_path) as made:
        yield made


def lives(image, **keys):
    """Return a scenario of short lives and of resident ones, whose containers say which kernel they see."""
    return {
        "container": {"image": image, "network": "none", "command": ["sleep", "600"]},
        "job": {"operations": LIFE},
        "iterations": 2,
        "timeout": f"{ANSWER_S:g}s",
        "seed": 1,
        **keys,
    }


@pytest.mark.timeout(LONG_TEST_S)
@pytest.mark.parametrize("name", ["docker", pytest.param("docker-cli", marks=pytest.mark.slow)])
def test_treatments_differ_by_their_runtime(workspace, engine, name):
    """A matrix over it: every operation under each, one treatment for each, and nothing is left of any."""
    daemon, image = engine
    given = lives(image, engines=[name], matrix={"container.runtime": list(RUNTIMES)})
    run = workspace.run(workspace.scenario(**given), seconds=LONG_END_S)
    assert run.outcomes() == {"done": 2 * len(RUNTIMES)}
    treatments = {entry["treatment"]["runtime"]: entry for entry in run.document["treatments"]}
    assert treatments.keys() == set(RUNTIMES)
    for entry in treatments.values():
        assert {operation["n"] for operation in entry["operations"].values()} == {2}
        assert entry["operations"].keys() == {"job", "create", "start", "exec", "pause", "unpause", "kill", "remove"}
    assert all(f"runtime={runtime}" in run.details for runtime in RUNTIMES)
    client = docker.APIClient(base_url=daemon.address, timeout=ANSWER_S)
    try:
        assert containers_of(client, run.run_id) == []
    finally:
        client.close()


@pytest.mark.parametrize(
    "runtime", [one if one == "crun" else pytest.param(one, marks=pytest.mark.slow) for one in RUNTIMES]
)
def test_the_container_runs_under_the_runtime_that_was_named(workspace, engine, runtime):
    """Not only accepted: the daemon says so of the container that is kept, and gVisor's own kernel is seen."""
    daemon, image = engine
    container = {"image": image, "network": "none", "command": ["cat", "/proc/version"], "runtime": runtime}
    job = {"operations": ["run", "wait"], "container": container}
    run = workspace.run(workspace.scenario(engines=["docker"], job=job), "--keep")
    client = docker.APIClient(base_url=daemon.address, timeout=ANSWER_S)
    try:
        (kept,) = containers_of(client, run.run_id)
        assert client.inspect_container(kept["Id"])["HostConfig"]["Runtime"] == runtime
        kernel = client.logs(kept["Id"]).decode()
        assert kernel.startswith("Linux version")
        assert (kernel.strip() == Path("/proc/version").read_text().strip()) == (runtime != "runsc")
    finally:
        client.close()
        swept = workspace.master("cleanup-containers", "--run", run.run_id)
        assert swept.status == 0, swept.err


@pytest.mark.parametrize("name", ["docker", "docker-cli"])
def test_a_runtime_that_is_not_registered_ends_the_run_before_it_begins(workspace, engine, name):
    """Exit code 3 with the registered names and the nearest; no job ran."""
    _, image = engine
    given = lives(image, engines=[name], matrix={"container.runtime": ["crun", "runcs"]})
    program, stats = workspace.start_run(workspace.scenario(**given))
    ended = program.wait_for_exit()
    assert ended.status == 3, ended.err
    assert "no runtime 'runcs' is registered (did you mean 'runsc'?)" in ended.err
    assert all(known in ended.err for known in RUNTIMES)
    assert not stats.exists()
