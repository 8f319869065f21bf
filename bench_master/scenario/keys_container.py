"""The keys of a container that confine it beyond memory and CPUs: processes, disks, privileges, its runtime.

What a container sees besides its image: volumes, host directories and memory.

How a container is attached to whoever starts it: never, and by no terminal.

Both could only be one thing: a terminal merges the output streams and changes the ends of lines, and a client that
stays attached would be measured, too. The keys are there so that who writes them down is understood, and who wants
anything else is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bench_common.treatment import (
    DROPPABLE_CAPABILITIES,
    GRANTABLE_CAPABILITIES,
    SECURITY_OPTIONS,
    Mount,
    MountKind,
    Scalar,
)
from bench_common.units import format_size
from bench_master.scenario.diagnostics import Diagnostics
from bench_master.scenario.types import (
    INVALID,
    SIZE,
    WHOLE,
    AtMostOneOf,
    Boolean,
    Choice,
    Field,
    ListOf,
    MapOf,
    Quantity,
    Record,
    Shape,
    Text,
)
from bench_master.scenario.yaml_tree import Node, ScalarNode

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
    bytes_a_second = MapOf("block devices such as /dev/sda", _DEVICE, Quantity(SIZE, minimum=1, maximum=2**53))
    operations_a_second = MapOf("block devices such as /dev/sda", _DEVICE, Quantity(WHOLE, minimum=1, maximum=2**32))
    return (
        Field(
            "runtime",
            Text("an OCI runtime such as runc or crun", "^[A-Za-z0-9][A-Za-z0-9_.-]*$", bare=()),
            "the OCI runtime, as the engine names it",
        ),
        Field("pids", Quantity(WHOLE, minimum=1, maximum=2**22), "how many processes and threads it may have"),
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
        Field("blkio_weight", Quantity(WHOLE, minimum=10, maximum=1000), "its share of the time of disks"),
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


# ruff: noqa: D102  what each method of a shape or rule does is said once, in the base class


_ABSOLUTE: Final = "^/.*$"
_VOLUME: Final = "^[A-Za-z0-9][A-Za-z0-9_.-]*$"
_KINDS: Final = ("volume", "host", "data_container", "tmpfs")


@dataclass(frozen=True)
class EmptyValue(Shape):
    """A key that says everything: what stands after it must be nothing."""

    @property
    def expected(self) -> str:
        return "nothing: it is made for this container and removed with it"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if isinstance(node, ScalarNode) and node.empty:
            findings.understood(node, None)
            return ""
        return self.refuse(node, findings)

    def schema(self) -> dict[str, Any]:
        return {"type": "null"}


@dataclass(frozen=True)
class OptionalValue(Shape):
    """A value that may be left out after its key: ``volume:`` is a volume without a name."""

    shape: Shape
    nothing: Any

    @property
    def expected(self) -> str:
        return f"{self.shape.expected}, or nothing"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if isinstance(node, ScalarNode) and node.empty:
            findings.understood(node, None)
            return self.nothing
        return self.shape.read(node, findings)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self.shape.schema(), {"type": "null"}]}


_RECORD: Final = Record(
    "storage entry",
    (
        Field("volume", OptionalValue(Text("a volume's name", _VOLUME, bare=("integer", "boolean")), ""), "a volume"),
        Field(
            "host",
            OptionalValue(Text("an absolute path", _ABSOLUTE, bare=()), ""),
            "a directory of the host; without a path, one that is made for it and removed with it",
        ),
        Field("data_container", EmptyValue(), "a volume of a data container that is made for it (volumes-from)"),
        Field("tmpfs", OptionalValue(Quantity(SIZE, minimum=4096, maximum=2**53), 0), "memory, with its limit"),
        Field("target", Text("an absolute path", _ABSOLUTE, bare=()), "where the container sees it", required=True),
        Field("read_only", Boolean(), "whether it cannot be written", default=False),
    ),
    (AtMostOneOf(_KINDS, required=True),),
)


@dataclass(frozen=True)
class MountShape(Shape):
    """One piece of storage, read as a `Mount`."""

    @property
    def expected(self) -> str:
        return (
            "storage such as {volume: data, target: /data}, {host: /srv, target: /srv}, "
            "{data_container: , target: /data} or {tmpfs: 64MiB, target: /t}"
        )

    def read(self, node: Node, findings: Diagnostics) -> Any:
        read = _RECORD.read(node, findings)
        if read is INVALID:
            return INVALID
        kinds = [kind for kind in _KINDS if kind in read]
        if len(kinds) != 1 or "target" not in read:
            return INVALID
        if any(given.value is INVALID for given in read.values()):
            return INVALID
        kind, source = kinds[0], read[kinds[0]].value
        read_only = "read_only" in read and read["read_only"].value
        if kind == "tmpfs":
            return Mount("tmpfs", read["target"].value, read_only=read_only, size_bytes=source)
        named: MountKind = "host" if kind == "host" else "volume" if kind == "volume" else "data_container"
        return Mount(named, read["target"].value, source, read_only=read_only)

    def schema(self) -> dict[str, Any]:
        return _RECORD.schema()

    def label(self, value: Mount) -> Scalar:
        source = format_size(value.size_bytes) if value.size_bytes else value.source
        return f"{value.kind}{':' + source if source else ''}"


# ruff: noqa: D102  what each method of a shape does is said once, in the base class


@dataclass(frozen=True)
class TrueOnly(Boolean):
    """``true`` and nothing else; `why` is what there is no other value for."""

    why: str

    def read(self, node: Node, findings: Diagnostics) -> Any:
        value = super().read(node, findings)
        if value is False:
            findings.add(node.place, f"'false': {self.why}", deep=True)
            return INVALID
        return value

    def schema(self) -> dict[str, Any]:
        return {"const": True}


def terminal_fields() -> tuple[Field, ...]:
    """Return the keys of a container that say what is always so."""
    attached = "every container runs detached, as a client that stays attached would be measured, too"
    return (
        Field("detached", TrueOnly(attached), "always so: no client stays attached to it", default=True),
        Field("tty", Choice("use of a terminal", ("never",)), "always so: no container has a terminal", "never"),
    )
