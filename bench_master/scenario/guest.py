"""The parameters of a guest job, checked against what its workload declares."""

# ruff: noqa: D102  the base class documents what each method of a shape or rule does

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench_common.errors import did_you_mean
from bench_master.scenario.diagnostics import Diagnostics
from bench_master.scenario.types import (
    DURATION,
    INVALID,
    NUMBER,
    SIZE,
    WHOLE,
    Boolean,
    Choice,
    Quantity,
    Rule,
    Shape,
    Text,
)
from bench_master.scenario.yaml_tree import MappingNode, Node, ScalarNode, SourceLocation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workloads.base import Parameter, Workload

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
