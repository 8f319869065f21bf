"""The checks of the doctor, in the order of its report: a decorated function for each.

To add one, write a function here: `check` registers it under the name that the report shows. ``docs/user-guide.rst``
lists every check, and a test compares.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final

from bench_common.host_info import OTHER_ENGINE
from bench_worker.doctor.base import Finding, HostSnapshot, check, note, ok, problem, warning
from bench_worker.host.contention import describe_process
from bench_worker.host.facts import (
    CLOCK,
    affinity,
    governor,
    memory,
    turbo,
)
from bench_worker.host.fingerprint import format_fact
from bench_worker.host.procfs import ProcessStat, parse_loadavg
from bench_worker.host.sampler import cpu_row

MIN_USABLE_ENGINES: Final = 2
STEAL_PERCENT: Final = 1.0
LOAD_PER_CPU: Final = 0.3
BUSY_PERCENT: Final = 5.0
NAMED_PERCENT: Final = 20.0
"""Of one CPU: a process that takes less is counted, and not named."""
MAX_SHOWN: Final = 3
MAX_ANCESTORS: Final = 64
CONTAINER_ID: Final = re.compile(r"[0-9a-f]{64}")
CRITICAL_MEMORY_BYTES: Final = 256 * 1024**2
LOW_MEMORY_SHARE: Final = 0.2
FAST_CLOCK_SOURCES: Final = ("tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page", "timebase", "tod")
"""Read without entering the kernel, in tens of nanoseconds."""
COARSE_CLOCK_SOURCES: Final = ("jiffies", "refined-jiffies", "pit")
CRITICAL_SPACE_BYTES: Final = 200 * 1024**2
LOW_SPACE_BYTES: Final = 2 * 1024**3
CRITICAL_INODES: Final = 1_000
LOW_INODES_SHARE: Final = 0.1


@check("load")
def check_load(host: HostSnapshot) -> Iterator[Finding]:
    """Report a high load average: other work ran during the last minute."""
    text = host.files.text("/proc/loadavg")
    if text is None:
        yield note("/proc/loadavg is hidden", "allow reading it: the load is unknown")
        return
    load = parse_loadavg(text)
    words = f"load average {load:.2f} on {host.cpus} CPUs"
    if load > LOAD_PER_CPU * host.cpus:
        yield warning(words, "wait until the host is idle, or find what runs (top); then run the doctor again", load)
    else:
        yield ok(words, load)


@check("processes")
def check_busy_processes(host: HostSnapshot) -> Iterator[Finding]:
    """Report busy processes: they take CPU, caches and memory bandwidth from what is measured."""
    if host.before is None or host.after is None:
        yield note("/proc/stat is hidden", "allow reading it: busy processes are unknown")
        return
    # All CPUs' ticks over the number of CPUs: what one CPU had to give during the watch.
    passed = (_total_ticks(host.after.cpu) - _total_ticks(host.before.cpu)) / host.cpus
    ours = _own_processes(host)
    busy = sorted(
        (
            (100.0 * (process.own_ticks - _ticks_before(host, process)) / passed, process)
            for pid, process in host.processes_after.items()
            if passed > 0 and pid not in ours
        ),
        key=lambda item: -item[0],
    )
    busy = [(percent, process) for percent, process in busy if percent >= BUSY_PERCENT]
    if not busy:
        yield ok("no other process is busy", 0)
        return
    named = [
        f"{describe_process(host.files, process)} ({process.pid}) {percent:.0f} %"
        for percent, process in busy[:MAX_SHOWN]
        if percent >= NAMED_PERCENT
    ]
    rest = busy[len(named) :]
    took = sum(percent for percent, _ in rest)
    if rest:
        named.append(f"{len(rest)} {'more' if named else 'with together'} {took:.0f} %")
    yield warning(f"other busy processes: {', '.join(named)} of a CPU", "measure when they are idle", len(busy))


def _total_ticks(cpu: object) -> int:
    return sum(getattr(cpu, name) for name in ("user", "system", "iowait", "steal", "idle"))


def _ticks_before(host: HostSnapshot, process: ProcessStat) -> int:
    """Return the CPU time of a process at the start of the sample; 0 for one that started since."""
    old = host.processes_before.get(process.pid)
    return old.own_ticks if old is not None and old.start_ticks == process.start_ticks else 0


def _own_processes(host: HostSnapshot) -> AbstractSet[int]:
    """Return this process and its ancestors, whose work is the doctor's own."""
    if host.ours is not None:
        return host.ours
    ours: set[int] = set()
    pid = int(host.files.target("/proc/self") or os.getpid())
    while pid in host.processes_after and pid not in ours:
        ours.add(pid)
        pid = host.processes_after[pid].parent
    return ours


