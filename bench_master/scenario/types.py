"""Shapes of scalars: each reads a value as what is wanted there, and publishes itself as JSON Schema.

A shape is the one place where a kind of value is defined: the loader reads with it, the schema is generated from it
and the labels of the matrix are written by it. Where text is wanted, text is what the author wrote (``no``, ``010``
and ``12:30`` included); where a number is wanted, what YAML 1.1 would guess at is refused with what to write instead.
"""

# ruff: noqa: D102  what each method of a shape or rule does is said once, in the base class

from __future__ import annotations

import abc
import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench_common.errors import did_you_mean
from bench_common.units import (
    DURATION_PATTERN,
    RATE_PATTERN,
    SIZE_PATTERN,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)
from bench_master.scenario.tree import Items, Leaf, Node, quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_common.treatment import Scalar
    from bench_master.scenario.diagnostics import Findings

INVALID: Final = object()
"""What a shape reads from a value that it has refused."""

_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")


class Shape(abc.ABC):
    """What a value must look like. `expected` completes the sentence "expected ..."."""

    @property
    @abc.abstractmethod
    def expected(self) -> str:
        """What is wanted, such as ``a whole number from 1 to 64``."""

    @abc.abstractmethod
    def read(self, node: Node, findings: Findings) -> Any:
        """Return the value in base units; or `INVALID`, with at least one problem in `findings`."""

    @abc.abstractmethod
    def schema(self) -> dict[str, Any]:
        """Return the shape as JSON Schema, draft 2020-12."""

    def label(self, value: Any) -> Scalar:
        """Return a value as the label of a treatment shows it."""
        return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)

    def refuse(self, node: Node, findings: Findings, hint: str = "", *, deep: bool = False) -> Any:
        """Note that `node` is not what is expected; return `INVALID`."""
        findings.add(node.place, f"{quoted(node)}: expected {self.expected}{hint}", deep=deep)
        return INVALID


@dataclass(frozen=True)
class Text(Shape):
    """Text, exactly as written. `pattern` is anchored, and read alike by Python and ECMA-262; `what` describes it.

    `bare` are the JSON types that an editor may see where the author wrote text without quotes.
    """

    what: str = "text"
    pattern: str | None = None
    may_be_empty: bool = False
    bare: tuple[str, ...] = ("number", "boolean", "null")

    @property
    def expected(self) -> str:
        return self.what

    def read(self, node: Node, findings: Findings) -> Any:
        if not isinstance(node, Leaf):
            return self.refuse(node, findings)
        if not node.text and not self.may_be_empty:
            findings.add(node.place, f"empty; expected {self.expected}")
            return INVALID
        if "\0" in node.text:
            return self.refuse(node, findings, "; it holds a NUL character", deep=True)
        if self.pattern is not None and not re.fullmatch(self.pattern, node.text):
            return self.refuse(node, findings)
        return node.text

    def schema(self) -> dict[str, Any]:
        text: dict[str, Any] = {"type": "string"}
        if self.pattern is not None:
            text["pattern"] = self.pattern
        elif not self.may_be_empty:
            text["minLength"] = 1
        if self.pattern is None:
            return text | {"type": ["string", *self.bare]}
        bare = [{"type": kind} | ({"minimum": 0} if kind in {"integer", "number"} else {}) for kind in self.bare]
        return {"anyOf": [text, *bare]} if bare else text


@dataclass(frozen=True)
class Choice(Shape):
    """One of some words. `what` is what they are, `advice` what to do for another one."""

    what: str
    choices: tuple[str, ...]
    advice: str = ""

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.choices) or '(none is installed)'}"

    def read(self, node: Node, findings: Findings) -> Any:
        if not isinstance(node, Leaf):
            return self.refuse(node, findings)
        if node.text not in self.choices:
            findings.add(
                node.place,
                f"unknown {self.what} {quoted(node)}{did_you_mean(node.text, self.choices)}; "
                f"one of: {', '.join(self.choices) or '(none is installed)'}{self.advice}",
            )
            return INVALID
        return node.text

    def schema(self) -> dict[str, Any]:
        # A word such as `95` or `true` is no text to an editor that reads it without quotes.
        bare = [json.loads(word) for word in self.choices if word in {"true", "false"} or _NUMBER.fullmatch(word)]
        return {"enum": [*self.choices, *bare]} if self.choices else {"not": {}}


@dataclass(frozen=True)
class Boolean(Shape):
    """``true`` or ``false``; YAML 1.1's other spellings are refused, because a reader cannot tell them from text."""

    @property
    def expected(self) -> str:
        return "true or false"

    def read(self, node: Node, findings: Findings) -> Any:
        if not isinstance(node, Leaf) or not node.plain or node.text not in {"true", "false"}:
            return self.refuse(node, findings, _boolean_hint(node))
        value = node.text == "true"
        findings.understood(node, value)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Kind:
    """A kind of number. `parse` reads one with a unit, `show` writes one for messages and labels."""

    noun: str
    whole: bool = False
    parse: Callable[[str], float] | None = None
    pattern: str = ""
    show: Callable[[Any], str] = lambda value: f"{value:.12g}"


