"""The format of a scenario: every key with its shape, default and meaning, in one table.

The loader checks with this table, the JSON Schema is generated from it, and the reference in ``docs/`` is tested
against it. What is in a table by name is what exists: engines and workloads are those that are installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench_common.cli import MAX_SEED, MAX_SLOTS, NAME_PATTERN
from bench_common.engine_traits import default_engine, engine_names
from bench_common.treatment import ARRIVAL_PROCESSES, SWAP_STATES
from bench_master.scenario.guest import ParamShape, ParamsOfWorkload
from bench_master.scenario.keys_container import CONTAINER_FIELDS, terminal_fields
from bench_master.scenario.keys_run import (
    FULL,
    PROFILE_PATTERN,
    PROFILES,
    SCALE,
    OverheadShape,
    OverridesShape,
    ServicesOfWorkload,
    services_record,
)
from bench_master.scenario.matrix import MatrixShape
from bench_master.scenario.operations import OperationsShape, UntilShape
from bench_master.scenario.published import FILE_PATTERN as PUBLISHED_PATTERN
from bench_master.scenario.types import (
    DURATION,
    RATE,
    WHOLE,
    AtMostOneOf,
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
)
from workloads.registry import workload_classes

ORDERS: Final = ("interleaved", "blocked", "as-written")
TRIAL_SIZE_KEYS: Final = ("iterations", "operation_count", "run_seconds")
"""How much a trial holds, of which exactly one applies; the innermost one that is given wins."""

JOB_LABEL_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9_+-]*$"
MAX_RATE_PER_S: Final = 1e6
OPEN_CONCURRENCY: Final = 64
"""How many jobs a worker runs at once where they arrive at a rate and the scenario says no number."""
_DAY_S: Final = 86400.0


@dataclass(frozen=True)
class ScenarioFormat:
    """The shapes of a scenario's parts."""

    scenario: Record
    job: Record
    run_fields: tuple[Field, ...]
    """The keys of the top level that a job inherits and that a matrix can vary."""
    job_fields: tuple[Field, ...]
    """The keys of a job alone that are carried to the workers."""
    container: Record
    services: Record
    matrix: MatrixShape
    engine: Choice
    environment: Text


def scenario_format() -> ScenarioFormat:
    """Return the format as it is with the engines and workloads that are installed."""
    engine = Choice("engine", engine_names(), "; list-engines says which are usable")
    environment = Text(
        "an environment: a word of letters, digits and _ . + -", NAME_PATTERN, bare=("number", "boolean", "null")
    )
    storage = tuple(
        (word, "storage") for word in ("tmpfs", "volume", "volumes", "volumes_from", "volumes-from", "mounts")
    )
    container = Record("container", (*CONTAINER_FIELDS, *terminal_fields()), misplaced_keys=storage)
    classes = workload_classes()
    services = services_record(classes.values(), container)
    settings = _run_fields(container, services)
    matrix = MatrixShape(_matrix_keys(settings, container, services), engine, environment)
    engines = Field("engines", ListOf(engine, at_least=1, unique=True), "the engines to weigh", [default_engine()])
    matrix_field = Field("matrix", matrix, "values to be tried in every combination")
    own = (
        Field("operations", OperationsShape(), "a life-cycle job: the operations on one container, in order"),
        Field("workload", Choice("workload", tuple(classes), "; see list-workloads"), "a guest job: what to run"),
        Field(
            "params",
            MapOf("parameters of the workload by name", "^.+$", ParamShape()),
            "the parameters of the workload",
        ),
        Field(
            "swap",
            Choice("state of swap", SWAP_STATES),
            "off: switched off on the host while a job runs, where its owner allows it",
            SWAP_STATES[0],
            carried_as="swap",
        ),
        Field(
            "optional",
            Boolean(),
            "leave it out, with the reason, where its image or tool is not there",
            default=False,
            carried_as="optional",
        ),
    )
    job = Record(
        "job",
        (*own, *settings, engines, matrix_field),
        (
            AtMostOneOf(("operations", "workload"), required=True),
            RequiresKey("params", "workload"),
            AtMostOneOf(TRIAL_SIZE_KEYS),
            ParamsOfWorkload(classes),
            ServicesOfWorkload(classes),
        ),
    )
    scenario = Record(
        "scenario",
        (
            Field("name", Text("a name"), "what the scenario is called in reports", required=True),
            Field("description", Text("a text"), "what it weighs and why"),
            Field(
                "environments",
                ListOf(environment, at_least=1, unique=True),
                "the environments to weigh in; without it, any worker will do",
            ),
            engines,
            Field("job", job, "the only job"),
            Field(
                "jobs",
                MapOf("jobs by label (letters, digits, _ + -)", JOB_LABEL_PATTERN, job, at_least=1),
                "several jobs by label",
            ),
            *settings,
            matrix_field,
            Field("order", Choice("order", ORDERS), "the order of the trials", "interleaved"),
            Field("seed", Quantity(WHOLE, minimum=0, maximum=MAX_SEED), "fixes every random choice of the run"),
            Field(
                "sampling_interval",
                Quantity(DURATION, minimum=0.1, maximum=3600),
                "how often a host's resources are read",
                "1s",
            ),
            Field(
                "host_ceiling",
                Boolean(),
                "measure first how fast this machine runs plain processes, without an engine",
                default=False,
            ),
            Field("overhead", OverheadShape(engine), "what the engines themselves cost the host", default=False),
            Field(
                "thresholds",
                ListOf(Text("a threshold such as 'operations.start.p95_s < 0.5'")),
                "what must hold for the run to end with exit code 0",
            ),
            Field(
                "published",
                Text("a table in the scenario's own folder, such as published.csv", PUBLISHED_PATTERN, bare=()),
                "published figures to print beside ours",
            ),
            Field(
                PROFILES,
                MapOf("profiles by name", PROFILE_PATTERN, OverridesShape()),
                "other scales of this scenario: overrides by name",
            ),
            Field(SCALE, Text("the name of a profile", PROFILE_PATTERN, bare=()), "the profile to apply", FULL),
        ),
        (AtMostOneOf(("job", "jobs"), required=True, advice=": say what is to be run"), AtMostOneOf(TRIAL_SIZE_KEYS)),
        tuple((field.name, "job") for field in own),
    )
    carried = tuple(field for field in own if field.carried_as)
    return ScenarioFormat(scenario, job, settings, carried, container, services, matrix, engine, environment)