@check("containers")
def check_containers(host: HostSnapshot) -> Iterator[Finding]:
    """Report running containers but the one that we are in: they share the host with those that are measured."""
    ours = _own_processes(host)
    running: set[str] = set()
    own: set[str] = set()
    for pid in host.processes_after:
        found = CONTAINER_ID.findall(host.files.text(f"/proc/{pid}/cgroup") or "")
        (own if pid in ours else running).update(found)
    running -= own
    if running:
        yield warning(
            f"{len(running)} already running, such as {min(running)[:12]}",
            "stop those that are not part of the measurement; "
            "`bench-master cleanup-containers --dry-run` lists leftovers of earlier runs",
            len(running),
        )
    else:
        yield ok("none is running", 0)


@check("steal")
def check_steal(host: HostSnapshot) -> Iterator[Finding]:
    """Report stolen time: work of other virtual machines that our times include."""
    if host.before is None or host.after is None:
        yield note("/proc/stat is hidden", "allow reading it: steal is unknown")
        return
    percent = cpu_row(host.before.cpu, host.after.cpu)["cpu_steal_percent"]
    if percent > STEAL_PERCENT:
        yield warning(
            f"{percent:.1f} % of CPU time goes to other guests of the hypervisor",
            "stop or move them, or reserve CPUs for this one; the samples of each run record steal",
            round(percent, 2),
        )
    else:
        yield ok("no significant steal", None if percent != percent else round(percent, 2))  # noqa: PLR0124  NaN


@check("engine")
def check_engines(host: HostSnapshot) -> Iterator[Finding]:
    """Report engines that do not answer or refuse our connection."""
    statuses = host.engines()
    usable = sum(status.usable for status in statuses)
    for status in statuses:
        if status.usable:
            yield ok(f"{status.name} {status.version}".strip(), status.name)
            if status.details.get(OTHER_ENGINE):
                yield note(f"{status.name} is {status.endpoint}", status.details[OTHER_ENGINE], status.name)
            warnings = status.details.get("warnings")
            if warnings:
                yield note(f"{status.name} warns: {warnings}", "settings that need it are refused", status.name)
        else:
            level = warning if usable < MIN_USABLE_ENGINES else note
            yield level(f"{status.name}: {status.reason}", status.advice, status.name)
    if not usable:
        yield problem("no engine can be used", "see the advice above; then run `bench-master list engines`", 0)
    elif usable < MIN_USABLE_ENGINES:
        yield note("only one engine can be used", "a second engine on this host allows comparisons", usable)


@check("tools")
def check_tools(host: HostSnapshot) -> Iterator[Finding]:
    """Report programs of native jobs that are not installed."""
    tools, advice, packages = host.tools(), host.advice(), host.packages()
    for program, workloads in sorted(tools.items()):
        place = host.which(program)
        if place:
            yield ok(f"{program}: {place}", place)
        else:
            # No run that does without it is noisier for it; a scenario that needs it has it as a problem (-f).
            usual = f"apt-get install {packages.get(program, program)} (inside containers it comes with the image)"
            yield note(
                f"{program} is not on PATH: {', '.join(workloads)} cannot run natively",
                advice.get(program, usual),
                program,
            )
    if not tools:
        yield note("no workload is registered", "install Weighbridge with pip, to register its entry points")


@check("requirements")
def check_requirements(host: HostSnapshot) -> Iterator[Finding]:
    """Report images, networks, log drivers and runtimes that a scenario's containers need and an engine lacks."""
    if not host.requirements:
        yield ok("no scenario is given, or it needs none")
        return
    missing = host.missing([status.name for status in host.engines() if status.usable])
    for reason in missing:
        yield problem(reason, "the scenario cannot run until it is there", reason)
    if not missing:
        yield ok("the images and settings of the scenario are there", host.requirements)


@check("CPUs")
def check_affinity(host: HostSnapshot) -> Iterator[Finding]:
    """Report CPUs that a worker may not use: it measures a smaller machine than its fingerprint says."""
    allowed = affinity(host.files)
    online = host.files.text("/sys/devices/system/cpu/online")
    if allowed and online and allowed != online:
        yield warning(
            f"this shell may use CPUs {allowed} of {online}",
            "start from a shell without taskset or cpuset, unless you limit the CPUs on purpose",
            allowed,
        )
    else:
        yield ok(f"all {host.cpus} CPUs available", host.cpus)


@check("CPU governor")
def check_governor(host: HostSnapshot) -> Iterator[Finding]:
    """Report a governor that changes the frequency: short jobs become slow and long ones fast."""
    found = governor(host.files)
    if found is None:
        yield note(
            "the kernel manages no CPU frequency (usual in a virtual machine)",
            "the hypervisor sets the frequency: check the governor there",
        )
    elif found == "performance":
        yield ok("performance", found)
    else:
        yield warning(
            f"{found}: the frequency follows the load",
            "cpupower frequency-set -g performance (Debian: apt-get install linux-cpupower)",
            found,
        )


