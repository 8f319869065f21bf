"""The matrix: every combination of values, without the excluded ones, plus the included ones; and its labels.

The rules are those of GitHub Actions, with environments and engines as two more dimensions: `exclude` is applied
first; then each entry of `include` extends every original cell that it does not contradict, and becomes a cell of its
own where it contradicts them all.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from bench_common.errors import did_you_mean
from bench_master.scenario.diagnostics import Diagnostics, Located
from bench_master.scenario.master_part import master_parts, matrix_keys
from bench_master.scenario.types import INVALID, Shape
from bench_master.scenario.yaml_tree import ListNode, MappingNode, Node, SourceLocation, quote_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bench_common.treatment import Scalar

# ruff: noqa: D102  the base class documents what each method of a shape does


MAX_TREATMENTS: Final = 10_000
MAX_VALUE_NAME: Final = 120
VALUE_NAME: Final = rf"^\S([^\x00-\x1f]{{0,{MAX_VALUE_NAME - 2}}}\S)?$"
"""A name of a value of a matrix: a line of text, without blanks around it."""
_ENVIRONMENT: Final = "environment"
_ENGINE: Final = "engine"
_NAME: Final = r"[^=\s]+"
_ONE_NAME: Final = r"[^=.\s]+"

Settings = dict[str, Located[Any]]


class MatrixEntry(Struct, frozen=True):
    """An entry of `include` or `exclude`."""

    settings: Settings
    place: SourceLocation


class Matrix(Struct, frozen=True):
    """A matrix as written: values by dotted key, entries to add and entries to drop."""

    dimensions: Mapping[str, tuple[Located[Any], ...]] = field(default_factory=dict)
    include: tuple[MatrixEntry, ...] = ()
    exclude: tuple[MatrixEntry, ...] = ()


class MatrixCell(Struct):
    """One combination: environment, engine, and the settings from the matrix."""

    environment: str | None
    engine: str
    settings: Settings
    place: SourceLocation | None = None

    def value_of(self, key: str) -> Any:
        """Return what the cell has for a key of an include or exclude."""
        if key == _ENVIRONMENT:
            return self.environment
        return self.engine if key == _ENGINE else self.settings[key].value


@dataclass(frozen=True)
class MatrixShape(Shape):
    """A matrix."""

    keys: Mapping[str, Shape]
    """The shapes by dotted key; one that ends in a dot stands for every key with that prefix, ``*`` for any name.

    Those of kinds from packages are not among them: they are asked for when one of them is used.
    """
    engine: Shape
    environment: Shape

    @property
    def expected(self) -> str:
        return "a matrix: lists of values by key, such as {container.memory: [256MiB, 1GiB]}"

    def shape_of(self, key: str) -> Shape | None:
        """Return the shape of one value of a dotted key, or None where no such key can vary."""
        part = master_parts().get(key.partition(".")[0])
        keys = self.keys if part is None else matrix_keys(part)
        if key in keys and not _is_pattern(key):
            return keys[key]
        for given, shape in keys.items():
            if _is_pattern(given) and re.fullmatch(_pattern(given), key):
                return shape
        return None

    def _all_keys(self) -> dict[str, Shape]:
        """Return the keys of the kernel and of all kinds from packages."""
        keys = dict(self.keys)
        for part in master_parts().values():
            keys |= matrix_keys(part)
        return keys

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, MappingNode):
            return self.refuse(node, findings)
        dimensions: dict[str, tuple[Located[Any], ...]] = {}
        listed: dict[str, tuple[MatrixEntry, ...]] = {}
        for key, value in node.values.items():
            if key in {"include", "exclude"}:
                listed[key] = tuple(self._read_entries(key, value, findings))
                continue
            shape = self.shape_of(key)
            if shape is None:
                findings.add(node.key_places[key], self._unknown(key, value))
            elif isinstance(value, MappingNode) and value.values:
                dimensions[key] = tuple(self._named_values(shape, value, findings))
            elif not isinstance(value, ListNode) or not value.items:
                findings.add(
                    value.place,
                    f"{quote_node(value)} given for '{key}'; expected a list of at least one value to try, or values "
                    "by name",
                )
            else:
                dimensions[key] = tuple(self._values(key, shape, value, findings))
        return Matrix(dimensions, listed.get("include", ()), listed.get("exclude", ()))

    def _values(self, key: str, shape: Shape, node: ListNode, findings: Diagnostics) -> Iterator[Located[Any]]:
        seen: list[Any] = []
        for item in node.items:
            value = shape.read(item, findings)
            if value is not INVALID and value in seen:
                findings.add(
                    item.place, f"{quote_node(item)} is among the values of '{key}' twice: remove one", deep=True
                )
            seen.append(value)
            yield Located(value, item.place)

    def _named_values(self, shape: Shape, node: MappingNode, findings: Diagnostics) -> Iterator[Located[Any]]:
        """Yield values that have names of their own, which are their labels; two may be the same."""
        for name, item in node.values.items():
            if not re.fullmatch(VALUE_NAME, name):
                findings.add(
                    node.key_places[name],
                    f"{name!r} cannot name a value: use a line of up to {MAX_VALUE_NAME} characters",
                )
            yield Located(shape.read(item, findings), item.place, name)

    def _read_entries(self, name: str, node: Node, findings: Diagnostics) -> Iterator[MatrixEntry]:
        if not isinstance(node, ListNode):
            findings.add(node.place, f"{quote_node(node)} given for '{name}'; expected a list of mappings")
            return
        for item in node.items:
            if not isinstance(item, MappingNode) or not item.values:
                findings.add(item.place, f"expected a mapping such as {{engine: docker}} in '{name}'")
                continue
            settings: Settings = {}
            for key, value in item.values.items():
                shape = {_ENGINE: self.engine, _ENVIRONMENT: self.environment}.get(key) or self.shape_of(key)
                if shape is None:
                    findings.add(item.key_places[key], self._unknown(key, value, listed=True))
                else:
                    settings[key] = Located(shape.read(value, findings), value.place)
            yield MatrixEntry(settings, item.place)

    def _unknown(self, key: str, value: Node, *, listed: bool = False) -> str:
        plural = f"{key}s"
        if key in {"engines", "environments"} and listed:
            return f"unknown key '{key}' here (did you mean '{key[:-1]}'?)"
        if {key, plural} & {"engines", "environments"}:
            name = key if key.endswith("s") else plural
            return f"'{key}' is already a dimension: list its values under '{name}', outside the matrix"
        if isinstance(value, MappingNode):
            return f"'{key}' is a mapping; write its keys with dots, such as 'container.memory'"
        if key in {"workload", "job", "jobs"}:
            return f"'{key}' cannot vary in a matrix; write one entry for each under 'jobs'"
        others = (_ENGINE, _ENVIRONMENT) if listed else ("include", "exclude")
        keys = self._all_keys()
        tails = [known for known in keys if known.split(".", 1)[-1] == key]
        nearest = f" (did you mean '{tails[0]}'?)" if tails else did_you_mean(key, [*keys, *others])
        # Keys of containers, services and objects are a hundred: their list would bury the others.
        parts = [name.partition(".") for name in keys]
        known = dict.fromkeys(
            f"{head}.{'NAME.KEY' if head == 'services' else 'KEY'}" if rest else head for head, _, rest in parts
        )
        return f"unknown key '{key}' in the matrix{nearest or '; keys that can vary: ' + ', '.join(known)}"

    def schema(self) -> dict[str, Any]:
        keys = self._all_keys()
        single = {key: shape.schema() for key, shape in keys.items() if not _is_pattern(key)}
        prefixed = {f"^{_pattern(key)}$": shape.schema() for key, shape in keys.items() if _is_pattern(key)}
        engine, environment = self.engine.schema(), self.environment.schema()
        entry = {
            "title": "cell",
            "type": "object",
            "properties": {**single, _ENGINE: engine, _ENVIRONMENT: environment},
            "patternProperties": prefixed,
            "additionalProperties": False,
            "minProperties": 1,
        }
        several = {key: _several(value) for key, value in single.items()}
        listed = {"type": "array", "items": entry}
        return {
            "title": "matrix",
            "type": "object",
            "properties": {**several, "include": listed, "exclude": listed},
            "patternProperties": {key: _several(value) for key, value in prefixed.items()},
            "additionalProperties": False,
        }


def _several(value: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of values of a dimension: a list, or a mapping with a name for each."""
    named = {
        "type": "object",
        "propertyNames": {"pattern": VALUE_NAME},
        "additionalProperties": value,
        "minProperties": 1,
    }
    return {"anyOf": [{"type": "array", "items": value, "minItems": 1}, named]}


