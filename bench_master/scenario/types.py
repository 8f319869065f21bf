"""The types of values: scalars, lists, mappings, and the rules between the keys of a mapping.

A shape defines one type in one place: the loader reads with it, the JSON Schema is generated from it, and it writes
the labels of the matrix. Text is what the author wrote (``no``, ``010`` and ``12:30`` included). Where a number is
expected, the spellings that YAML 1.1 guesses at are rejected with the right spelling.
"""

from __future__ import annotations

import abc
import json
import math
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from bench_common.errors import closest_match, did_you_mean
from bench_common.safe_text import shorten
from bench_common.units import (
    DURATION_PATTERN,
    PERCENT_PATTERN,
    RATE_PATTERN,
    SIZE_PATTERN,
    format_duration,
    format_rate,
    format_share,
    format_size,
    parse_duration,
    parse_percent,
    parse_rate,
    parse_size,
)
from bench_master.scenario.diagnostics import Diagnostics, Located
from bench_master.scenario.yaml_tree import ListNode, MappingNode, Node, ScalarNode, SourceLocation, quote_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_common.treatment import Scalar

# ruff: noqa: D102  the base class documents what each method of a shape or rule does


INVALID: Final = object()
"""What a shape returns for a value that it rejects."""

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")


class Shape(abc.ABC):
    """One type of value. `expected` completes the sentence "expected ..."."""

    @property
    @abc.abstractmethod
    def expected(self) -> str:
        """The type in words, such as ``a whole number from 1 to 64``."""

    @abc.abstractmethod
    def read(self, node: Node, findings: Diagnostics) -> Any:
        """Return the value in base units; or `INVALID`, with at least one problem in `findings`."""

    @abc.abstractmethod
    def schema(self) -> dict[str, Any]:
        """Return the shape as JSON Schema, draft 2020-12."""

    def label(self, value: Any) -> Scalar:
        """Return a value as the label of a treatment shows it."""
        return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)

    def refuse(self, node: Node, findings: Diagnostics, hint: str = "", *, deep: bool = False) -> Any:
        """Report that `node` is not what is expected; return `INVALID`."""
        findings.add(node.place, f"{quote_node(node)}: expected {self.expected}{hint}", deep=deep)
        return INVALID


@dataclass(frozen=True)
class Text(Shape):
    """Text, exactly as written."""

    what: str = "text"
    pattern: str | None = None
    """Anchored, with the same meaning in Python and ECMA-262."""
    allow_empty: bool = False
    unquoted_types: tuple[str, ...] = ("number", "boolean", "null")
    """The JSON types that an editor may see where the author wrote text without quotes."""

    @property
    def expected(self) -> str:
        return self.what

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, ScalarNode):
            return self.refuse(node, findings)
        if not node.text and not self.allow_empty:
            findings.add(node.place, f"empty; expected {self.expected}")
            return INVALID
        if "\0" in node.text:
            return self.refuse(node, findings, "; it contains a NUL character", deep=True)
        if self.pattern is not None and not re.fullmatch(self.pattern, node.text):
            return self.refuse(node, findings)
        return node.text

    def schema(self) -> dict[str, Any]:
        text: dict[str, Any] = {"type": "string"}
        if self.pattern is not None:
            text["pattern"] = self.pattern
        elif not self.allow_empty:
            text["minLength"] = 1
        if self.pattern is None:
            return text | {"type": ["string", *self.unquoted_types]}
        unquoted = [
            {"type": kind} | ({"minimum": 0} if kind in {"integer", "number"} else {}) for kind in self.unquoted_types
        ]
        return {"anyOf": [text, *unquoted]} if unquoted else text


@dataclass(frozen=True)
class Choice(Shape):
    """One word of a list."""

    what: str
    """What the words are, for messages."""
    choices: tuple[str, ...]
    advice: str = ""
    """What to do about any other word; ends the message."""

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.choices) or '(none is installed)'}"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, ScalarNode):
            return self.refuse(node, findings)
        if node.text not in self.choices:
            findings.add(
                node.place,
                f"unknown {self.what} {quote_node(node)}{did_you_mean(node.text, self.choices)}; "
                f"one of: {', '.join(self.choices) or '(none is installed)'}{self.advice}",
            )
            return INVALID
        return node.text

    def schema(self) -> dict[str, Any]:
        # An editor reads a word such as `95` or `true` without quotes as a number or a boolean.
        bare = [json.loads(word) for word in self.choices if word in {"true", "false"} or _NUMBER.fullmatch(word)]
        return {"enum": [*self.choices, *bare]} if self.choices else {"not": {}}


