"""What a host's properties mean for its history (identity, setting or noise).

A series breaks where identity or a setting changes: these are the properties whose difference also refuses a word
between two runs (`confounds`). All others are noise here: they are kept with the run, and split no history.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from bench_master.verdicts.confounds import REFUSED_FACTS, are_alike

FactClass: TypeAlias = Literal["identity", "setting", "noise"]

IDENTITY: Final = frozenset(
    {
        "architecture",
        "cpu_model",
        "cpu_threads",
        "disk",
        "disk_rotational",
        "hypervisor",
        "machine_id",
        "memory",
    }
)
SETTINGS: Final = REFUSED_FACTS - IDENTITY
"""How it is set up, such as its kernel; an upgrade or an administrator changes it."""


def class_of(name: str) -> FactClass:
    """Return the class of a property."""
    return "identity" if name in IDENTITY else "setting" if name in SETTINGS else "noise"


def split_facts(fingerprint: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties that make up the machine, and those that are noise, as texts."""
    kept: dict[str, str] = {}
    noise: dict[str, str] = {}
    for name in sorted(fingerprint):
        value = fingerprint[name]
        if value is not None:
            (noise if class_of(name) == "noise" else kept)[name] = _text(value)
    return kept, noise


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def steadied(before: Mapping[str, str], facts: Mapping[str, str]) -> dict[str, str]:
    """Return facts in which numbers that count as equal to those `before` have the same text.

    Kernels reserve some more or less memory at each boot: within two per cent it is the same machine.
    """
    return {name: before[name] if _alike(before.get(name), value) else value for name, value in facts.items()}


def _alike(before: str | None, value: str) -> bool:
    if before is None or before == value or not (before.isdigit() and value.isdigit()):
        return before == value
    return are_alike(int(before), int(value))
