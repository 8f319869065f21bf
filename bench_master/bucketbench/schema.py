"""bucketbench's benchmark definition: its keys, its drivers and its commands with every alias.

bucketbench silently ignores an unknown key. Here a key that nearly spells a known one is rejected with that key, and
any other is ignored with a note. Values are read as Go reads them (an empty value, ``yes``).
"""

# ruff: noqa: D102  the base class documents what each method of a shape does

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench_common.cli import MAX_SLOTS
from bench_common.errors import closest_match, did_you_mean
from bench_master.scenario.types import INVALID, WHOLE, Field, ListOf, MapOf, Quantity, Record, Shape, Text
from bench_master.scenario.yaml_tree import ListNode, MappingNode, Node, ScalarNode, SourceLocation, quote_node

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_master.scenario.diagnostics import Diagnostics, Located

_TRUE: Final = frozenset({"y", "yes", "on", "true"})
_FALSE: Final = frozenset({"n", "no", "off", "false"})


GRACE: Final = "10s"
"""The default grace period of `stop` under every driver, as ``docker stop`` has it."""
_IMMEDIATELY: Final = "SIGKILL at once"


@dataclass(frozen=True)
class Driver:
    """A driver of bucketbench, and what it supports."""

    name: str
    engine: str
    """The engine that does the same here."""
    client: str
    """What `clientpath` names: ``nothing``, a ``socket``, or a program of this name."""
    stop: str = _IMMEDIATELY
    """What its `stop` does: the grace period, or what it does instead."""
    bundle: bool = False
    """Whether bucketbench runs the bundle at `rootfs`."""
    accepts_rootfs: bool = False
    """Whether the engine here runs it, too."""
    logs: bool = False
    """Whether it takes a log driver."""
    streams: bool = False
    """Whether it can stream statistics."""
    polled_there: bool = False
    """Whether bucketbench polls at an interval to do so."""
    asks: bool = False
    """Whether bucketbench has a stream where the engine here polls at an interval."""


DRIVERS: Final = (
    Driver("Docker", "docker", "nothing", stop="30s", logs=True, streams=True),
    Driver("DockerCLI", "docker-cli", "docker", stop=GRACE, logs=True, streams=True, asks=True),
    Driver("Containerd", "containerd", "socket", streams=True, polled_there=True),
    Driver("Ctr", "containerd", "ctr", bundle=True),
    Driver("CRI", "cri", "socket"),
    Driver("Runc", "runc", "runc", bundle=True, accepts_rootfs=True),
    Driver("CRun", "crun", "crun", bundle=True, accepts_rootfs=True),
    Driver("Youki", "youki", "youki", bundle=True, accepts_rootfs=True),
)

COMMANDS: Final = {
    "run": "run",
    "start": "run",
    "pause": "pause",
    "unpause": "unpause",
    "resume": "unpause",
    "stop": "stop",
    "kill": "stop",
    "remove": "remove",
    "erase": "remove",
    "delete": "remove",
    "wait": "wait",
    "metrics": "stats",
    "stats": "stats",
}
"""Every command of bucketbench, aliases included, and the operation that does the same here."""


@dataclass(frozen=True)
class DriverShape(Shape):
    """The `type` of a driver, in any case; read as a `Driver`."""

    @property
    def expected(self) -> str:
        return f"one of {', '.join(driver.name for driver in DRIVERS)}"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, ScalarNode):
            return self.refuse(node, findings)
        for driver in DRIVERS:
            if node.text.lower() == driver.name.lower():
                return driver
        names = [driver.name for driver in DRIVERS]
        hint = did_you_mean(node.text, names)
        findings.add(node.place, f"unknown driver {quote_node(node)}{hint}; one of: {', '.join(names)}")
        return INVALID

    def schema(self) -> dict[str, Any]:
        return {"enum": [driver.name for driver in DRIVERS]}


@dataclass(frozen=True)
class CommandWord(Shape):
    """A command or an alias, in any case; read as the operation that does the same here."""

    @property
    def expected(self) -> str:
        return f"one of {', '.join(COMMANDS)}"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, ScalarNode):
            return self.refuse(node, findings)
        operation = COMMANDS.get(node.text.lower())
        if operation is None:
            hint = did_you_mean(node.text, COMMANDS)
            findings.add(node.place, f"unknown command {quote_node(node)}{hint}; one of: {', '.join(COMMANDS)}")
            return INVALID
        return operation

    def schema(self) -> dict[str, Any]:
        return {"enum": list(COMMANDS)}


