"""What a guest job runs: a workload's parameters, checked against what it declares, or the user's own command.

The keys of an own command are `command`, `setup`, `prepare`, `cleanup` and `metrics`.
"""

# ruff: noqa: D102  the base class documents what each method of a shape or rule does

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench_common.cost import COST_UNITS, HELD_UNITS
from bench_common.errors import closest_match, did_you_mean
from bench_common.lifecycle import COMMIT_BYTES, STATS_READINGS
from bench_common.thresholds import CONTAINERS, JOBS_PER_S
from bench_common.treatment import (
    MATCH_CHOICES,
    OUTPUT_STREAMS,
    OWN_COMMAND,
    USAGES,
    MetricSource,
    OwnCommand,
    OwnService,
)
from bench_master.scenario.diagnostics import Diagnostics
from bench_master.scenario.types import (
    DURATION,
    INVALID,
    NUMBER,
    SIZE,
    WHOLE,
    AtMostOneOf,
    Boolean,
    Choice,
    CommandShape,
    Field,
    Quantity,
    Record,
    RequiresKey,
    Rule,
    Shape,
    Text,
    truncate_label,
)
from bench_master.scenario.yaml_tree import MappingNode, Node, ScalarNode, SourceLocation
from bench_workloads.metric_sources import PATH_SYNTAX, check_pattern, parse_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench_common.treatment import Scalar
    from bench_master.scenario.matrix import Settings
    from bench_workloads.base import Parameter, Workload

PARAMS: Final = "params."
"""The prefix of a workload's parameters among the settings of a job."""

_KINDS = {"int": WHOLE, "float": NUMBER, "size": SIZE, "duration": DURATION}


@dataclass(frozen=True)
class ParamShape(Shape):
    """A parameter's value before its workload is known: the scalar itself, to be read by `parse_param`."""

    @property
    def expected(self) -> str:
        return "a parameter's value: text, a number, true or false"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        return node if isinstance(node, ScalarNode) else self.refuse(node, findings)

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean", "null"]}


def parameter_shape(parameter: Parameter) -> Shape:
    """Return the type of a workload's parameter in a scenario."""
    if parameter.type == "bool":
        return Boolean()
    if parameter.type == "choice":
        return Choice(f"value of '{parameter.name}'", parameter.choices)
    if parameter.type == "text":
        return Text(allow_empty=True)
    return Quantity(_KINDS[parameter.type], minimum=parameter.minimum, maximum=parameter.maximum)


def find_parameter(workload: type[Workload], name: str) -> Parameter | None:
    """Return the parameter called `name`, or None."""
    return next((parameter for parameter in workload.parameters if parameter.name == name), None)


def parse_param(
    workload: type[Workload],
    name: str,
    leaf: ScalarNode,
    key_place: SourceLocation,
    findings: Diagnostics,
    *,
    deep: bool = False,
) -> Any:
    """Return a parameter's value in base units; or `INVALID`, with a problem in `findings`."""
    parameter = find_parameter(workload, name)
    if parameter is None:
        hint = _suggest_parameter(workload, name)
        findings.add(key_place, f"unknown parameter '{name}' of {workload.name}{hint}", deep=deep)
        return INVALID
    return parameter_shape(parameter).read(leaf, findings)


def _suggest_parameter(workload: type[Workload], name: str) -> str:
    """Return a hint for an unknown parameter: its name here if the tool uses the given one, else the nearest."""
    own = workload.tool_option_names.get(name.lstrip("-").replace("_", "-"))
    if own is not None:
        return f": {workload.binary}'s name for it; write '{own}'"
    known = [each.name for each in workload.parameters]
    return did_you_mean(name, known) or f"; the parameters are: {', '.join(known) or 'none'}"


