"""Which properties of hosts make up the machine: a series breaks where one of them changes; all others are noise.

They are those whose difference also refuses a word between two runs (`confounds`), and what identifies a host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bench_master.run_data.summary import HostSummary
from bench_master.verdicts.confounds import REFUSED_FACTS, are_alike

MACHINE_FACTS: Final = REFUSED_FACTS | {"machine_id"}


def fact_texts(fingerprint: Mapping[str, Any], *, noise: bool = False) -> dict[str, str]:
    """Return the properties of a host that make up the machine, or those that do not, as texts."""
    return {
        name: _text(value)
        for name, value in sorted(fingerprint.items())
        if value is not None and (name not in MACHINE_FACTS) == noise
    }


def machine_facts(hosts: Mapping[str, HostSummary]) -> dict[str, str]:
    """Return what makes up the machine of a run; facts of several hosts have the host's name before them."""
    return {
        name if len(hosts) == 1 else f"{label}: {name}": text
        for label, host in sorted(hosts.items())
        for name, text in fact_texts(host.fingerprint).items()
    }


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
    if before is None or not (before.isdigit() and value.isdigit()):
        return before == value
    return are_alike(int(before), int(value))
