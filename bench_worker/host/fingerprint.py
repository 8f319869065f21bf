"""The fingerprint of a host: every property that may explain a difference between two results.

Stored with each run, so that a comparison can list what differed beside the treatment. What a host does not
show is absent: nothing is guessed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from bench_worker.host.facts import (
    CPU_FACTS,
    MEMORY_FACTS,
    NO_HYPERVISOR,
    SOFTWARE_FACTS,
    STORAGE_FACTS,
    SYSTEM_FACTS,
    Fact,
    Value,
    hypervisor,
)
from bench_worker.host.procfs import HostFiles, LiveHostFiles

if TYPE_CHECKING:
    from collections.abc import Mapping

LOG: Final = logging.getLogger(__name__)

FACTS: Final[Mapping[str, Fact]] = {
    fact.name: fact for fact in (*SYSTEM_FACTS, *CPU_FACTS, *MEMORY_FACTS, *STORAGE_FACTS, *SOFTWARE_FACTS)
}
"""Every fact by name, in the order of a report."""

KIB: Final = 1024
THOUSAND: Final = 1000


def fingerprint(files: HostFiles | None = None) -> dict[str, Value]:
    """Return the facts of this host by name, without those that cannot be read."""
    files = files or LiveHostFiles()
    found: dict[str, Value] = {}
    for name, fact in FACTS.items():
        try:
            value = fact.read(files)
        except Exception as error:  # noqa: BLE001  an odd kernel must not keep a worker from serving
            LOG.warning("fact %s cannot be read: %s: %s", name, type(error).__name__, error)
            continue
        if value is not None:
            found[name] = value
    return found


def format_fact(name: str, value: Value) -> str:
    """Return a fact's value as a person reads it, such as ``23.6 GiB`` or ``2.1 GHz``; unknown names as they are."""
    fact = FACTS.get(name)
    unit = fact.unit if fact else ""
    if isinstance(value, str) or not unit:
        return str(value)
    if unit == "B":
        return _scaled(float(value), KIB, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
    if unit == "Hz":
        return _scaled(float(value), THOUSAND, ("Hz", "kHz", "MHz", "GHz"))
    if unit == "ns":
        return _scaled(float(value), THOUSAND, ("ns", "us", "ms", "s"))
    return f"{value} {unit}"


def _scaled(value: float, step: int, units: tuple[str, ...]) -> str:
    power = 0
    while abs(value) >= step and power < len(units) - 1:
        value /= step
        power += 1
    return f"{value:.4g} {units[power]}" if value < step else f"{value:.0f} {units[power]}"


def guess_environment(files: HostFiles | None = None) -> str:
    """Return a guess at the environment, for a worker without ``--environment``: ``hypervisor`` or ``bare-metal``.

    It is ``hypervisor`` when the host shows a hypervisor, else ``bare-metal``, also where that is unknown. A
    control VM looks like any other: ``control``, and every label of your own, must be given with ``--environment``.
    """
    return "bare-metal" if hypervisor(files or LiveHostFiles()) in (NO_HYPERVISOR, None) else "hypervisor"
