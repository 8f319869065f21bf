"""What a container sees besides its image: volumes, host directories and memory."""

# ruff: noqa: D102  what each method of a shape or rule does is said once, in the base class

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bench_common.treatment import Mount, MountKind, Scalar
from bench_common.units import format_size
from bench_master.scenario.composites import Field, OneOf, Record
from bench_master.scenario.diagnostics import Findings
from bench_master.scenario.tree import Leaf, Node
from bench_master.scenario.types import INVALID, SIZE, Boolean, Measured, Shape, Text

_ABSOLUTE: Final = "^/.*$"
_VOLUME: Final = "^[A-Za-z0-9][A-Za-z0-9_.-]*$"
_KINDS: Final = ("volume", "host", "data_container", "tmpfs")


@dataclass(frozen=True)
class Nothing(Shape):
    """A key that says everything: what stands after it must be nothing."""

    @property
    def expected(self) -> str:
        return "nothing: it is made for this container and removed with it"

    def read(self, node: Node, findings: Findings) -> Any:
        if isinstance(node, Leaf) and node.empty:
            findings.understood(node, None)
            return ""
        return self.refuse(node, findings)

    def schema(self) -> dict[str, Any]:
        return {"type": "null"}


@dataclass(frozen=True)
class OrNothing(Shape):
    """A value that may be left out after its key: ``volume:`` is a volume without a name."""

    shape: Shape
    nothing: Any

    @property
    def expected(self) -> str:
        return f"{self.shape.expected}, or nothing"

    def read(self, node: Node, findings: Findings) -> Any:
        if isinstance(node, Leaf) and node.empty:
            findings.understood(node, None)
            return self.nothing
        return self.shape.read(node, findings)

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self.shape.schema(), {"type": "null"}]}


_RECORD: Final = Record(
    "storage entry",
    (
        Field("volume", OrNothing(Text("a volume's name", _VOLUME, bare=("integer", "boolean")), ""), "a volume"),
        Field(
            "host",
            OrNothing(Text("an absolute path", _ABSOLUTE, bare=()), ""),
            "a directory of the host; without a path, one that is made for it and removed with it",
        ),
        Field("data_container", Nothing(), "a volume of a data container that is made for it (volumes-from)"),
        Field("tmpfs", OrNothing(Measured(SIZE, minimum=4096, maximum=2**53), 0), "memory, with its limit"),
        Field("target", Text("an absolute path", _ABSOLUTE, bare=()), "where the container sees it", required=True),
        Field("read_only", Boolean(), "whether it cannot be written", default=False),
    ),
    (OneOf(_KINDS, required=True),),
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

    def read(self, node: Node, findings: Findings) -> Any:
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