@check("CPU turbo")
def check_turbo(host: HostSnapshot) -> Iterator[Finding]:
    """Report turbo: it depends on temperature and on the other cores."""
    found = turbo(host.files)
    if found is None:
        yield ok("the kernel has no switch for it")
    elif found == "off":
        yield ok("off", found)
    else:
        yield warning(
            "on: the frequency depends on heat and on the other cores",
            "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo, or "
            "echo 0 > /sys/devices/system/cpu/cpufreq/boost; or leave it on and say so with the results",
            found,
        )


@check("memory")
def check_free_memory(host: HostSnapshot) -> Iterator[Finding]:
    """Report low memory: the kernel would reclaim and swap during the measurement."""
    found = memory(host.files)
    if found is None:
        yield note("/proc/meminfo is hidden", "allow reading it: free memory is unknown")
        return
    words = f"{format_fact('memory', found.available)} of {format_fact('memory', found.total)} available"
    if found.available < CRITICAL_MEMORY_BYTES:
        yield problem(words, "stop what uses it: the kernel would kill containers (out of memory)", found.available)
    elif found.available < LOW_MEMORY_SHARE * found.total:
        yield warning(words, "stop what uses it, or keep the scenario's memory well below", found.available)
    else:
        yield ok(words, found.available)


@check("swap")
def check_swap(host: HostSnapshot) -> Iterator[Finding]:
    """Report used swap: the kernel reads it back during the measurement."""
    found = memory(host.files)
    if found is None or found.swap_total == 0:
        yield ok("none")
    elif found.swap_used:
        yield warning(
            f"{format_fact('swap', found.swap_used)} in use",
            "swapoff -a && swapon -a when memory allows, or run with swap off",
            found.swap_used,
        )
    else:
        yield ok(f"{format_fact('swap', found.swap_total)}, none in use", 0)


@check("clock source")
def check_clock_source(host: HostSnapshot) -> Iterator[Finding]:
    """Stamps are only as good, and as cheap, as the kernel's clock source."""
    found = host.files.text(f"{CLOCK}/current_clocksource")
    others = host.files.text(f"{CLOCK}/available_clocksource") or ""
    better = next((name for name in others.split() if name in FAST_CLOCK_SOURCES), None)
    advice = (
        f"echo {better} > {CLOCK}/current_clocksource, unless the kernel's log says why the kernel abandoned it"
        if better
        else "look in the kernel's log (dmesg | grep -i clocksource) for why the kernel chose it"
    )
    if not found:
        yield note("the kernel does not report it", "the resolution of stamps is unknown")
    elif found in COARSE_CLOCK_SOURCES:
        yield problem(f"{found}: it ticks in milliseconds", advice, found)
    elif found not in FAST_CLOCK_SOURCES:
        yield warning(f"{found}: each stamp costs a microsecond or more", advice, found)
    else:
        yield ok(found, found)


@check("disk space")
def check_disk_space(host: HostSnapshot) -> Iterator[Finding]:
    """Report full file systems: one that fills up ends a run in its middle."""
    roots = [root for status in host.engines() if status.usable and (root := status.details.get("root", ""))]
    # Jobs write below an engine's directory, or the temporary one; a stats file is small.
    written = {*roots, tempfile.gettempdir()}
    for directory in dict.fromkeys([*host.directories, *roots]):
        needed_bytes = host.needed_bytes if directory in written else 0
        yield _disk_space_finding(
            host, directory, must_write=directory in host.directories, needed_bytes=needed_bytes
        )


def _disk_space_finding(host: HostSnapshot, directory: str, *, must_write: bool, needed_bytes: int) -> Finding:
    space = host.files.space(directory)
    if space is None:
        missing = problem if must_write else note
        return missing(f"{directory}: cannot be read", "check that it exists and that you may enter it", directory)
    if must_write and not host.writable(directory):
        return problem(
            f"{directory}: you cannot write to it", "run elsewhere, or use -s to save elsewhere", directory
        )
    words = f"{directory}: {format_fact('memory', space.free_bytes)} free"
    if space.free_bytes < needed_bytes:
        needed = format_fact("memory", needed_bytes)
        return problem(
            f"{words}, and the jobs of the scenario take about {needed}",
            "make room, or run a smaller size (--set scale=small)",
            space.free_bytes,
        )
    inodes_low = bool(space.inodes) and space.free_inodes < LOW_INODES_SHARE * space.inodes
    if space.inodes and space.free_inodes < CRITICAL_INODES:
        return problem(f"{directory}: {space.free_inodes} inodes free", "remove small files", space.free_inodes)
    if space.free_bytes < CRITICAL_SPACE_BYTES:
        return problem(words, "make room: images and containers do not fit", space.free_bytes)
    if inodes_low:
        return warning(f"{directory}: {space.free_inodes} inodes free", "remove small files", space.free_inodes)
    if space.free_bytes < LOW_SPACE_BYTES:
        return warning(words, "make room: building an image takes about 1 GiB", space.free_bytes)
    return ok(words, space.free_bytes)
