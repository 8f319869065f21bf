"""The key ``objects``: a job on an object store. Its shapes, and the job that a cell of the matrix makes of it."""

# ruff: noqa: D102  `Shape` documents what each method does

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct
from msgspec.structs import fields, replace

from bench_common.errors import did_you_mean
from bench_common.job_kind import kind_name
from bench_common.units import SIZE_PATTERN, format_size
from bench_features.objects.common.job import (
    CONNECTION_USES,
    ENDPOINT_CHOICES,
    MAX_OBJECT_BYTES,
    OBJECT_OPERATIONS,
    PICK_ORDERS,
    SHARE_MODES,
    VERIFY_LEVELS,
    Objects,
    SizeClass,
    Sizes,
)
from bench_features.objects.common.rules import objects_job
from bench_features.objects.master.part import CLASSES, OBJECTS
from bench_master.scenario.diagnostics import Diagnostics, Located
from bench_master.scenario.types import (
    DURATION,
    INVALID,
    NUMBER,
    SIZE,
    WHOLE,
    Boolean,
    Choice,
    Field,
    ListOf,
    MapOf,
    Quantity,
    Record,
    RequiresKey,
    Shape,
    Text,
    truncate_label,
)
from bench_master.scenario.yaml_tree import MappingNode, Node, ScalarNode, SourceLocation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench_common.treatment import Scalar, Treatment
    from bench_master.scenario.matrix import Settings

ONLY_CLASS: Final = "all"
"""The name of the size class where the scenario lists none."""
MAX_WEIGHT: Final = 1e9
MAX_OBJECTS: Final = 10**9
S3_MAX_LISTED: Final = 1000
"""How many names a page of a listing has at most under S3."""
MIN_PART_BYTES: Final = 5 << 20
"""The smallest part of a multipart upload that S3 takes."""
_CLASS_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9_-]*$"
_BASE_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$"
_PROFILE_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9_.-]*$"
_POLICY_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9 _.-]*$"
_ENDPOINT_PATTERN: Final = r"^https?://[^\s/?#@]+(/[^\s?#]*)?$"
_NEED_OBJECTS: Final = ("read", "update", "delete", "head")
_CHANGES: Final = ("create", "update", "delete")
_SIZE: Final = Quantity(SIZE, minimum=0, maximum=MAX_OBJECT_BYTES)
_WEIGHT: Final = Quantity(NUMBER, minimum=0, maximum=MAX_WEIGHT)
_DISTRIBUTIONS: Final = ("uniform", "log")


@dataclass(frozen=True)
class MixShape(Shape):
    """Operations with their weights, read as pairs in the order of `OBJECT_OPERATIONS`."""

    @property
    def expected(self) -> str:
        return f"weights by operation ({', '.join(OBJECT_OPERATIONS)}), such as {{create: 1, read: 9}}"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, MappingNode) or not node.values:
            return self.refuse(node, findings)
        weights: dict[str, float] = {}
        for key, value in node.values.items():
            weight = _WEIGHT.read(value, findings)
            if key not in OBJECT_OPERATIONS:
                hint = did_you_mean(key, OBJECT_OPERATIONS)
                text = f"unknown operation '{key}' in the mix{hint}; one of: {', '.join(OBJECT_OPERATIONS)}"
                findings.add(node.key_places[key], text)
                return INVALID
            if weight is INVALID:
                return INVALID
            weights[key] = float(weight)
        if not any(weights.values()):
            return self.refuse(node, findings, "; at least one weight is above 0", deep=True)
        return tuple((name, weights[name]) for name in OBJECT_OPERATIONS if weights.get(name))

    def schema(self) -> dict[str, Any]:
        return {
            "title": "mix",
            "type": "object",
            "properties": {name: _WEIGHT.schema() for name in OBJECT_OPERATIONS},
            "additionalProperties": False,
            "minProperties": 1,
        }

    def label(self, value: Any) -> Scalar:
        return truncate_label(",".join(f"{name}={weight:g}" for name, weight in value))


