"""`bench-master list workloads`: list the guest benchmarks, or the parameters and metrics of one."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from msgspec.structs import asdict

from bench_common.options import Option
from bench_common.units import format_duration, format_size
from bench_master.formatting import choose_format, tab_separated, wrap_last_column
from bench_master.options.list_format import ListFormat
from bench_workloads.registry import workload, workload_classes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_workloads.base import Parameter, Workload


COLUMNS = ("WORKLOAD", "IMAGE", "SUMMARY")
PARAMETER_COLUMNS = ("PARAMETER", "TYPE", "DEFAULT", "DESCRIPTION")
METRIC_COLUMNS = ("METRIC", "UNIT", "BETTER", "DESCRIPTION")


class Options(Struct, frozen=True):
    """The command line of `list workloads`."""

    workload: Annotated[str | None, Option("NAME", "show this workload's parameters and metrics", nargs="?")]
    format: ListFormat = None


def run(options: Options) -> int:
    """Print the workloads, or a description of one."""
    chosen = choose_format(options.format)
    lines = _list_all(chosen) if options.workload is None else _describe_one(workload(options.workload), chosen)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _list_all(chosen: str) -> list[str]:
    classes = workload_classes()
    if chosen == "json":
        return [json.dumps([_describe(each) for each in classes.values()], indent=2)]
    rows = [(name, each.image or "yours", each.summary) for name, each in classes.items()]
    return wrap_last_column(COLUMNS, rows) if chosen == "table" else tab_separated([COLUMNS, *rows])


def _describe_one(chosen_workload: Workload, chosen: str) -> list[str]:
    kind = type(chosen_workload)
    if chosen == "json":
        parameters = [asdict(parameter) for parameter in kind.parameters]
        metrics = [asdict(metric) for metric in kind.metrics]
        return [json.dumps({**_describe(kind), "parameters": parameters, "metrics": metrics}, indent=2)]
    parameter_rows = [(each.name, format_type(each), format_default(each), each.help) for each in kind.parameters]
    metric_rows = [(each.name, each.unit, each.direction, each.help) for each in kind.metrics]
    if chosen == "tsv":
        marked = [("parameter", *row) for row in parameter_rows] + [("metric", *row) for row in metric_rows]
        return tab_separated([("KIND", "NAME", "TYPE OR UNIT", "DEFAULT OR DIRECTION", "DESCRIPTION"), *marked])
    needs = f"image {kind.image}; native runs need {kind.binary} on PATH"
    if not kind.image:
        needs = "image: yours, as container.image; native runs need your command on PATH"
    tables: list[tuple[Sequence[str], Sequence[Sequence[str]]]]
    tables = [(PARAMETER_COLUMNS, parameter_rows), (METRIC_COLUMNS, metric_rows)]
    return [
        f"{kind.name}: {kind.summary}",
        needs,
        *(f"service {one.name}: image {one.image}; native runs need {one.binary} on PATH" for one in kind.services),
        *(line for columns, rows in tables if rows for line in ("", *wrap_last_column(columns, rows))),
        *([""] if kind.description else []),
        *kind.description.splitlines(),
    ]


def _describe(kind: type[Workload]) -> dict[str, Any]:
    services = [{"name": one.name, "image": one.image, "binary": one.binary} for one in kind.services]
    facts = {"name": kind.name, "summary": kind.summary, "image": kind.image, "binary": kind.binary}
    return facts | ({"services": services} if services else {})


def format_type(parameter: Parameter) -> str:
    """Return a parameter's type with its bounds, such as ``int 1..64`` or ``size >= 1MiB``."""
    if parameter.choices:
        return "|".join(parameter.choices)
    low = None if parameter.minimum is None else format_value(parameter, parameter.minimum)
    high = None if parameter.maximum is None else format_value(parameter, parameter.maximum)
    if low is not None and high is not None:
        return f"{parameter.type} {low}..{high}"
    if low is not None:
        return f"{parameter.type} >= {low}"
    return parameter.type if high is None else f"{parameter.type} <= {high}"


def format_default(parameter: Parameter) -> str:
    """Return a parameter's default as a scenario would write it."""
    return "-" if parameter.default is None else format_value(parameter, parameter.default)


def format_value(parameter: Parameter, value: str | float | bool) -> str:  # noqa: FBT001  a value, not a switch
    """Return a parameter's value (base units) as a scenario would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value or "''"
    if parameter.type == "size":
        return format_size(int(value))
    if parameter.type == "int":
        return str(int(value))
    return format_duration(value) if parameter.type == "duration" else f"{value:.12g}"
