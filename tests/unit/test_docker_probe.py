"""What `docker info` says, as a status."""

import pytest

from bench_common.errors import EngineUnavailable
from bench_worker.engines.docker.engine import DockerEngine
from bench_worker.engines.docker.probe import failed_status, status_from

INFO = {
    "ServerVersion": "20.10.24",
    "OSType": "linux",
    "Driver": "overlay2",
    "CgroupVersion": "1",
    "CgroupDriver": "cgroupfs",
    "MemoryLimit": True,
    "SwapLimit": True,
    "CpuCfsPeriod": True,
    "CpuCfsQuota": True,
    "CPUSet": True,
    "PidsLimit": True,
    "Warnings": None,
}


def status(swap_bytes=0, sys=None, **changes):
    info = {**INFO, **changes}
    return status_from("docker", "unix:///s", info, swap_bytes, DockerEngine.operations, DockerEngine.settings, sys)


def host(folder, scheduler="none", qos=None):
    """Return a folder that looks like the /sys of a host with one disk."""
    queue = folder / "block" / "sda" / "queue"
    queue.mkdir(parents=True)
    others = {"none", "mq-deadline", "bfq"} - {scheduler}
    (queue / "scheduler").write_text(f"[{scheduler}] {' '.join(sorted(others))}\n")
    if qos is not None:
        (folder / "fs" / "cgroup").mkdir(parents=True)
        (folder / "fs" / "cgroup" / "io.cost.qos").write_text(f"8:0 {qos} ctrl=auto\n")
    return folder


def test_an_engine_with_every_limit_enforces_every_setting(tmp_path):
    """Nothing is left out where the kernel can do it all."""
    got = status(sys=host(tmp_path, "bfq"))
    assert got.usable
    assert set(got.settings) == DockerEngine.settings
    assert got.version == "20.10.24"


@pytest.mark.parametrize(
    ("switch", "setting"),
    [
        ("MemoryLimit", "memory_bytes"),
        ("PidsLimit", "pids"),
        ("CpuCfsQuota", "cpus"),
        ("CpuCfsPeriod", "cpus"),
        ("CPUSet", "cpuset"),
    ],
)
def test_a_limit_that_would_be_ignored_is_left_out_and_said(switch, setting):
    """Docker drops such a limit with a mere warning; here it is refused beforehand."""
    got = status(**{switch: False})
    assert got.usable
    assert setting not in got.settings
    assert "cannot" in got.details[f"setting.{setting}"]


@pytest.mark.parametrize(
    ("scheduler", "qos", "honoured"),
    [("none", None, False), ("none", "enable=0", False), ("none", "enable=1", True), ("bfq", None, True)],
)
def test_a_weight_for_disks_is_refused_where_no_disk_honours_it(tmp_path, scheduler, qos, honoured):
    """Docker takes it everywhere, without a warning; only bfq and io.cost divide a disk by it."""
    got = status(sys=host(tmp_path, scheduler, qos))
    assert ("blkio_weight" in got.settings) is honoured
    assert honoured or "bfq" in got.details["setting.blkio_weight"]


def test_a_weight_is_refused_where_nobody_can_look():
    """An engine over TCP may be anywhere."""
    assert "blkio_weight" not in status().settings


def test_rates_of_devices_follow_dockers_own_warnings():
    """What it warns of is refused; the other three are not."""
    got = status(Warnings=["WARNING: No blkio throttle.read_iops_device support"])
    assert "device_read_iops" not in got.settings
    assert {"device_read_bps", "device_write_bps", "device_write_iops"} <= set(got.settings)


def test_swap_that_cannot_be_limited_makes_memory_limits_void():
    """Only where there is swap: without any, a memory limit holds all the same."""
    assert "memory_bytes" in status(SwapLimit=False).settings
    assert "memory_bytes" not in status(swap_bytes=1 << 30, SwapLimit=False).settings
    assert "memory_bytes" in status(swap_bytes=1 << 30).settings


def test_the_engines_own_warnings_are_passed_on():
    """What Docker warns of is part of the details."""
    assert status(Warnings=["WARNING: bridge-nf-call-iptables is disabled"]).details["warnings"].startswith("WARNING")


def test_an_engine_for_other_systems_is_not_usable():
    """Windows containers are not what is weighed here."""
    got = status(OSType="windows")
    assert not got.usable
    assert "windows" in got.reason


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (PermissionError(13, "Permission denied"), "usermod"),
        (FileNotFoundError(2, "No such file or directory"), "apt-get install"),
        (ConnectionRefusedError(111, "Connection refused"), "start it"),
        (EngineUnavailable("what answers is no Docker Engine"), "DOCKER_HOST"),
        (TimeoutError("no answer in 4.5 s"), "less busy"),
    ],
)
def test_a_silent_engine_comes_with_what_to_do(error, advice):
    """Each reason has its own remedy."""
    got = failed_status("docker", "unix:///s", error)
    assert not got.usable
    assert got.reason
    assert advice in got.advice


def test_the_registered_runtimes_are_told():
    """What `container.runtime` may say, in alphabetical order, beside the one that is used when it says nothing."""
    runtimes = {"runsc": {"path": "/usr/bin/runsc"}, "crun": {"path": "/usr/bin/crun"}}
    details = status(Runtimes=runtimes, DefaultRuntime="crun").details
    assert (details["runtime"], details["runtimes"]) == ("crun", "crun, runsc")