@dataclass(frozen=True)
class SizesShape(Shape):
    """One size, ``{min, max, distribution}`` or ``{histogram}``; read as `Sizes`."""

    @property
    def expected(self) -> str:
        return "a size such as 4KiB, {min: 1KiB, max: 64KiB, distribution: log} or {histogram: {4KiB: 70, 1MiB: 30}}"

    @property
    def _record(self) -> Record:
        return Record(
            "range of sizes",
            (
                Field("min", _SIZE, "the smallest size", None, True),
                Field("max", _SIZE, "the largest size", None, True),
                Field(
                    "distribution",
                    Choice("distribution", _DISTRIBUTIONS),
                    "uniform, or log: uniform in the logarithm of the size",
                    _DISTRIBUTIONS[0],
                ),
            ),
        )

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if isinstance(node, ScalarNode):
            size = _SIZE.read(node, findings)
            return INVALID if size is INVALID else Sizes("fixed", size, size)
        if not isinstance(node, MappingNode):
            return self.refuse(node, findings)
        if "histogram" in node.values:
            return self._histogram(node, findings)
        known = len(findings.problems)
        read = self._record.read(node, findings)
        if len(findings.problems) > known or any(given.value is INVALID for given in read.values()):
            return INVALID
        low, high = read["min"].value, read["max"].value
        kind: Literal["uniform", "log"] = read["distribution"].value if "distribution" in read else "uniform"
        if low > high:
            text = f"'min' {format_size(low)} is larger than 'max' {format_size(high)}"
            findings.add(read["min"].place, text, deep=True)
            return INVALID
        if kind == "log" and not low:
            findings.add(read["min"].place, "'distribution: log' has no size 0: let 'min' be 1 or more", deep=True)
            return INVALID
        return Sizes(kind, low, high)

    def _histogram(self, node: MappingNode, findings: Diagnostics) -> Any:
        others = [key for key in node.values if key != "histogram"]
        if others:
            findings.add(node.key_places[others[0]], f"'{others[0]}' has no meaning beside 'histogram': remove it")
            return INVALID
        given = node.values["histogram"]
        if not isinstance(given, MappingNode) or not given.values:
            findings.add(given.place, "expected sizes with their weights, such as {4KiB: 70, 1MiB: 30}")
            return INVALID
        buckets: list[tuple[int, float]] = []
        for key, value in given.values.items():
            size = _SIZE.read(ScalarNode(given.key_places[key], key), findings)
            weight = _WEIGHT.read(value, findings)
            if INVALID in (size, weight):
                return INVALID
            buckets.append((size, float(weight)))
        if not any(weight for _, weight in buckets):
            findings.add(given.place, "at least one weight of a histogram is above 0", deep=True)
            return INVALID
        drawn = [size for size, weight in buckets if weight]
        return Sizes("histogram", min(drawn), max(drawn), tuple(sorted(buckets)))

    def schema(self) -> dict[str, Any]:
        histogram = {
            "type": "object",
            "propertyNames": {"anyOf": [{"pattern": SIZE_PATTERN}, {"pattern": "^[0-9]+$"}]},
            "additionalProperties": _WEIGHT.schema(),
            "minProperties": 1,
        }
        only = {
            "type": "object",
            "properties": {"histogram": histogram},
            "required": ["histogram"],
            "additionalProperties": False,
        }
        return {"title": "sizes", "anyOf": [_SIZE.schema(), self._record.schema(), only]}

    def label(self, value: Any) -> Scalar:
        if value.kind == "fixed":
            return format_size(value.minimum)
        if value.kind == "histogram":
            return truncate_label(",".join(f"{format_size(size)}={weight:g}" for size, weight in value.buckets))
        return f"{format_size(value.minimum)}-{format_size(value.maximum)}{' log' if value.kind == 'log' else ''}"


_CLASS_FIELDS: Final = (
    Field("sizes", SizesShape(), "how large the objects are"),
    Field("mix", MixShape(), "the weight of each operation"),
    Field(
        "population",
        Quantity(WHOLE, minimum=0, maximum=MAX_OBJECTS),
        "objects that exist before the first trial, over all workers",
        0,
    ),
)