@dataclass(frozen=True)
class Boolean(Shape):
    """``true`` or ``false``; YAML 1.1's other spellings are rejected: a reader cannot tell them from text."""

    @property
    def expected(self) -> str:
        return "true or false"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, ScalarNode) or not node.plain or node.text not in {"true", "false"}:
            return self.refuse(node, findings, _boolean_hint(node))
        value = node.text == "true"
        findings.record_literal(node, value)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class NumberKind(Struct, frozen=True):
    """A kind of number."""

    noun: str
    whole: bool = False
    parse: Callable[[str], float] | None = None
    """Reads a number with a unit; None: the kind has no unit."""
    pattern: str = ""
    format: Callable[[Any], str] = lambda value: f"{value:.12g}"
    """Writes a number for messages and labels."""


WHOLE: Final = NumberKind("a whole number", whole=True, format=lambda value: f"{int(value)}")
NUMBER: Final = NumberKind("a number")
SIZE: Final = NumberKind(
    "a size such as 512MiB", whole=True, parse=parse_size, pattern=SIZE_PATTERN, format=format_size
)
DURATION: Final = NumberKind(
    "a duration such as 90s or 1h30m", parse=parse_duration, pattern=DURATION_PATTERN, format=format_duration
)
PERCENT: Final = NumberKind(
    "a percentage such as 3%", parse=parse_percent, pattern=PERCENT_PATTERN, format=format_share
)
RATE: Final = NumberKind("a rate such as 200/s or 30/min", parse=parse_rate, pattern=RATE_PATTERN, format=format_rate)


@dataclass(frozen=True)
class Quantity(Shape):
    """A number of a kind, within bounds in base units (bytes, seconds)."""

    kind: NumberKind
    minimum: float | None = None
    maximum: float | None = None
    exclusive_minimum: float | None = None

    @property
    def expected(self) -> str:
        show = self.kind.format
        bounds = ""
        if self.exclusive_minimum is not None:
            bounds = f", more than {show(self.exclusive_minimum)}"
        elif self.minimum is not None:
            bounds = f", at least {show(self.minimum)}"
        if self.maximum is not None:
            bounds += f"{' and' if bounds else ','} at most {show(self.maximum)}"
        return f"{self.kind.noun}{bounds}"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, ScalarNode):
            several = isinstance(node, ListNode) and len(node.items) > 1
            return self.refuse(node, findings, "; put several values to try under 'matrix'" if several else "")
        number = _number(node)
        if number is not None:
            if (self.kind.whole and number != int(number)) or not self._within(number):
                return self.refuse(node, findings)
            value = int(number) if self.kind.whole else number
            findings.record_literal(node, value)
            return value if self.kind.whole else float(value)
        hint = _number_hint(node)
        if self.kind.parse is None:
            colons = "; a number has no colons; write a duration as 12m30s"
            return self.refuse(node, findings, colons if re.fullmatch(r"[0-9]+(:[0-9]+)+", node.text) else hint)
        if node.plain and hint:
            return self.refuse(node, findings, hint)
        try:
            value = self.kind.parse(node.text)
        except ValueError as error:
            findings.add(node.place, f"{quote_node(node)}: {error}")
            return INVALID
        return value if self._within(value) else self.refuse(node, findings, deep=True)

    def schema(self) -> dict[str, Any]:
        bounds = {"minimum": self.minimum, "maximum": self.maximum, "exclusiveMinimum": self.exclusive_minimum}
        number: dict[str, Any] = {"type": "integer" if self.kind.whole else "number"}
        number |= {name: bound for name, bound in bounds.items() if bound is not None}
        if self.kind.parse is None:
            return number
        return {"anyOf": [number, {"type": "string", "pattern": self.kind.pattern}]}

    def label(self, value: Any) -> Scalar:
        if self.kind.parse is not None:
            return self.kind.format(value)
        return int(value) if value == int(value) else float(value)

    def _within(self, value: float) -> bool:
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.exclusive_minimum is None or value > self.exclusive_minimum)
        )


def _number(leaf: ScalarNode) -> float | None:
    """Return the number that a plain scalar spells in JSON's notation, or None."""
    if not leaf.plain or not _NUMBER.fullmatch(leaf.text):
        return None
    if leaf.text.lstrip("-").isdigit():
        return int(leaf.text)
    number = float(leaf.text)
    return number if math.isfinite(number) else None


def _number_hint(leaf: ScalarNode) -> str:
    """Return what to write instead of text that looks like a number and is not accepted as one."""
    text = leaf.text
    if not leaf.plain:
        return "; write it without quotes" if _NUMBER.fullmatch(text) else ""
    if re.fullmatch(r"-?0[0-9]+", text):
        octal = f" or {int(text, 8)}" if not set(text) & {"8", "9"} else ""
        return f"; some YAML readers take a leading zero for base 8; write {int(text)}{octal}"
    if re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}|0o[0-7]{1,16}", text):
        return f"; write {int(text, 0)}"
    if re.fullmatch(r"[0-9]+(_[0-9]+)+", text):
        return f"; write it without underscores, {text.replace('_', '')}"
    if re.fullmatch(r"[+][0-9.]+", text):
        return f"; write it without the sign, {text[1:]}"
    if re.fullmatch(r"\.[0-9]+", text):
        return f"; write 0{text}"
    return ""


