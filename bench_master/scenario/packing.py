"""The key ``until``, and what packed jobs must keep to: a ``hold``, and as many containers as there are in flight."""

# ruff: noqa: D102  what each method of a shape does is said once, in the base class

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench_common.until import FORM, parse_until
from bench_master.scenario.tree import Leaf, Node
from bench_master.scenario.types import INVALID, Shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_common.treatment import Operation
    from bench_master.scenario.diagnostics import Findings
    from bench_master.scenario.matrix import Settings
    from bench_master.scenario.tree import Place


PACKED_UNTIL: Final = 1000
"""How many containers there are at most where a condition ends the packing, and no ``concurrency`` is given."""


@dataclass(frozen=True)
class UntilShape(Shape):
    """A condition that ends a packing; read as text, in its usual form."""

    @property
    def expected(self) -> str:
        return FORM

    def read(self, node: Node, findings: Findings) -> Any:
        if not isinstance(node, Leaf) or node.empty:
            return self.refuse(node, findings)
        try:
            return str(parse_until(node.text))
        except ValueError as error:
            findings.add(node.place, str(error), deep=True)
            return INVALID

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1}


def check_packing(
    operations: Sequence[Operation] | None, settings: Settings, place: Place, findings: Findings
) -> None:
    """Note what a packing cannot have, and what means nothing without one; `operations` is None for a guest job."""
    holds = [one for one in operations or () if one.kind == "hold"]
    if not holds:
        if "until" in settings:
            message = "'until' means nothing without the operation 'hold', which keeps the containers that were made"
            findings.add(settings["until"].place, message, deep=True)
        return
    iterations = settings.get("iterations")
    odd = [settings[key] for key in ("operation_count", "run_seconds") if key in settings]
    if iterations is not None and iterations.value not in (1, INVALID):
        odd.append(iterations)
    for given in odd:
        message = "jobs with 'hold' are packed once in a trial: 'concurrency' says how many, and nothing else"
        findings.add(given.place, message, deep=True)
    if len(holds) > 1:
        findings.add(place, "a job can have one 'hold': all containers are held together, once", deep=True)
