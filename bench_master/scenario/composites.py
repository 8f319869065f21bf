"""Shapes of lists and mappings, made of other shapes, and the rules that tie the keys of a mapping together."""

# ruff: noqa: D102  what each method of a shape or rule does is said once, in the base class

from __future__ import annotations

import abc
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench_common.errors import nearest
from bench_master.scenario.diagnostics import Findings, Given
from bench_master.scenario.tree import Entries, Items, Leaf, Node, quoted
from bench_master.scenario.types import INVALID, Shape, Text

if TYPE_CHECKING:
    from bench_common.treatment import Scalar

LABEL_WIDTH = 32
"""The longest label that a composite value gets."""


@dataclass(frozen=True)
class ListOf(Shape):
    """A list of at least `at_least` values of one shape, read as a tuple of `Given`."""

    item: Shape
    at_least: int = 0
    unique: bool = False

    @property
    def expected(self) -> str:
        return f"a list, each item {self.item.expected}"

    def read(self, node: Node, findings: Findings) -> Any:
        if not isinstance(node, Items):
            written = isinstance(node, Leaf) and not node.empty
            return self.refuse(node, findings, f"; write [{node.text}]" if written and isinstance(node, Leaf) else "")
        if len(node.items) < self.at_least:
            findings.add(node.place, f"an empty list; expected {self.expected}")
        read: list[Given[Any]] = []
        for item in node.items:
            value = self.item.read(item, findings)
            if value is INVALID:
                continue
            if self.unique and any(value == other.value for other in read):
                findings.add(item.place, f"{quoted(item)} is in this list already: remove one", deep=True)
            else:
                read.append(Given(value, item.place))
        return tuple(read)

    def schema(self) -> dict[str, Any]:
        bounds = {"minItems": self.at_least} if self.at_least else {}
        return {"type": "array", "items": self.item.schema(), **bounds}

    def label(self, value: Any) -> Scalar:
        return shortened(",".join(str(self.item.label(given.value)) for given in value)) or "none"


@dataclass(frozen=True)
class MapOf(Shape):
    """A mapping of any keys that match `key_pattern` to values of one shape, read as a dict of `Given`.

    A refused value is `INVALID` in it. `what` describes the whole.
    """

    what: str
    key_pattern: str
    value: Shape
    at_least: int = 0

    @property
    def expected(self) -> str:
        return self.what

    def read(self, node: Node, findings: Findings) -> Any:
        if not isinstance(node, Entries):
            return self.refuse(node, findings)
        if len(node.values) < self.at_least:
            findings.add(node.place, f"empty; expected {self.expected}")
        read = {}
        for key, value_node in node.values.items():
            if not re.fullmatch(self.key_pattern, key):
                findings.add(node.key_places[key], f"{key!r} cannot be a key here; expected {self.expected}")
            read[key] = Given(self.value.read(value_node, findings), value_node.place)
        return read

    def schema(self) -> dict[str, Any]:
        bounds = {"minProperties": self.at_least} if self.at_least else {}
        names = {"pattern": self.key_pattern}
        return {"type": "object", "propertyNames": names, "additionalProperties": self.value.schema(), **bounds}

    def label(self, value: Any) -> Scalar:
        return shortened(",".join(f"{key}={given.value}" for key, given in value.items())) or "none"


@dataclass(frozen=True)
class Command(Shape):
    """An argument vector: a list of words, or text that is split as a shell splits words. No shell runs it."""

    @property
    def expected(self) -> str:
        return "a command: a list of words, or text to be split into words"

    def read(self, node: Node, findings: Findings) -> Any:
        words: tuple[str, ...]
        if isinstance(node, Items):
            read = [Text("a word of a command", may_be_empty=True).read(item, findings) for item in node.items]
            if any(word is INVALID for word in read):
                return INVALID
            words = tuple(read)
        elif isinstance(node, Leaf) and not node.empty and node.text.strip(" "):
            if "\0" in node.text:
                return self.refuse(node, findings, "; it holds a NUL character", deep=True)
            try:
                words = tuple(shlex.split(node.text))
            except ValueError as error:
                return self.refuse(node, findings, f" ({str(error).lower()})", deep=True)
        else:
            return self.refuse(node, findings)
        if not words:
            return self.refuse(node, findings, deep=isinstance(node, Leaf))
        if not words[0]:
            findings.add(node.place, "the first word of a command names a program and cannot be empty", deep=True)
            return INVALID
        return words

    def schema(self) -> dict[str, Any]:
        word = Text(may_be_empty=True).schema()
        return {
            "title": "command",
            "anyOf": [
                {"type": ["string", "number", "boolean"], "pattern": "[^ ]"},
                {"type": "array", "items": word, "minItems": 1},
            ],
        }

    def label(self, value: Any) -> Scalar:
        return shortened(shlex.join(value))


