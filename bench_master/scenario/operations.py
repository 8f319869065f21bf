"""The operations of a life-cycle job: their syntax, the valid orders, and the rules of `pull`, `hold` and `until`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from bench_common.cost import COST_UNITS
from bench_common.errors import did_you_mean
from bench_common.treatment import OPERATIONS, SYNTAX, Operation, parse_stop_condition
from bench_master.scenario.diagnostics import Diagnostics, Located
from bench_master.scenario.guest import MetricsShape
from bench_master.scenario.types import (
    DURATION,
    INVALID,
    Boolean,
    Choice,
    CommandShape,
    Field,
    Quantity,
    Record,
    Shape,
    truncate_label,
)
from bench_master.scenario.yaml_tree import ListNode, MappingNode, Node, ScalarNode, SourceLocation, quote_node
from bench_workloads.script import shares_container

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench_common.treatment import Scalar, Treatment
    from bench_master.scenario.matrix import Settings

# ruff: noqa: D102  the base class documents what each method of a shape does


SIGNALS: Final = (
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGKILL",
    "SIGTERM",
    "SIGUSR1",
    "SIGUSR2",
    "SIGALRM",
    "SIGWINCH",
)
DEFAULT_GRACE_S: Final = 10.0
"""How long `stop` waits before it kills, in seconds, as ``docker stop`` does."""
DEFAULT_SIGNAL: Final = "SIGKILL"

_DAY_S: Final = 86400.0
_OPTIONS: Final[dict[str, Field]] = {
    "create": Field("command", CommandShape(), "a command other than the container's own"),
    "run": Field("command", CommandShape(), "a command other than the container's own"),
    "exec": Field("command", CommandShape(), "the command to run in the container", required=True),
    "sleep": Field(
        "duration", Quantity(DURATION, exclusive_minimum=0, maximum=_DAY_S), "how long to pause", required=True
    ),
    "hold": Field(
        "duration",
        Quantity(DURATION, minimum=0, maximum=_DAY_S),
        "how long to keep all containers running",
        required=True,
    ),
    "stop": Field(
        "grace",
        Quantity(DURATION, minimum=0, maximum=_DAY_S),
        "how long to wait before killing the container",
        default="10s",
    ),
    "stats": Field(
        "interval",
        Quantity(DURATION, minimum=0.1, maximum=3600),
        "how often to read until the job ends; without it, once",
    ),
    "pull": Field(
        "fresh",
        Boolean(),
        "remove the local image first, untimed, so that the whole image is fetched",
        default="false",
    ),
    "kill": Field("signal", Choice("signal", SIGNALS), "the signal to send", default=DEFAULT_SIGNAL),
}
"""The one option of each operation that has one."""
_METRICS: Final = Field("metrics", MetricsShape(), "the metrics that the command prints, by name")
"""A second option of `exec`, for its long form."""


def _record(kind: str, field: Field) -> Record:
    """Return the long form of an operation's option."""
    return Record(f"operation '{kind}'", (field, _METRICS) if kind == "exec" else (field,))


