"""The format of a scenario: every key with its type, default and help, in one table.

The loader checks with this table, the JSON Schema is generated from it, and a test compares the reference in
``docs/`` with it. Engines and workloads are the installed ones.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from bench_common import defaults
from bench_common.argument_types import MAX_SEED, MAX_SLOTS, NAME_PATTERN
from bench_common.defaults import in_seconds
from bench_common.engine_traits import default_engine, engine_names
from bench_common.layout import LAYOUTS
from bench_common.treatment import ARRIVAL_PROCESSES, COLD_STARTS, PLAIN_ENVIRONMENTS, SWAP_STATES
from bench_master.scenario.claims import CLAIM_LIST, CLAIMS
from bench_master.scenario.guest import COMMAND_FIELDS, STEP_FIELDS, KeysOfOwnCommand, ParamShape, ParamsOfWorkload
from bench_master.scenario.keys_container import CONTAINER_FIELDS, terminal_fields
from bench_master.scenario.keys_host import HostSettingsShape, SettingValue
from bench_master.scenario.keys_run import (
    FULL,
    LABELS,
    PRIMARY,
    PROFILE_PATTERN,
    PROFILES,
    SCALE,
    AgainShape,
    OverheadShape,
    OverridesShape,
    RepeatsShape,
    ServicesOfWorkload,
    job_services,
    services_record,
)
from bench_master.scenario.master_part import KeysOfKind, master_parts
from bench_master.scenario.matrix import MatrixShape
from bench_master.scenario.operations import OperationsShape, UntilShape
from bench_master.scenario.published import FILE_PATTERN as PUBLISHED_PATTERN
from bench_master.scenario.types import (
    DURATION,
    PERCENT,
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
from bench_master.verdicts.decision import MAX_MARGIN
from bench_workloads.registry import workload_classes

ORDERS: Final = ("interleaved", "blocked", "as-written")
TRIAL_SIZE_KEYS: Final = ("iterations", "operation_count", "run_seconds")
"""The size of a trial: exactly one applies, and the innermost one wins."""

JOB_LABEL_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9_+-]*$"
ENVIRONMENT_OF_PLAIN: Final = "environment"
"""The key for the environment of plain processes."""
LAYOUT: Final = "layout"
COST: Final = "cost"
MAX_RATE_PER_S: Final = 1e6
OPEN_CONCURRENCY: Final = 64
"""The jobs that a worker runs at once where jobs arrive at a rate and the scenario gives no ``concurrency``."""
_DAY_S: Final = 86400.0


class ScenarioFormat(Struct, frozen=True):
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


def job_keys() -> tuple[str, ...]:
    """Return the keys that say what a job does: exactly one of them is given."""
    return ("operations", "workload", *master_parts())


def scenario_format() -> ScenarioFormat:
    """Return the format with the installed engines and workloads."""
    parts = master_parts().values()
    names = (*engine_names(), *(name for part in parts for name in part.engines()))
    engine = Choice("engine", names, "; list engines shows which are usable")
    environment = Text(
        "an environment: a word of letters, digits and _ . + -",
        NAME_PATTERN,
        unquoted_types=("number", "boolean", "null"),
    )
    storage = tuple(
        (word, "storage") for word in ("tmpfs", "volume", "volumes", "volumes_from", "volumes-from", "mounts")
    )
    container = Record("container", (*CONTAINER_FIELDS, *terminal_fields()), misplaced_keys=storage)
    classes = workload_classes()
    services = services_record(classes.values(), container)
    settings = _run_fields(container, services)
    keys = _matrix_keys(settings, container, services)
    matrix = MatrixShape(keys, engine, environment)
    engines = Field(
        "engines",
        ListOf(engine, min_items=1, unique=True),
        "the engines (or, for `objects`, the stores) to measure",
        [default_engine()],
    )
    matrix_field = Field("matrix", matrix, "values to try in every combination")
    own = (
        Field("operations", OperationsShape(), "a life-cycle job: the operations on one container, in order"),
        Field(
            "workload",
            Choice("workload", tuple(classes), "; see bench-master list workloads"),
            "a guest job: the benchmark to run",
        ),
        Field(
            "params",
            MapOf("parameters of the workload by name", "^.+$", ParamShape()),
            "the parameters of the workload",
        ),
        *COMMAND_FIELDS,
        *(Field(part.name, KeysOfKind(part), part.summary) for part in parts),
        Field(
            "swap",
            Choice("state of swap", SWAP_STATES),
            "off: switch swap off on the host while a job runs, where the worker allows it",
            SWAP_STATES[0],
            carried_as="swap",
        ),
        Field(
            "optional",
            Boolean(),
            "skip the job, and report why, where its image or tool is missing",
            default=False,
            carried_as="optional",
        ),
    )
    with_own = Field(
        "services", job_services(services, container), "settings of the containers of the job's services"
    )
    job = Record(
        "job",
        (*own, *(with_own if one.name == "services" else one for one in settings), engines, matrix_field),
        (
            KeysOfOwnCommand(),
            AtMostOneOf(job_keys(), required=True),
            RequiresKey("params", "workload"),
            AtMostOneOf(TRIAL_SIZE_KEYS),
            ParamsOfWorkload(classes),
            ServicesOfWorkload(classes),
        ),
    )
    scenario = Record(
        "scenario",
        (
            Field("name", Text("a name"), "the name of the scenario in reports", required=True),
            Field("description", Text("a text"), "what the scenario measures, and why"),
            Field(
                "environments",
                ListOf(environment, min_items=1, unique=True),
                "the environments to measure in; without it, any worker",
            ),
            engines,
            Field("job", job, "the only job"),
            Field(
                "jobs",
                MapOf("jobs by label (letters, digits, _ + -)", JOB_LABEL_PATTERN, job, min_items=1),
                "several jobs by label",
            ),
            *settings,
            matrix_field,
            Field("baseline", LABELS, "labels of the treatments that the others are compared with"),
            Field(
                "margin",
                Quantity(PERCENT, exclusive_minimum=0, maximum=MAX_MARGIN),
                "smaller differences between treatments count as none",
                "3%",
            ),
            Field(
                CLAIMS,
                CLAIM_LIST,
                "what is claimed before the first job; the report tells what became of it, the rest is exploratory",
            ),
            Field("order", Choice("order", ORDERS), "the order of the trials", defaults.ORDER),
            Field("seed", Quantity(WHOLE, minimum=0, maximum=MAX_SEED), "seed of every random choice of the run"),
            Field(
                "settle",
                Quantity(DURATION, minimum=0, maximum=3600),
                "the pause after each trial, in which the host settles",
                in_seconds(defaults.SETTLE_S),
            ),
            Field(
                "aa",
                AgainShape(),
                "the treatments to run twice under a hidden label: how much a treatment differs from itself",
            ),
            Field(
                "sampling_interval",
                Quantity(DURATION, minimum=0.1, maximum=3600),
                "how often to read the resources of a host",
                in_seconds(defaults.SAMPLING_INTERVAL_S),
            ),
            Field(
                "speed_probe",
                Boolean(),
                "measure before each trial how fast each host is: 50 ms of one CPU",
                default=True,
            ),
            Field(
                "host_ceiling",
                Boolean(),
                "measure first how fast this machine runs plain processes, without an engine",
                default=False,
            ),
            Field(
                "overhead", OverheadShape(engine), "measure what the engines themselves cost the host", default=False
            ),
            Field(
                "explain",
                Boolean(),
                "trace a few jobs of each treatment after all measured ones, and report where their time goes",
                default=False,
            ),
            Field(
                "thresholds",
                ListOf(Text("a threshold such as 'operations.start.p95_s < 0.5' or 'not slower by 5%'")),
                "conditions on the results or their verdicts; the run ends with exit code 0 only if all hold",
            ),
            Field(
                "allow_failures",
                Boolean(),
                "let the run end with exit code 0 although jobs failed; thresholds on jobs.failed set limits",
                default=False,
            ),
            Field(
                "published",
                Text(
                    "a table in the scenario's own folder, such as published.csv",
                    PUBLISHED_PATTERN,
                    unquoted_types=(),
                ),
                "published figures to print beside ours",
            ),
            Field(
                PROFILES,
                MapOf("profiles by name", PROFILE_PATTERN, OverridesShape()),
                "other scales of the scenario: sets of overrides by name",
            ),
            Field(
                SCALE, Text("the name of a profile", PROFILE_PATTERN, unquoted_types=()), "the profile to apply", FULL
            ),
        ),
        (AtMostOneOf(("job", "jobs"), required=True, advice=": add the job to run"), AtMostOneOf(TRIAL_SIZE_KEYS)),
        tuple((field.name, "job") for field in own),
    )
    carried = tuple(field for field in own if field.carried_as)
    return ScenarioFormat(scenario, job, settings, carried, container, services, matrix, engine, environment)


def _run_fields(container: Record, services: Record) -> tuple[Field, ...]:
    """Return the keys of the top level that a job inherits and that a matrix can vary."""
    return (
        Field("container", container, "settings of the container"),
        Field(
            "concurrency",
            Quantity(WHOLE, minimum=1, maximum=MAX_SLOTS),
            f"the most jobs in flight on each worker ({OPEN_CONCURRENCY} with a `rate`)",
            1,
            carried_as="concurrency",
        ),
        Field("services", services, "settings of the containers of a workload's services"),
        Field("iterations", Quantity(WHOLE, minimum=1, maximum=10**9), "jobs that each slot runs in a trial", 1),
        Field("operation_count", Quantity(WHOLE, minimum=1, maximum=10**12), "jobs in a trial, over all workers"),
        Field("run_seconds", Quantity(DURATION, exclusive_minimum=0, maximum=30 * _DAY_S), "the length of a trial"),
        Field(
            "rate",
            Quantity(RATE, exclusive_minimum=0, maximum=MAX_RATE_PER_S),
            "jobs that arrive each second over all workers, whether earlier ones have ended or not",
        ),
        Field("arrivals", Choice("arrival process", ARRIVAL_PROCESSES), "the spacing of arrivals", "constant"),
        Field(
            "queue_timeout",
            Quantity(DURATION, exclusive_minimum=0, maximum=_DAY_S),
            "how long an arrived job waits for a slot before it is dropped",
            in_seconds(defaults.QUEUE_TIMEOUT_S),
        ),
        Field("repeats", RepeatsShape(), "trials of each treatment (n), or `{until: verdict}`", 1),
        Field(
            "warmup",
            Quantity(WHOLE, minimum=0, maximum=10_000),
            "warm-up trials of each treatment, which do not count",
            0,
        ),
        Field(
            "timeout",
            Quantity(DURATION, exclusive_minimum=0, maximum=_DAY_S),
            "the time limit of one operation",
            in_seconds(defaults.TIMEOUT_S),
            carried_as="timeout_s",
        ),
        Field(
            PRIMARY,
            Text("a measure such as job.p95, start.p50, events_per_second or jobs_per_s", unquoted_types=()),
            "the measure by which the treatments of a job are compared",
        ),
        Field(
            "cold",
            Choice("cold start", COLD_STARTS),
            "what to take away before each job, outside its time, where workers allow it",
            COLD_STARTS[0],
            carried_as="cold",
        ),
        Field(
            "host", HostSettingsShape(), "settings of the host's kernel while the trials run, where workers allow it"
        ),
        Field(
            ENVIRONMENT_OF_PLAIN,
            Choice("environment of plain processes", PLAIN_ENVIRONMENTS),
            "what plain processes have in their environment: that of a container (the default beside containers), or "
            "the worker's PATH and a locale",
            carried_as="plain_environment",
        ),
        Field(
            LAYOUT,
            Choice("layout", LAYOUTS),
            "the memory layout of plain processes: drawn for each trial by the size of their environment and the "
            "length of their paths, or fixed",
            LAYOUTS[0],
            carried_as="layout",
        ),
        Field(
            COST,
            Boolean(),
            "whether jobs tell what they cost beside their time (CPU time, memory ...), where the engine knows it",
            default=False,
            carried_as="cost",
        ),
        Field(
            "until", UntilShape(), "a condition that ends a packing before all containers are up", carried_as="until"
        ),
    )


def _matrix_keys(settings: tuple[Field, ...], container: Record, services: Record) -> dict[str, Shape]:
    """Return the shapes of a matrix's keys; one that ends in a dot stands for every key with that prefix."""
    fixed = {"container", "services", "host", PRIMARY, ENVIRONMENT_OF_PLAIN, LAYOUT}
    keys: dict[str, Shape] = {field.name: field.shape for field in settings if field.name not in fixed}
    keys["host."] = SettingValue()
    keys["operations"] = OperationsShape()
    keys |= {field.name: field.shape for field in STEP_FIELDS}
    keys["params."] = ParamShape()
    records = {"container": container} | {f"services.{one.name}": one.shape for one in services.fields}
    for prefix, record in records.items():
        assert isinstance(record, Record)
        for field in record.fields:
            keys[f"{prefix}.{field.name}"] = field.shape
            if isinstance(field.shape, MapOf):
                keys[f"{prefix}.{field.name}."] = field.shape.value
    return keys
