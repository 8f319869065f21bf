"""A scenario as its author wrote it: text, lists and mappings, each with its place.

No scalar has a type yet. What ``no``, ``010`` or ``12:30`` means is decided where it is known what is wanted there,
so none of YAML 1.1's guesses is ever made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from bench_common.errors import Problem


@dataclass(frozen=True, slots=True)
class Place:
    """Where something was written: 1-based `line` and `column` of `file`; line 0 where there are no lines.

    What the command line says has no lines: its `file` is the argument itself, such as ``--set repeats=9``.
    """

    file: str
    line: int = 0
    column: int = 0

    def problem(self, message: str) -> Problem:
        """Return `message` as a problem at this place."""
        return Problem(self.file, self.line, self.column, message)


@dataclass(eq=False, slots=True)
class Leaf:
    """A scalar: its text, and whether it was written plain (without quotes)."""

    place: Place
    text: str
    plain: bool = True

    @property
    def empty(self) -> bool:
        """Whether nothing was written, or YAML's word for nothing."""
        return self.plain and self.text in {"", "~", "null"}


@dataclass(eq=False, slots=True)
class Items:
    """A list."""

    place: Place
    items: list[Node] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Entries:
    """A mapping: values by key, and the place of each key."""

    place: Place
    values: dict[str, Node] = field(default_factory=dict)
    key_places: dict[str, Place] = field(default_factory=dict)

    def put(self, key: str, value: Node, place: Place) -> None:
        """Set a key, wherever it stood before."""
        self.values[key] = value
        self.key_places[key] = place


Node: TypeAlias = Leaf | Items | Entries


def quoted(node: Node) -> str:
    """Return a node as an error message shows it, cut to a readable length."""
    if isinstance(node, Items):
        return "a list" if node.items else "an empty list"
    if isinstance(node, Entries):
        return "a mapping"
    if node.plain and not node.text:
        return "nothing"
    text = node.text if len(node.text) <= 60 else node.text[:57] + "..."  # noqa: PLR2004  what fits on a line
    return repr(text)
