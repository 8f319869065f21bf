"""Turns a scenario into treatments: inheritance, matrix, defaults, and the checks that need a whole cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bench_common.engine_traits import default_engine, engine_traits
from bench_common.stats.block_types import as_stored_metrics
from bench_common.thresholds import parse_primary
from bench_common.treatment import (
    COLD_STARTS,
    OWN_COMMAND,
    PLAIN_ENVIRONMENTS,
    ContainerSettings,
    Guest,
    Lifecycle,
    OpenLoad,
    Scalar,
    Treatment,
)
from bench_master.scenario.diagnostics import Diagnostics, Located
from bench_master.scenario.format import COST, OPEN_CONCURRENCY, TRIAL_SIZE_KEYS, ScenarioFormat, job_keys
from bench_master.scenario.guest import (
    COMMAND_FIELDS,
    OWN_SERVICES,
    PARAMS,
    STEP_FIELDS,
    find_parameter,
    parameter_shape,
    parse_param,
)
from bench_master.scenario.guest_work import GuestJob, JobPlan, check_lifecycle_container, container_settings
from bench_master.scenario.keys_host import host_settings, place_text, with_settings_to_vary
from bench_master.scenario.keys_run import PRIMARY
from bench_master.scenario.master_part import MasterPart, master_parts
from bench_master.scenario.matrix import (
    MAX_TREATMENTS,
    Matrix,
    MatrixCell,
    MatrixEntry,
    Settings,
    ValueLabels,
    expand_matrix,
    label_names,
    list_values,
)
from bench_master.scenario.operations import (
    DEFAULT_MAX_CONTAINERS,
    check_cold,
    check_cost,
    check_packing,
    check_pull,
    untold_reason,
)
from bench_master.scenario.types import INVALID, Shape
from bench_master.scenario.yaml_tree import ScalarNode, SourceLocation
from bench_workloads.registry import workload_classes
from bench_workloads.script import default_primary, fixed_reason, job_metrics, job_script

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from bench_master.scenario.model import UntilVerdict
    from bench_master.scenario.types import Field
    from bench_workloads.base import Workload

_COMMANDS = ("command", "container.command")
_WITH_A_RATE = ("arrivals", "queue_timeout")
_ENDS = "'operation_count' (-o) or 'run_seconds' (--run-seconds)"


class ResolvedScenario(Struct, frozen=True):
    """The treatments of a scenario, with their trials."""

    treatments: tuple[Treatment, ...]
    repeats: tuple[int | UntilVerdict, ...]
    warmup: tuple[int, ...]
    """Warm-up trials of each treatment."""
    primary: tuple[str, ...]
    """The primary measure of each treatment."""
    setting_places: Mapping[tuple[str, str], str] = msgspec.field(default_factory=dict)
    """Where a host setting is given a value: ``FILE:LINE:COLUMN`` by name and value."""
    command_places: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Where a command of this program is first given: ``FILE:LINE:COLUMN``."""


class _InheritedJob(Struct, frozen=True):
    """One entry of `jobs` (or the only job), with the settings that it inherits."""

    label: str | None
    settings: Settings
    workload: type[Workload] | None
    engines: tuple[str, ...]
    matrix: Matrix
    place: SourceLocation
    part: MasterPart | None = None
    """That of its kind, which is then none of the kernel's."""


