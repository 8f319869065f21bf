"""bucketbench's benchmark definitions, translated to a scenario's tree: each driver is a job with its threads.

bucketbench silently ignores an unknown key. Here a key that nearly spells a known one is rejected with that key, and
any other is ignored with a note. Values are read as Go reads them (an empty value, ``yes``).

Every value keeps its place, so that the scenario's own checks (of the order of operations, for example) name a line
of the definition. Everything that has another meaning here, or none, gives a note with its place, even where
bucketbench itself silently ignores it. Decisions become comments in the written scenario.
"""

# ruff: noqa: D102  the base class documents what each method of a shape does

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from bench_common.argument_types import MAX_SLOTS
from bench_common.errors import ScenarioError, UsageError, did_you_mean
from bench_master.scenario.diagnostics import format_place, keep_known_in_list, keep_known_keys
from bench_master.scenario.model import DefinitionFlags, TranslatedScenario
from bench_master.scenario.operations import OperationsShape
from bench_master.scenario.types import INVALID, WHOLE, Field, ListOf, MapOf, Quantity, Record, Shape, Text
from bench_master.scenario.yaml_tree import ListNode, MappingNode, Node, ScalarNode, SourceLocation, quote_node

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench_master.scenario.diagnostics import Diagnostics, Located

_TRUE: Final = frozenset({"y", "yes", "on", "true"})
_FALSE: Final = frozenset({"n", "no", "off", "false"})


_AT_ONCE: Final = "0s"
"""The grace period of a `stop` that is SIGKILL alone."""
_USUAL: Final = "10s"
"""The grace period of `stop` in a scenario that gives none, and of ``docker stop``."""


class Driver(Struct, frozen=True):
    """A driver of bucketbench, and what it supports."""

    name: str
    engine: str
    """The engine that does the same here."""
    client: str
    """What `clientpath` names: ``nothing``, a ``socket``, or a program of this name."""
    grace: str = _AT_ONCE
    """The grace period of its `stop`."""
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
    Driver("Docker", "docker", "nothing", grace="30s", logs=True, streams=True),
    Driver("DockerCLI", "docker-cli", "docker", grace=_USUAL, logs=True, streams=True, asks=True),
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


def read_definition(root: MappingNode, findings: Diagnostics) -> Mapping[str, Located[Any]]:
    """Return a definition by key; an invalid value is `INVALID`, with the reason in `findings`."""
    kept = keep_known_keys(root, "a bucketbench definition", [one.name for one in DEFINITION_KEYS], findings)
    keep_known_in_list(kept, "drivers", "a bucketbench driver", [one.name for one in DRIVER_KEYS], findings)
    read: Mapping[str, Located[Any]] = Record("bucketbench definition", DEFINITION_KEYS).read(kept, findings)
    return read


# -- translation --------------------------------------------------------------------------------------------------

Values: TypeAlias = dict[str, Node]


def runs_bundle(kind: Driver, definition: Mapping[str, Located[Any]]) -> bool:
    """Return whether a driver runs the definition's bundle, whose ``config.json`` has the command."""
    return kind.accepts_rootfs and "rootfs" in definition


class DriverContainers:
    """The containers of one definition. Two of them share a setting as the same node, so it is written once."""

    def __init__(self, definition: Mapping[str, Located[Any]]) -> None:
        self._definition = definition
        self._image: Values = {"image": text_node(definition["image"])}
        self._rootfs: Values = {"rootfs": text_node(definition["rootfs"])} if "rootfs" in definition else {}
        command: Located[str] | None = definition.get("command")
        if command is not None and command.value.split():
            words: list[Node] = [ScalarNode(command.place, word, plain=False) for word in command.value.split()]
            self._image["command"] = ListNode(command.place, words)

    def of(self, driver: Mapping[str, Located[Any]]) -> Values:
        """Return the container of one driver's jobs."""
        kind: Driver = driver["type"].value
        if runs_bundle(kind, self._definition):
            return dict(self._rootfs)
        return self._image | (_logs(driver) if kind.logs else {})


def common_settings(containers: Sequence[Values]) -> Values:
    """Return the settings that all of the containers share."""
    first, *others = containers
    return {key: node for key, node in first.items() if all(other.get(key) is node for other in others)}


def text_node(given: Located[str]) -> ScalarNode:
    """Return text as a node at its place."""
    return ScalarNode(given.place, given.value, plain=False)