def _boolean_hint(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        return ""
    word = node.text.lower()
    if word in {"true", "false"}:
        return f"; write {word}, in lower case" + ("" if node.plain else " and without quotes")
    if word in {"yes", "on", "y", "1"}:
        return "; write true"
    return "; write false" if word in {"no", "off", "n", "0"} else ""


# ruff: noqa: D102  the base class documents what each method of a shape or rule does


LABEL_WIDTH = 32
"""The longest label that a composite value gets."""


@dataclass(frozen=True)
class ListOf(Shape):
    """A list of values of one shape, read as a tuple of `Located`."""

    item: Shape
    min_items: int = 0
    unique: bool = False

    @property
    def expected(self) -> str:
        return f"a list, each item {self.item.expected}"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, ListNode):
            written = isinstance(node, ScalarNode) and not node.empty
            return self.refuse(
                node, findings, f"; write [{node.text}]" if written and isinstance(node, ScalarNode) else ""
            )
        if len(node.items) < self.min_items:
            findings.add(node.place, f"an empty list; expected {self.expected}")
        read: list[Located[Any]] = []
        for item in node.items:
            value = self.item.read(item, findings)
            if value is INVALID:
                continue
            if self.unique and any(value == other.value for other in read):
                findings.add(item.place, f"{quote_node(item)} is in this list twice: remove one", deep=True)
            else:
                read.append(Located(value, item.place))
        return tuple(read)

    def schema(self) -> dict[str, Any]:
        bounds = {"minItems": self.min_items} if self.min_items else {}
        return {"type": "array", "items": self.item.schema(), **bounds}

    def label(self, value: Any) -> Scalar:
        return truncate_label(",".join(str(self.item.label(given.value)) for given in value)) or "none"


@dataclass(frozen=True)
class MapOf(Shape):
    """A mapping of any keys to values of one shape, read as a dict of `Located`; an invalid value is `INVALID`."""

    what: str
    """The description of the whole mapping in messages."""
    key_pattern: str
    value: Shape
    min_items: int = 0

    @property
    def expected(self) -> str:
        return self.what

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, MappingNode):
            return self.refuse(node, findings)
        if len(node.values) < self.min_items:
            findings.add(node.place, f"empty; expected {self.expected}")
        read = {}
        for key, value_node in node.values.items():
            if not re.fullmatch(self.key_pattern, key):
                findings.add(node.key_places[key], f"{key!r} cannot be a key here; expected {self.expected}")
            read[key] = Located(self.value.read(value_node, findings), value_node.place)
        return read

    def schema(self) -> dict[str, Any]:
        bounds = {"minProperties": self.min_items} if self.min_items else {}
        names = {"pattern": self.key_pattern}
        return {"type": "object", "propertyNames": names, "additionalProperties": self.value.schema(), **bounds}

    def label(self, value: Any) -> Scalar:
        return truncate_label(",".join(f"{key}={given.value}" for key, given in value.items())) or "none"


@dataclass(frozen=True)
class CommandShape(Shape):
    """An argument vector: a list of words, or text that is split as a shell splits it. No shell runs it."""

    @property
    def expected(self) -> str:
        return "a command: a list of words, or text to split into words"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        words: tuple[str, ...]
        if isinstance(node, ListNode):
            read = [Text("a word of a command", allow_empty=True).read(item, findings) for item in node.items]
            if any(word is INVALID for word in read):
                return INVALID
            words = tuple(read)
        elif isinstance(node, ScalarNode) and not node.empty and node.text.strip(" "):
            if "\0" in node.text:
                return self.refuse(node, findings, "; it contains a NUL character", deep=True)
            try:
                words = tuple(shlex.split(node.text))
            except ValueError as error:
                return self.refuse(node, findings, f" ({str(error).lower()})", deep=True)
        else:
            return self.refuse(node, findings)
        if not words:
            return self.refuse(node, findings, deep=isinstance(node, ScalarNode))
        if not words[0]:
            findings.add(node.place, "the first word of a command names a program and cannot be empty", deep=True)
            return INVALID
        return words

    def schema(self) -> dict[str, Any]:
        word = Text(allow_empty=True).schema()
        return {
            "title": "command",
            "anyOf": [
                {"type": ["string", "number", "boolean"], "pattern": "[^ ]"},
                {"type": "array", "items": word, "minItems": 1},
            ],
        }

    def label(self, value: Any) -> Scalar:
        # Commands that are compared mostly differ in their last words.
        return shorten(shlex.join(value), LABEL_WIDTH)


