"""The keys of a container that confine it beyond memory and CPUs: processes, disks, privileges, its runtime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bench_common.treatment import DROPPABLE_CAPABILITIES, GRANTABLE_CAPABILITIES, SECURITY_OPTIONS
from bench_master.scenario.composites import Field, ListOf, MapOf
from bench_master.scenario.types import SIZE, WHOLE, Boolean, Choice, Measured, Text

ULIMITS: Final = (
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
)
"""As the engines name them, and limits.conf(5)."""

_ULIMIT_NAME: Final = f"^({'|'.join(ULIMITS)})$"
_NUMBER: Final = "(-1|[0-9]{1,19})"
_HOSTS: Final = "; those that open the host, such as SYS_ADMIN, are never given"
_DEVICE: Final = "^/dev/[^\\s:]+$"


@dataclass(frozen=True)
class UlimitShape(Text):
    """A soft and a hard limit as text; one number stands for both."""

    def schema(self) -> dict[str, Any]:
        """Return the shape as JSON Schema; a number without quotes is one to an editor."""
        return {"anyOf": [super().schema(), {"type": "integer", "minimum": -1, "maximum": 10**19 - 1}]}


def confinement_fields() -> tuple[Field, ...]:
    """Return the keys, as part of the record of a container."""
    bytes_a_second = MapOf("block devices such as /dev/sda", _DEVICE, Measured(SIZE, minimum=1, maximum=2**53))
    operations_a_second = MapOf("block devices such as /dev/sda", _DEVICE, Measured(WHOLE, minimum=1, maximum=2**32))
    return (
        Field(
            "runtime",
            Text("an OCI runtime such as runc or crun", "^[A-Za-z0-9][A-Za-z0-9_.-]*$", bare=()),
            "the OCI runtime, as the engine names it",
        ),
        Field("pids", Measured(WHOLE, minimum=1, maximum=2**22), "how many processes and threads it may have"),
        Field(
            "ulimits",
            MapOf(
                f"resource limits: {', '.join(ULIMITS)}",
                _ULIMIT_NAME,
                UlimitShape(
                    "a limit such as 1024, or soft:hard such as 512:1024", f"^{_NUMBER}(:{_NUMBER})?$", bare=()
                ),
            ),
            "resource limits of its processes",
        ),
        Field("blkio_weight", Measured(WHOLE, minimum=10, maximum=1000), "its share of the time of disks"),
        Field("device_read_bps", bytes_a_second, "how fast it may read from block devices, a second"),
        Field("device_write_bps", bytes_a_second, "how fast it may write to block devices, a second"),
        Field("device_read_iops", operations_a_second, "how often it may read from block devices, a second"),
        Field("device_write_iops", operations_a_second, "how often it may write to block devices, a second"),
        Field("read_only", Boolean(), "whether its root file system cannot be written"),
        Field(
            "security_options",
            ListOf(Choice("security option", SECURITY_OPTIONS), unique=True),
            "what its processes may do",
        ),
        Field(
            "cap_add",
            ListOf(Choice("capability", GRANTABLE_CAPABILITIES, _HOSTS), unique=True),
            "capabilities of its root beyond the engine's own choice",
        ),
        Field(
            "cap_drop",
            ListOf(Choice("capability", DROPPABLE_CAPABILITIES), unique=True),
            "capabilities that are taken from its root",
        ),
    )