@dataclass(frozen=True)
class GoBoolean(Shape):
    """A boolean as Go's YAML reader accepts it, with the words of YAML 1.1."""

    @property
    def expected(self) -> str:
        return "true or false"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        word = node.text.lower() if isinstance(node, ScalarNode) and node.plain else ""
        if word not in _TRUE | _FALSE:
            return self.refuse(node, findings)
        return word in _TRUE

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


_COUNT: Final = 10**9

DRIVER_KEYS: Final = (
    Field("type", DriverShape(), "which driver", required=True),
    Field("clientpath", Text("the path of a binary or socket"), "the driver's binary or socket"),
    Field("threads", Quantity(WHOLE, minimum=1, maximum=MAX_SLOTS), "how many threads", required=True),
    Field(
        "iterations",
        Quantity(WHOLE, minimum=1, maximum=_COUNT),
        "containers that each thread creates",
        required=True,
    ),
    Field("logDriver", Text("a log driver such as json-file"), "the log driver of the containers"),
    Field(
        "logOpts",
        MapOf("options of the log driver", r"^[^=\s]+$", Text(allow_empty=True)),
        "options of the log driver",
    ),
    Field("streamStats", GoBoolean(), "whether statistics continue until the iteration ends"),
    Field("statsIntervalSec", Quantity(WHOLE, minimum=0, maximum=3600), "seconds between two queries"),
    Field("cgroupPath", Text("the path of a cgroup such as /system.slice/docker.service"), "the daemon's cgroup"),
)

DEFINITION_KEYS: Final = (
    Field("name", Text("a name"), "the name of the benchmark"),
    Field("image", Text("an image such as alpine:latest"), "the image of the containers", required=True),
    Field("command", Text("a command"), "the command, in place of the image's"),
    Field("rootfs", Text("the directory of an OCI bundle"), "the bundle for the OCI runtimes"),
    Field("detached", GoBoolean(), "has no effect in bucketbench: containers are always detached"),
    Field("drivers", ListOf(Record("driver", DRIVER_KEYS), min_items=1), "the drivers to run", required=True),
    Field("commands", ListOf(CommandWord(), min_items=1), "the commands for each container, in order", required=True),
)


def is_definition(root: MappingNode) -> bool:
    """Return whether a tree is (meant as) a bucketbench definition: no scenario has its lists."""
    return bool(root.values.keys() & {"drivers", "commands"}) and not root.values.keys() & {"job", "jobs"}


def read_definition(root: MappingNode, findings: Diagnostics) -> Mapping[str, Located[Any]]:
    """Return a definition by key; an invalid value is `INVALID`, with the reason in `findings`."""
    kept = _drop_unknown_keys(root, "definition", DEFINITION_KEYS, findings)
    drivers = kept.values.get("drivers")
    if isinstance(drivers, ListNode):
        items: list[Node] = [
            _drop_unknown_keys(item, "driver", DRIVER_KEYS, findings) if isinstance(item, MappingNode) else item
            for item in drivers.items
        ]
        kept.values["drivers"] = ListNode(drivers.place, items)
    read: Mapping[str, Located[Any]] = Record("bucketbench definition", DEFINITION_KEYS).read(kept, findings)
    return read


def _drop_unknown_keys(node: MappingNode, what: str, fields: Sequence[Field], findings: Diagnostics) -> MappingNode:
    """Return the keys with a value that are known or nearly spell a known one; note the others."""
    names = [field.name for field in fields]
    kept = MappingNode(node.place)
    for key, value in node.values.items():
        place = node.key_places[key]
        if key not in names and closest_match(key, names) is None:
            findings.note(
                f"{format_place(place)}: '{key}' is not a key of a bucketbench {what}: ignored, as in bucketbench"
            )
        elif not (isinstance(value, ScalarNode) and (value.empty or not value.text)):
            kept.put(key, value, place)
    return kept


def format_place(place: SourceLocation) -> str:
    """Return a place as a note names it."""
    return f"{place.file}:{place.line}" if place.line else place.file
