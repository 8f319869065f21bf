"""Scenarios of ssbench, in JSON or YAML: translated to one job on objects in one trial.

Every value keeps its place, so that the scenario's own checks name a line of the file. What has another meaning here,
or none, gives a note with its place. ssbench silently ignores an unknown key: here one that nearly spells a known key
is an error.
"""

# ruff: noqa: D102  the base class documents what each method of a shape does

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

from bench_common.argument_types import MAX_SLOTS
from bench_common.errors import ScenarioError, did_you_mean
from bench_features.objects.common.job import MAX_OBJECT_BYTES
from bench_master.scenario.diagnostics import Diagnostics, format_place, keep_known_in_list, keep_known_keys
from bench_master.scenario.model import DefinitionFlags, TranslatedScenario
from bench_master.scenario.types import INVALID, NUMBER, WHOLE, Field, ListOf, MapOf, Quantity, Record, Shape, Text
from bench_master.scenario.yaml_tree import ListNode, MappingNode, Node, ScalarNode, SourceLocation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench_master.scenario.diagnostics import Located

CRUD: Final = ("create", "read", "update", "delete")
"""The operations, in the order of a profile."""

_COUNT: Final = 10**9
_BYTES: Final = Quantity(WHOLE, minimum=0, maximum=MAX_OBJECT_BYTES)
_WEIGHT: Final = Quantity(NUMBER, minimum=0, maximum=_COUNT)


@dataclass(frozen=True)
class ProfileShape(Shape):
    """Four weights, of CREATE, READ, UPDATE and DELETE; read as weights by operation, without those that are 0."""

    @property
    def expected(self) -> str:
        return "the weights of CREATE, READ, UPDATE and DELETE, such as [3, 4, 2, 2]"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, ListNode) or len(node.items) != len(CRUD):
            return self.refuse(node, findings)
        weights = [_WEIGHT.read(item, findings) for item in node.items]
        if any(weight is INVALID for weight in weights):
            return INVALID
        if not any(weights):
            return self.refuse(node, findings, "; at least one is above 0", deep=True)
        return {name: weight for name, weight in zip(CRUD, weights, strict=True) if weight}

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": _WEIGHT.schema(), "minItems": len(CRUD), "maxItems": len(CRUD)}


SIZE_KEYS: Final = (
    Field("name", Text("the name of the size class"), "what reports call the class", required=True),
    Field("size_min", _BYTES, "the smallest object, in bytes", required=True),
    Field("size_max", _BYTES, "the largest object, in bytes", required=True),
    Field("crud_profile", ProfileShape(), "the mix of this class, in the place of the common one"),
)

SCENARIO_KEYS: Final = (
    Field("name", Text("a name"), "the name of the scenario"),
    Field("sizes", ListOf(Record("size class", SIZE_KEYS), min_items=1), "the size classes", required=True),
    Field(
        "initial_files",
        MapOf("numbers of objects by size class", r"^.+$", Quantity(WHOLE, minimum=0, maximum=_COUNT), min_items=1),
        "how many objects of each class exist before the run; also the share of each class",
        required=True,
    ),
    Field("crud_profile", ProfileShape(), "the mix of the classes that have none of their own"),
    Field("operation_count", Quantity(WHOLE, minimum=1, maximum=_COUNT), "how many operations a run has"),
    Field("run_seconds", Quantity(NUMBER, exclusive_minimum=0, maximum=_COUNT), "how long a run takes"),
    Field("user_count", Quantity(WHOLE, minimum=1, maximum=MAX_SLOTS), "operations in flight, over all workers"),
    Field("container_base", Text("a name"), "what the names of the containers begin with"),
    Field("container_count", Quantity(WHOLE, minimum=1, maximum=10**6), "how many containers there are"),
    Field("container_concurrency", Quantity(WHOLE, minimum=1, maximum=10**6), "how many are made at once"),
    Field("policy", Text("a storage policy"), "the storage policy of the containers"),
    Field("delete_after", Quantity(WHOLE, minimum=0, maximum=_COUNT), "after how many seconds objects expire"),
)


def read_scenario(root: MappingNode, findings: Diagnostics) -> Mapping[str, Located[Any]]:
    """Return a scenario by key; an invalid value is `INVALID`, with the reason in `findings`."""
    kept = keep_known_keys(root, "an ssbench scenario", [one.name for one in SCENARIO_KEYS], findings)
    keep_known_in_list(kept, "sizes", "an ssbench size class", [one.name for one in SIZE_KEYS], findings)
    read: Mapping[str, Located[Any]] = Record("ssbench scenario", SCENARIO_KEYS).read(kept, findings)
    return read