@dataclass(frozen=True)
class OperationShape(Shape):
    """One operation: its kind alone, ``{kind: VALUE}`` or ``{kind: {option: VALUE}}``; read as an `Operation`."""

    @property
    def expected(self) -> str:
        return "an operation such as 'start', {exec: [date]} or {stop: {grace: 5s}}"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if isinstance(node, ScalarNode):
            return self._operation(node.text, None, node.place, findings)
        if isinstance(node, ListNode) or len(node.values) != 1:
            hint = "; give each operation its own '- '" if isinstance(node, MappingNode) and node.values else ""
            return self.refuse(node, findings, hint)
        kind, option = next(iter(node.values.items()))
        return self._operation(kind, option, node.key_places[kind], findings)

    def _operation(self, kind: str, option: Node | None, place: SourceLocation, findings: Diagnostics) -> Any:
        if kind not in OPERATIONS:
            hint = did_you_mean(kind, OPERATIONS)
            findings.add(place, f"unknown operation '{kind}'{hint}; one of: {', '.join(OPERATIONS)}")
            return INVALID
        value = self._option(kind, option, place, findings)
        metrics = self._metrics(option) if kind == "exec" else ()
        if INVALID in (value, metrics):
            return INVALID
        if kind == "stop":
            return Operation(kind, kind, seconds=DEFAULT_GRACE_S if value is None else value)
        if kind == "kill":
            return Operation(kind, kind, signal=value or DEFAULT_SIGNAL)
        if kind == "pull":
            return Operation(kind, kind, fresh=bool(value))
        return (
            Operation(kind, kind, seconds=value)
            if kind in {"sleep", "stats", "hold"}
            else Operation(kind, kind, argv=value or (), metrics=metrics)
        )

    def _option(self, kind: str, node: Node | None, place: SourceLocation, findings: Diagnostics) -> Any:
        """Return the operation's option, None where it is not given, or `INVALID`."""
        field = _OPTIONS.get(kind)
        if isinstance(node, ScalarNode) and node.empty:
            findings.record_literal(node, None)
            node = None
        if node is None:
            if field is not None and field.required:
                findings.add(place, f"'{kind}' requires its {field.name}: {{{kind}: ...}}, {field.shape.expected}")
                return INVALID
            return None
        if field is None:
            findings.add(node.place, f"'{kind}' takes no option: write '{kind}' alone, not {quote_node(node)}")
            return INVALID
        if isinstance(node, MappingNode):
            read = _record(kind, field).read(node, findings)
            if field.name in read:
                return read[field.name].value
            return INVALID if field.required else None
        return field.shape.read(node, findings)

    @staticmethod
    def _metrics(option: Node | None) -> Any:
        """Return the metrics of an `exec` in its long form, whose problems are already reported."""
        given = option.values.get(_METRICS.name) if isinstance(option, MappingNode) else None
        return () if given is None else _METRICS.shape.read(given, Diagnostics())

    def schema(self) -> dict[str, Any]:
        alone = [kind for kind in OPERATIONS if kind not in _OPTIONS or not _OPTIONS[kind].required]
        forms = [{"enum": alone}, *(self._schema_of(kind) for kind in OPERATIONS)]
        return {"title": "operation", "anyOf": forms}

    @staticmethod
    def _schema_of(kind: str) -> dict[str, Any]:
        field = _OPTIONS.get(kind)
        value: dict[str, Any] = {"type": "null"}
        if field is not None:
            forms = [field.shape.schema(), _record(kind, field).schema()]
            value = {"anyOf": [*forms, value] if not field.required else forms}
        return {"type": "object", "properties": {kind: value}, "required": [kind], "additionalProperties": False}


@dataclass(frozen=True)
class OperationsShape(Shape):
    """A list of operations in an order that can work; read as a tuple of `Operation`, each with its own name."""

    @property
    def expected(self) -> str:
        return "a list of operations such as [create, start, {sleep: 1s}, stop, remove]"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, ListNode):
            return self.refuse(node, findings)
        if not node.items:
            findings.add(node.place, f"an empty list; expected {self.expected}")
            return INVALID
        read = [(OperationShape().read(item, findings), item.place) for item in node.items]
        if any(operation is INVALID for operation, _ in read):
            return INVALID
        given = [Located(operation, place) for operation, place in read]
        complaints = [*invalid_operations(given), *_repeated_metrics(given)]
        for place, message in complaints:
            findings.add(place, message, deep=True)
        return INVALID if complaints else with_unique_names([one.value for one in given])

    def schema(self) -> dict[str, Any]:
        return {"title": "operations", "type": "array", "items": OperationShape().schema(), "minItems": 1}

    def label(self, value: Any) -> Scalar:
        return truncate_label("+".join(operation.name for operation in value))


def _repeated_metrics(operations: Sequence[Located[Operation]]) -> Iterator[tuple[SourceLocation, str]]:
    """Yield the place of each operation with a metric that an earlier one of the job has, and the reason."""
    owners: dict[str, SourceLocation] = {}
    for given in operations:
        for source in given.value.metrics:
            first = owners.setdefault(source.name, given.place)
            if first is not given.place:
                where = f"on line {first.line}" if first.line else "before"
                text = f"metric '{source.name}' is in the job twice (first in the operation {where}): rename one"
                yield given.place, text


