"""Makes a scenario's tree of a bucketbench definition: each driver is a job with its own threads and iterations.

Every value keeps the place where it was written, so that what the scenario's own checks have to say (of an order of
operations that cannot work, say) names a line of the definition. What cannot be carried over is a note; what was
decided is a comment, which `writing` puts into the scenario's file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TypeAlias

from bench_common.errors import ScenarioError
from bench_common.spec import OPERATIONS
from bench_master.bucketbench.losses import losses
from bench_master.bucketbench.schema import GRACE, Driver, read_definition, told
from bench_master.scenario.operations import OperationsShape
from bench_master.scenario.shapes import INVALID
from bench_master.scenario.tree import Entries, Items, Leaf, Node, Place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_master.scenario.findings import Findings, Given

_Values: TypeAlias = dict[str, Node]
_Driver: TypeAlias = "Mapping[str, Given[Any]]"


@dataclass
class Native:
    """A definition as a scenario: its tree, and what is to be said of it.

    `comments` are by the identity of a mapping and a key of it. The mappings are in `root`, so they live as long.
    """

    root: Entries
    comments: dict[tuple[int, str], str] = field(default_factory=dict)

    def put(self, node: Entries, key: str, value: Node, comment: str = "") -> None:
        """Set a key, with a comment of what was decided there."""
        node.put(key, value, value.place)
        if comment:
            self.comments[id(node), key] = comment


def translate(root: Entries, findings: Findings, *, legacy: bool = False) -> Native:
    """Return a definition as a scenario; with `legacy`, each driver with 1, 2 ... and all of its threads.

    What cannot be carried over is noted in `findings`. Raises `ScenarioError` with everything that is wrong with the
    definition as such.
    """
    definition = read_definition(root, findings)
    operations = _operations(definition.get("commands"), root.values.get("commands"), findings)
    if findings.deep:
        raise ScenarioError(findings.problems)
    drivers: tuple[Given[_Driver], ...] = definition["drivers"].value
    for loss in losses(definition, drivers):
        findings.note(loss)
    return _Translator(definition, root.place, legacy=legacy).translate(drivers, operations)


def _operations(given: Given[Any] | None, written: Node | None, findings: Findings) -> Items | None:
    """Return the commands as operations, each at its place; note an order that cannot work."""
    if given is None or given.value is INVALID:
        return None
    nodes: list[Node] = []
    for command in given.value:
        kind: str = command.value
        if kind == "stop":
            stop = Entries(command.place)
            stop.put(kind, _mapping(command.place, {"grace": Leaf(command.place, GRACE)}), command.place)
            nodes.append(stop)
        elif kind in OPERATIONS:
            nodes.append(Leaf(command.place, kind))
        else:
            findings.note(f"{told(command.place)}: '{kind}' is left out: no engine here has it as an operation")
    operations = Items(given.place, nodes)
    if isinstance(written, Items) and len(written.items) == len(given.value):
        # Beside a command that was refused, nothing can be said of the order.
        OperationsShape().read(operations, findings)
    return operations


def _mapping(place: Place, values: _Values) -> Entries:
    node = Entries(place)
    for key, value in values.items():
        node.put(key, value, value.place)
    return node


def _number(value: int, place: Place) -> Leaf:
    return Leaf(place, str(value))


def _text(given: Given[str]) -> Leaf:
    return Leaf(given.place, given.value, plain=False)


class _Translator:
    """The translation of one definition that is right in itself."""

    def __init__(self, definition: Mapping[str, Given[Any]], place: Place, *, legacy: bool) -> None:
        self._definition = definition
        self._place = place
        self._legacy = legacy
        self._native = Native(Entries(place))
        self._shared = self._container_of_all()

    def translate(self, drivers: Sequence[Given[_Driver]], operations: Items | None) -> Native:
        """Return the scenario."""
        native, place = self._native, self._place
        native.put(native.root, "name", self._name())
        native.put(
            native.root,
            "order",
            Leaf(place, "as-written"),
            "bucketbench runs one driver after the other, in the order of its file.",
        )
        native.put(native.root, "container", _mapping(place, self._shared))
        jobs = Entries(place)
        for label, driver in zip(labels_of(drivers), drivers, strict=True):
            jobs.put(label, self._job(driver, operations), driver.place)
        native.put(native.root, "jobs", jobs, f"A job for each driver. {_about(operations)}".strip())
        return native

    def _name(self) -> Leaf:
        if "name" in self._definition:
            return _text(self._definition["name"])
        return Leaf(self._place, PurePath(self._place.file).stem or "bucketbench", plain=False)

    def _container_of_all(self) -> _Values:
        container: _Values = {"image": _text(self._definition["image"])}
        command: Given[str] | None = self._definition.get("command")
        if command is not None and command.value.split():
            words: list[Node] = [Leaf(command.place, word, plain=False) for word in command.value.split()]
            container["command"] = Items(command.place, words)
        return container

    def _job(self, driver: Given[_Driver], operations: Items | None) -> Entries:
        given = driver.value
        kind: Driver = given["type"].value
        threads, iterations = given["threads"], given["iterations"]
        job = Entries(driver.place)
        engine = Leaf(given["type"].place, kind.engine)
        self._native.put(job, "engines", Items(engine.place, [engine]))
        if self._legacy:
            steps: list[Node] = [_number(count, threads.place) for count in range(1, threads.value + 1)]
            sweep = _mapping(threads.place, {"concurrency": Items(threads.place, steps)})
            self._native.put(job, "matrix", sweep, f"With 1 thread, and so on up to {threads.value}: --legacy.")
        else:
            self._native.put(job, "concurrency", _number(threads.value, threads.place))
        self._native.put(job, "iterations", _number(iterations.value, iterations.place))
        if kind.logs and "logDriver" in given:
            self._native.put(job, "container", self._logs(given, driver.place))
        if operations is not None:
            self._native.put(job, "operations", operations)
        return job

    @staticmethod
    def _logs(driver: _Driver, place: Place) -> Entries:
        logs: _Values = {"log_driver": _text(driver["logDriver"])}
        options = driver.get("logOpts")
        if options is not None and options.value:
            values: _Values = {name: _text(value) for name, value in options.value.items()}
            logs["log_options"] = _mapping(options.place, values)
        return _mapping(place, logs)


def _about(operations: Items | None) -> str:
    """Return what was decided about the operations, for a comment."""
    if operations is None or not any(isinstance(one, Entries) for one in operations.items):
        return ""
    return (
        f"'stop' is the same under each: SIGTERM, and SIGKILL after {GRACE}. With bucketbench that are 30 s under "
        "Docker, 10 s under DockerCLI, and SIGKILL at once under the others."
    )


def labels_of(drivers: Sequence[Given[_Driver]]) -> list[str]:
    """Return the label of each driver's job: the driver's name, the second of a name with a number."""
    seen: dict[str, int] = {}
    labels = []
    for driver in drivers:
        name: str = driver.value["type"].value.name
        seen[name] = seen.get(name, 0) + 1
        labels.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return labels