def _logs(driver: Mapping[str, Located[Any]]) -> Values:
    if "logDriver" not in driver:
        return {}
    logs: Values = {"log_driver": text_node(driver["logDriver"])}
    options = driver.get("logOpts")
    if options is not None and options.value:
        node = MappingNode(options.place)
        for name, value in options.value.items():
            node.put(name, text_node(value), value.place)
        logs["log_options"] = node
    return logs


_POLL_S: Final = 1
"""The interval of a stream of statistics where the definition gives none, in seconds."""


def operations_for(
    commands: Located[tuple[Located[str], ...]], driver: Mapping[str, Located[Any]], grace: str | None = None
) -> ListNode:
    """Return the operations of one driver's job, each at the place of its command.

    `grace` is that of `stop`; None: what bucketbench does under this driver.
    """
    kind: Driver = driver["type"].value
    lost = {id(command) for command, _ in _skipped_commands(commands.value, kind)}
    kept = [command for command in commands.value if id(command) not in lost]
    return ListNode(commands.place, [_step(command, kind, driver, grace or kind.grace) for command in kept])


def _step(command: Located[str], kind: Driver, driver: Mapping[str, Located[Any]], grace: str) -> Node:
    place = command.place
    if command.value == "stop":
        return _with_option(place, command.value, "grace", grace)
    stream, interval = driver.get("streamStats"), driver.get("statsIntervalSec")
    if command.value == "stats" and stream is not None and stream.value:
        seconds = interval.value if kind.polled_there and interval is not None else 0
        return _with_option(place, command.value, "interval", f"{seconds or _POLL_S}s")
    return ScalarNode(place, command.value)


def _with_option(place: SourceLocation, kind: str, name: str, value: str) -> MappingNode:
    option, step = MappingNode(place), MappingNode(place)
    option.put(name, ScalarNode(place, value), place)
    step.put(kind, option, place)
    return step


def _skipped_commands(commands: Sequence[Located[str]], kind: Driver) -> Iterator[tuple[Located[str], str]]:
    """Yield the commands that have no operation under a driver, and why."""
    ended = False
    for command in commands:
        if command.value == "stats":
            if not kind.streams:
                yield command, "bucketbench cannot do it either, and counts errors"
            elif ended:
                yield command, "the container has ended by then and has no statistics"
        elif command.value in {"pause", "unpause"} and kind.name == "CRI":
            yield command, "the CRI has no such call; bucketbench does nothing and reports success"
        ended = ended or command.value in {"wait", "stop"}


def skipped_commands(commands: Sequence[Located[str]], kinds: Sequence[Driver]) -> Iterator[str]:
    """Yield a note for each skipped command and reason, with the drivers concerned."""
    found: dict[tuple[int, str], dict[str, None]] = {}
    for kind in kinds:
        for command, reason in _skipped_commands(commands, kind):
            found.setdefault((id(command), reason), {})[kind.name] = None
    for command in commands:
        for (which, reason), names in found.items():
            if which == id(command):
                where = f"{format_place(command.place)}: '{command.value}'"
                yield f"{where} is skipped under {', '.join(names)}: {reason}"


def unsupported_parts(
    definition: Mapping[str, Located[Any]],
    drivers: Sequence[Located[Mapping[str, Located[Any]]]],
    *,
    overhead: bool,
    grace: str | None,
) -> Iterator[str]:
    """Yield the parts of a valid definition, and of its selected drivers, that are not carried over unchanged.

    `overhead`: whether the run measures the engines' cost; `grace`: how long `stop` waits, None: as in bucketbench.
    """
    commands: Sequence[Located[str]] = definition["commands"].value
    kinds: list[Driver] = [driver.value["type"].value for driver in drivers]
    yield from _container_notes(definition, kinds)
    groups: dict[str, str] = {}
    asked = any(command.value == "stats" for command in commands)
    for driver, kind in zip(drivers, kinds, strict=True):
        yield from _driver_notes(kind, driver.value)
        yield from _stats_notes(kind, driver.value, asked=asked)
        if "cgroupPath" in driver.value:
            yield from _cgroup_notes(kind, driver.value["cgroupPath"], groups, overhead=overhead)
    yield from _stop_notes(commands, kinds, grace)
    yield from skipped_commands(commands, kinds)