def check_scenario(
    read: Mapping[str, Located[Any]], root: MappingNode, flags: DefinitionFlags, findings: Diagnostics
) -> None:
    """Report what ssbench would fail at: unknown classes, classes without a mix, a run without a size."""
    names: list[str] = []
    for one in read["sizes"].value:
        given: Mapping[str, Located[Any]] = one.value
        name = given["name"].value
        if name in names:
            findings.add(given["name"].place, f"two size classes are called '{name}': rename one", deep=True)
        names.append(name)
        if given["size_min"].value > given["size_max"].value:
            text = f"'size_min' {given['size_min'].value} is larger than 'size_max' {given['size_max'].value}"
            findings.add(given["size_min"].place, text, deep=True)
        if "crud_profile" not in given and "crud_profile" not in read:
            findings.add(
                one.place, f"class '{name}' has no 'crud_profile', and the scenario has none either: add one"
            )
    counts = read["initial_files"].value
    for name, count in counts.items():
        if name not in names:
            hint = did_you_mean(name, names) or f"; the classes are: {', '.join(names)}"
            findings.add(count.place, f"'initial_files': class '{name}' is not defined in 'sizes'{hint}")
    if not any(count.value for count in counts.values()):
        text = "'initial_files' are all 0: they are also the share of each class, so one of them is above 0"
        findings.add(read["initial_files"].place, text, deep=True)
    if "user_count" not in read and flags.user_count is None:
        findings.add(root.place, "'user_count' is missing: add it, such as user_count: 4, or give -u 4")
    sized = "operation_count" in read or "run_seconds" in read
    if not sized and flags.operation_count is None and flags.run_seconds is None:
        findings.add(root.place, "'operation_count' is missing: add it or 'run_seconds', or give -o or -r")


# -- translation --------------------------------------------------------------------------------------------------

ENGINE: Final = "swift"
CONTAINERS: Final = 100
"""How many containers ssbench makes where its file says nothing."""
CONTAINER_BASE: Final = "ssbench"
RETRIES: Final = 10
"""How often ssbench's workers try again where their command line says nothing."""
TIMEOUT: Final = "10m"
"""The time limit of an operation; ssbench has one for each read and write of a socket, not for the whole."""
_CLASS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def translate(root: MappingNode, findings: Diagnostics, flags: DefinitionFlags) -> TranslatedScenario:
    """Return ssbench's scenario as one of ours; note in `findings` what cannot be carried over.

    Raises `ScenarioError` with all problems of the file.
    """
    read = read_scenario(root, findings)
    if not findings.deep:
        check_scenario(read, root, flags, findings)
    if findings.deep:
        raise ScenarioError(findings.problems)
    return _Translator(read, root.place, flags, findings).translate()