def _is_pattern(key: str) -> bool:
    return key.endswith(".") or "*" in key


def _pattern(key: str) -> str:
    """Return the regular expression, for Python and ECMA-262, of the keys that a pattern stands for."""
    written = key.replace(".", "[.]").replace("*", _ONE_NAME)
    return written + _NAME if key.endswith(".") else written


def expand_matrix(
    matrix: Matrix,
    environments: Sequence[str | None],
    engines: Sequence[str],
    findings: Diagnostics,
    place: SourceLocation,
) -> list[MatrixCell]:
    """Return the cells: environments, engines and keys in the order written, the last varying fastest."""
    count = math.prod([len(environments), len(engines), *map(len, matrix.dimensions.values())])
    if count > MAX_TREATMENTS:
        findings.add(place, f"the matrix has {count} cells; the maximum is {MAX_TREATMENTS}", deep=True)
        return []
    # A matrix of nothing but `include` lists its cells one by one: there is no original cell to extend.
    only_listed = bool(matrix.include) and not matrix.dimensions
    cells = [] if only_listed else list(_product(matrix, environments, engines))
    for entry in matrix.exclude:
        cells = _apply_exclude(cells, entry, matrix, environments, findings)
    added: list[MatrixCell] = []
    for entry in matrix.include:
        if _ENVIRONMENT in entry.settings and environments == (None,):
            findings.add(
                entry.place, "an environment is named here, but the scenario lists no 'environments'", deep=True
            )
        added += _apply_include(cells, entry, matrix, environments, engines)
    return cells + added


