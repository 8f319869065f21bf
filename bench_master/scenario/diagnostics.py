"""Collects problems, notes and the type of each scalar while a scenario is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct, field

from bench_common.errors import closest_match
from bench_master.scenario.yaml_tree import ListNode, MappingNode, ScalarNode

if TYPE_CHECKING:
    from collections.abc import Collection

    from bench_common.errors import Problem
    from bench_common.treatment import Scalar
    from bench_master.scenario.yaml_tree import Node, SourceLocation

T = TypeVar("T")


class Located(Struct, Generic[T], frozen=True):
    """A value and the place where it was written."""

    value: T
    place: SourceLocation
    name: str | None = None
    """What labels call a value of a matrix that has a name of its own."""


class Diagnostics(Struct):
    """Collects while a tree is read. A problem that two treatments share is kept once."""

    deep: dict[Problem, bool] = field(default_factory=dict)
    """Each problem, and whether a JSON Schema cannot express its rule (a relation, a bound of a unit ...)."""
    notes: list[str] = field(default_factory=list)
    literals: dict[int, Scalar] = field(default_factory=dict)
    """The typed value of each scalar, by the identity of its node; one that is missing here is text."""
    misspellings: set[tuple[int, str]] = field(default_factory=set)
    """The likely meaning of each unknown key, with the identity of its mapping."""

    def add(self, place: SourceLocation, message: str, *, deep: bool = False) -> None:
        """Add a problem."""
        problem = place.problem(message)
        self.deep[problem] = self.deep.get(problem, True) and deep

    def merge(self, other: Diagnostics, *, deep: bool) -> None:
        """Add the findings of `other`; `deep`: a JSON Schema cannot express the rules of its problems."""
        for problem, was_deep in other.deep.items():
            self.deep[problem] = self.deep.get(problem, True) and (deep or was_deep)
        self.literals.update(other.literals)
        self.misspellings |= other.misspellings

    def note(self, text: str) -> None:
        """Add a note for the user, which stops nothing."""
        if text not in self.notes:
            self.notes.append(text)

    def mark_misspelling(self, node: MappingNode, key: str) -> None:
        """Remember that an unknown key of a mapping is `key` misspelt, so that one mistake is reported once."""
        self.misspellings.add((id(node), key))

    def is_misspelt(self, key: str, node: MappingNode | None = None) -> bool:
        """Return whether `key` is present under a wrong name, in `node` or (None) anywhere."""
        return any(key == name and (node is None or id(node) == owner) for owner, name in self.misspellings)

    def record_literal(self, leaf: ScalarNode, value: Scalar) -> None:
        """Remember that a scalar is a number, a boolean or null, not text."""
        self.literals[id(leaf)] = value

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All problems in file order."""
        return tuple(sorted(self.deep))


def plain_data(node: Node, literals: dict[int, Scalar]) -> Any:
    """Return a tree as JSON-able data, each scalar with its type."""
    if isinstance(node, ScalarNode):
        return literals.get(id(node), node.text)
    if isinstance(node, ListNode):
        return [plain_data(item, literals) for item in node.items]
    return {key: plain_data(value, literals) for key, value in node.values.items()}


def keep_known_keys(node: MappingNode, what: str, names: Collection[str], findings: Diagnostics) -> MappingNode:
    """Return the keys with a value that are known, or nearly spell a known one; note the others.

    So do tools that silently ignore unknown keys; `what` is their mapping, such as ``an ssbench scenario``.
    """
    kept = MappingNode(node.place)
    for key, value in node.values.items():
        place = node.key_places[key]
        if key not in names and closest_match(key, names) is None:
            findings.note(f"{format_place(place)}: '{key}' is not a key of {what}: ignored, as in {what.split()[1]}")
        elif not (isinstance(value, ScalarNode) and (value.empty or not value.text)):
            kept.put(key, value, place)
    return kept


def keep_known_in_list(node: MappingNode, key: str, what: str, names: Collection[str], findings: Diagnostics) -> None:
    """Do the same to each mapping in the list under `key`, in place."""
    entries = node.values.get(key)
    if isinstance(entries, ListNode):
        items: list[Node] = [
            keep_known_keys(one, what, names, findings) if isinstance(one, MappingNode) else one
            for one in entries.items
        ]
        node.values[key] = ListNode(entries.place, items)


def format_place(place: SourceLocation) -> str:
    """Return a place as a note names it."""
    return f"{place.file}:{place.line}" if place.line else place.file
