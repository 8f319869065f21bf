"""Checks of the CPUs: frequency, time taken by the hypervisor, and which of them are ours.

Checks of memory.

Checks of the clocks that everything is measured with.

Checks of what else runs here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from bench_worker.doctor.base import Check, Finding, HostSnapshot
from bench_worker.host.facts import CLOCK, PAGES, affinity, governor, memory, selected_option, turbo, whole_number
from bench_worker.host.fingerprint import format_fact
from bench_worker.host.procfs import parse_loadavg
from bench_worker.host.sampler import cpu_row

STEAL_PERCENT = 1.0


class GovernorCheck(Check):
    """A governor that changes the frequency with the load makes short jobs slow and long ones fast."""

    name = "CPU governor"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        found = governor(scene.files)
        if found is None:
            yield self.note(
                "the kernel manages no CPU frequency (usual in a virtual machine)",
                "the frequency is the hypervisor's affair: look at the governor there",
            )
        elif found == "performance":
            yield self.ok("performance", found)
        else:
            yield self.warning(
                f"{found}: the frequency follows the load",
                "cpupower frequency-set -g performance (Debian: apt-get install linux-cpupower)",
                found,
            )


class TurboCheck(Check):
    """Turbo depends on temperature and on what the other cores do."""

    name = "CPU turbo"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        found = turbo(scene.files)
        if found is None:
            yield self.ok("no switch here")
        elif found == "off":
            yield self.ok("off", found)
        else:
            yield self.warning(
                "on: the frequency depends on heat and on the other cores",
                "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo, or "
                "echo 0 > /sys/devices/system/cpu/cpufreq/boost; or leave it on and say so with the results",
                found,
            )


class StealCheck(Check):
    """Stolen time is work of other guests that looks like ours."""

    name = "steal"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        if scene.before is None or scene.after is None:
            yield self.note("/proc/stat is hidden", "steal cannot be told here")
            return
        percent = cpu_row(scene.before.cpu, scene.after.cpu)["cpu_steal_percent"]
        if percent > STEAL_PERCENT:
            yield self.warning(
                f"{percent:.1f} % of CPU time goes to other guests of the hypervisor",
                "stop or move them, or reserve CPUs for this one; the samples of each run record steal",
                round(percent, 2),
            )
        else:
            yield self.ok("none to speak of", None if percent != percent else round(percent, 2))  # noqa: PLR0124  NaN


class AffinityCheck(Check):
    """A worker that may not use every CPU measures a smaller machine than its fingerprint says."""

    name = "CPUs"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        allowed = affinity(scene.files)
        online = scene.files.text("/sys/devices/system/cpu/online")
        if allowed and online and allowed != online:
            yield self.warning(
                f"this shell may use CPUs {allowed} of {online}",
                "start from a shell without taskset or cpuset, unless that is what you want",
                allowed,
            )
        else:
            yield self.ok(f"{scene.cpus}, all for us to use", scene.cpus)


CRITICAL_BYTES = 256 * 1024**2
LOW_SHARE = 0.2


class FreeMemoryCheck(Check):
    """Without room, the kernel reclaims and swaps during the measurement."""

    name = "memory"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        found = memory(scene.files)
        if found is None:
            yield self.note("/proc/meminfo is hidden", "free memory cannot be told here")
            return
        words = f"{format_fact('memory', found.available)} of {format_fact('memory', found.total)} available"
        if found.available < CRITICAL_BYTES:
            yield self.problem(
                words, "stop what uses it: a container would be killed for lack of memory", found.available
            )
        elif found.available < LOW_SHARE * found.total:
            yield self.warning(words, "stop what uses it, or keep the scenario's memory well below", found.available)
        else:
            yield self.ok(words, found.available)


class SwapCheck(Check):
    """What has been swapped out is read back during the measurement."""

    name = "swap"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        found = memory(scene.files)
        if found is None or found.swap_total == 0:
            yield self.ok("none")
        elif found.swap_used:
            yield self.warning(
                f"{format_fact('swap', found.swap_used)} in use",
                "swapoff -a && swapon -a when memory allows, or run with swap off",
                found.swap_used,
            )
        else:
            yield self.ok(f"{format_fact('swap', found.swap_total)}, none in use", 0)


class HugePagesCheck(Check):
    """Transparent huge pages make memory results depend on how fragmented memory is."""

    name = "huge pages"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        found = selected_option(scene.files.text(f"{PAGES}/enabled"))
        if found == "always":
            yield self.note(
                "transparent huge pages: always",
                f"compare with hosts set alike, or echo madvise > {PAGES}/enabled",
                found,
            )
        else:
            yield self.ok(f"transparent huge pages: {found or 'not in this kernel'}", found)


FAST = ("tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page", "timebase", "tod")
"""Read without entering the kernel, in tens of nanoseconds."""
COARSE = ("jiffies", "refined-jiffies", "pit")
DEFAULT_SLACK_NS = 50_000


class ClockSourceCheck(Check):
    """Stamps are only as good, and as cheap, as the kernel's clock source."""

    name = "clock source"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        found = scene.files.text(f"{CLOCK}/current_clocksource")
        others = scene.files.text(f"{CLOCK}/available_clocksource") or ""
        better = next((name for name in others.split() if name in FAST), None)
        advice = (
            f"echo {better} > {CLOCK}/current_clocksource, unless the kernel's log says why it was given up"
            if better
            else "look in the kernel's log (dmesg | grep -i clocksource) for why nothing better was taken"
        )
        if not found:
            yield self.note("the kernel does not tell it", "stamps are of unknown resolution here")
        elif found in COARSE:
            yield self.problem(f"{found}: it ticks in milliseconds", advice, found)
        elif found not in FAST:
            yield self.warning(f"{found}: each stamp costs a microsecond or more", advice, found)
        else:
            yield self.ok(found, found)


