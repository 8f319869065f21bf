"""Inheritance of a job from the top level and of a cell from its job: settings by dotted key, the innermost wins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench_master.scenario.diagnostics import Located
from bench_master.scenario.format import TRIAL_SIZE_KEYS
from bench_master.scenario.types import INVALID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench_master.scenario.matrix import Settings
    from bench_master.scenario.types import Field


def flatten(record: Mapping[str, Located[Any]], fields: Iterable[Field]) -> Settings:
    """Return these keys of a record by dotted key, so that containers merge key by key and `env` name by name."""
    settings: Settings = {}
    for field in fields:
        if field.name in record:
            settings |= _flatten_key(field.name, record[field.name])
    return settings


def _flatten_key(key: str, given: Located[Any]) -> Settings:
    if not isinstance(given.value, dict):
        return {key: given}
    settings: Settings = {}
    for name, inner in given.value.items():
        settings |= _flatten_key(f"{key}.{name}", inner)
    return settings


def merge_settings(base: Settings, over: Settings) -> Settings:
    """Return `base` with `over` on top; a trial size such as `run_seconds` in `over` replaces any in `base`."""
    flattened: Settings = {}
    for key, given in over.items():
        flattened |= _flatten_key(key, given)
    replaced = set(TRIAL_SIZE_KEYS) if any(key in flattened for key in TRIAL_SIZE_KEYS) else set()
    return {key: given for key, given in base.items() if key not in replaced} | flattened


def list_values(given: Located[Any] | None) -> tuple[Any, ...]:
    """Return the values of a list; empty if it is absent or invalid."""
    if given is None or given.value is INVALID:
        return ()
    return tuple(item.value for item in given.value)
