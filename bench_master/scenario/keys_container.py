"""The keys of a container: what it runs, what confines it, the storage it sees.

A key in `CONTAINER_FIELDS` needs nothing else in the master: its checks, JSON Schema, inheritance, matrix values and
transport to the workers follow from the declaration.
"""

# ruff: noqa: D102  `Shape` documents what each method of a shape does

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
    NUMBER,
    SIZE,
    WHOLE,
    AtMostOneOf,
    Boolean,
    Choice,
    CommandShape,
    Field,
    ListOf,
    MapOf,
    Quantity,
    Record,
    Shape,
    Text,
    truncate_label,
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


MIB: Final = 1024**2
_NAME_PATTERN: Final = "^[^=\\s]+$"
FILE_PATTERN: Final = r"^(/(?!\.\.?(/|$))[^/\x00]+)+$"
"""An absolute path of a file, which no part of leads upwards."""


@dataclass(frozen=True)
class FileText(Shape):
    """The text of a file: any text, of several lines or none."""

    @property
    def expected(self) -> str:
        return "the text of a file"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, ScalarNode) or "\0" in node.text:
            return self.refuse(node, findings)
        findings.understood(node, node.text)
        return node.text

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}

    def label(self, value: str) -> Scalar:
        return truncate_label(" ".join(value.split())) or "none"


CONTAINER_FIELDS: Final = (
    Field(
        "image",
        Text("an image such as weighbridge/base", "^[^\\s-]\\S*$"),
        "the image; a workload brings its own",
    ),
    Field(
        "rootfs",
        Text("the absolute path of a directory of the worker's host", "^/\\S*$"),
        "an unpacked root file system or OCI bundle, in place of an image, for OCI runtimes",
    ),
    Field("command", CommandShape(), "what runs in it; without it, what the image says"),
    Field(
        "memory", Quantity(SIZE, minimum=MIB, maximum=2**53), "hard limit of its memory", carried_as="memory_bytes"
    ),
    Field("cpus", Quantity(NUMBER, exclusive_minimum=0, maximum=4096), "how many CPUs' worth of time it may use"),
    Field(
        "cpuset",
        Text(
            "a list of CPUs such as 0-1,4",
            "^[0-9]{1,20}(-[0-9]{1,20})?(,[0-9]{1,20}(-[0-9]{1,20})?)*$",
            bare=("integer",),
        ),
        "the CPUs that it may use",
    ),
    Field("network", Text("a network such as none, host or bridge", "^[A-Za-z0-9][A-Za-z0-9_.+-]*$"), "its network"),
    Field("storage", ListOf(MountShape()), "what it sees besides its image"),
    Field("env", MapOf("environment variables", _NAME_PATTERN, Text(allow_empty=True)), "environment variables"),
    Field("log_driver", Text("a log driver such as none", "^[^\\s-]\\S*$"), "where its output goes"),
    Field(
        "log_options",
        MapOf("options of the log driver", _NAME_PATTERN, Text(allow_empty=True)),
        "of the log driver",
    ),
    Field("init", Boolean(), "run an init as PID 1, which forwards signals and reaps children"),
    Field("files", MapOf("texts by absolute path", FILE_PATTERN, FileText()), "files that are put into it"),
    *confinement_fields(),
)
"""The settings of a container. `ContainerSettings` carries each under `carried_as`, or else under its own name."""
