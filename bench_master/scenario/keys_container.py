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
"""The names of the engines and of limits.conf(5)."""

_ULIMIT_NAME: Final = f"^({'|'.join(ULIMITS)})$"
_NUMBER: Final = "(-1|[0-9]{1,19})"
_NO_HOST_ACCESS: Final = "; capabilities that give access to the host, such as SYS_ADMIN, are not available"
_DEVICE: Final = "^/dev/[^\\s:]+$"


@dataclass(frozen=True)
class UlimitShape(Text):
    """A soft and a hard limit as text; a single number sets both."""

    def schema(self) -> dict[str, Any]:
        """Return the shape as JSON Schema; an editor reads a limit without quotes as a number."""
        return {"anyOf": [super().schema(), {"type": "integer", "minimum": -1, "maximum": 10**19 - 1}]}


def _confinement_fields() -> tuple[Field, ...]:
    """Return the keys that confine a container beyond memory and CPUs."""
    bytes_a_second = MapOf("block devices such as /dev/sda", _DEVICE, Quantity(SIZE, minimum=1, maximum=2**53))
    operations_a_second = MapOf("block devices such as /dev/sda", _DEVICE, Quantity(WHOLE, minimum=1, maximum=2**32))
    return (
        Field(
            "runtime",
            Text("an OCI runtime such as runc or crun", "^[A-Za-z0-9][A-Za-z0-9_.-]*$", unquoted_types=()),
            "the OCI runtime, by the engine's name for it",
        ),
        Field(
            "snapshotter",
            Text("a snapshotter such as overlayfs or native", "^[A-Za-z0-9][A-Za-z0-9_.-]*$", unquoted_types=()),
            "what keeps the container's file system, for containerd",
        ),
        Field(
            "gvisor_platform",
            Text("a platform such as systrap, ptrace or kvm", "^[a-z][a-z0-9_-]*$", unquoted_types=()),
            "how gVisor intercepts system calls, for runsc",
        ),
        Field("pids", Quantity(WHOLE, minimum=1, maximum=2**22), "the most processes and threads"),
        Field(
            "ulimits",
            MapOf(
                f"resource limits: {', '.join(ULIMITS)}",
                _ULIMIT_NAME,
                UlimitShape(
                    "a limit such as 1024, or soft:hard such as 512:1024",
                    f"^{_NUMBER}(:{_NUMBER})?$",
                    unquoted_types=(),
                ),
            ),
            "resource limits of the processes",
        ),
        Field("blkio_weight", Quantity(WHOLE, minimum=10, maximum=1000), "the share of disk time"),
        Field("device_read_bps", bytes_a_second, "the most bytes a second read, by block device"),
        Field("device_write_bps", bytes_a_second, "the most bytes a second written, by block device"),
        Field("device_read_iops", operations_a_second, "the most reads a second, by block device"),
        Field("device_write_iops", operations_a_second, "the most writes a second, by block device"),
        Field("read_only", Boolean(), "mount the root file system read-only"),
        Field(
            "security_options",
            ListOf(Choice("security option", SECURITY_OPTIONS), unique=True),
            "security options of the processes",
        ),
        Field(
            "cap_add",
            ListOf(Choice("capability", GRANTABLE_CAPABILITIES, _NO_HOST_ACCESS), unique=True),
            "capabilities to add to the engine's default",
        ),
        Field(
            "cap_drop",
            ListOf(Choice("capability", DROPPABLE_CAPABILITIES), unique=True),
            "capabilities to drop from the engine's default",
        ),
    )


_ABSOLUTE: Final = "^/.*$"
_TARGET: Final = r"^(/(?!\.\.?(/|$))[^/\x00]+)+/?$"
_VOLUME: Final = "^[A-Za-z0-9][A-Za-z0-9_.-]*$"
_KINDS: Final = ("volume", "host", "data_container", "tmpfs")


@dataclass(frozen=True)
class EmptyValue(Shape):
    """A key without a value."""

    @property
    def expected(self) -> str:
        return "nothing: the volume is created for this container and removed with it"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if isinstance(node, ScalarNode) and node.empty:
            findings.record_literal(node, None)
            return ""
        return self.refuse(node, findings)

    def schema(self) -> dict[str, Any]:
        return {"type": "null"}


@dataclass(frozen=True)
class OptionalValue(Shape):
    """A value that may be missing after its key: ``volume:`` is a volume without a name."""

    shape: Shape
    nothing: Any
    """What a missing value is read as."""

    @property
    def expected(self) -> str:
        return f"{self.shape.expected}, or nothing"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if isinstance(node, ScalarNode) and node.empty:
            findings.record_literal(node, None)
            return self.nothing
        return self.shape.read(node, findings)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self.shape.schema(), {"type": "null"}]}


