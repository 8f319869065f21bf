"""Makes a scenario's tree of a bucketbench definition: each driver is a job with its own threads and iterations.

Every value keeps the place where it was written, so that what the scenario's own checks have to say (of an order of
operations that cannot work, say) names a line of the definition. What cannot be carried over is a note; what was
decided is a comment, which `writing` puts into the scenario's file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from bench_common.errors import ScenarioError, UsageError, did_you_mean
from bench_master.bucketbench.containers import Containers, Values, shared, text
from bench_master.bucketbench.losses import losses
from bench_master.bucketbench.schema import GRACE, Driver, read_definition
from bench_master.bucketbench.steps import steps_of
from bench_master.scenario.operations import OperationsShape
from bench_master.scenario.tree import Entries, Items, Leaf, Node, Place
from bench_master.scenario.types import INVALID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_master.scenario.diagnostics import Findings, Given

TIMEOUT: Final = "10m"
"""How long an operation may take where containers are waited for: nobody knows how long their command runs."""

_Driver: TypeAlias = "Mapping[str, Given[Any]]"
_Drivers: TypeAlias = "dict[str, Given[_Driver]]"


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


@dataclass(frozen=True)
class Flags:
    """What the command line says of a definition: bucketbench's `-l` and `-o`, which drivers (empty: all).

    `grace` is how long `stop` waits under each of them before it kills.
    """

    legacy: bool = False
    overhead: bool = False
    drivers: tuple[str, ...] = ()
    grace: str = GRACE


def translate(root: Entries, findings: Findings, flags: Flags) -> Native:
    """Return a definition as a scenario; what cannot be carried over is noted in `findings`.

    Raises `ScenarioError` with everything that is wrong with the definition as such, and the order of its commands.
    """
    definition = read_definition(root, findings)
    drivers, commands = definition.get("drivers"), definition.get("commands")
    if drivers is not None and commands is not None and INVALID not in (drivers.value, commands.value):
        _check_order(drivers.value, commands, root.values["commands"], findings)
    if findings.deep:
        raise ScenarioError(findings.problems)
    labelled = labels_of(definition["drivers"].value)
    chosen = _chosen(labelled, flags.drivers)
    if left_out := [label for label in labelled if label not in chosen]:
        findings.note(f"{root.place.file}: left out, since --drivers does not name them: {', '.join(left_out)}")
    for loss in losses(definition, list(chosen.values()), overhead=flags.overhead, grace=flags.grace):
        findings.note(loss)
    return _Translator(definition, chosen, root.place, flags).translate()


def _chosen(labelled: _Drivers, names: Sequence[str]) -> _Drivers:
    """Return the drivers that are called by `names`, in any capitals, in the order of the file; all without names."""
    known = {label.lower(): label for label in labelled}
    for name in names:
        if name.lower() not in known:
            hint = did_you_mean(name, labelled)
            raise UsageError(f"--drivers: no driver {name!r}{hint}; the drivers are: {', '.join(labelled)}")
    wanted = {known[name.lower()] for name in names} or set(labelled)
    return {label: driver for label, driver in labelled.items() if label in wanted}


def _check_order(drivers: Sequence[Given[_Driver]], commands: Given[Any], written: Node, findings: Findings) -> None:
    """Note each command that cannot work where it stands. Beside one that was refused, nothing can be said."""
    if not isinstance(written, Items) or len(written.items) != len(commands.value):
        return
    for driver in drivers:
        if "type" in driver.value and driver.value["type"].value is not INVALID:
            OperationsShape().read(steps_of(commands, driver.value), findings)


def _mapping(place: Place, values: Values) -> Entries:
    node = Entries(place)
    for key, value in values.items():
        node.put(key, value, value.place)
    return node


def _number(value: int, place: Place) -> Leaf:
    return Leaf(place, str(value))


class _Translator:
    """The translation of one definition that is right in itself."""

    def __init__(self, definition: Mapping[str, Given[Any]], drivers: _Drivers, place: Place, flags: Flags) -> None:
        self._definition = definition
        self._drivers = drivers
        self._place = place
        self._flags = flags
        self._containers = Containers(definition)
        self._native = Native(Entries(place))

    def translate(self) -> Native:
        """Return the scenario."""
        native, place = self._native, self._place
        native.put(native.root, "name", self._name())
        native.put(
            native.root,
            "order",
            Leaf(place, "as-written"),
            "bucketbench runs one driver after the other, in the order of its file.",
        )
        if any(command.value == "wait" for command in self._definition["commands"].value):
            native.put(
                native.root,
                "timeout",
                Leaf(place, TIMEOUT),
                "bucketbench waits as long as it takes; here an operation that takes longer than this has failed.",
            )
        self._put_what_goes_beside()
        containers = {label: self._containers.of(driver.value) for label, driver in self._drivers.items()}
        common = shared(list(containers.values()))
        if common:
            native.put(native.root, "container", _mapping(place, common))
        jobs = Entries(place)
        for label, driver in self._drivers.items():
            own = {key: node for key, node in containers[label].items() if key not in common}
            jobs.put(label, self._job(driver, own), driver.place)
        native.put(native.root, "jobs", jobs, f"A job for each driver. {self._about_stop()}".strip())
        return native

    def _put_what_goes_beside(self) -> None:
        """Put what bucketbench measures besides the drivers."""
        native, place = self._native, self._place
        comment = "First what the machine itself can do; --skip-limit leaves it out, as bucketbench's does."
        native.put(native.root, "limit", Leaf(place, "true"), comment)
        if self._flags.overhead:
            groups: Values = {}
            for driver in self._drivers.values():
                if "cgroupPath" in driver.value:
                    engine = driver.value["type"].value.engine
                    groups.setdefault(engine, text(driver.value["cgroupPath"]))
            label, first = next(iter(self._drivers.items()))
            same: Values = {
                "engine": Leaf(place, first.value["type"].value.engine),
                "job": Leaf(place, label, plain=False),
            }
            watched: Values = {"baseline": _mapping(place, same)}
            if groups:
                watched["cgroups"] = _mapping(place, groups)
            comment = "--overhead; compared with the first driver at as many threads, as there."
            native.put(native.root, "overhead", _mapping(place, watched), comment)

    def _name(self) -> Leaf:
        if "name" in self._definition:
            return text(self._definition["name"])
        return Leaf(self._place, PurePath(self._place.file).stem or "bucketbench", plain=False)

    def _job(self, driver: Given[_Driver], container: Values) -> Entries:
        given = driver.value
        kind: Driver = given["type"].value
        threads, iterations = given["threads"], given["iterations"]
        job = Entries(driver.place)
        engine = Leaf(given["type"].place, kind.engine)
        self._native.put(job, "engines", Items(engine.place, [engine]))
        if self._flags.legacy:
            counts: list[Node] = [_number(count, threads.place) for count in range(1, threads.value + 1)]
            sweep = _mapping(threads.place, {"concurrency": Items(threads.place, counts)})
            self._native.put(job, "matrix", sweep, f"With 1 thread, and so on up to {threads.value}: --legacy.")
        else:
            self._native.put(job, "concurrency", _number(threads.value, threads.place))
        self._native.put(job, "iterations", _number(iterations.value, iterations.place))
        if container:
            self._native.put(job, "container", _mapping(driver.place, container))
        self._native.put(job, "operations", steps_of(self._definition["commands"], given, self._flags.grace))
        return job

    def _about_stop(self) -> str:
        if all(command.value != "stop" for command in self._definition["commands"].value):
            return ""
        return (
            f"'stop' is the same under each: SIGTERM, and SIGKILL after {self._flags.grace}. bucketbench waits 30 s "
            "under Docker and 10 s under DockerCLI, and sends SIGKILL at once under the others."
        )


def labels_of(drivers: Sequence[Given[_Driver]]) -> _Drivers:
    """Return the drivers by the labels of their jobs: a driver's name, the second of a name with a number."""
    labelled: _Drivers = {}
    seen: dict[str, int] = {}
    for driver in drivers:
        name: str = driver.value["type"].value.name
        seen[name] = seen.get(name, 0) + 1
        labelled[name if seen[name] == 1 else f"{name}-{seen[name]}"] = driver
    return labelled