def objects_record() -> Record:
    """Return the shape of ``objects``."""
    one = Record(
        "size class",
        (*_CLASS_FIELDS, Field("weight", Quantity(NUMBER, exclusive_minimum=0, maximum=MAX_WEIGHT), _WEIGHT_HELP, 1)),
    )
    store = Record(
        "store",
        (
            Field(
                "profile",
                Text("the name of a profile of stores.yaml", _PROFILE_PATTERN),
                "the profile with addresses and credentials; without it, the worker's environment variables",
            ),
            Field(
                "endpoints",
                ListOf(
                    Text(
                        "a URL such as http://10.0.0.1:8080/v1/AUTH_test, without a user",
                        _ENDPOINT_PATTERN,
                        unquoted_types=(),
                    ),
                    min_items=1,
                    unique=True,
                ),
                "storage URLs to use in the place of those that the store names",
            ),
            Field(
                "endpoint_by",
                Choice("way", ENDPOINT_CHOICES),
                "what decides which endpoint a job uses: its seed, or its slot",
                ENDPOINT_CHOICES[0],
            ),
            Field(
                "connections",
                Choice("use of connections", CONNECTION_USES),
                "keep: one for each slot and endpoint; new: one for each job",
                CONNECTION_USES[0],
            ),
        ),
    )
    containers = Record(
        "containers",
        (
            Field("count", Quantity(WHOLE, minimum=1, maximum=10**6), "over how many the objects are spread", 1),
            Field(
                "base",
                Text("letters, digits and _ . -, 40 at most", _BASE_PATTERN),
                "what the names of the containers (buckets) begin with; without it, they belong to the run alone",
            ),
            Field(
                "policy",
                Text("the name of a storage policy", _POLICY_PATTERN),
                "the storage policy of new containers (S3: storage class)",
            ),
        ),
    )
    multipart = Record(
        "multipart",
        (
            Field("above", _SIZE, "larger objects are uploaded in parts", None, True),
            Field(
                "part",
                Quantity(SIZE, minimum=MIN_PART_BYTES, maximum=5 << 30),
                "the size of a part",
                "8MiB",
            ),
        ),
    )
    return Record(
        OBJECTS,
        (
            *_CLASS_FIELDS,
            Field("classes", MapOf("size classes by name", _CLASS_PATTERN, one, min_items=1), "several size classes"),
            Field("store", store, "how the store is reached"),
            Field("containers", containers, "the containers (buckets) of the objects"),
            Field(
                "delete_after",
                Quantity(DURATION, minimum=1, maximum=10 * 365 * 86400),
                "after what time the store deletes a new object by itself, in whole seconds",
            ),
            Field("multipart", multipart, "uploads in parts"),
            Field(
                "range",
                Quantity(SIZE, minimum=1, maximum=MAX_OBJECT_BYTES),
                "how much of an object a read asks for, at a random place; without it, all",
            ),
            Field(
                "list_limit",
                Quantity(WHOLE, minimum=1, maximum=10_000),
                f"how many names a list asks for; with s3, {S3_MAX_LISTED} at most",
                1000,
            ),
            Field(
                "block",
                Quantity(SIZE, minimum=1, maximum=1 << 30),
                "how much of a body is received at once",
                "64KiB",
            ),
            Field(
                "verify",
                Choice("level", VERIFY_LEVELS),
                "what is checked of each body read: length, edges (first and last KiB), full",
                VERIFY_LEVELS[0],
            ),
            Field(
                "retries",
                Quantity(WHOLE, minimum=0, maximum=1000),
                "how often a failed operation is tried again within its job",
                0,
            ),
            Field(
                "retry_pause",
                Quantity(DURATION, minimum=0, maximum=3600),
                "the pause before the first retry; it doubles with each one",
                "100ms",
            ),
            Field(
                "pick",
                Choice("order", PICK_ORDERS),
                "which object of a class an operation takes",
                PICK_ORDERS[0],
            ),
            Field(
                "zipf_exponent",
                Quantity(NUMBER, exclusive_minimum=0, maximum=10),
                "with pick: zipf, how strongly the first objects are preferred",
                1,
            ),
            Field(
                "share",
                Choice("mode", SHARE_MODES),
                "own: a worker uses its own objects; population: all read the whole population",
                SHARE_MODES[0],
            ),
            Field(
                "allow_population_failures",
                Boolean(),
                "go on although a part of the population could not be made; otherwise the run ends",
                False,
            ),
        ),
        (RequiresKey("retry_pause", "retries"), RequiresKey("zipf_exponent", "pick")),
        (
            *((word, "store") for word in ("profile", "endpoints", "endpoint_by", "connections")),
            *(("policy", "containers"), ("weight", "classes")),
        ),
    )


_WEIGHT_HELP: Final = "its share of all jobs, as a weight among the classes"