class TimerSlackCheck(Check):
    """The kernel may delay a timer by the slack: it is part of every short sleep."""

    name = "timer slack"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        slack_ns = whole_number(scene.files.text("/proc/self/timerslack_ns"))
        if slack_ns is not None and slack_ns > DEFAULT_SLACK_NS:
            yield self.warning(
                f"{slack_ns / 1000:g} us: timers come late by up to that",
                "start from a shell that no power saver has touched (the default is 50 us)",
                slack_ns,
            )
        else:
            yield self.ok("as the kernel sets it" if slack_ns is None else f"{slack_ns / 1000:g} us", slack_ns)


LOAD_PER_CPU = 0.3
BUSY_PERCENT = 5.0
"""Of one CPU."""
MAX_SHOWN = 3
CONTAINER_ID = re.compile(r"[0-9a-f]{64}")


class LoadCheck(Check):
    """The load average tells of the last minute."""

    name = "load"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
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

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        if scene.before is None or scene.after is None:
            yield self.note("/proc/stat is hidden", "busy processes cannot be told here")
            return
        # All CPUs' ticks over the number of CPUs: what one CPU had to give during the watch.
        passed = (_total_ticks(scene.after.cpu) - _total_ticks(scene.before.cpu)) / scene.cpus
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
        shown = ", ".join(f"{process.name} ({process.pid}) {percent:.0f} %" for percent, process in busy[:MAX_SHOWN])
        more = f" and {len(busy) - MAX_SHOWN} more" if len(busy) > MAX_SHOWN else ""
        yield self.warning(
            f"busy beside us: {shown}{more} of a CPU", "stop them, or measure when they are idle", len(busy)
        )


def _total_ticks(cpu: object) -> int:
    return sum(getattr(cpu, name) for name in ("user", "system", "iowait", "steal", "idle"))


def _own_processes(scene: HostSnapshot) -> set[int]:
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

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
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