@dataclass(frozen=True)
class ParamsOfWorkload(Rule):
    """A guest job's parameters are those of its workload, each of its own type and within its bounds."""

    workloads: Mapping[str, type[Workload]]

    def check(self, node: MappingNode, findings: Diagnostics) -> None:
        name, params = node.values.get("workload"), node.values.get("params")
        if not isinstance(name, ScalarNode) or name.text not in self.workloads or not isinstance(params, MappingNode):
            return
        for key, leaf in params.values.items():
            if isinstance(leaf, ScalarNode):
                parse_param(self.workloads[name.text], key, leaf, params.key_places[key], findings)

    def schema(self) -> dict[str, Any]:
        return {"allOf": [self._schema_of(workload) for workload in self.workloads.values()]}

    @staticmethod
    def _schema_of(workload: type[Workload]) -> dict[str, Any]:
        properties = {}
        for parameter in workload.parameters:
            unit = f" [{parameter.unit}]" if parameter.unit else ""
            properties[parameter.name] = parameter_shape(parameter).schema() | {
                "description": f"{parameter.help}{unit}"
            }
            if parameter.default is not None:
                properties[parameter.name]["default"] = parameter.default
        return {
            "if": {"properties": {"workload": {"const": workload.name}}, "required": ["workload"]},
            "then": {"properties": {"params": {"properties": properties, "additionalProperties": False}}},
        }


MAX_METRICS: Final = 100
"""The most metrics of one command."""
METRIC_NAME_PATTERN: Final = "^[A-Za-z_][A-Za-z0-9_-]{0,63}$"
"""Names that thresholds can use, too."""
_TAKEN: Final = (COMMIT_BYTES, STATS_READINGS, JOBS_PER_S, CONTAINERS, *COST_UNITS, *HELD_UNITS)


@dataclass(frozen=True)
class CheckedText(Shape):
    """Text that has to pass a check, which a JSON Schema cannot express."""

    what: str
    check: Callable[[str], object]
    """Raises `ValueError` with what is wrong."""

    @property
    def expected(self) -> str:
        return self.what

    def read(self, node: Node, findings: Diagnostics) -> Any:
        text = Text(self.what).read(node, findings)
        if text is INVALID:
            return INVALID
        try:
            self.check(text)
        except ValueError as error:
            findings.add(node.place, f"'{text}': {error}", deep=True)
            return INVALID
        return text

    def schema(self) -> dict[str, Any]:
        return Text(self.what).schema()


_METRIC: Final = Record(
    "metric",
    (
        Field(
            "regex",
            CheckedText("a regular expression with one group, such as 'score: ([0-9.]+)'", check_pattern),
            "a regular expression; its one group captures the number",
        ),
        Field("json", CheckedText(PATH_SYNTAX, parse_path), "the path to the number where the output is JSON"),
        Field(
            "usage",
            Choice("use of the host", USAGES),
            "in place of both: CPU time of the command in s, which native counts",
        ),
        Field("unit", Text("a unit such as 1/s", r"^\S{1,32}$", unquoted_types=("number",)), "the unit", "1"),
        Field("better", Choice("direction", ("higher", "lower")), "which direction is better; without it, neither"),
        Field("stream", Choice("output stream", OUTPUT_STREAMS), "where the command prints it", OUTPUT_STREAMS[0]),
        Field(
            "take",
            Choice("choice of match", MATCH_CHOICES),
            "which match counts where there are several; only: several are an error",
            MATCH_CHOICES[0],
        ),
    ),
    (
        AtMostOneOf(("regex", "json", "usage"), required=True, advice=": say where the number is"),
        RequiresKey("take", "regex"),
    ),
)