class _Translator:
    """The translation of one valid scenario."""

    def __init__(
        self,
        read: Mapping[str, Located[Any]],
        place: SourceLocation,
        flags: DefinitionFlags,
        findings: Diagnostics,
    ) -> None:
        self._read = read
        self._place = place
        self._flags = flags
        self._findings = findings
        users = read["user_count"].value if "user_count" in read else flags.user_count
        self._native = TranslatedScenario(MappingNode(place), users=users)

    def translate(self) -> TranslatedScenario:
        """Return the scenario."""
        native, root = self._native, self._native.root
        native.put(root, "name", self._name())
        native.put(root, "engines", ListNode(self._place, [self._word(ENGINE)]))
        native.put(root, "repeats", self._word("1"), "ssbench runs a scenario once; ten repeats give an interval.")
        native.put(
            root,
            "concurrency",
            self._given("user_count", str(native.users)),
            "Users. Of the file itself, and of -u, they are those of all workers together; here of each worker.",
        )
        self._put_size(root)
        native.put(
            root,
            "timeout",
            self._word(TIMEOUT),
            "For a whole operation; ssbench has a limit for each read and write of a socket.",
        )
        job = MappingNode(self._place)
        native.put(job, "objects", self._objects())
        native.put(root, "job", job)
        if "container_concurrency" in self._read:
            place = self._read["container_concurrency"].place
            self._note(
                place, "'container_concurrency' is not carried over: a worker makes containers as it needs them"
            )
        return native

    def _put_size(self, root: MappingNode) -> None:
        """Put the size of a trial: ssbench takes `run_seconds` where its file has both."""
        if "run_seconds" in self._read:
            seconds = self._read["run_seconds"]
            self._native.put(root, "run_seconds", self._word(f"{seconds.value:.12g}", seconds.place))
            if "operation_count" in self._read:
                place = self._read["operation_count"].place
                self._note(place, "'operation_count' has no effect beside 'run_seconds', as in ssbench")
        elif "operation_count" in self._read:
            self._native.put(root, "operation_count", self._given("operation_count", ""))
        elif self._flags.run_seconds is not None:
            self._native.put(root, "run_seconds", self._word(f"{self._flags.run_seconds:.12g}"))
        else:
            self._native.put(root, "operation_count", self._word(str(self._flags.operation_count)))

    def _objects(self) -> MappingNode:
        native, objects = self._native, MappingNode(self._place)
        common = self._read.get("crud_profile")
        if common is not None:
            native.put(objects, "mix", self._mix(common), "crud_profile")
        native.put(
            objects,
            "classes",
            self._classes(),
            "sizes. The weight and the population of a class are its initial_files.",
        )
        containers = MappingNode(self._place)
        native.put(containers, "count", self._given("container_count", str(CONTAINERS)))
        native.put(containers, "base", self._given("container_base", CONTAINER_BASE))
        if "policy" in self._read:
            native.put(containers, "policy", self._given("policy", ""))
        native.put(objects, "containers", containers)
        delete_after = self._read.get("delete_after")
        if delete_after is not None and delete_after.value:
            native.put(
                objects,
                "delete_after",
                self._word(f"{delete_after.value}s", delete_after.place),
                "Also of updated objects; ssbench's updates make them last for ever.",
            )
        native.put(
            objects,
            "retries",
            self._word(str(RETRIES)),
            "As in ssbench, but with a pause before each, and in the time of the operation.",
        )
        return objects

    def _classes(self) -> MappingNode:
        classes = MappingNode(self._place)
        counts = self._read["initial_files"].value
        labels = ClassLabels(one.value["name"].value for one in self._read["sizes"].value)
        for one in self._read["sizes"].value:
            given: Mapping[str, Located[Any]] = one.value
            name = given["name"].value
            count: Located[int] | None = counts.get(name)
            if count is None or not count.value:
                self._note(
                    one.place, f"class '{name}' has no 'initial_files', so no operation is on it, as in ssbench"
                )
                continue
            label = labels[name]
            if label != name:
                self._note(given["name"].place, f"class '{name}' is called '{label}' here: letters, digits, _ and -")
            node = MappingNode(one.place)
            self._native.put(node, "sizes", self._sizes(given))
            if "crud_profile" in given:
                self._native.put(node, "mix", self._mix(given["crud_profile"]))
            self._native.put(node, "population", self._word(str(count.value), count.place))
            self._native.put(node, "weight", self._word(str(count.value), count.place))
            classes.put(label, node, one.place)
        return classes

    def _sizes(self, given: Mapping[str, Located[int]]) -> Node:
        low, high = given["size_min"], given["size_max"]
        if low.value == high.value:
            return self._word(str(low.value), low.place)
        sizes = MappingNode(low.place)
        sizes.put("min", self._word(str(low.value), low.place), low.place)
        sizes.put("max", self._word(str(high.value), high.place), high.place)
        return sizes

    def _mix(self, profile: Located[Mapping[str, float]]) -> MappingNode:
        mix = MappingNode(profile.place)
        for name, weight in profile.value.items():
            mix.put(name, self._word(f"{weight:.12g}", profile.place), profile.place)
        return mix

    def _name(self) -> ScalarNode:
        if "name" in self._read:
            return ScalarNode(self._read["name"].place, self._read["name"].value, plain=False)
        return ScalarNode(self._place, PurePath(self._place.file).stem or "ssbench", plain=False)

    def _given(self, key: str, default: str) -> ScalarNode:
        """Return the value of a key, at its place."""
        given = self._read.get(key)
        if given is None:
            return self._word(default)
        return ScalarNode(given.place, str(given.value), plain=not isinstance(given.value, str))

    def _word(self, text: str, place: SourceLocation | None = None) -> ScalarNode:
        return ScalarNode(place or self._place, text)

    def _note(self, place: SourceLocation, text: str) -> None:
        self._findings.note(f"{format_place(place)}: {text}")


class ClassLabels(dict[str, str]):
    """The name of each size class as a scenario can have it, different from those of all others.

    Of a class that `names` lacks, the first look-up chooses it.
    """

    def __init__(self, names: Iterable[str]) -> None:
        names = list(names)
        super().__init__((name, name) for name in names if _CLASS.fullmatch(name))
        self._taken = set(self)
        for name in names:
            _ = self[name]

    def __missing__(self, name: str) -> str:
        label = re.sub(r"[^A-Za-z0-9_-]", "-", name)
        label = label if _CLASS.fullmatch(label) else f"size{label}"
        others = (f"{label}-{number}" for number in itertools.count(len(self) + 1))
        self[name] = next(one for one in itertools.chain([label], others) if one not in self._taken)
        self._taken.add(self[name])
        return self[name]
