"""Facts of the system: kernel, distribution, what it runs inside of, and limits that are often tuned."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from bench_worker.host.facts import Fact, file_fact, number_fact, whole_number
from bench_worker.virtualization import cgroup_layout, container, hypervisor

if TYPE_CHECKING:
    from bench_worker.host_files import HostFiles

TELLING_OPTIONS: Final = (
    "mitigations",
    "isolcpus",
    "nohz",
    "nohz_full",
    "rcu_nocbs",
    "idle",
    "intel_idle.max_cstate",
    "processor.max_cstate",
    "intel_pstate",
    "amd_pstate",
    "clocksource",
    "tsc",
    "preempt",
    "transparent_hugepage",
    "hugepages",
    "numa_balancing",
    "systemd.unified_cgroup_hierarchy",
    "cgroup_no_v1",
    "nosmt",
    "maxcpus",
    "mem",
)
"""Kernel options that change measurements. No others are kept: a command line can hold addresses and secrets."""


def _os(files: HostFiles) -> str | None:
    text = files.text("/etc/os-release") or files.text("/usr/lib/os-release") or ""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            words = shlex.split(value)
            return words[0] if words else None
    return None


def _boot_options(files: HostFiles) -> str | None:
    text = files.text("/proc/cmdline")
    if text is None:
        return None
    return " ".join(word for word in text.split() if word.partition("=")[0] in TELLING_OPTIONS) or "none"


def open_files_limit(files: HostFiles) -> int | None:
    """Return how many files a process of ours may have open; None where that is hidden or unlimited."""
    return _limit(files, "Max open files")


def _limit(files: HostFiles, name: str) -> int | None:
    for line in (files.text("/proc/self/limits") or "").splitlines():
        if line.startswith(name):
            return whole_number(line.removeprefix(name).split()[0])
    return None


def affinity(files: HostFiles) -> str | None:
    """Return the CPUs that this process may run on, as a list such as ``0-3,8``."""
    for line in (files.text("/proc/self/status") or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return line.partition(":")[2].strip() or None
    return None


SYSTEM_FACTS: Final = (
    Fact("hostname", "the host's name", lambda files: files.text("/proc/sys/kernel/hostname"), identity=True),
    Fact(
        "boot_id",
        "this boot of this host",
        lambda files: files.text("/proc/sys/kernel/random/boot_id"),
        identity=True,
    ),
    file_fact("kernel", "/proc/sys/kernel/osrelease", "the kernel's release"),
    file_fact("kernel_build", "/proc/sys/kernel/version", "the kernel's build, with its preemption model"),
    Fact("kernel_options", "boot options that change measurements", _boot_options),
    Fact("os", "the distribution", _os),
    file_fact("architecture", "/proc/sys/kernel/arch", "the machine's architecture (since Linux 6.1)"),
    Fact("hypervisor", "what virtualises this host, or none", hypervisor),
    Fact("container", "what container the worker runs in, or none", container),
    Fact("cgroup", "v1, hybrid or v2", cgroup_layout),
    number_fact("aslr", "/proc/sys/kernel/randomize_va_space", "address space randomisation: 0 off, 2 full"),
    number_fact("timer_slack", "/proc/self/timerslack_ns", "by how much the kernel may delay a timer", "ns"),
    number_fact("perf_paranoia", "/proc/sys/kernel/perf_event_paranoid", "who may use performance counters"),
    Fact("open_files_limit", "files that one process may have open", open_files_limit),
    Fact("processes_limit", "processes that one user may have", lambda files: _limit(files, "Max processes")),
    Fact("cpus_allowed", "CPUs that the worker may run on", affinity),
    number_fact("connection_backlog", "/proc/sys/net/core/somaxconn", "connections that may wait to be accepted"),
    number_fact("dirty_ratio", "/proc/sys/vm/dirty_ratio", "percent of memory that may await writing to disk"),
    number_fact("dirty_background_ratio", "/proc/sys/vm/dirty_background_ratio", "percent at which writing begins"),
)
