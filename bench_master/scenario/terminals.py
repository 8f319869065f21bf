"""How a container is attached to whoever starts it: never, and by no terminal.

Both could only be one thing: a terminal merges the output streams and changes the ends of lines, and a client that
stays attached would be measured, too. The keys are there so that who writes them down is understood, and who wants
anything else is told.
"""

# ruff: noqa: D102  what each method of a shape does is said once, in the base class

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench_master.scenario.composites import Field
from bench_master.scenario.types import INVALID, Boolean, Choice

if TYPE_CHECKING:
    from bench_master.scenario.diagnostics import Findings
    from bench_master.scenario.tree import Node


@dataclass(frozen=True)
class AlwaysTrue(Boolean):
    """``true`` and nothing else; `why` is what there is no other value for."""

    why: str

    def read(self, node: Node, findings: Findings) -> Any:
        value = super().read(node, findings)
        if value is False:
            findings.add(node.place, f"'false': {self.why}", deep=True)
            return INVALID
        return value

    def schema(self) -> dict[str, Any]:
        return {"const": True}


def terminal_fields() -> tuple[Field, ...]:
    """Return the keys of a container that say what is always so."""
    attached = "every container runs detached, as a client that stays attached would be measured, too"
    return (
        Field("detached", AlwaysTrue(attached), "always so: no client stays attached to it", default=True),
        Field("tty", Choice("use of a terminal", ("never",)), "always so: no container has a terminal", "never"),
    )