def _run_fields(container: Record, services: Record) -> tuple[Field, ...]:
    """Return the keys that stand at the top level, in a job, and in a matrix."""
    return (
        Field("container", container, "how the container is made"),
        Field(
            "concurrency",
            Quantity(WHOLE, minimum=1, maximum=MAX_SLOTS),
            f"jobs in flight on each worker, at most ({OPEN_CONCURRENCY} where there is a `rate`)",
            1,
            carried_as="concurrency",
        ),
        Field("services", services, "how the containers of a workload's services are made"),
        Field("iterations", Quantity(WHOLE, minimum=1, maximum=10**9), "jobs that each slot does in a trial", 1),
        Field("operation_count", Quantity(WHOLE, minimum=1, maximum=10**12), "jobs in a trial, over all workers"),
        Field(
            "run_seconds", Quantity(DURATION, exclusive_minimum=0, maximum=30 * _DAY_S), "how long a trial goes on"
        ),
        Field(
            "rate",
            Quantity(RATE, exclusive_minimum=0, maximum=MAX_RATE_PER_S),
            "jobs that arrive each second over all workers, whether those before them have ended or not",
        ),
        Field("arrivals", Choice("arrival process", ARRIVAL_PROCESSES), "how they are spaced", "constant"),
        Field(
            "queue_timeout",
            Quantity(DURATION, exclusive_minimum=0, maximum=_DAY_S),
            "how long an arrived job waits for a slot before it is dropped",
            "10s",
        ),
        Field("repeats", Quantity(WHOLE, minimum=1, maximum=100_000), "trials of each treatment (n)", 1),
        Field("warmup", Quantity(WHOLE, minimum=0, maximum=10_000), "trials before those that count", 0),
        Field(
            "timeout",
            Quantity(DURATION, exclusive_minimum=0, maximum=_DAY_S),
            "how long one operation may take",
            "60s",
            carried_as="timeout_s",
        ),
        Field("until", UntilShape(), "what ends a packing before all of its containers are up", carried_as="until"),
    )


def _matrix_keys(settings: tuple[Field, ...], container: Record, services: Record) -> dict[str, Shape]:
    """Return the shapes of a matrix's keys; one that ends in a dot stands for every key that starts so."""
    keys: dict[str, Shape] = {
        field.name: field.shape for field in settings if field.name not in {"container", "services"}
    }
    keys["operations"] = OperationsShape()
    keys["params."] = ParamShape()
    records = {"container": container} | {f"services.{one.name}": one.shape for one in services.fields}
    for prefix, record in records.items():
        assert isinstance(record, Record)
        for field in record.fields:
            keys[f"{prefix}.{field.name}"] = field.shape
            if isinstance(field.shape, MapOf):
                keys[f"{prefix}.{field.name}."] = field.shape.value
    return keys