_RECORD: Final = Record(
    "storage entry",
    (
        Field(
            "volume",
            OptionalValue(Text("a volume's name", _VOLUME, unquoted_types=("integer", "boolean")), ""),
            "a volume",
        ),
        Field(
            "host",
            OptionalValue(Text("an absolute path", _ABSOLUTE, unquoted_types=()), ""),
            "a directory of the host; without a path, one created for the container and removed with it",
        ),
        Field(
            "data_container", EmptyValue(), "a volume of a data container, created for the container (volumes-from)"
        ),
        Field("tmpfs", OptionalValue(Quantity(SIZE, minimum=4096, maximum=2**53), 0), "memory, with its size limit"),
        Field(
            "target",
            Text("an absolute path without . and ..", _TARGET, unquoted_types=()),
            "the path in the container",
            required=True,
        ),
        Field("read_only", Boolean(), "mount it read-only", default=False),
    ),
    (AtMostOneOf(_KINDS, required=True),),
)


@dataclass(frozen=True)
class MountShape(Shape):
    """One mount, read as a `Mount`."""

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
    """``true`` and no other value."""

    why: str
    """Why ``false`` is not available, for the message."""

    def read(self, node: Node, findings: Diagnostics) -> Any:
        value = super().read(node, findings)
        if value is False:
            findings.add(node.place, f"'false': {self.why}", deep=True)
            return INVALID
        return value

    def schema(self) -> dict[str, Any]:
        return {"const": True}


def terminal_fields() -> tuple[Field, ...]:
    """Return the keys of a container that have one legal value.

    A terminal merges the output streams and changes line ends, and an attached client would be measured too. A
    scenario may state these facts; any other value is rejected with the reason.
    """
    attached = "every container runs detached: an attached client would be measured too"
    return (
        Field("detached", TrueOnly(attached), "always true: no client stays attached", default=True),
        Field("tty", Choice("terminal", ("never",)), "always never: no container has a terminal", "never"),
    )


MIB: Final = 1024**2
_NAME_PATTERN: Final = "^[^=\\s]+$"
FILE_PATTERN: Final = r"^(/(?!\.\.?(/|$))[^/\x00]+)+$"
"""An absolute path of a file, without ``.`` and ``..``."""


@dataclass(frozen=True)
class FileText(Shape):
    """The text of a file: any text, of several lines or none."""

    @property
    def expected(self) -> str:
        return "the text of a file"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, ScalarNode) or "\0" in node.text:
            return self.refuse(node, findings)
        findings.record_literal(node, node.text)
        return node.text

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}

    def label(self, value: str) -> Scalar:
        return truncate_label(" ".join(value.split())) or "none"


CONTAINER_FIELDS: Final = (
    Field(
        "image",
        Text("an image such as weighbridge/base", "^[^\\s-]\\S*$"),
        "the image; a workload has its own",
    ),
    Field(
        "rootfs",
        Text("the absolute path of a directory of the worker's host", "^/\\S*$"),
        "an unpacked root file system or OCI bundle, in place of an image, for OCI runtimes",
    ),
    Field("command", CommandShape(), "the command; without it, that of the image"),
    Field("memory", Quantity(SIZE, minimum=MIB, maximum=2**53), "hard limit of memory", carried_as="memory_bytes"),
    Field("cpus", Quantity(NUMBER, exclusive_minimum=0, maximum=4096), "the most CPU time, in CPUs, such as 1.5"),
    Field(
        "cpuset",
        Text(
            "a list of CPUs such as 0-1,4",
            "^[0-9]{1,20}(-[0-9]{1,20})?(,[0-9]{1,20}(-[0-9]{1,20})?)*$",
            unquoted_types=("integer",),
        ),
        "the CPUs to run on",
    ),
    Field("network", Text("a network such as none, host or bridge", "^[A-Za-z0-9][A-Za-z0-9_.+-]*$"), "the network"),
    Field("storage", ListOf(MountShape()), "volumes, host directories and memory to mount"),
    Field("env", MapOf("environment variables", _NAME_PATTERN, Text(allow_empty=True)), "environment variables"),
    Field("log_driver", Text("a log driver such as none", "^[^\\s-]\\S*$"), "the log driver"),
    Field(
        "log_options",
        MapOf("options of the log driver", _NAME_PATTERN, Text(allow_empty=True)),
        "options of the log driver",
    ),
    Field("init", Boolean(), "run an init as PID 1, which forwards signals and reaps children"),
    Field(
        "files", MapOf("texts by absolute path", FILE_PATTERN, FileText()), "text files to create in the container"
    ),
    Field(
        "directory",
        Text("an absolute path", _ABSOLUTE, unquoted_types=()),
        "the working directory of the commands, in the container; of plain processes, on the host",
    ),
    *_confinement_fields(),
)
"""The settings of a container. `ContainerSettings` carries each under `carried_as`, or else under its own name."""