def _product(matrix: Matrix, environments: Sequence[str | None], engines: Sequence[str]) -> Iterator[MatrixCell]:
    keys = tuple(matrix.dimensions)
    for environment, engine in itertools.product(environments, engines):
        for values in itertools.product(*matrix.dimensions.values()):
            yield MatrixCell(environment, engine, dict(zip(keys, values, strict=True)))


def _apply_exclude(
    cells: list[MatrixCell],
    entry: MatrixEntry,
    matrix: Matrix,
    environments: Sequence[str | None],
    findings: Diagnostics,
) -> list[MatrixCell]:
    for key, given in entry.settings.items():
        if key in {_ENGINE, _ENVIRONMENT}:
            if key == _ENVIRONMENT and environments == (None,):
                findings.add(
                    given.place, "an environment is named here, but the scenario lists no 'environments'", deep=True
                )
                return cells
        elif key not in matrix.dimensions:
            hint = did_you_mean(key, [*matrix.dimensions, _ENGINE, _ENVIRONMENT])
            findings.add(
                given.place, f"'{key}' is not a dimension of this matrix, so it excludes nothing{hint}", deep=True
            )
            return cells
    kept = [cell for cell in cells if not _matches(cell, entry.settings, matrix)]
    if len(kept) == len(cells):
        findings.note(f"{entry.place.file}:{entry.place.line}: this exclude matches no cell of the matrix")
    return kept


def _apply_include(
    cells: list[MatrixCell],
    entry: MatrixEntry,
    matrix: Matrix,
    environments: Sequence[str | None],
    engines: Sequence[str],
) -> list[MatrixCell]:
    """Extend each original cell that the entry does not contradict; return the new cells if there is none."""
    settings = {key: given for key, given in entry.settings.items() if key not in {_ENGINE, _ENVIRONMENT}}
    extended = [cell for cell in cells if _matches(cell, entry.settings, matrix)]
    for cell in extended:
        cell.settings.update(settings)
    if extended:
        return []
    environment, engine = entry.settings.get(_ENVIRONMENT), entry.settings.get(_ENGINE)
    return [
        MatrixCell(each_environment, each_engine, dict(settings), entry.place)
        for each_environment in (environments if environment is None else (environment.value,))
        for each_engine in (engines if engine is None else (engine.value,))
    ]


def _matches(cell: MatrixCell, settings: Settings, matrix: Matrix) -> bool:
    """Return whether no setting contradicts the cell; only dimensions of the matrix can contradict."""
    dimensions = {_ENGINE, _ENVIRONMENT, *matrix.dimensions}
    return all(cell.value_of(key) == given.value for key, given in settings.items() if key in dimensions)


RESERVED_LABELS: Final = frozenset({"environment", "engine", "job"})


def label_names(keys: Iterable[str]) -> dict[str, str]:
    """Return the shortest clear name of each dotted key: ``memory`` for ``container.memory`` if nothing clashes."""
    distinct = list(dict.fromkeys(keys))
    short = {key: _short_key(key) for key in distinct}
    clashes = Counter(short.values())
    return {key: key if clashes[name] > 1 or name in RESERVED_LABELS else name for key, name in short.items()}


def _short_key(key: str) -> str:
    if key.startswith("services."):
        key = f"container.{key.split('.', 2)[2]}"
    part = master_parts().get(key.partition(".")[0])
    if part is not None:
        return part.short_key(key)
    for prefix in ("container.env.", "container.files.", "container.log_options.", "container.", "params.", "host."):
        if key.startswith(prefix):
            return key.removeprefix(prefix)
    return key


class ValueLabels:
    """Gives every value of a key its label, and different values different ones."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, Scalar], list[Any]] = {}

    def label(self, key: str, shape: Shape, value: Any) -> Scalar:
        """Return the label of `value`; where another value already uses it, with a number: ``volume#2``."""
        plain = shape.label(value)
        same_label = self._values.setdefault((key, plain), [])
        if value not in same_label:
            same_label.append(value)
        position = same_label.index(value)
        return plain if position == 0 else f"{plain}#{position + 1}"


def list_values(given: Located[Any] | None) -> tuple[Any, ...]:
    """Return the values of a list; empty if it is absent or invalid."""
    if given is None or given.value is INVALID:
        return ()
    return tuple(item.value for item in given.value)
