"""Which capabilities a machine withholds, and that nobody is promised one of them."""

import msgpack
import msgspec
import pytest

from bench_common.job_kind import read_job
from bench_common.requirements import CAPABILITIES_WITHHELD, unsupported_features
from bench_common.treatment import (
    CAPABILITIES,
    DROPPABLE_CAPABILITIES,
    GRANTABLE_CAPABILITIES,
    HOST_CAPABILITIES,
    ContainerSettings,
    Lifecycle,
    Operation,
    Treatment,
)
from bench_worker.engines.daemon_processes import unavailable_capabilities


def treatment(**settings):
    """Return one that runs a container with these settings."""
    container = ContainerSettings(image="i", **settings)
    return Treatment(0, {}, None, "runc", Lifecycle((Operation("run", "run"),)), container)


@pytest.mark.parametrize(
    ("status", "missing"),
    [
        ("Name:\tx\nCapBnd:\t000001fffeffffff\n", ["SYS_RESOURCE"]),
        ("CapBnd:\t000001ffffffffff\n", []),
        ("CapBnd:\t00000000a80425fb\n", None),
        ("Name:\tx\n", []),
    ],
)
def test_what_is_withheld_is_read_from_the_kernel(tmp_path, status, missing):
    """By the bits of the bounding set; where nothing is known, nothing is said to be missing."""
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text(status)
    found = unavailable_capabilities("7", tmp_path)
    assert (len(found) == 41 - 14) if missing is None else (found == missing)
    assert unavailable_capabilities("8", tmp_path) == []


def test_a_capability_that_the_host_withholds_is_refused():
    """By name, and only where it is to be given."""
    status = {
        "name": "runc",
        "usable": True,
        "operations": ["run"],
        "settings": ["image", "cap_add", "cap_drop"],
        "details": {CAPABILITIES_WITHHELD: "SYS_RESOURCE SYS_NICE"},
    }
    [reason] = unsupported_features(status, treatment(cap_add=("SYS_NICE", "KILL"), cap_drop=("SYS_RESOURCE",)))
    assert "cap_add=SYS_NICE: no process of its host has that capability" in reason


def test_no_capability_of_the_host_travels_to_a_worker():
    """Whatever a master says, and what may be said arrives as it was."""
    good = treatment(cap_add=("SYS_NICE",), cap_drop=("ALL",))
    wire = msgpack.unpackb(msgpack.packb(good.to_dict()))
    assert msgspec.convert(wire, Treatment, dec_hook=read_job) == good
    for setting, name in (("cap_add", "SYS_ADMIN"), ("cap_add", "ALL"), ("cap_drop", "NO_SUCH")):
        with pytest.raises(msgspec.ValidationError, match=f"container.{setting}"):
            msgspec.convert(
                {**wire, "container": {**wire["container"], setting: [name]}}, Treatment, dec_hook=read_job
            )


def test_the_lists_divide_what_the_kernel_has():
    """Each is known once; what is of the host is never given, and all can be taken."""
    assert len(set(CAPABILITIES)) == len(CAPABILITIES) == 41
    assert set(GRANTABLE_CAPABILITIES) | HOST_CAPABILITIES == set(CAPABILITIES)
    assert not set(GRANTABLE_CAPABILITIES) & HOST_CAPABILITIES
    assert set(DROPPABLE_CAPABILITIES) == {"ALL", *CAPABILITIES}