class Rule(abc.ABC):
    """A rule between the keys of one mapping, which the JSON Schema states too."""

    @abc.abstractmethod
    def check(self, node: MappingNode, findings: Diagnostics) -> None:
        """Report each violation."""

    @abc.abstractmethod
    def schema(self) -> dict[str, Any]:
        """Return the rule as JSON Schema, for an ``allOf``."""


@dataclass(frozen=True)
class AtMostOneOf(Rule):
    """At most one of `names` is present; exactly one where `required`."""

    names: tuple[str, ...]
    required: bool = False
    advice: str = ""

    def check(self, node: MappingNode, findings: Diagnostics) -> None:
        given = [name for name in node.values if name in self.names]
        *others, last = (f"'{name}'" for name in self.names)
        choice = f"{', '.join(others)} or {last}"
        for name in given[1:]:
            findings.add(node.key_places[name], f"'{name}' and '{given[0]}' are mutually exclusive: give {choice}")
        if self.required and not given and not any(findings.is_misspelt(name, node) for name in self.names):
            findings.add(node.place, f"{choice} is missing{self.advice}")

    def schema(self) -> dict[str, Any]:
        if self.required:
            return {"oneOf": [{"required": [name]} for name in self.names]}
        pairs = [(a, b) for position, a in enumerate(self.names) for b in self.names[position + 1 :]]
        return {"not": {"anyOf": [{"required": list(pair)} for pair in pairs]}}


@dataclass(frozen=True)
class RequiresKey(Rule):
    """`name` requires `other`."""

    name: str
    other: str

    def check(self, node: MappingNode, findings: Diagnostics) -> None:
        missing = self.other not in node.values and not findings.is_misspelt(self.other, node)
        if self.name in node.values and missing:
            findings.add(node.key_places[self.name], f"'{self.name}' requires '{self.other}': add it")

    def schema(self) -> dict[str, Any]:
        return {"dependentRequired": {self.name: [self.other]}}


class Field(Struct, frozen=True):
    """A key of a mapping."""

    name: str
    shape: Shape
    help: str
    default: Any = None
    """As an author writes it, such as ``60s``; None: the key has no default."""
    required: bool = False
    carried_as: str = ""
    """The field of `Treatment` or `ContainerSettings` that carries the value unchanged to the workers."""

    def default_value(self) -> Any:
        """Return the default in base units; None where there is none."""
        if self.default is None:
            return None
        text = self.default if isinstance(self.default, str) else json.dumps(self.default)
        return self.shape.read(ScalarNode(SourceLocation(self.name), text), Diagnostics())


@dataclass(frozen=True)
class Record(Shape):
    """A mapping with a closed set of keys, read as a dict of `Located`; an invalid value is `INVALID`."""

    what: str
    fields: tuple[Field, ...]
    rules: tuple[Rule, ...] = ()
    misplaced_keys: tuple[tuple[str, str], ...] = ()
    """Keys that belong one level deeper, each with its parent key."""

    @property
    def expected(self) -> str:
        return f"a {self.what}: a mapping with the keys {', '.join(field.name for field in self.fields)}"

    def field(self, name: str) -> Field:
        """Return the field called `name`; raise `KeyError`."""
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(name)

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, MappingNode):
            return self.refuse(node, findings)
        known = {field.name: field for field in self.fields}
        read = {}
        for key, value_node in node.values.items():
            if key not in known:
                self._reject_key(key, node, findings)
                continue
            read[key] = Located(known[key].shape.read(value_node, findings), value_node.place)
        for field in self.fields:
            missing = field.name not in node.values and not findings.is_misspelt(field.name, node)
            if field.required and missing:
                findings.add(node.place, f"key '{field.name}' is missing in the {self.what}: {field.help}")
        for rule in self.rules:
            rule.check(node, findings)
        return read

    def _reject_key(self, key: str, node: MappingNode, findings: Diagnostics) -> None:
        names = [field.name for field in self.fields]
        owner = dict(self.misplaced_keys).get(key)
        meant = owner or closest_match(key, names)
        if owner is not None:
            hint = f": it belongs under '{owner}:'"
        elif meant is not None:
            hint = f" (did you mean '{meant}'?)"
        else:
            hint = f"; the keys of {'an' if self.what[:1] in 'aeiou' else 'a'} {self.what} are: {', '.join(names)}"
        findings.add(node.key_places[key], f"unknown key '{key}' in the {self.what}{hint}")
        if meant is not None:
            findings.mark_misspelling(node, meant)

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
        return truncate_label(",".join(shown)) or "none"


def truncate_label(text: str) -> str:
    """Return `text`, cut to the width of a label."""
    return text if len(text) <= LABEL_WIDTH else text[: LABEL_WIDTH - 3] + "..."
