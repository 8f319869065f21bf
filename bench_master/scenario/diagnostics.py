"""What reading a scenario brings to light: problems, notes, and how each scalar was understood."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bench_master.scenario.yaml_tree import ListNode, ScalarNode

if TYPE_CHECKING:
    from bench_common.errors import Problem
    from bench_common.treatment import Scalar
    from bench_master.scenario.yaml_tree import MappingNode, Node, SourceLocation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Located(Generic[T]):
    """A value that was understood, and where it was written."""

    value: T
    place: SourceLocation


@dataclass(slots=True)
class Diagnostics:
    """Collects while a tree is read. A problem that is met twice (by two treatments, say) is kept once."""

    deep: dict[Problem, bool] = field(default_factory=dict)
    """Each problem, and whether it lies deeper than a JSON Schema can see (a relation, a bound of a unit ...)."""
    notes: list[str] = field(default_factory=list)
    literals: dict[int, Scalar] = field(default_factory=dict)
    """What a scalar was read as, by the identity of its leaf; one that is not here is text."""
    misspellings: set[tuple[int, str]] = field(default_factory=set)
    """Keys that unknown ones seem to stand for, each with the identity of its mapping."""

    def add(self, place: SourceLocation, message: str, *, deep: bool = False) -> None:
        """Note a problem."""
        problem = place.problem(message)
        self.deep[problem] = self.deep.get(problem, True) and deep

    def take(self, other: Diagnostics, *, deep: bool) -> None:
        """Add what `other` found, as lying deeper than a schema sees where `deep`."""
        for problem, was_deep in other.deep.items():
            self.deep[problem] = self.deep.get(problem, True) and (deep or was_deep)
        self.literals.update(other.literals)
        self.misspellings |= other.misspellings

    def note(self, text: str) -> None:
        """Note something that the user should know and that stops nothing."""
        if text not in self.notes:
            self.notes.append(text)

    def mark_misspelling(self, node: MappingNode, key: str) -> None:
        """Remember that an unknown key of a mapping is `key` misspelt: one mistake is not told as two."""
        self.misspellings.add((id(node), key))

    def is_misspelt(self, key: str, node: MappingNode | None = None) -> bool:
        """Return whether `key` is there under a wrong name, in `node` or (None) anywhere."""
        return any(key == name and (node is None or id(node) == owner) for owner, name in self.misspellings)

    def understood(self, leaf: ScalarNode, value: Scalar) -> None:
        """Remember that a scalar is a number, a truth value or nothing, not text."""
        self.literals[id(leaf)] = value

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything that is wrong, in file order."""
        return tuple(sorted(self.deep))


def plain_data(node: Node, literals: dict[int, Scalar]) -> Any:
    """Return a tree as JSON-able data, each scalar as it was understood."""
    if isinstance(node, ScalarNode):
        return literals.get(id(node), node.text)
    if isinstance(node, ListNode):
        return [plain_data(item, literals) for item in node.items]
    return {key: plain_data(value, literals) for key, value in node.values.items()}