def with_unique_names(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return the operations with the names that reports use: the second `exec` is ``exec-2``."""
    seen: dict[str, int] = {}
    result = []
    for one in operations:
        count = seen[one.kind] = seen.get(one.kind, 0) + 1
        name = one.kind if count == 1 else f"{one.kind}-{count}"
        result.append(replace(one, name=name))
    return tuple(result)


ABSENT: Final = "is not created"
CREATED: Final = "is not started"
RUNNING: Final = "is running"
PAUSED: Final = "is paused"
ENDED: Final = "has ended"
REMOVED: Final = "is removed"

_VALID_STATES: Final[dict[str, tuple[frozenset[str], str | None]]] = {
    "pull": (frozenset({ABSENT}), None),
    "create": (frozenset({ABSENT}), CREATED),
    "run": (frozenset({ABSENT}), RUNNING),
    "start": (frozenset({CREATED, ENDED}), RUNNING),
    "exec": (frozenset({RUNNING}), RUNNING),
    "wait": (frozenset({RUNNING, ENDED}), ENDED),
    "pause": (frozenset({RUNNING}), PAUSED),
    "unpause": (frozenset({PAUSED}), RUNNING),
    "stop": (frozenset({RUNNING, ENDED}), ENDED),
    "kill": (frozenset({RUNNING}), None),
    "commit": (frozenset({CREATED, RUNNING, PAUSED, ENDED}), None),
    "stats": (frozenset({RUNNING, PAUSED}), None),
    "logs": (frozenset({RUNNING, PAUSED, ENDED}), None),
    "remove": (frozenset({CREATED, RUNNING, PAUSED, ENDED}), REMOVED),
    "hold": (frozenset({CREATED, RUNNING, PAUSED, ENDED}), None),
    "sleep": (frozenset({ABSENT, CREATED, RUNNING, PAUSED, ENDED, REMOVED}), None),
}
"""The states of the container in which an operation can work, and the state that follows (None: the same)."""

_ADVICE: Final = {
    ABSENT: "put 'create' or 'run' before it",
    CREATED: "put 'start' before it",
    RUNNING: "remove one of the two",
    PAUSED: "put 'unpause' before it",
    ENDED: "put 'start' before it",
    REMOVED: "only 'sleep' can follow 'remove'",
}


def invalid_operations(operations: Sequence[Located[Operation]]) -> Iterator[tuple[SourceLocation, str]]:
    """Yield the place of each operation that cannot work at its position, and the reason.

    A signal other than SIGKILL may leave the container running, so every operation on a running one may follow.
    """
    state = ABSENT
    for given in operations:
        operation = given.value
        works_in, after = _VALID_STATES[operation.kind]
        if state not in works_in:
            advice = _ADVICE[state]
            if operation.kind in {"create", "run"} and state != REMOVED:
                advice = "a job has one container: create it once"
            elif operation.kind == "pull" and state != REMOVED:
                advice = "put it before 'create' or 'run', which need the image"
            elif operation.kind == "unpause" and state != REMOVED:
                advice = "put 'pause' before it"
            yield given.place, f"'{operation.kind}' cannot work here: the container {state}; {advice}"
        if operation.kind == "kill" and operation.signal == "SIGKILL":
            after = ENDED
        state = after or state


def leaves_container(operations: Sequence[Operation]) -> bool:
    """Return whether the container outlives the operations, so that the worker has to remove it."""
    kinds = {operation.kind for operation in operations}
    return bool(kinds & {"create", "run"}) and "remove" not in kinds


def check_pull(operations: Sequence[Operation], settings: Settings, findings: Diagnostics) -> None:
    """Report a `pull` that would remove the image of other jobs, or that has no image to pull."""
    pulls = [one for one in operations if one.kind == "pull"]
    if not pulls:
        return
    if "container.rootfs" in settings:
        message = "'pull' fetches an image, and 'container.rootfs' replaces it: remove one of the two"
        findings.add(settings["container.rootfs"].place, message, deep=True)
    if not any(one.fresh for one in pulls):
        return
    concurrency, rate = settings.get("concurrency"), settings.get("rate")
    if rate is not None:
        message = "'pull' with 'fresh' removes the image while other jobs still use it: remove 'rate'"
        findings.add(rate.place, message, deep=True)
    elif concurrency is not None and concurrency.value is not INVALID and concurrency.value > 1:
        message = (
            "'pull' with 'fresh' removes the image while other jobs use it: set 'concurrency: 1', or remove 'fresh'"
        )
        findings.add(concurrency.place, message, deep=True)


def check_cold(treatment: Treatment, place: SourceLocation, findings: Diagnostics) -> None:
    """Report a cold start that takes away what other jobs use, or an image that no container is made from."""
    key = f"'cold: {treatment.cold}'"
    if not treatment.job.uses_engine:
        findings.add(place, f"{key} has no meaning for a job that runs no container: remove it", deep=True)
        return
    if treatment.is_packing:
        message = "jobs with 'hold' run beside each other"
        findings.add(place, f"{key} takes away what other jobs use, and {message}: remove one of the two", deep=True)
    elif treatment.open_load is not None or treatment.concurrency > 1:
        wrong = "remove 'rate'" if treatment.open_load is not None else "set 'concurrency: 1'"
        findings.add(place, f"{key} takes away what other jobs use at the same time: {wrong}", deep=True)
    if not treatment.drops_image:
        return
    if not treatment.job.engine_operations and (shares_container(treatment) or treatment.services):
        reason = "the jobs' containers stay between jobs, or are beside those of services"
        findings.add(
            place, f"{key} cannot remove an image that is in use: {reason}; use 'cold: page-cache'", deep=True
        )
    elif treatment.container.rootfs:
        message = "'container.rootfs' takes the place of an image"
        findings.add(place, f"{key} has no image to remove: {message}; use 'cold: page-cache'", deep=True)


def check_cost(treatment: Treatment, given: Located[Any] | None, findings: Diagnostics) -> None:
    """Report that nobody can tell what a job cost, where the scenario asks for it."""
    if given is None or not treatment.cost:
        return
    place = given.place
    if not treatment.job.uses_engine:
        findings.add(place, "'cost' has no meaning for a job that runs no container: remove it", deep=True)
    elif shares_container(treatment):
        message = "the jobs run in one container, which is not made for each of them: nobody tells one job's cost"
        findings.add(place, f"'cost: true': {message}; remove it", deep=True)


def untold_reason(name: str, treatments: Sequence[Treatment]) -> str:
    """Return why none of the treatments tells this measure of a job's cost; empty where it is no such measure."""
    if name not in COST_UNITS:
        return ""
    if not any(one.cost for one in treatments):
        return f"the jobs do not tell {name}; add 'cost: true'"
    engines = ", ".join(sorted({one.engine for one in treatments if one.cost}))
    return f"nobody tells {name} of a job of {engines}; see 'cost' in docs/scenarios.rst for who tells what"


DEFAULT_MAX_CONTAINERS: Final = 1000
"""The most containers of a packing that a condition ends, where the scenario gives no ``concurrency``."""


@dataclass(frozen=True)
class UntilShape(Shape):
    """A condition that ends a packing; read as text, in its usual form."""

    @property
    def expected(self) -> str:
        return SYNTAX

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, ScalarNode) or node.empty:
            return self.refuse(node, findings)
        try:
            return str(parse_stop_condition(node.text))
        except ValueError as error:
            findings.add(node.place, str(error), deep=True)
            return INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}


def check_packing(
    operations: Sequence[Operation] | None, settings: Settings, place: SourceLocation, findings: Diagnostics
) -> None:
    """Report keys that a packing cannot have, or that need one; `operations` is None for a guest job."""
    holds = [one for one in operations or () if one.kind == "hold"]
    if not holds:
        if "until" in settings:
            message = "'until' requires the operation 'hold', which keeps the containers running"
            findings.add(settings["until"].place, message, deep=True)
        return
    iterations = settings.get("iterations")
    odd = [settings[key] for key in ("operation_count", "run_seconds") if key in settings]
    if iterations is not None and iterations.value not in (1, INVALID):
        odd.append(iterations)
    for given in odd:
        message = "jobs with 'hold' run once in a trial: set their number with 'concurrency' alone"
        findings.add(given.place, message, deep=True)
    if len(holds) > 1:
        findings.add(place, "a job can have one 'hold': it holds all containers together", deep=True)