@dataclass(frozen=True)
class MetricsShape(Shape):
    """Metrics by name; read as a tuple of `MetricSource`."""

    @property
    def expected(self) -> str:
        return "metrics by name, such as {score: {regex: 'score: ([0-9.]+)', unit: 1/s, better: higher}}"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, MappingNode):
            return self.refuse(node, findings)
        if not 0 < len(node.values) <= MAX_METRICS:
            findings.add(
                node.place, f"{len(node.values)} metrics; a command has from 1 to {MAX_METRICS}: {self.expected}"
            )
            return INVALID
        sources = [self._source(name, value, node, findings) for name, value in node.values.items()]
        return INVALID if None in sources else tuple(sources)

    @staticmethod
    def _source(name: str, value: Node, node: MappingNode, findings: Diagnostics) -> MetricSource | None:
        found = Diagnostics()
        if not re.fullmatch(METRIC_NAME_PATTERN, name):
            text = f"{name!r} cannot name a metric: use up to 64 letters, digits, _ and -, with a letter first"
            found.add(node.key_places[name], text)
        elif name in _TAKEN:
            text = f"'{name}' is a measure that Weighbridge takes itself: choose another name"
            found.add(node.key_places[name], text, deep=True)
        read = _METRIC.read(value, found)
        findings.merge(found, deep=False)
        if found.deep:
            return None
        settings = {key: given.value for key, given in read.items()}
        return MetricSource(name, **({"unit": "s", "better": "lower"} if "usage" in settings else {}) | settings)

    def schema(self) -> dict[str, Any]:
        return {
            "title": "metrics",
            "type": "object",
            "propertyNames": {"pattern": METRIC_NAME_PATTERN},
            "additionalProperties": _METRIC.schema(),
            "minProperties": 1,
            "maxProperties": MAX_METRICS,
        }

    def label(self, value: Any) -> Scalar:
        return truncate_label(",".join(source.name for source in value))


STEP_FIELDS: Final = (
    Field("command", CommandShape(), "the command that the workload `command` measures"),
    Field("setup", CommandShape(), "a command to run once, before the first job; untimed"),
    Field("prepare", CommandShape(), "a command to run before `command` in each job; untimed"),
    Field("cleanup", CommandShape(), "a command to run after `command` in each job; untimed"),
    Field(
        "start_cost",
        CommandShape(),
        "a command that does nothing, run just before `command` in each job, untimed: the cost of starting a process",
    ),
)
"""The commands of the workload ``command``. A matrix can vary each."""

COMMAND_FIELDS: Final = (
    *STEP_FIELDS,
    Field("metrics", MetricsShape(), "the metrics that `command` prints, by name, and where they are in its output"),
)
"""The keys of a job that runs the workload ``command``."""


@dataclass(frozen=True)
class KeysOfOwnCommand(Rule):
    """Only a job with the workload ``command`` has commands and metrics of its own."""

    def check(self, node: MappingNode, findings: Diagnostics) -> None:
        given = [field.name for field in COMMAND_FIELDS if field.name in node.values]
        workload = node.values.get("workload")
        # The nearest misspelling is reported where it is.
        if not given or (isinstance(workload, ScalarNode) and closest_match(workload.text, [OWN_COMMAND])):
            return
        advice = f"requires 'workload: {OWN_COMMAND}': add it"
        if "operations" in node.values:
            advice = f"requires 'workload: {OWN_COMMAND}', and this job has operations"
        elif workload is not None:
            advice = f"requires 'workload: {OWN_COMMAND}'; other workloads have commands and metrics of their own"
        for name in given:
            more = {
                "command": "; a container's command is 'container.command'",
                "metrics": "; write metrics of an operation as {exec: {command: ..., metrics: ...}}",
            }
            hint = more.get(name, "") if "operations" in node.values else ""
            findings.add(node.key_places[name], f"'{name}' {advice}{hint}")
        if workload is None:
            findings.mark_misspelling(node, "workload")

    def schema(self) -> dict[str, Any]:
        own = {"properties": {"workload": {"const": OWN_COMMAND}}, "required": ["workload"]}
        others = {"not": {"anyOf": [{"required": [field.name]} for field in COMMAND_FIELDS]}}
        return {"if": {"not": own}, "then": others}


OWN_SERVICES: Final = "services"
"""The setting with the names of the services that a job's own command needs."""


def own_command(settings: Settings) -> OwnCommand | None:
    """Return the user's own command as a cell has it; None where there is none."""
    given = {field.name: settings[field.name].value for field in COMMAND_FIELDS if field.name in settings}
    if "command" not in given:
        return None
    names = settings[OWN_SERVICES].value if OWN_SERVICES in settings else ()
    return OwnCommand(**given, services=tuple(_own_service(name, settings) for name in names))


def _own_service(name: str, settings: Settings) -> OwnService:
    keys = {key: settings.get(f"services.{name}.{key}") for key in ("command", "port", "ready")}
    return OwnService(name, **{key: given.value for key, given in keys.items() if given is not None})
