"""The key ``overhead``: whether, how often and against what the cost of the engines themselves is measured."""

# ruff: noqa: D102  what each method of a shape does is said once, in the base class

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench_common.overhead import INTERVAL_S, Overhead
from bench_common.thresholds import label_equals
from bench_common.units import format_duration
from bench_master.scenario.composites import Field, MapOf, Record
from bench_master.scenario.tree import Entries, Leaf, Node
from bench_master.scenario.types import DURATION, INVALID, Boolean, Choice, Measured, Shape, Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_common.treatment import Treatment
    from bench_master.scenario.diagnostics import Findings, Given


@dataclass(frozen=True)
class OverheadShape(Shape):
    """``true``, ``false`` or a mapping of settings; read as an `Overhead`, or None. `engine` are those installed."""

    engine: Choice

    @property
    def expected(self) -> str:
        return "true, false, or settings such as {interval: 500ms, baseline: {engine: docker}}"

    @property
    def _record(self) -> Record:
        names = "|".join(map(re.escape, self.engine.choices))
        group = Text("a control group such as /system.slice/docker.service", "^/.*$", bare=())
        return Record(
            "overhead",
            (
                Field(
                    "interval",
                    Measured(DURATION, minimum=0.1, maximum=60),
                    "how often they are read",
                    format_duration(INTERVAL_S),
                ),
                Field(
                    "baseline",
                    MapOf("labels of a treatment such as {engine: docker}", "^.+$", Text("a label's value"), 1),
                    "the treatment that the others are compared with",
                ),
                Field(
                    "cgroups",
                    MapOf("control groups by engine", f"^({names})$", group, 1),
                    "read instead of the engine's processes",
                ),
            ),
        )

    def read(self, node: Node, findings: Findings) -> Any:
        if isinstance(node, Leaf) and node.plain and node.text in ("true", "false"):
            return Overhead() if Boolean().read(node, findings) else None
        if not isinstance(node, Entries):
            return self.refuse(node, findings)
        read = self._record.read(node, findings)
        inner = [given.value for name in ("baseline", "cgroups") if name in read for given in _inner(read[name])]
        if any(given.value is INVALID for given in read.values()) or INVALID in inner:
            return INVALID
        return Overhead(
            interval_s=read["interval"].value if "interval" in read else INTERVAL_S,
            **{
                name: {key: given.value for key, given in read[name].value.items()}
                for name in ("baseline", "cgroups")
                if name in read
            },
        )

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "boolean"}, self._record.schema()]}


def check_baseline(
    read: Mapping[str, Given[Any]], treatments: Sequence[Treatment], findings: Findings
) -> Overhead | None:
    """Return the overhead that was read; note a baseline that no treatment is."""
    given = read.get("overhead")
    if given is None or given.value is INVALID or given.value is None:
        return None
    overhead: Overhead = given.value
    if not overhead.baseline or not treatments:
        return overhead
    for treatment in treatments:
        labels = treatment.labels
        if all(key in labels and label_equals(labels[key], value) for key, value in overhead.baseline.items()):
            return overhead
    wanted = ", ".join(f"{key}={value}" for key, value in overhead.baseline.items())
    known = ", ".join(dict.fromkeys(key for treatment in treatments for key in treatment.labels))
    message = f"no treatment has {wanted}, which is to be the baseline; the labels are: {known}"
    findings.add(given.place, message, deep=True)
    return overhead


def _inner(given: Any) -> list[Any]:
    return [] if given.value is INVALID else list(given.value.values())
