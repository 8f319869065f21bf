"""Settings that one engine alone has, on real containers: gVisor's platform and cgroups, containerd's snapshotter."""

from pathlib import Path

import psutil
import pytest
from deadlines import ANSWER_S
from runtime_bench import FOREVER, RuntimeBench, kind_of, require

from bench_common.treatment import ContainerSettings
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.engine import ContainerdEngine
from bench_worker.engines.grpc import NotFound
from bench_worker.engines.oci.runtimes import PLATFORM, RunscEngine, default_platform

SNAPSHOTTER = "native"
STAT = "snapshots.v1.Snapshots/Stat"


@pytest.fixture
def gvisor(image):
    require(RunscEngine)
    bench = RuntimeBench(RunscEngine, image)
    yield bench
    bench.close()


@pytest.fixture
def containerd(image):
    require(ContainerdEngine)
    bench = RuntimeBench(ContainerdEngine, image)
    yield bench
    bench.close()


def sandbox_of(made):
    """Return gVisor's kernel of a container: a process of the host."""
    found = [
        process
        for process in psutil.process_iter(["cmdline"])
        if made.name in (process.info["cmdline"] or ()) and "boot" in process.info["cmdline"]
    ]
    assert len(found) == 1, found
    return found[0]


def test_gvisor_has_its_own_platform_unless_another_is_asked_for(gvisor):
    """Its release chooses; what is asked for is an option of each of its commands, and an unknown one is refused."""
    default = RunscEngine.probe().details[PLATFORM]
    assert default in ("systrap", "ptrace", "kvm")
    assert not [word for word in gvisor.engine.options_for(gvisor.container(*FOREVER)) if "platform" in word]
    asked = gvisor.running(*FOREVER, gvisor_platform="ptrace")
    assert "--platform=ptrace" in gvisor.engine.options_for(asked)
    assert gvisor.engine.exec(asked, ("true",), timeout_s=ANSWER_S).exit_code == 0
    [reason] = gvisor.engine.missing(ContainerSettings(image=gvisor.image, gvisor_platform="nosuch"))
    assert "this runsc has no platform 'nosuch'" in reason
    assert gvisor.engine.missing(ContainerSettings(image=gvisor.image, gvisor_platform=default)) == []


def test_gvisor_is_in_the_cgroup_of_its_container(gvisor):
    """With the limits that it has; what would limit gVisor's own threads is refused."""
    made = gvisor.running(*FOREVER, memory_bytes=1 << 30)
    sandbox = sandbox_of(made)
    groups = Path(f"/proc/{sandbox.pid}/cgroup").read_text()
    assert f"weighbridge/{made.name}" in groups
    directory = gvisor.engine._memory_directory(made)
    limit = next(path for name in ("memory.max", "memory.limit_in_bytes") if (path := directory / name).exists())
    assert int(limit.read_text()) == 1 << 30
    assert kind_of(gvisor.engine.run, gvisor.container("true", pids=100)) == "refused"


def test_a_container_has_the_snapshotter_that_it_asks_for(containerd):
    """Its file system is there, and is gone with it; the image's stays there also when garbage is collected."""
    engine = containerd.engine
    settings = ContainerSettings(image=containerd.image, snapshotter=SNAPSHOTTER)
    assert engine.missing(settings) == []
    made = containerd.running(*FOREVER, snapshotter=SNAPSHOTTER)

    def stat(key, snapshotter=SNAPSHOTTER):
        request = messages.SnapshotRequest(snapshotter=snapshotter, key=key)
        return engine._api.calls(ANSWER_S).call(STAT, request, messages.StatSnapshotResponse).info

    chain = stat(made.name).parent
    with pytest.raises(NotFound):
        stat(made.name, "overlayfs")
    assert engine.exec(made, ("sh", "-c", "echo x > /x && cat /x"), timeout_s=ANSWER_S).stdout == b"x\n"
    engine.commit(made, timeout_s=ANSWER_S)
    engine.remove(made, timeout_s=ANSWER_S)  # removes the committed image, too, which collects the garbage
    with pytest.raises(NotFound):
        stat(made.name)
    assert stat(chain).name == chain
    again = containerd.running("true", snapshotter=SNAPSHOTTER)
    assert engine.wait(again, timeout_s=ANSWER_S).exit_code == 0
    for leftover in engine.leftovers(containerd.run_id):
        engine.discard(leftover)
    with pytest.raises(NotFound):
        stat(again.name)


def test_an_unknown_snapshotter_is_missing_and_a_pull_is_refused(containerd):
    """Before the run, by its name; `pull` unpacks where the others are."""
    [reason] = containerd.engine.missing(ContainerSettings(image=containerd.image, snapshotter="nosuch"))
    assert "nosuch" in reason
    assert kind_of(containerd.engine.pull, containerd.container(snapshotter=SNAPSHOTTER), fresh=False) == "refused"


def test_the_default_platform_is_read_from_what_runsc_prints():
    """Of old and new releases; where they say none, nobody guesses."""
    old = '  -platform string\n    \tspecifies which platform to use: ptrace (default), kvm. (default "ptrace")\n'
    new = '  -platform string\n    \tspecifies which platform to use: systrap, ptrace, kvm. (default "systrap")\n'
    assert [default_platform(text) for text in (old, new, "")] == ["ptrace", "systrap", ""]
