"""What a job on an object store is: one operation on one object, drawn from a mix of size classes.

A job does exactly one of the alternatives in `ObjectJob.operations`; which one, on which object and how large follows
from the seed of its assignment. Pure: master and worker derive the same names and positions from it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from bench_common.job_kind import TAG, Job
from bench_common.records import FIRST_BYTE, MAX_COUNT, Count, Integer

OBJECT_OPERATIONS: Final = ("create", "read", "update", "delete", "head", "list")
"""What a job may do with an object, or (`list`) with the names of a container."""

MAX_OBJECT_BYTES: Final = 5 << 40
"""The largest object that a class may have: what S3 takes (5 TiB)."""

SizeKind = Literal["fixed", "uniform", "log", "histogram"]
VerifyLevel = Literal["length", "edges", "full"]
VERIFY_LEVELS: Final[tuple[VerifyLevel, ...]] = ("length", "edges", "full")
PickOrder = Literal["round-robin", "random", "zipf"]
PICK_ORDERS: Final[tuple[PickOrder, ...]] = ("round-robin", "random", "zipf")
ShareMode = Literal["own", "population"]
SHARE_MODES: Final[tuple[ShareMode, ...]] = ("own", "population")
EndpointChoice = Literal["seed", "slot"]
ENDPOINT_CHOICES: Final[tuple[EndpointChoice, ...]] = ("seed", "slot")
ConnectionUse = Literal["keep", "new"]
CONNECTION_USES: Final[tuple[ConnectionUse, ...]] = ("keep", "new")

Bytes: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_OBJECT_BYTES)]
Weight: TypeAlias = Annotated[float, Meta(ge=0, le=1e12)]
Many: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_COUNT)]


class Sizes(Struct, frozen=True, forbid_unknown_fields=True):
    """The sizes of the objects of a class, in bytes, both ends included."""

    kind: SizeKind
    """`fixed`; `uniform` and `log` (uniform in the logarithm) between `minimum` and `maximum`; `histogram`."""
    minimum: Bytes = 0
    maximum: Bytes = 0
    """The largest; the same as `minimum` where `fixed`."""
    buckets: tuple[tuple[Bytes, Weight], ...] = ()
    """Of a `histogram`: each size with its weight."""


class SizeClass(Struct, frozen=True, forbid_unknown_fields=True):
    """Objects of similar size, with their share of the operations."""

    name: str
    """What reports call it, as in ``read[tiny]``."""
    sizes: Sizes
    """How large its objects are."""
    mix: tuple[tuple[str, Weight], ...]
    """The weight of each of `OBJECT_OPERATIONS` that its jobs do, in this order; none is 0."""
    weight: Weight = 1.0
    """Its share of all jobs, as a weight among the classes."""
    population: Count = 0
    """How many objects of it exist before the first trial, over all workers."""


class Objects(Job, Struct, frozen=True, forbid_unknown_fields=True, tag_field=TAG, tag="objects"):
    """A job on an object store: one operation of `mix`, on one object.

    `Treatment.engine` is the protocol of the store (``swift``, ``s3``), `Treatment.concurrency` the number of users
    on each worker, `Treatment.timeout_s` the time limit of an operation from its first byte to its last.
    """

    uses_engine = False
    does_one_operation = True
    place_fields = frozenset({"profile", "endpoints"})

    classes: tuple[SizeClass, ...]
    """The size classes, in the order of reports."""
    container_base: str = ""
    """What the names of the containers (buckets) begin with; empty: the run and the treatment, which then share no
    object with others."""
    containers: Many = 1
    """How many containers the objects are spread over."""
    profile: str = ""
    """The profile with the store's addresses and credentials; empty: the worker's environment."""
    endpoints: tuple[str, ...] = ()
    """The storage URLs to use in the place of those that the store names."""
    endpoint_choice: EndpointChoice = "seed"
    """What decides which endpoint a job uses: its seed, or its slot."""
    policy: str = ""
    """The storage policy (S3: storage class) of new containers; empty: the store's own."""
    delete_after_s: Integer | None = None
    """After how many seconds the store deletes an object by itself; None: never."""
    block_bytes: Annotated[int, Meta(ge=1, le=1 << 30)] = 1 << 16
    """How much of a body is received at once: the memory that a connection takes."""
    multipart_above_bytes: Bytes | None = None
    """Larger objects are uploaded in parts; None: none is."""
    part_bytes: Bytes = 8 << 20
    """The size of such a part."""
    range_bytes: Bytes | None = None
    """How much of an object a read asks for, at a place drawn from the job's seed; None: all of it."""
    list_limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    """How many names a `list` asks for."""
    verify: VerifyLevel = "length"
    """What is checked of each body read: its `length`, also the first and last KiB (`edges`), or every byte."""
    retries: Annotated[int, Meta(ge=0, le=1000)] = 0
    """How often a failed operation is tried again within its job."""
    retry_pause_s: Annotated[float, Meta(ge=0, le=3600)] = 0.1
    """The pause before the first retry; it doubles with each one."""
    pick: PickOrder = "round-robin"
    """Which of a class's objects an operation takes."""
    zipf_exponent: Annotated[float, Meta(gt=0, le=10)] = 1.0
    """With `zipf`: how much more often the first objects are taken than the last."""
    share: ShareMode = "own"
    """Whether a worker uses its `own` objects, or (reads alone) the whole `population`."""
    connections: ConnectionUse = "keep"
    """Whether a slot keeps its connection, or makes a `new` one for each job."""
    allow_population_failures: bool = False
    """Whether the run goes on where a part of the population could not be made."""

    @property
    def population(self) -> int:
        """How many objects exist before the first trial."""
        return sum(one.population for one in self.classes)

    @property
    def needs_whole_population(self) -> bool:
        """Whether the run ends where a part of it could not be made."""
        return not self.allow_population_failures

    def alternatives(self) -> tuple[tuple[str, str], ...]:
        """Return operation and size class of each of the alternatives, in the order of reports: by operation."""
        return tuple(
            (operation, one.name)
            for operation in OBJECT_OPERATIONS
            for one in self.classes
            if any(operation == done for done, _ in one.mix)
        )

    def operation_names(self) -> tuple[str, ...]:
        """Return the names of a job's operations: the alternatives, then the first byte of each kind of read."""
        names = [alternative_name(*one) for one in self.alternatives()]
        return (*names, *(f"{name}{FIRST_BYTE}" for name in names if name.startswith("read[")))


def alternative_name(operation: str, size_class: str) -> str:
    """Return what reports call an operation on objects of a class, such as ``read[tiny]``."""
    return f"{operation}[{size_class}]"