class Resolver:
    """Makes the treatments of one scenario and collects their problems in `findings`."""

    def __init__(self, shapes: ScenarioFormat, findings: Diagnostics) -> None:
        self._format = shapes
        self._findings = findings
        self._workloads = workload_classes()
        self._labels = ValueLabels()
        self._names: dict[str, str] = {}
        self._setting_places: dict[tuple[str, str], str] = {}
        self._command_places: dict[str, str] = {}
        fields = (*shapes.run_fields, *shapes.job_fields)
        self._defaults = {field.name: field.default_value() for field in fields if field.default is not None}

    def resolve(self, scenario: Mapping[str, Located[Any]], place: SourceLocation) -> ResolvedScenario:
        """Return the treatments of a scenario that was read by its format's record and starts at `place`."""
        jobs = [
            job for label, given in _list_jobs(scenario) if (job := self._job(label, given, scenario)) is not None
        ]
        self._names = label_names(key for job in jobs for key in _varying_keys(job.matrix))
        environments: tuple[str | None, ...] = list_values(scenario.get("environments")) or (None,)
        made: dict[tuple[tuple[str, Scalar], ...], tuple[Treatment, int | UntilVerdict, int, str]] = {}
        for job in jobs:
            for cell in expand_matrix(job.matrix, environments, job.engines, self._findings, job.place):
                settings = merge_settings(job.settings, cell.settings)
                treatment = self._treatment(len(made), job, cell, settings)
                if treatment is None:
                    continue
                key = tuple(treatment.labels.items())
                if key in made:
                    where = cell.place or job.place
                    self._findings.add(where, f"duplicate treatment '{treatment.title}': remove one", deep=True)
                repeats, warmup = self._value(settings, "repeats"), self._value(settings, "warmup")
                made.setdefault(key, (treatment, repeats, warmup, self._primary(treatment, settings)))
        if not made and not self._findings.deep:
            self._findings.add(place, "nothing left to run: 'exclude' removes every cell of the matrix", deep=True)
        if len(made) > MAX_TREATMENTS:
            message = f"{len(made)} treatments; the maximum is {MAX_TREATMENTS}: split the scenario"
            self._findings.add(place, message, deep=True)
        treatments, repeats, warmup, primary = zip(*made.values(), strict=True) if made else ((), (), (), ())
        treatments = _with_plain_environment(treatments)
        return ResolvedScenario(treatments, repeats, warmup, primary, self._setting_places, self._command_places)

    def _job(
        self, label: str | None, given: Located[Any], scenario: Mapping[str, Located[Any]]
    ) -> _InheritedJob | None:
        """Return a job with the settings that it inherits; None where it is too broken to continue."""
        if given.value is INVALID:
            return None
        own: Mapping[str, Located[Any]] = given.value
        name = own["workload"].value if "workload" in own else None
        matrix = own.get("matrix") or scenario.get("matrix") or Located(Matrix(), given.place)
        engines = own.get("engines") or scenario.get("engines")
        if INVALID in (name, matrix.value) or (engines is not None and not list_values(engines)):
            return None
        if sum(key in own for key in job_keys()) != 1:
            return None
        part = next((part for name, part in master_parts().items() if name in own), None)
        if part is not None and part.is_broken(own):
            return None
        workload = self._workloads[name] if name is not None else None
        fields = self._format.run_fields
        settings = merge_settings(flatten(scenario, fields), flatten(own, (*fields, *self._format.job_fields)))
        if part is not None:
            settings |= flatten(own, (self._format.job.field(part.name),))
            part.check_job(own, engines, self._findings)
        elif workload is None:
            settings["operations"] = own["operations"]
        else:
            settings |= {field.name: own[field.name] for field in COMMAND_FIELDS if field.name in own}
            if "services" in own and own["services"].value is not INVALID:
                # Those of the top level are settings for whoever needs them; a job's own command needs its job's.
                settings[OWN_SERVICES] = Located(tuple(own["services"].value), own["services"].place)
            if "params" in own:
                settings |= _parse_own_params(workload, own["params"])
        matrix = Located(with_settings_to_vary(matrix.value, settings), matrix.place)
        understood = self._parse_matrix_params(matrix.value, workload)
        measured = list_values(engines) or ((part and part.default_engine) or default_engine(),)
        return _InheritedJob(label, settings, workload, measured, understood, given.place, part)

    def _parse_matrix_params(self, matrix: Matrix, workload: type[Workload] | None) -> Matrix:
        """Return the matrix with the parameters of the workload in base units."""

        def listed(entries: tuple[MatrixEntry, ...]) -> tuple[MatrixEntry, ...]:
            return tuple(
                MatrixEntry(
                    {key: self._param(key, one, workload) for key, one in entry.settings.items()}, entry.place
                )
                for entry in entries
            )

        dimensions = {
            key: tuple(self._param(key, one, workload) for one in values) for key, values in matrix.dimensions.items()
        }
        return replace(matrix, dimensions=dimensions, include=listed(matrix.include), exclude=listed(matrix.exclude))

    def _param(self, key: str, given: Located[Any], workload: type[Workload] | None) -> Located[Any]:
        if not key.startswith(PARAMS) or not isinstance(given.value, ScalarNode):
            return given
        if workload is None:
            message = f"'{key}' varies here, but a life-cycle job has no parameters"
            self._findings.add(given.place, f"{message}; give that job a matrix of its own", deep=True)
            return Located(INVALID, given.place)
        found = Diagnostics()
        value = parse_param(workload, key.removeprefix(PARAMS), given.value, given.place, found)
        self._findings.merge(found, deep=True)
        return Located(value, given.place, given.name)

    def _treatment(self, index: int, job: _InheritedJob, cell: MatrixCell, settings: Settings) -> Treatment | None:
        if not self._matrix_applies(job, cell):
            return None
        container = container_settings(settings, self._findings)
        if job.part is None:
            self._check_operations(job, cell, settings)
        broken = any(given.value is INVALID for given in settings.values())
        host = host_settings(settings, self._setting_places, self._findings)
        if container is None or broken or host is None or INVALID in (cell.engine, cell.environment):
            return None
        work: JobPlan | None
        if job.part is not None:
            own = job.part.build(settings, cell.engine, job.place, self._findings)
            work = None if own is None else JobPlan(own, ContainerSettings())
        elif job.workload is None:
            work = JobPlan(Lifecycle(settings["operations"].value), container)
        else:
            guest = GuestJob(job.workload, cell.engine, job.label, job.place)
            work = guest.work(settings, container, self._findings)
        if work is None:
            return None
        self._note_commands(settings)
        amounts = {key: settings[key].value for key in TRIAL_SIZE_KEYS if key in settings} or {"iterations": 1}
        load = self._open_load(settings)
        if load is not None:
            settings = {"concurrency": Located(OPEN_CONCURRENCY, settings["rate"].place)} | settings
        if "until" in settings:
            packed: Settings = {"concurrency": Located(DEFAULT_MAX_CONTAINERS, settings["until"].place)}
            settings = packed | settings
        made = Treatment(
            index=index,
            labels=self._labels_of(job, cell),
            environment=cell.environment,
            engine=cell.engine,
            job=work.job,
            container=work.container,
            iterations=amounts.get("iterations"),
            operation_count=amounts.get("operation_count"),
            run_seconds=amounts.get("run_seconds"),
            open_load=load,
            services=work.services,
            placement=work.placement,
            host=host,
            **self._carried(settings),
        )
        if made.cold != COLD_STARTS[0]:
            check_cold(made, settings["cold"].place, self._findings)
        check_cost(made, settings.get(COST), self._findings)
        return made

    def _note_commands(self, settings: Settings) -> None:
        given = [settings[key] for key in _COMMANDS if key in settings]
        for command in given:
            if command.value:
                self._command_places.setdefault(command.value[0], place_text(command.place))

    def _primary(self, treatment: Treatment, settings: Settings) -> str:
        """Return the primary measure of a treatment: the given one, if it is one that can tell treatments apart."""
        given = settings.get(PRIMARY)
        if given is None:
            return default_primary(treatment)
        metrics = as_stored_metrics(job_metrics(treatment))
        try:
            measure = parse_primary(given.value, [one.name for one in job_script(treatment)], metrics)
        except ValueError as error:
            problem = untold_reason(str(given.value).removeprefix("metrics."), [treatment]) or str(error)
            self._findings.add(given.place, f"'{PRIMARY}': {problem}", deep=True)
            return str(given.value)
        reason = fixed_reason(treatment, measure)
        if measure.kind == "metric" and not metrics[measure.name].direction:
            message = f"{measure.name} has no direction: add 'better: higher' or 'better: lower' to the metric"
            self._findings.add(given.place, f"'{PRIMARY}': {message}, or use another measure", deep=True)
        if reason is not None:
            instead = default_primary(treatment)
            message = (
                f"'{PRIMARY}': {measure.name} tells nothing apart: {reason}; use another measure, such as {instead}"
            )
            self._findings.add(given.place, message, deep=True)
        return measure.name

    def _open_load(self, settings: Settings) -> OpenLoad | None:
        """Return how the jobs of a cell arrive; None in the closed model, or where the keys contradict each other.

        A rate needs an end: a number of jobs or a time. `iterations` counts jobs of a slot, and slots do not pace
        arrivals.
        """
        rate = settings.get("rate")
        if rate is None:
            for key in _WITH_A_RATE:
                if key in settings:
                    self._findings.add(
                        settings[key].place, f"'{key}' needs a 'rate', such as 'rate: 200/s'", deep=True
                    )
            return None
        operations = settings.get("operations")
        if operations is not None and any(one.kind == "hold" for one in operations.value):
            message = "jobs with 'hold' start one after another, so they cannot arrive at a rate"
            self._findings.add(rate.place, f"{message}: remove 'rate' or 'hold'", deep=True)
            return None
        if "iterations" in settings:
            message = "'iterations' counts the jobs of a slot and cannot be used with 'rate'"
            self._findings.add(settings["iterations"].place, f"{message}; use {_ENDS}", deep=True)
            return None
        if "operation_count" not in settings and "run_seconds" not in settings:
            self._findings.add(rate.place, f"'rate' needs an end: set {_ENDS}", deep=True)
            return None
        arrivals, queue_timeout = (self._value(settings, key) for key in _WITH_A_RATE)
        return OpenLoad(rate.value, arrivals, queue_timeout)

    def _carried(self, settings: Settings) -> dict[str, Any]:
        """Return the values of the keys that reach the workers unchanged, by the name of `Treatment`'s field."""
        fields = (*self._format.run_fields, *self._format.job_fields)
        given = {field.carried_as: self._value(settings, field.name) for field in fields if field.carried_as}
        return {name: value for name, value in given.items() if value is not None}

    def _value(self, settings: Settings, key: str) -> Any:
        """Return the value of a key in a cell, or the key's default."""
        return settings[key].value if key in settings else self._defaults.get(key)

    def _check_operations(self, job: _InheritedJob, cell: MatrixCell, settings: Settings) -> None:
        """Report operations that cannot work with these settings."""
        given = settings["operations"].value if job.workload is None else None
        operations = None if given is INVALID else given
        if operations is not None:
            check_lifecycle_container(operations, cell.engine, settings, job.place, self._findings)
            check_pull(operations, settings, self._findings)
        check_packing(operations, settings, job.place, self._findings)

    def _matrix_applies(self, job: _InheritedJob, cell: MatrixCell) -> bool:
        """Return whether the keys that the matrix varies, and the engine, apply to this job."""
        if not self._engine_applies(job, cell) or not self._own_keys_apply(job, cell):
            return False
        steps = [field.name for field in STEP_FIELDS if field.name in cell.settings]
        if steps and (job.workload is None or job.workload.name != OWN_COMMAND):
            message = f"'{steps[0]}' varies here, but this job does not run the workload {OWN_COMMAND}"
            self._findings.add(cell.settings[steps[0]].place, f"{message}; give it a matrix of its own", deep=True)
            return False
        what = "" if job.workload is None else f"runs the workload {job.workload.name}"
        what = what if job.part is None else job.part.does
        if what and "operations" in cell.settings:
            message = f"'operations' varies here, but this job {what}"
            self._findings.add(
                cell.settings["operations"].place, f"{message}; give it a matrix of its own", deep=True
            )
            return False
        amounts = [key for key in TRIAL_SIZE_KEYS if key in cell.settings]
        if len(amounts) > 1:
            place = cell.settings[amounts[1]].place
            self._findings.add(
                place, f"'{amounts[0]}' and '{amounts[1]}' are mutually exclusive: vary one", deep=True
            )
        return len(amounts) <= 1

    def _engine_applies(self, job: _InheritedJob, cell: MatrixCell) -> bool:
        """Return whether the cell's engine is one of the job's kind."""
        owner = next((part for part in master_parts().values() if cell.engine in part.engines()), None)
        if cell.engine is INVALID or owner is job.part:
            return True
        if job.part is not None:
            message = job.part.foreign_engine(cell.engine)
        else:
            assert owner is not None
            message = owner.misused_engine(cell.engine)
        self._findings.add(cell.place or job.place, f"{message}, or give this job 'engines' of its own", deep=True)
        return False

    def _own_keys_apply(self, job: _InheritedJob, cell: MatrixCell) -> bool:
        """Return whether the keys of kinds from packages that the matrix varies are those of this job."""
        for part in master_parts().values():
            varied = {key: given for key, given in cell.settings.items() if key.startswith(f"{part.name}.")}
            if varied and part is not job.part:
                key, given = next(iter(varied.items()))
                message = f"'{key}' varies here, but this job has no '{part.name}'; give it a matrix of its own"
                self._findings.add(given.place, message, deep=True)
                return False
            if varied and not part.check_varied(varied, job.settings, self._findings):
                return False
        return True

    def _labels_of(self, job: _InheritedJob, cell: MatrixCell) -> dict[str, Scalar]:
        labels: dict[str, Scalar] = {} if cell.environment is None else {"environment": cell.environment}
        labels["engine"] = cell.engine
        if job.label is not None:
            labels["job"] = job.label
        for key, given in cell.settings.items():
            labels[self._names[key]] = (
                self._labels.label(key, self._shape(key, job.workload), given.value)
                if given.name is None
                else given.name
            )
        return labels

    def _shape(self, key: str, workload: type[Workload] | None) -> Shape:
        if key.startswith(PARAMS) and workload is not None:
            parameter = find_parameter(workload, key.removeprefix(PARAMS))
            assert parameter is not None
            return parameter_shape(parameter)
        shape = self._format.matrix.shape_of(key)
        assert shape is not None
        return shape


