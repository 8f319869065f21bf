"""The services of a guest job's workload, as a scenario configures them: storage, network, limits, files."""

# ruff: noqa: D102  what each method of a shape or rule does is said once, in the base class

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench_common.arguments import NAME_PATTERN
from bench_common.errors import did_you_mean
from bench_master.scenario.composites import Field, Record, Rule, shortened
from bench_master.scenario.diagnostics import Findings
from bench_master.scenario.tree import Entries, Leaf, Node
from bench_master.scenario.types import Shape, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench_common.treatment import Scalar
    from workloads.base import Workload

FILE_PATTERN: Final = r"^(/(?!\.\.?(/|$))[^/\x00]+)+$"
"""An absolute path of a file, which no part of leads upwards."""


_PLACE: Final = Field(
    "at",
    Text("an environment or a worker's id", NAME_PATTERN, bare=("number", "boolean", "null")),
    "where it runs (default: on the host of the job)",
)


@dataclass(frozen=True)
class FileText(Shape):
    """The text of a file: any text, of several lines or none."""

    @property
    def expected(self) -> str:
        return "the text of a file"

    def read(self, node: Node, findings: Findings) -> Any:
        if not isinstance(node, Leaf) or "\0" in node.text:
            return self.refuse(node, findings)
        findings.understood(node, node.text)
        return node.text

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}

    def label(self, value: str) -> Scalar:
        return shortened(" ".join(value.split())) or "none"


def services_record(workloads: Iterable[type[Workload]], container: Record) -> Record:
    """Return the record of all services that the workloads declare: each a container whose command is its own."""
    names = sorted({service.name for workload in workloads for service in workload.services})
    own = Record(
        "service",
        (*(field for field in container.fields if field.name != "command"), _PLACE),
        container.rules,
    )
    return Record("services", tuple(Field(name, own, f"the container of {name}") for name in names))


@dataclass(frozen=True)
class ServicesOfWorkload(Rule):
    """A job configures no service that its workload does not have."""

    workloads: Mapping[str, type[Workload]]

    def check(self, node: Entries, findings: Findings) -> None:
        name, services = node.values.get("workload"), node.values.get("services")
        if not isinstance(services, Entries):
            return
        workload = self.workloads.get(name.text) if isinstance(name, Leaf) else None
        if workload is None and name is not None:
            return
        known = [service.name for service in workload.services] if workload is not None else []
        whose = f"workload {workload.name}" if workload is not None else "a job of operations"
        for key in services.values:
            if key not in known:
                hint = did_you_mean(key, known) or f"; it has: {', '.join(known) or 'none'}"
                findings.add(services.key_places[key], f"{whose} has no service '{key}'{hint}", deep=True)

    def schema(self) -> dict[str, Any]:
        return {}