class ObjectsJob(Struct, frozen=True):
    """A job on objects as one cell of the matrix has it: on `store`; `place` is where the job is written."""

    settings: Settings
    store: str
    place: SourceLocation
    findings: Diagnostics

    def build(self) -> Objects | None:
        """Return the job; None where a problem was reported."""
        known = len(self.findings.deep)
        classes = tuple(self._classes())
        if len(self.findings.deep) > known or not classes:
            return None
        made = Objects(classes=classes, **{name: value for name, value in self._carried() if value is not None})
        self._check(made)
        return made if len(self.findings.deep) == known else None

    def _value(self, key: str) -> Any:
        given = self.settings.get(f"{OBJECTS}.{key}")
        return None if given is None else given.value

    def _carried(self) -> Iterator[tuple[str, Any]]:
        """Yield each field of `Objects` beside `classes` with its value, None where the scenario gives none."""
        named = {
            "containers": "containers.count",
            "container_base": "containers.base",
            "policy": "containers.policy",
            "profile": "store.profile",
            "endpoint_choice": "store.endpoint_by",
            "connections": "store.connections",
            "block_bytes": "block",
            "multipart_above_bytes": "multipart.above",
            "part_bytes": "multipart.part",
            "range_bytes": "range",
            "retry_pause_s": "retry_pause",
        }
        for each in fields(Objects):
            if each.name not in {"classes", "endpoints", "delete_after_s"}:
                yield each.name, self._value(named.get(each.name, each.name))
        endpoints = self._value("store.endpoints")
        yield "endpoints", None if endpoints is None else tuple(one.value.rstrip("/") for one in endpoints)
        delete_after_s = self._value("delete_after")
        yield "delete_after_s", None if delete_after_s is None else math.ceil(delete_after_s)

    def _classes(self) -> Iterator[SizeClass]:
        names = list(
            dict.fromkeys(
                key.removeprefix(CLASSES).partition(".")[0] for key in self.settings if key.startswith(CLASSES)
            )
        )
        for name in names or [ONLY_CLASS]:
            one = self._class(name, listed=bool(names))
            if one is not None:
                yield one

    def _class(self, name: str, *, listed: bool) -> SizeClass | None:
        prefix = f"{CLASSES}{name}." if listed else ""
        whose = f"class {name}: " if listed else ""

        def value(key: str) -> Located[Any] | None:
            return self.settings.get(f"{prefix}{key}") or self.settings.get(f"{OBJECTS}.{key}")

        sizes, mix, population = value("sizes"), value("mix"), value("population")
        weight = self.settings.get(f"{prefix}weight")
        for key, given in (("sizes", sizes), ("mix", mix)):
            if given is None:
                if not self.findings.is_misspelt(key):
                    example = "4KiB" if key == "sizes" else "{create: 1, read: 9}"
                    self._refuse(
                        self.place, f"{whose}'{key}' is missing in 'objects': add it, such as {key}: {example}"
                    )
                return None
        assert sizes is not None
        assert mix is not None
        count = 0 if population is None else population.value
        operations = dict(mix.value)
        without = [operation for operation in _NEED_OBJECTS if operation in operations]
        if without and "create" not in operations and not count:
            self._refuse(
                mix.place,
                f"{whose}'{without[0]}' has no object to {without[0]}: add 'create' to the mix, or a 'population'",
            )
        if set(operations) == {"delete"}:
            self._check_deletes(whose, mix.place, count)
        return SizeClass(name, sizes.value, mix.value, 1.0 if weight is None else float(weight.value), count)

    def _check_deletes(self, whose: str, place: SourceLocation, population: int) -> None:
        """Report a class of nothing but deletes that runs out of objects."""
        planned = self.settings.get("operation_count")
        if planned is None or planned.value > population:
            many = (
                "its trials have no fixed number of jobs" if planned is None else f"a trial has {planned.value} jobs"
            )
            self._refuse(
                place,
                f"{whose}'delete' alone uses up the population of {population}: {many}; "
                "add 'create' to the mix, or set an 'operation_count' up to the population",
            )

    def _check(self, job: Objects) -> None:
        """Report keys that contradict each other."""
        done = {operation for one in job.classes for operation, _ in one.mix}
        population = any(one.population for one in job.classes)
        if job.share == "population":
            for operation in done.intersection(_CHANGES):
                self._refuse(
                    self._place("share"),
                    f"'share: population' is for jobs that change no object, and the mix has '{operation}': "
                    "use 'share: own'",
                )
            if not population:
                self._refuse(self._place("share"), "'share: population' needs a 'population'")
        if job.delete_after_s is not None and not (population or done & {"create", "update"}):
            self._refuse(self._place("delete_after"), "'delete_after' needs objects that the run makes")
        if self._value("store.endpoint_by") is not None and len(job.endpoints) < 2:  # noqa: PLR2004
            self._refuse(
                self._place("store.endpoint_by"), "'endpoint_by' needs several 'endpoints': list them, or remove it"
            )
        if self._value("zipf_exponent") is not None and job.pick != "zipf":
            self._refuse(self._place("zipf_exponent"), "'zipf_exponent' needs 'pick: zipf'")
        if self.store == "s3" and job.list_limit > S3_MAX_LISTED:
            self._refuse(
                self._place("list_limit"),
                f"'list_limit' {job.list_limit} is larger than a page of S3: expected 1 to {S3_MAX_LISTED} with s3",
            )
        self._check_reads(job)

    def _check_reads(self, job: Objects) -> None:
        read = [one for one in job.classes if "read" in dict(one.mix)]
        for key in ("range", "verify"):
            if self._value(key) is not None and not read:
                self._refuse(self._place(key), f"'{key}' is about reads, and the mix has no 'read': remove it")
        smallest = min((one.sizes.minimum for one in read), default=0)
        if read and job.range_bytes is not None and job.range_bytes > smallest:
            self._refuse(
                self._place("range"),
                f"'range' {format_size(job.range_bytes)} is larger than the smallest object that is read, "
                f"{format_size(smallest)}",
            )

    def _place(self, key: str) -> SourceLocation:
        given = self.settings.get(f"{OBJECTS}.{key}")
        return self.place if given is None else given.place

    def _refuse(self, place: SourceLocation, message: str) -> None:
        self.findings.add(place, message, deep=True)