def _with_plain_environment(treatments: Iterable[Treatment]) -> tuple[Treatment, ...]:
    """Return treatments with a container's environment for plain processes where containers are among them, too.

    Else a search path, or a locale, would be measured in the place of an engine. What the scenario says stays.
    """
    made = tuple(treatments)
    kinds = {engine_traits(one.engine).runs_on_host for one in made if isinstance(one.job, Lifecycle | Guest)}
    if len(kinds) < 2:  # noqa: PLR2004  plain processes, and containers
        return made
    return tuple(
        one if one.plain_environment else replace(one, plain_environment=PLAIN_ENVIRONMENTS[0]) for one in made
    )


def _list_jobs(scenario: Mapping[str, Located[Any]]) -> Iterator[tuple[str | None, Located[Any]]]:
    if "job" in scenario:
        yield None, scenario["job"]
    elif "jobs" in scenario and scenario["jobs"].value is not INVALID:
        yield from scenario["jobs"].value.items()


def _parse_own_params(workload: type[Workload], params: Located[Any]) -> Settings:
    """Return a job's own parameters in base units; reading the job has already reported their problems."""
    if params.value is INVALID:
        return {PARAMS: params}
    return {
        f"{PARAMS}{key}": Located(
            parse_param(workload, key, given.value, given.place, Diagnostics())
            if isinstance(given.value, ScalarNode)
            else INVALID,
            given.place,
        )
        for key, given in params.value.items()
    }