def _container_notes(definition: Mapping[str, Located[Any]], kinds: Sequence[Driver]) -> Iterator[str]:
    detached, command = definition.get("detached"), definition.get("command")
    if command is not None and set(command.value) & set("'\""):
        yield _note(command, "'command' is split at blanks, as in bucketbench: quotes are part of the words")
    # bucketbench runs a bundle under these drivers; here they run the image.
    unbundled = ", ".join(
        dict.fromkeys(kind.name for kind in kinds if kind.bundle and not runs_bundle(kind, definition))
    )
    if unbundled and command is not None:
        yield _note(command, f"'command' runs under {unbundled} too; bucketbench reads it from 'config.json'")
    if "rootfs" in definition and not any(kind.bundle for kind in kinds):
        yield _note(definition["rootfs"], "'rootfs' has no effect under these drivers, in bucketbench too")
    elif "rootfs" in definition and unbundled:
        text = f"'rootfs' is not carried over under {unbundled}: the root file system comes from 'image'"
        yield _note(definition["rootfs"], text)
    if detached is not None and not detached.value:
        yield _note(detached, "'detached: false' has no effect: containers are always detached, in bucketbench too")


def _note(given: Located[Any], text: str) -> str:
    return f"{format_place(given.place)}: {text}"


def _stop_notes(commands: Sequence[Located[str]], kinds: Sequence[Driver], grace: str | None) -> Iterator[str]:
    """Yield a note on what `stop` is: bucketbench's three kinds are not comparable with each other."""
    stop = next((command for command in commands if command.value == "stop"), None)
    there = stop_kinds(kinds)
    if stop is None or set(there) == {grace or _USUAL}:
        return
    kinds_there = "; ".join(f"{stop_meaning(one)} under {', '.join(names)}" for one, names in there.items())
    if grace is not None:
        yield _note(
            stop, f"'stop' is {stop_meaning(grace)} under every driver (--stop-grace); in bucketbench {kinds_there}"
        )
    elif len(there) == 1:
        yield _note(stop, f"'stop' is {kinds_there}, as in bucketbench (see --stop-grace)")
    else:
        text = f"'stop' is {kinds_there}, as in bucketbench, so its times cannot be compared"
        yield _note(stop, f"{text}; --stop-grace TIME makes it the same under every driver")


def stop_kinds(kinds: Sequence[Driver]) -> dict[str, dict[str, None]]:
    """Return the drivers' names by the grace period that bucketbench's `stop` has under them."""
    found: dict[str, dict[str, None]] = {}
    for kind in kinds:
        found.setdefault(kind.grace, {})[kind.name] = None
    return found


def stop_meaning(grace: str) -> str:
    """Return what a `stop` with this grace period sends."""
    return "SIGKILL at once" if grace == _AT_ONCE else f"SIGTERM, and SIGKILL after {grace}"


def _driver_notes(kind: Driver, driver: Mapping[str, Located[Any]]) -> Iterator[str]:
    name = kind.name
    if name == "Ctr":
        yield _note(driver["type"], "Ctr, containerd before 1.0, runs as engine containerd, from the image")
    if name == "CRI":
        text = "CRI runs 'image' and 'command'; bucketbench takes them from contrib/container_config.json"
        yield _note(driver["type"], text)
    if "clientpath" in driver and driver["clientpath"].value != kind.client:
        yield _note(driver["clientpath"], _client_note(kind))
    if "logDriver" in driver and not kind.logs:
        yield _note(driver["logDriver"], f"'logDriver' has no effect under {name}, in bucketbench too")
    if "logOpts" in driver and not (kind.logs and "logDriver" in driver):
        where = "without 'logDriver'" if kind.logs else f"under {name}"
        yield _note(driver["logOpts"], f"'logOpts' has no effect {where}, in bucketbench too")


def _stats_notes(kind: Driver, driver: Mapping[str, Located[Any]], *, asked: bool) -> Iterator[str]:
    stream, interval = driver.get("streamStats"), driver.get("statsIntervalSec")
    streams = stream is not None and stream.value
    if stream is not None and streams and not (asked and kind.streams):
        where = f"under {kind.name}" if asked else "without the command 'stats'"
        yield _note(stream, f"'streamStats' has no effect {where}, in bucketbench too")
    elif stream is not None and streams and kind.asks:
        text = f"'streamStats' of {kind.name} runs `docker stats` for each reading; bucketbench keeps one for all"
        yield _note(stream, text)
    if interval is not None and not (asked and kind.polled_there and streams):
        where = "without 'streamStats' and the command 'stats'" if kind.polled_there else f"under {kind.name}"
        yield _note(interval, f"'statsIntervalSec' has no effect {where}, in bucketbench too")