class Rule(abc.ABC):
    """Something that holds between the keys of one mapping; a JSON Schema says it too."""

    @abc.abstractmethod
    def check(self, node: Entries, findings: Findings) -> None:
        """Note where it does not hold."""

    @abc.abstractmethod
    def schema(self) -> dict[str, Any]:
        """Return it as JSON Schema, to stand in an ``allOf``."""


@dataclass(frozen=True)
class OneOf(Rule):
    """At most one of `names` is given; exactly one where `required`."""

    names: tuple[str, ...]
    required: bool = False
    advice: str = ""

    def check(self, node: Entries, findings: Findings) -> None:
        given = [name for name in node.values if name in self.names]
        choice = " or ".join(f"'{name}'" for name in self.names)
        for name in given[1:]:
            findings.add(node.key_places[name], f"'{name}' and '{given[0]}' exclude each other: give {choice}")
        if self.required and not given and not any(findings.is_misspelt(name, node) for name in self.names):
            findings.add(node.place, f"{choice} is missing{self.advice}")

    def schema(self) -> dict[str, Any]:
        if self.required:
            return {"oneOf": [{"required": [name]} for name in self.names]}
        pairs = [(a, b) for position, a in enumerate(self.names) for b in self.names[position + 1 :]]
        return {"not": {"anyOf": [{"required": list(pair)} for pair in pairs]}}


@dataclass(frozen=True)
class Needs(Rule):
    """`name` has a meaning only beside `other`."""

    name: str
    other: str

    def check(self, node: Entries, findings: Findings) -> None:
        missing = self.other not in node.values and not findings.is_misspelt(self.other, node)
        if self.name in node.values and missing:
            findings.add(node.key_places[self.name], f"'{self.name}' means nothing without '{self.other}': add it")

    def schema(self) -> dict[str, Any]:
        return {"dependentRequired": {self.name: [self.other]}}


@dataclass(frozen=True)
class Field:
    """A key of a mapping: its shape, what it says, and its default as an author would write it."""

    name: str
    shape: Shape
    help: str
    default: Any = None
    required: bool = False


@dataclass(frozen=True)
class Record(Shape):
    """A mapping with a closed set of keys, read as a dict of `Given`; a refused value is `INVALID` in it."""

    what: str
    fields: tuple[Field, ...]
    rules: tuple[Rule, ...] = ()
    misplaced: tuple[tuple[str, str], ...] = ()
    """Keys that belong one level deeper, each with the key that they belong under."""

    @property
    def expected(self) -> str:
        return f"a {self.what}: a mapping with the keys {', '.join(field.name for field in self.fields)}"

    def field(self, name: str) -> Field:
        """Return the field called `name`; raise `KeyError`."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    def read(self, node: Node, findings: Findings) -> Any:
        if not isinstance(node, Entries):
            return self.refuse(node, findings)
        known = {field.name: field for field in self.fields}
        read = {}
        for key, value_node in node.values.items():
            if key not in known:
                self._refuse_key(key, node, findings)
                continue
            read[key] = Given(known[key].shape.read(value_node, findings), value_node.place)
        for field in self.fields:
            missing = field.name not in node.values and not findings.is_misspelt(field.name, node)
            if field.required and missing:
                findings.add(node.place, f"key '{field.name}' is missing in the {self.what}: {field.help}")
        for rule in self.rules:
            rule.check(node, findings)
        return read

    def _refuse_key(self, key: str, node: Entries, findings: Findings) -> None:
        names = [field.name for field in self.fields]
        owner = dict(self.misplaced).get(key)
        meant = owner or nearest(key, names)
        if owner is not None:
            hint = f": it belongs under '{owner}:'"
        elif meant is not None:
            hint = f" (did you mean '{meant}'?)"
        else:
            hint = f"; the keys of {'an' if self.what[:1] in 'aeiou' else 'a'} {self.what} are: {', '.join(names)}"
        findings.add(node.key_places[key], f"unknown key '{key}' in the {self.what}{hint}")
        if meant is not None:
            findings.seems_to_stand_for(node, meant)

    def schema(self) -> dict[str, Any]:
        properties = {}
        for field in self.fields:
            properties[field.name] = field.shape.schema() | {"description": field.help}
            if field.default is not None:
                properties[field.name]["default"] = field.default
        schema: dict[str, Any] = {"title": self.what, "type": "object", "properties": properties}
        schema["additionalProperties"] = False
        required = [field.name for field in self.fields if field.required]
        if required:
            schema["required"] = required
        if self.rules:
            schema["allOf"] = [rule.schema() for rule in self.rules]
        return schema

    def label(self, value: Any) -> Scalar:
        shown = (f"{name}={self.field(name).shape.label(given.value)}" for name, given in value.items())
        return shortened(",".join(shown)) or "none"


def shortened(text: str) -> str:
    """Return `text`, cut to the width of a label."""
    return text if len(text) <= LABEL_WIDTH else text[: LABEL_WIDTH - 3] + "..."