def separate_bases(treatments: Sequence[Treatment]) -> tuple[tuple[Treatment, ...], list[str]]:
    """Return treatments of which no two use the same containers, and notes on what was changed or is overwritten.

    The trials of several treatments take turns: each would update and delete what the others believe to be there.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    found, changed = [], dict[str, list[str]]()
    for one in treatments:
        if kind_name(one.job) == OBJECTS and (base := (job := objects_job(one)).container_base):
            place = (one.engine, job.profile, *job.endpoints, base, job.policy)
            seen[place] += 1
            if seen[place] > 1:
                own = f"{base}-{seen[place]}"
                changed.setdefault(base, []).append(own)
                one = replace(one, job=replace(job, container_base=own))  # noqa: PLW2901
        found.append(one)
    notes = [
        f"treatments with the base {base!r} would use each other's objects: the first has it, the others have "
        f"{', '.join(dict.fromkeys(own))}"
        for base, own in changed.items()
    ]
    filled = (objects_job(one) for one in found if kind_name(one.job) == OBJECTS)
    notes += dict.fromkeys(
        f"containers of the base {job.container_base!r}: an object that has a name of the population and is not what "
        "would be made is overwritten, and deleted in the end"
        for job in filled
        if job.container_base and job.population
    )
    return tuple(found), notes


def describe_classes(job: Objects) -> Iterator[str]:
    """Yield a line for each size class: its share of the jobs, what they do, its sizes and how many there are."""
    weights = sum(one.weight for one in job.classes)
    for one in job.classes:
        operations = sum(weight for _, weight in one.mix)
        mix = ", ".join(f"{operation} {100 * weight / operations:.3g} %" for operation, weight in one.mix)
        share = "" if len(job.classes) == 1 else f", {100 * one.weight / weights:.3g} % of the jobs"
        yield f"{one.name}{share}: {mix}; {_sizes(one.sizes)}, {one.population:,} made before the first trial"


def _sizes(sizes: Sizes) -> str:
    if sizes.kind == "histogram":
        all_sizes = [size for size, _ in sizes.buckets]
        return f"{len(all_sizes)} sizes, {format_size(min(all_sizes))} to {format_size(max(all_sizes))}"
    if sizes.minimum == sizes.maximum:
        return format_size(sizes.minimum)
    how = " (uniform in the logarithm)" if sizes.kind == "log" else ""
    return f"{format_size(sizes.minimum)} to {format_size(sizes.maximum)}{how}"
