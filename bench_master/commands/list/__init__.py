"""`bench-master list`: lists what there is to measure with, and what can be used here."""

from __future__ import annotations

from typing import Final

from bench_master.commands import CommandEntry

MEMBERS: Final = {
    "engines": CommandEntry(
        "list the engines that are usable on this machine, and why the others are not", f"{__name__}.engines"
    ),
    "scenarios": CommandEntry(
        "list the ready-made scenarios with time, disk and images; run-scenario -f NAME runs one",
        f"{__name__}.scenarios",
    ),
    "measures": CommandEntry(
        "list what thresholds and 'primary' may name, each with unit and meaning", f"{__name__}.measures"
    ),
    "workloads": CommandEntry(
        "list the guest benchmarks, or the parameters and metrics of one", f"{__name__}.workloads"
    ),
}


def members() -> dict[str, CommandEntry]:
    """Return the sub-commands by name, in order."""
    return MEMBERS