WHOLE: Final = Kind("a whole number", whole=True, show=lambda value: f"{int(value)}")
NUMBER: Final = Kind("a number")
SIZE: Final = Kind("a size such as 512MiB", whole=True, parse=parse_size, pattern=SIZE_PATTERN, show=format_size)
DURATION: Final = Kind(
    "a duration such as 90s or 1h30m", parse=parse_duration, pattern=DURATION_PATTERN, show=format_duration
)
RATE: Final = Kind("a rate such as 200/s or 30/min", parse=parse_rate, pattern=RATE_PATTERN, show=format_rate)


@dataclass(frozen=True)
class Measured(Shape):
    """A number of a kind, within bounds in base units (bytes, seconds); `more_than` is an exclusive minimum."""

    kind: Kind
    minimum: float | None = None
    maximum: float | None = None
    more_than: float | None = None

    @property
    def expected(self) -> str:
        show = self.kind.show
        bounds = ""
        if self.more_than is not None:
            bounds = f", more than {show(self.more_than)}"
        elif self.minimum is not None:
            bounds = f", at least {show(self.minimum)}"
        if self.maximum is not None:
            bounds += f"{' and' if bounds else ','} at most {show(self.maximum)}"
        return f"{self.kind.noun}{bounds}"

    def read(self, node: Node, findings: Findings) -> Any:
        if not isinstance(node, Leaf):
            several = isinstance(node, Items) and len(node.items) > 1
            return self.refuse(node, findings, "; several values to try stand in 'matrix'" if several else "")
        number = _number(node)
        if number is not None:
            if (self.kind.whole and number != int(number)) or not self._within(number):
                return self.refuse(node, findings)
            value = int(number) if self.kind.whole else number
            findings.understood(node, value)
            return value if self.kind.whole else float(value)
        hint = _number_hint(node)
        if self.kind.parse is None:
            colons = "; colons make no number; a duration is written 12m30s"
            return self.refuse(node, findings, colons if re.fullmatch(r"[0-9]+(:[0-9]+)+", node.text) else hint)
        if node.plain and hint:
            return self.refuse(node, findings, hint)
        try:
            value = self.kind.parse(node.text)
        except ValueError as error:
            findings.add(node.place, f"{quoted(node)}: {error}")
            return INVALID
        return value if self._within(value) else self.refuse(node, findings, deep=True)

    def schema(self) -> dict[str, Any]:
        bounds = {"minimum": self.minimum, "maximum": self.maximum, "exclusiveMinimum": self.more_than}
        number: dict[str, Any] = {"type": "integer" if self.kind.whole else "number"}
        number |= {name: bound for name, bound in bounds.items() if bound is not None}
        if self.kind.parse is None:
            return number
        return {"anyOf": [number, {"type": "string", "pattern": self.kind.pattern}]}

    def label(self, value: Any) -> Scalar:
        if self.kind.parse is not None:
            return self.kind.show(value)
        return int(value) if value == int(value) else float(value)

    def _within(self, value: float) -> bool:
        return (
            (self.minimum is None or value >= self.minimum)
            and (self.maximum is None or value <= self.maximum)
            and (self.more_than is None or value > self.more_than)
        )


def _number(leaf: Leaf) -> float | None:
    """Return the number that a plain scalar is in JSON's notation, or None."""
    if not leaf.plain or not _NUMBER.fullmatch(leaf.text):
        return None
    if leaf.text.lstrip("-").isdigit():
        return int(leaf.text)
    number = float(leaf.text)
    return number if math.isfinite(number) else None


def _number_hint(leaf: Leaf) -> str:
    """Return what to write instead of something that looks like a number and is not taken for one."""
    text = leaf.text
    if not leaf.plain:
        return "; write it without quotes" if _NUMBER.fullmatch(text) else ""
    if re.fullmatch(r"-?0[0-9]+", text):
        octal = f" or {int(text, 8)}" if not set(text) & {"8", "9"} else ""
        return f"; a leading zero means base 8 to some readers; write {int(text)}{octal}"
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
    if not isinstance(node, Leaf):
        return ""
    word = node.text.lower()
    if word in {"true", "false"}:
        return f"; write {word}, in small letters" + ("" if node.plain else " and without quotes")
    if word in {"yes", "on", "y", "1"}:
        return "; write true"
    return "; write false" if word in {"no", "off", "n", "0"} else ""
