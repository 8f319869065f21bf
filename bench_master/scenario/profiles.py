"""Profiles: one scenario at several scales, such as a study at full size and a small one that ends in minutes.

A profile is a list of overrides under a name; `overrides` applies the one that ``scale`` asks for.
"""

# ruff: noqa: D102  what each method of a shape or rule does is said once, in the base class

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench_master.scenario.tree import Entries, Node
from bench_master.scenario.types import Shape

if TYPE_CHECKING:
    from bench_master.scenario.diagnostics import Findings

SCALE: Final = "scale"
PROFILES: Final = "profiles"
FULL: Final = "full"
"""The scale of a scenario as it is written."""
PROFILE_PATTERN: Final = "^[A-Za-z][A-Za-z0-9_+-]*$"


class OverridesShape(Shape):
    """The overrides of a profile: values by dotted key. What they mean shows when they are applied."""

    @property
    def expected(self) -> str:
        return "a profile: values by dotted key, such as {repeats: 2, jobs.cpu.params.time: 1s}"

    def read(self, node: Node, findings: Findings) -> Any:
        return node if isinstance(node, Entries) else self.refuse(node, findings)

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}
