"""The key ``host``: settings of a host's kernel for the time of a trial, and which of them vary.

A list of values varies a setting as a key of the matrix does: the matrix has it as a dimension of its own.
"""

# ruff: noqa: D102  the base class documents what each method of a shape does

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from bench_common.host_settings import NAME_PATTERN, VALUE_PATTERN, setting_name
from bench_master.scenario.diagnostics import Diagnostics, Located
from bench_master.scenario.types import INVALID, ListOf, MapOf, Text
from bench_master.scenario.yaml_tree import ListNode, MappingNode, Node, SourceLocation

if TYPE_CHECKING:
    from bench_master.scenario.matrix import Matrix, Settings

HOST: Final = "host."
"""What the dotted keys of host settings begin with."""
SettingPlaces = dict[tuple[str, str], str]
"""Where host settings are given values: ``FILE:LINE:COLUMN`` by name and value."""


class SettingValue(Text):
    """A value of a setting of a host's kernel: text, as its file has it."""

    def __init__(self) -> None:
        super().__init__("a value such as 0, madvise or performance", VALUE_PATTERN)


class HostSettingsShape(MapOf):
    """Settings of a host's kernel by name; a list of values is one to vary, as in a matrix."""

    def __init__(self) -> None:
        super().__init__(
            "host settings by name, such as {sys/kernel/rcu_expedited: 1}", NAME_PATTERN, SettingValues()
        )

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, MappingNode):
            return self.refuse(node, findings)
        read = {}
        for key, value in node.values.items():
            try:
                setting_name(key)
            except ValueError as error:
                findings.add(node.key_places[key], str(error))
                continue
            read[key] = Located(self.value.read(value, findings), value.place)
        return read


class SettingValues(SettingValue):
    """A value, or a list of values to vary, read as a tuple of `Located`."""

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if isinstance(node, ListNode):
            return ListOf(SettingValue(), min_items=1, unique=True).read(node, findings)
        return super().read(node, findings)

    def schema(self) -> dict[str, Any]:
        one = super().schema()
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


def with_settings_to_vary(matrix: Matrix, settings: Settings) -> Matrix:
    """Return the matrix with the host settings that have a list of values, which leave the `settings`."""
    lists = {key: one.value for key, one in settings.items() if key.startswith(HOST) and isinstance(one.value, tuple)}
    for key in lists:
        del settings[key]
    added = {key: values for key, values in lists.items() if key not in matrix.dimensions}
    return replace(matrix, dimensions={**matrix.dimensions, **added}) if added else matrix


def host_settings(settings: Settings, places: SettingPlaces, findings: Diagnostics) -> dict[str, str] | None:
    """Return the settings of the host in a cell, by the names of records; None where a problem was reported.

    The places of their values are added to `places`.
    """
    found: dict[str, str] = {}
    written: dict[str, str] = {}
    for key, given in settings.items():
        if not key.startswith(HOST) or given.value is INVALID:
            continue
        text = key.removeprefix(HOST)
        try:
            name = setting_name(text)
        except ValueError as error:
            findings.add(given.place, str(error), deep=True)
            return None
        if name in found:
            message = f"host settings {written[name]!r} and {text!r} are the same file: keep one"
            findings.add(given.place, message, deep=True)
            return None
        found[name], written[name] = given.value, text
        places.setdefault((name, given.value), place_text(given.place))
    return found


def place_text(place: SourceLocation) -> str:
    """Return a place as ``FILE:LINE:COLUMN``, or as the argument of the command line that it is."""
    return f"{place.file}:{place.line}:{place.column}" if place.line else place.file
