"""The doctor: is this machine fit to measure, and what to do if not; one small class for each thing looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from bench_worker.doctor import hardware, system
from bench_worker.doctor.base import Check, Finding, HostSnapshot, Level, capture

__all__ = ["CHECKS", "Check", "Finding", "HostSnapshot", "Level", "capture", "examine"]

CHECKS: Final[tuple[Check, ...]] = (
    system.EnginesCheck(),
    system.ToolsCheck(),
    hardware.AffinityCheck(),
    hardware.GovernorCheck(),
    hardware.TurboCheck(),
    hardware.StealCheck(),
    hardware.LoadCheck(),
    hardware.BusyProcessesCheck(),
    hardware.ContainersCheck(),
    hardware.FreeMemoryCheck(),
    hardware.SwapCheck(),
    hardware.HugePagesCheck(),
    hardware.ClockSourceCheck(),
    hardware.TimerSlackCheck(),
    system.SpaceCheck(),
    system.OpenFilesCheck(),
    system.PythonCheck(),
    system.HypervisorCheck(),
    system.ContainerCheck(),
    system.CgroupCheck(),
    system.PortsCheck(),
)
"""Everything that is looked at, in the order of the report."""


def run_checks(scene: HostSnapshot, checks: Iterable[Check] = CHECKS) -> Iterator[Finding]:
    """Yield what the checks find; a check that breaks is itself a finding and ends no other."""
    for check in checks:
        try:
            yield from check.look(scene)
        except Exception as error:  # noqa: BLE001  a kernel that nobody foresaw must not end the doctor
            yield check.warning(
                f"this check broke: {type(error).__name__}: {error}",
                "report it, please, with the text above and your kernel's version",
            )
