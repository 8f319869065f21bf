"""The format of a scenario: every key with its shape, default and meaning, in one table.

The loader checks with this table, the JSON Schema is generated from it, and the reference in ``docs/`` is tested
against it. What is in a table by name is what exists: engines and workloads are those that are installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from bench_common.cli import MAX_SEED, MAX_SLOTS, NAME_PATTERN
from bench_common.engine_traits import default_engine, engine_names
from bench_common.treatment import ARRIVAL_PROCESSES
from bench_master.scenario.guest import ParamShape, ParamsOfWorkload
from bench_master.scenario.keys_container import MountShape, confinement_fields, terminal_fields
from bench_master.scenario.keys_run import (
    FILE_PATTERN,
    FULL,
    PROFILE_PATTERN,
    PROFILES,
    SCALE,
    FileText,
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
    NUMBER,
    RATE,
    SIZE,
    WHOLE,
    AtMostOneOf,
    Boolean,
    Choice,
    CommandShape,
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

RUN_KEYS: Final = (
    "container",
    "services",
    "concurrency",
    "iterations",
    "operation_count",
    "run_seconds",
    "rate",
    "arrivals",
    "queue_timeout",
    "repeats",
    "warmup",
    "timeout",
    "until",
)
"""The keys that stand at the top level, in a job, and in a matrix."""

SWAP_STATES: Final = ("as-is", "off")
JOB_LABEL_PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9_+-]*$"
MIB: Final = 1024**2
MAX_RATE_PER_S: Final = 1e6
OPEN_CONCURRENCY: Final = 64
"""How many jobs a worker runs at once where they arrive at a rate and the scenario says no number."""
_DAY_S: Final = 86400.0


@dataclass(frozen=True)
class ScenarioFormat:
    """The shapes of a scenario's parts."""

    scenario: Record
    job: Record
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
    container = Record("container", _container_fields(), misplaced_keys=storage)
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
        ),
        Field(
            "optional",
            Boolean(),
            "leave it out, with the reason, where its image or tool is not there",
            default=False,
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
    return ScenarioFormat(scenario, job, container, services, matrix, engine, environment)


def _container_fields() -> tuple[Field, ...]:
    name_value = "^[^=\\s]+$"
    return (
        Field(
            "image",
            Text("an image such as weighbridge/base", "^[^\\s-]\\S*$"),
            "the image; a workload brings its own",
        ),
        Field(
            "rootfs",
            Text("the absolute path of a directory of the worker's host", "^/\\S*$"),
            "an unpacked root file system or OCI bundle, in place of an image, for OCI runtimes",
        ),
        Field("command", CommandShape(), "what runs in it; without it, what the image says"),
        Field("memory", Quantity(SIZE, minimum=MIB, maximum=2**53), "hard limit of its memory"),
        Field("cpus", Quantity(NUMBER, exclusive_minimum=0, maximum=4096), "how many CPUs' worth of time it may use"),
        Field(
            "cpuset",
            Text(
                "a list of CPUs such as 0-1,4",
                "^[0-9]{1,20}(-[0-9]{1,20})?(,[0-9]{1,20}(-[0-9]{1,20})?)*$",
                bare=("integer",),
            ),
            "the CPUs that it may use",
        ),
        Field(
            "network", Text("a network such as none, host or bridge", "^[A-Za-z0-9][A-Za-z0-9_.+-]*$"), "its network"
        ),
        Field("storage", ListOf(MountShape()), "what it sees besides its image"),
        Field("env", MapOf("environment variables", name_value, Text(allow_empty=True)), "environment variables"),
        Field("log_driver", Text("a log driver such as none", "^[^\\s-]\\S*$"), "where its output goes"),
        Field(
            "log_options",
            MapOf("options of the log driver", name_value, Text(allow_empty=True)),
            "of the log driver",
        ),
        Field("init", Boolean(), "run an init as PID 1, which forwards signals and reaps children"),
        Field("files", MapOf("texts by absolute path", FILE_PATTERN, FileText()), "files that are put into it"),
        *confinement_fields(),
        *terminal_fields(),
    )


def _run_fields(container: Record, services: Record) -> tuple[Field, ...]:
    """Return the keys that stand at the top level, in a job, and in a matrix."""
    return (
        Field("container", container, "how the container is made"),
        Field(
            "concurrency",
            Quantity(WHOLE, minimum=1, maximum=MAX_SLOTS),
            f"jobs in flight on each worker, at most ({OPEN_CONCURRENCY} where there is a `rate`)",
            1,
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
        ),
        Field("until", UntilShape(), "what ends a packing before all of its containers are up"),
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


def run_key_default(name: str) -> Any:
    """Return the default of a run key in base units."""
    return {
        "concurrency": 1,
        "arrivals": "constant",
        "queue_timeout": 10.0,
        "repeats": 1,
        "warmup": 0,
        "timeout": 60.0,
    }[name]