def _varying_keys(matrix: Matrix) -> Iterator[str]:
    yield from matrix.dimensions
    for entry in matrix.include:
        yield from (key for key in entry.settings if key not in {"environment", "engine"})


def flatten(record: Mapping[str, Located[Any]], fields: Iterable[Field]) -> Settings:
    """Return these keys of a record by dotted key, so that containers merge key by key and `env` name by name."""
    settings: Settings = {}
    for field in fields:
        if field.name in record:
            settings |= _flatten_key(field.name, record[field.name])
    return settings


def _flatten_key(key: str, given: Located[Any]) -> Settings:
    if not isinstance(given.value, dict):
        return {key: given}
    settings: Settings = {}
    for name, inner in given.value.items():
        settings |= _flatten_key(f"{key}.{name}", inner)
    return settings


def merge_settings(base: Settings, over: Settings) -> Settings:
    """Return `base` with `over` on top; a trial size such as `run_seconds` in `over` replaces any in `base`."""
    flattened: Settings = {}
    for key, given in over.items():
        flattened |= _flatten_key(key, given)
    replaced = set(TRIAL_SIZE_KEYS) if any(key in flattened for key in TRIAL_SIZE_KEYS) else set()
    return {key: given for key, given in base.items() if key not in replaced} | flattened