def _cgroup_notes(kind: Driver, group: Located[str], groups: dict[str, str], *, overhead: bool) -> Iterator[str]:
    """Yield a note on a cgroup path; `groups` are those of the earlier drivers, by engine."""
    if not overhead:
        yield _note(group, f"'cgroupPath' of {kind.name} has an effect only with --overhead, in bucketbench too")
    elif groups.setdefault(kind.engine, group.value) != group.value:
        yield _note(group, f"'cgroupPath' of {kind.name} is ignored: its engine already has {groups[kind.engine]}")


def _client_note(kind: Driver) -> str:
    if kind.client == "nothing":
        return f"'clientpath' has no effect under {kind.name}, in bucketbench too"
    own = "the socket of its host" if kind.client == "socket" else f"the '{kind.client}' on its PATH"
    return (
        f"'clientpath' of {kind.name} is not carried over: a scenario cannot choose a worker's programs; "
        f"the worker uses {own}, see bench-master list engines, or what its owner offers under a label (--engine)"
    )


TIMEOUT: Final = "10m"
"""The time limit of an operation where the run waits for containers: the length of their command is unknown."""

_Driver: TypeAlias = "Mapping[str, Located[Any]]"
_Drivers: TypeAlias = "dict[str, Located[_Driver]]"


def translate(root: MappingNode, findings: Diagnostics, flags: DefinitionFlags) -> TranslatedScenario:
    """Return a definition as a scenario; note in `findings` what cannot be carried over.

    Raises `ScenarioError` with all problems of the definition, including the order of its commands.
    """
    definition = read_definition(root, findings)
    drivers, commands = definition.get("drivers"), definition.get("commands")
    if drivers is not None and commands is not None and INVALID not in (drivers.value, commands.value):
        _check_order(drivers.value, commands, root.values["commands"], findings)
    if findings.deep:
        raise ScenarioError(findings.problems)
    labelled = job_labels(definition["drivers"].value)
    chosen = _select_drivers(labelled, flags.drivers)
    if left_out := [label for label in labelled if label not in chosen]:
        findings.note(f"{root.place.file}: not selected by --drivers: {', '.join(left_out)}")
    for loss in unsupported_parts(definition, list(chosen.values()), overhead=flags.overhead, grace=flags.grace):
        findings.note(loss)
    return _Translator(definition, chosen, root.place, flags).translate()


def _select_drivers(labelled: _Drivers, names: Sequence[str]) -> _Drivers:
    """Return the drivers with these names, in any case, in the order of the file; all if there are no names."""
    known = {label.lower(): label for label in labelled}
    for name in names:
        if name.lower() not in known:
            hint = did_you_mean(name, labelled)
            raise UsageError(f"--drivers: no driver {name!r}{hint}; the drivers are: {', '.join(labelled)}")
    wanted = {known[name.lower()] for name in names} or set(labelled)
    return {label: driver for label, driver in labelled.items() if label in wanted}


def _check_order(
    drivers: Sequence[Located[_Driver]], commands: Located[Any], written: Node, findings: Diagnostics
) -> None:
    """Report each command that cannot work at its position, unless one of them is invalid."""
    if not isinstance(written, ListNode) or len(written.items) != len(commands.value):
        return
    for driver in drivers:
        if "type" in driver.value and driver.value["type"].value is not INVALID:
            OperationsShape().read(operations_for(commands, driver.value), findings)


def _mapping(place: SourceLocation, values: Values) -> MappingNode:
    node = MappingNode(place)
    for key, value in values.items():
        node.put(key, value, value.place)
    return node


def _number(value: int, place: SourceLocation) -> ScalarNode:
    return ScalarNode(place, str(value))


