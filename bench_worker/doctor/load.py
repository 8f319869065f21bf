"""Checks of what else runs here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from bench_worker.doctor.base import Check, Finding
from bench_worker.doctor.scene import Scene
from bench_worker.host.procfs import parse_loadavg

LOAD_PER_CPU = 0.3
BUSY_PERCENT = 5.0
"""Of one CPU."""
SHOWN = 3
CONTAINER_ID = re.compile(r"[0-9a-f]{64}")


class LoadCheck(Check):
    """The load average tells of the last minute."""

    name = "load"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield one finding."""
        text = scene.files.text("/proc/loadavg")
        if text is None:
            yield self.note("/proc/loadavg is hidden", "the load cannot be told here")
            return
        load = parse_loadavg(text)
        words = f"load average {load:.2f} on {scene.cpus} CPUs"
        if load > LOAD_PER_CPU * scene.cpus:
            yield self.warning(words, "wait until it is idle, or find out what runs (top); then look again", load)
        else:
            yield self.ok(words, load)


class BusyProcessesCheck(Check):
    """Other processes take CPU, caches and memory bandwidth from what is measured."""

    name = "processes"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield one finding."""
        if scene.before is None or scene.after is None:
            yield self.note("/proc/stat is hidden", "busy processes cannot be told here")
            return
        # All CPUs' ticks over the number of CPUs: what one CPU had to give during the watch.
        passed = (_total(scene.after.cpu) - _total(scene.before.cpu)) / scene.cpus
        ours = _own_processes(scene)
        busy = sorted(
            (
                (100.0 * (process.ticks - scene.processes_before[pid].ticks) / passed, process)
                for pid, process in scene.processes_after.items()
                if passed > 0 and pid in scene.processes_before and pid not in ours
            ),
            key=lambda item: -item[0],
        )
        busy = [(percent, process) for percent, process in busy if percent >= BUSY_PERCENT]
        if not busy:
            yield self.ok("no other process is busy", 0)
            return
        shown = ", ".join(f"{process.name} ({process.pid}) {percent:.0f} %" for percent, process in busy[:SHOWN])
        more = f" and {len(busy) - SHOWN} more" if len(busy) > SHOWN else ""
        yield self.warning(
            f"busy beside us: {shown}{more} of a CPU", "stop them, or measure when they are idle", len(busy)
        )


def _total(cpu: object) -> int:
    return sum(getattr(cpu, name) for name in ("user", "system", "iowait", "steal", "idle"))


def _own_processes(scene: Scene) -> set[int]:
    """Return this process and those that started it: the doctor's own work is nobody else's."""
    ours: set[int] = set()
    pid = int(scene.files.target("/proc/self") or os.getpid())
    while pid in scene.processes_after and pid not in ours:
        ours.add(pid)
        pid = scene.processes_after[pid].parent
    return ours


class ContainersCheck(Check):
    """Containers that run already share this host with those that are measured."""

    name = "containers"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield one finding; engines agree on a 64-digit id in a container's cgroup, whichever they are."""
        running = set()
        for pid in scene.processes_after:
            running.update(CONTAINER_ID.findall(scene.files.text(f"/proc/{pid}/cgroup") or ""))
        if running:
            yield self.warning(
                f"{len(running)} running already, such as {min(running)[:12]}",
                "stop those that are not part of the measurement; "
                "`bench-master cleanup-containers --dry-run` lists what earlier runs left",
                len(running),
            )
        else:
            yield self.ok("none is running", 0)
