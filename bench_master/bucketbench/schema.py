"""bucketbench's benchmark definition: its keys, its drivers and its commands with every alias.

bucketbench overlooks a key that it does not know, and then does without what was meant. Here one that nearly spells a
known key is refused, with that key; one that spells none is left out, and said. What is written as Go reads it (an
empty value, ``yes``) is understood as Go understands it.
"""

# ruff: noqa: D102  what each method of a shape does is said once, in the base class

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
"""How long `stop` waits under every driver here before it kills, unless told otherwise: as ``docker stop`` does."""
_IMMEDIATELY: Final = "SIGKILL at once"


@dataclass(frozen=True)
class Driver:
    """A driver: what bucketbench calls it, the engine that does the same here, and what it heeds.

    `client` is what `clientpath` names: nothing, a socket, or the program that is called so. `stop` is what its
    `stop` does: the grace period, or what there is instead of one. `bundle` drivers run the bundle at `rootfs` there,
    and those with `takes_rootfs` here, too; `logs` ones take a log driver; `streams` ones can stream statistics, and
    a `polls` one asks at an interval to do so; one with `asks` has a stream there and is asked at an interval here.
    """

    name: str
    engine: str
    client: str
    stop: str = _IMMEDIATELY
    bundle: bool = False
    accepts_rootfs: bool = False
    logs: bool = False
    streams: bool = False
    polled_there: bool = False
    asks: bool = False


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
"""Every command that bucketbench knows, aliases too, and the operation that does the same here."""


@dataclass(frozen=True)
class DriverShape(Shape):
    """The `type` of a driver, read as a `Driver`; capitals do not matter."""

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
    """A command or an alias, in small letters or not; read as the operation that does the same here."""

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
    """A truth value as Go's YAML reader takes one where it wants one: YAML 1.1's words as well."""

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
        "containers that each thread makes",
        required=True,
    ),
    Field("logDriver", Text("a log driver such as json-file"), "where a container's output goes"),
    Field("logOpts", MapOf("options of the log driver", r"^[^=\s]+$", Text(allow_empty=True)), "of the log driver"),
    Field("streamStats", GoBoolean(), "whether stats go on until the iteration ends"),
    Field("statsIntervalSec", Quantity(WHOLE, minimum=0, maximum=3600), "seconds from one query to the next"),
    Field("cgroupPath", Text("the path of a cgroup such as /system.slice/docker.service"), "the daemon's cgroup"),
)

DEFINITION_KEYS: Final = (
    Field("name", Text("a name"), "what the benchmark is called"),
    Field("image", Text("an image such as alpine:latest"), "what the containers are made of", required=True),
    Field("command", Text("a command"), "what runs in them instead of the image's own"),
    Field("rootfs", Text("the directory of an OCI bundle"), "what runs under the OCI runtimes"),
    Field("detached", GoBoolean(), "has no effect in bucketbench: containers are always detached"),
    Field("drivers", ListOf(Record("driver", DRIVER_KEYS), at_least=1), "what to run it under", required=True),
    Field("commands", ListOf(CommandWord(), at_least=1), "what is done to each container, in order", required=True),
)


def is_definition(root: MappingNode) -> bool:
    """Return whether a file's tree is a bucketbench definition, or was meant to be one: no scenario has its lists."""
    return bool(root.values.keys() & {"drivers", "commands"}) and not root.values.keys() & {"job", "jobs"}


def read_definition(root: MappingNode, findings: Diagnostics) -> Mapping[str, Located[Any]]:
    """Return a definition by key; what was refused is `INVALID`, and `findings` says why."""
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
    """Return the keys that have a value and a meaning, or that nearly spell one; note the others."""
    names = [field.name for field in fields]
    kept = MappingNode(node.place)
    for key, value in node.values.items():
        place = node.key_places[key]
        if key not in names and closest_match(key, names) is None:
            findings.note(
                f"{format_place(place)}: '{key}' is no key of a bucketbench {what}: left out, as bucketbench does"
            )
        elif not (isinstance(value, ScalarNode) and (value.empty or not value.text)):
            kept.put(key, value, place)
    return kept


def format_place(place: SourceLocation) -> str:
    """Return a place as a note names it."""
    return f"{place.file}:{place.line}" if place.line else place.file