class _Translator:
    """The translation of one valid definition."""

    def __init__(
        self, definition: Mapping[str, Located[Any]], drivers: _Drivers, place: SourceLocation, flags: DefinitionFlags
    ) -> None:
        self._definition = definition
        self._drivers = drivers
        self._place = place
        self._flags = flags
        self._containers = DriverContainers(definition)
        self._native = TranslatedScenario(MappingNode(place))

    def translate(self) -> TranslatedScenario:
        """Return the scenario."""
        native, place = self._native, self._place
        native.put(native.root, "name", self._name())
        native.put(
            native.root,
            "order",
            ScalarNode(place, "as-written"),
            "bucketbench runs one driver after the other, in the order of its file.",
        )
        if any(command.value == "wait" for command in self._definition["commands"].value):
            native.put(
                native.root,
                "timeout",
                ScalarNode(place, TIMEOUT),
                "bucketbench waits without limit; here an operation that takes longer fails.",
            )
        self._add_measurements()
        containers = {label: self._containers.of(driver.value) for label, driver in self._drivers.items()}
        common = common_settings(list(containers.values()))
        if common:
            native.put(native.root, "container", _mapping(place, common))
        jobs = MappingNode(place)
        for label, driver in self._drivers.items():
            own = {key: node for key, node in containers[label].items() if key not in common}
            jobs.put(label, self._job(driver, own), driver.place)
        native.put(native.root, "jobs", jobs, f"A job for each driver. {self._stop_comment()}".strip())
        return native

    def _add_measurements(self) -> None:
        """Add what bucketbench measures besides the drivers."""
        native, place = self._native, self._place
        comment = "Measure the host ceiling first; --skip-host-ceiling leaves it out (bucketbench: --skip-limit)."
        native.put(native.root, "host_ceiling", ScalarNode(place, "true"), comment)
        if self._flags.overhead:
            groups: Values = {}
            for driver in self._drivers.values():
                if "cgroupPath" in driver.value:
                    engine = driver.value["type"].value.engine
                    groups.setdefault(engine, text_node(driver.value["cgroupPath"]))
            label, first = next(iter(self._drivers.items()))
            same: Values = {
                "engine": ScalarNode(place, first.value["type"].value.engine),
                "job": ScalarNode(place, label, plain=False),
            }
            watched: Values = {"baseline": _mapping(place, same)}
            if groups:
                watched["cgroups"] = _mapping(place, groups)
            comment = "--overhead; compared with the first driver at the same number of threads, as in bucketbench."
            native.put(native.root, "overhead", _mapping(place, watched), comment)

    def _name(self) -> ScalarNode:
        if "name" in self._definition:
            return text_node(self._definition["name"])
        return ScalarNode(self._place, PurePath(self._place.file).stem or "bucketbench", plain=False)

    def _job(self, driver: Located[_Driver], container: Values) -> MappingNode:
        given = driver.value
        kind: Driver = given["type"].value
        threads, iterations = given["threads"], given["iterations"]
        job = MappingNode(driver.place)
        engine = ScalarNode(given["type"].place, kind.engine)
        self._native.put(job, "engines", ListNode(engine.place, [engine]))
        if self._flags.legacy:
            counts: list[Node] = [_number(count, threads.place) for count in range(1, threads.value + 1)]
            sweep = _mapping(threads.place, {"concurrency": ListNode(threads.place, counts)})
            self._native.put(job, "matrix", sweep, f"1 to {threads.value} threads: --legacy.")
        else:
            self._native.put(job, "concurrency", _number(threads.value, threads.place))
        self._native.put(job, "iterations", _number(iterations.value, iterations.place))
        if container:
            self._native.put(job, "container", _mapping(driver.place, container))
        self._native.put(job, "operations", operations_for(self._definition["commands"], given, self._flags.grace))
        return job

    def _stop_comment(self) -> str:
        if all(command.value != "stop" for command in self._definition["commands"].value):
            return ""
        if self._flags.grace is not None:
            return f"'stop' is the same under each: {stop_meaning(self._flags.grace)} (--stop-grace)."
        kinds = stop_kinds([driver.value["type"].value for driver in self._drivers.values()])
        there = "; ".join(f"{stop_meaning(grace)} under {', '.join(names)}" for grace, names in kinds.items())
        return f"'stop' is what it is in bucketbench: {there}."


def job_labels(drivers: Sequence[Located[_Driver]]) -> _Drivers:
    """Return the drivers by the labels of their jobs: the driver's name, numbered from its second use on."""
    labelled: _Drivers = {}
    seen: dict[str, int] = {}
    for driver in drivers:
        name: str = driver.value["type"].value.name
        seen[name] = seen.get(name, 0) + 1
        labelled[name if seen[name] == 1 else f"{name}-{seen[name]}"] = driver
    return labelled
