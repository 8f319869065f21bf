"""What `docker info` says, as a status."""

import pytest

from bench_common.errors import EngineUnavailable
from bench_worker.engines.docker import DockerEngine
from bench_worker.engines.docker_probe import failed_status, status_from

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
    "Warnings": None,
}


def status(swap_bytes=0, **changes):
    return status_from(
        "docker", "unix:///s", {**INFO, **changes}, swap_bytes, DockerEngine.operations, DockerEngine.settings
    )


def test_an_engine_with_every_limit_enforces_every_setting():
    """Nothing is left out where the kernel can do it all."""
    got = status()
    assert got.usable
    assert set(got.settings) == DockerEngine.settings
    assert got.version == "20.10.24"


@pytest.mark.parametrize(
    ("switch", "setting"),
    [("MemoryLimit", "memory_bytes"), ("CpuCfsQuota", "cpus"), ("CpuCfsPeriod", "cpus"), ("CPUSet", "cpuset")],
)
def test_a_limit_that_would_be_ignored_is_left_out_and_said(switch, setting):
    """Docker drops such a limit with a mere warning; here it is refused beforehand."""
    got = status(**{switch: False})
    assert got.usable
    assert setting not in got.settings
    assert "cannot" in got.details[f"setting.{setting}"]


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
    ],
)
def test_a_silent_engine_comes_with_what_to_do(error, advice):
    """Each reason has its own remedy."""
    got = failed_status("docker", "unix:///s", error)
    assert not got.usable
    assert got.reason
    assert advice in got.advice
