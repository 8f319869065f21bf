"""The facts of a fingerprint: CPU, memory, software, disk, virtualization and system, each from the host's files.

A hypervisor, a container and the layout of cgroups are found from files that need no root. The strongest evidence
comes first: what firmware says, then the CPU's hypervisor bit and model, then the clock sources and buses that only
a hypervisor offers.
"""

from __future__ import annotations

import hashlib
import platform
import re
import shlex
import sys
from typing import TYPE_CHECKING, Final, TypeAlias

import zmq
from msgspec import Struct

from bench_common import __version__, package_header
from bench_worker.host.procfs import MemoryUse, parse_meminfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bench_worker.host.procfs import HostFiles

Value: TypeAlias = str | int | float


class Fact(Struct, frozen=True):
    """A named property of a host that can change what is measured on it.

    `read` returns None where the host does not show it. `unit` is ``B``, ``Hz``, ``ns`` or empty. `identity` facts
    tell hosts apart and differ between any two of them, so a difference in one is no confound.
    """

    name: str
    help: str
    read: Callable[[HostFiles], Value | None]
    unit: str = ""
    identity: bool = False


def file_fact(name: str, path: str, help: str) -> Fact:  # noqa: A002  `help` is what every registry here calls it
    """Return the fact that is a whole file's text."""
    return Fact(name, help, lambda files: files.text(path) or None)


def number_fact(name: str, path: str, help: str, unit: str = "") -> Fact:  # noqa: A002
    """Return the fact that is the whole number in a file."""
    return Fact(name, help, lambda files: whole_number(files.text(path)), unit)


def whole_number(text: str | None) -> int | None:
    """Return the whole number that `text` is, or None."""
    try:
        return int(text or "")
    except ValueError:
        return None


def selected_option(text: str | None) -> str | None:
    """Return the word in brackets of a sysfs choice such as ``always [madvise] never``, or the text itself."""
    if text and "[" in text:
        return text.partition("[")[2].partition("]")[0]
    return text or None


CPU: Final = "/sys/devices/system/cpu"
CLOCK: Final = "/sys/devices/system/clocksource/clocksource0"


def cpu_numbers(files: HostFiles) -> tuple[str, ...]:
    """Return the directory names of the CPUs, ``cpu0`` and so on."""
    return tuple(name for name in files.names(CPU) if name.startswith("cpu") and name[3:].isdigit())


def governor(files: HostFiles) -> str | None:
    """Return the frequency governor; several are joined by commas; None where the kernel manages no frequency."""
    found = {files.text(f"{CPU}/{name}/cpufreq/scaling_governor") or "" for name in cpu_numbers(files)} - {""}
    return ",".join(sorted(found)) or None


def turbo(files: HostFiles) -> str | None:
    """Return ``on`` or ``off`` as the frequency driver says, None where it does not."""
    no_turbo = files.text(f"{CPU}/intel_pstate/no_turbo")
    if no_turbo in ("0", "1"):
        return "off" if no_turbo == "1" else "on"
    boost = files.text(f"{CPU}/cpufreq/boost")
    return {"1": "on", "0": "off"}.get(boost or "")


def mitigations(files: HostFiles) -> str | None:
    """Return what the CPU is affected by and how it is met, as ``name: state; ...``, in the kernel's words."""
    path = f"{CPU}/vulnerabilities"
    states = {name: files.text(f"{path}/{name}") or "" for name in files.names(path)}
    if not states:
        return None
    affected = [f"{name}: {state}" for name, state in sorted(states.items()) if state and state != "Not affected"]
    return " | ".join(affected) or "not affected"


def _cpuinfo(files: HostFiles, *keys: str) -> str | None:
    for line in (files.text("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in keys and value.strip():
            return value.strip()
    return None


def _model(files: HostFiles) -> str | None:
    return _cpuinfo(files, "model name", "Model", "cpu", "Hardware")


def _threads(files: HostFiles) -> int | None:
    lines = (files.text("/proc/stat") or "").splitlines()
    return sum(line.startswith("cpu") and line[3:4].isdigit() for line in lines) or None


def _distinct(files: HostFiles, *parts: str) -> int | None:
    found = {tuple(files.text(f"{CPU}/{name}/topology/{part}") for part in parts) for name in cpu_numbers(files)}
    known = {places for places in found if None not in places}
    return len(known) or None


def _max_frequency(files: HostFiles) -> int | None:
    khz = whole_number(files.text(f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq"))
    return khz * 1000 if khz else None


CPU_FACTS: Final = (
    Fact("cpu_model", "the CPU's name", _model),
    Fact("cpu_sockets", "CPU packages", lambda files: _distinct(files, "physical_package_id")),
    Fact("cpu_cores", "physical cores", lambda files: _distinct(files, "physical_package_id", "core_id")),
    Fact("cpu_threads", "CPUs on line", _threads),
    file_fact("cpu_smt", f"{CPU}/smt/control", "simultaneous multithreading: on, off, notsupported ..."),
    Fact("cpu_max_frequency", "the highest frequency of CPU 0", _max_frequency, "Hz"),
    Fact("cpu_microcode", "the microcode's revision", lambda files: _cpuinfo(files, "microcode")),
    file_fact("cpu_driver", f"{CPU}/cpu0/cpufreq/scaling_driver", "the frequency driver"),
    Fact("cpu_governor", "the frequency governor", governor),
    Fact("cpu_turbo", "whether the CPU may exceed its base frequency", turbo),
    file_fact("cpu_idle_driver", f"{CPU}/cpuidle/current_driver", "the idle-state driver"),
    file_fact("cpu_isolated", f"{CPU}/isolated", "CPUs kept from the scheduler"),
    Fact("mitigations", "CPU vulnerabilities that apply, and how they are met", mitigations),
    file_fact("clocksource", f"{CLOCK}/current_clocksource", "clock source of the kernel"),
    file_fact("clocksources", f"{CLOCK}/available_clocksource", "clock sources that the kernel can use"),
)


PAGES: Final = "/sys/kernel/mm/transparent_hugepage"


def memory(files: HostFiles) -> MemoryUse | None:
    """Return what /proc/meminfo says, or None where it is hidden."""
    text = files.text("/proc/meminfo")
    return parse_meminfo(text) if text else None


def _total(files: HostFiles) -> int | None:
    found = memory(files)
    return found.total if found else None


def _swap(files: HostFiles) -> int | None:
    found = memory(files)
    return found.swap_total if found else None


def _nodes(files: HostFiles) -> int | None:
    names = files.names("/sys/devices/system/node")
    return sum(name.startswith("node") and name[4:].isdigit() for name in names) or None


MEMORY_FACTS: Final = (
    Fact("memory", "memory in all", _total, "B"),
    Fact("swap", "swap space in all", _swap, "B"),
    number_fact("swappiness", "/proc/sys/vm/swappiness", "how readily the kernel swaps"),
    Fact("huge_pages", "transparent huge pages", lambda files: selected_option(files.text(f"{PAGES}/enabled"))),
    Fact(
        "huge_pages_defrag",
        "when huge pages are made room for",
        lambda files: selected_option(files.text(f"{PAGES}/defrag")),
    ),
    number_fact("reserved_huge_pages", "/proc/sys/vm/nr_hugepages", "huge pages set aside"),
    number_fact("overcommit", "/proc/sys/vm/overcommit_memory", "0 heuristic, 1 always, 2 never"),
    Fact("numa_nodes", "NUMA nodes", _nodes),
    number_fact("numa_balancing", "/proc/sys/kernel/numa_balancing", "whether pages follow their process"),
)


REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _libraries() -> list[str]:
    """Return the names of the packages that Weighbridge itself stands on, as its metadata says."""
    required = package_header("weighbridge", "Requires-Dist")
    names = (REQUIREMENT.match(text) for text in required if "extra ==" not in text)
    return sorted(match[0] for match in names if match)


def _library(name: str) -> Fact:
    def read(_files: HostFiles) -> str | None:
        return next(iter(package_header(name, "Version")), None)

    return Fact(f"package_{name}", f"release of the Python package {name}", read)


SOFTWARE_FACTS: Final = (
    Fact("weighbridge_version", "release of Weighbridge", lambda _: __version__),
    Fact("python_version", "release of Python", lambda _: platform.python_version()),
    Fact("python_implementation", "which Python", lambda _: sys.implementation.name),
    Fact("libc_version", "the C library", lambda _: " ".join(platform.libc_ver()).strip() or None),
    Fact("libzmq_version", "release of libzmq", lambda _: zmq.zmq_version()),
    *(_library(name) for name in _libraries()),
)


ESCAPE: Final = re.compile(r"\\([0-7]{3})")


class MountPoint(Struct, frozen=True):
    """Where a file system is mounted: its directory, kind, options, source and device number (``major:minor``)."""

    directory: str
    kind: str
    source: str
    options: str
    device: str


def find_mount(files: HostFiles, directory: str) -> MountPoint | None:
    """Return the mount that holds an absolute directory, or None where mounts are hidden."""
    best: MountPoint | None = None
    for line in (files.text("/proc/self/mountinfo") or "").splitlines():
        mount = _parse_mount(line)
        if mount is None:
            continue
        inside = mount.directory.rstrip("/") + "/"
        # Of two mounts on one directory the later covers the earlier.
        if f"{directory}/".startswith(inside) and (best is None or len(mount.directory) >= len(best.directory)):
            best = mount
    return best


def _parse_mount(line: str) -> MountPoint | None:
    # proc(5): id, parent, major:minor, root, mount point, options, optional fields, " - ", kind, source, options
    front, _, back = line.partition(" - ")
    head, tail = front.split(), back.split()
    if len(head) < 6 or len(tail) < 2:  # noqa: PLR2004
        return None
    return MountPoint(_unescaped(head[4]), tail[0], _unescaped(tail[1]), head[5], head[2])


def _unescaped(text: str) -> str:
    return ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def _working_mount(files: HostFiles) -> MountPoint | None:
    directory = files.target("/proc/self/cwd")
    return find_mount(files, directory) if directory else None


def _disk(files: HostFiles) -> str | None:
    """Return the name of the whole disk below the working directory."""
    mount = _working_mount(files)
    target = files.target(f"/sys/dev/block/{mount.device}") if mount else None
    if target is None:
        return None
    parent, _, name = target.rpartition("/")
    disk = parent.rpartition("/")[2]
    # A partition's directory lies within its disk's.
    return disk if files.exists(f"/sys/block/{disk}") else name


def _queue(files: HostFiles, name: str) -> str | None:
    disk = _disk(files)
    return selected_option(files.text(f"/sys/block/{disk}/queue/{name}")) if disk else None


def _filesystem(files: HostFiles) -> str | None:
    mount = _working_mount(files)
    return mount.kind if mount else None


def _mount_options(files: HostFiles) -> str | None:
    mount = _working_mount(files)
    return mount.options if mount else None


def _rotational(files: HostFiles) -> str | None:
    return {"0": "no", "1": "yes"}.get(_queue(files, "rotational") or "")


STORAGE_FACTS: Final = (
    Fact("filesystem", "file system of the working directory", _filesystem),
    Fact("filesystem_options", "how it is mounted", _mount_options),
    Fact("disk", "the disk below it", _disk),
    Fact("disk_scheduler", "that disk's scheduler", lambda files: _queue(files, "scheduler")),
    Fact("disk_rotational", "whether that disk says it rotates", _rotational),
    Fact(
        "disk_write_cache",
        "that disk's cache: write back or write through",
        lambda files: _queue(files, "write_cache"),
    ),
)


NO_HYPERVISOR: Final = "none"
UNKNOWN_HYPERVISOR: Final = "unidentified"

DMI_FILES: Final = ("product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version")
DMI_MARKS: Final = (
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("Google Compute Engine", "kvm"),
    ("Amazon EC2", "amazon"),
    ("KubeVirt", "kvm"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("VirtualBox", "virtualbox"),
    ("innotek GmbH", "virtualbox"),
    ("Xen", "xen"),
    ("HVM domU", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "hyper-v"),
    ("Apple Virtualization", "apple"),
)
CLOCK_MARKS: Final = (("kvm-clock", "kvm"), ("hyperv_clocksource", "hyper-v"), ("xen", "xen"))

CONTAINER_MARKERS: Final = ("/.dockerenv", "/run/.containerenv")


def hypervisor(files: HostFiles) -> str | None:
    """Return the hypervisor's name, ``none`` on bare metal, ``unidentified`` for one that hides, None if unknown.

    An x86 CPU says by a flag whether there is one, and that word is final: firmware of rented bare metal carries the
    same vendor's name as its virtual machines.
    """
    cpuinfo = files.text("/proc/cpuinfo") or ""
    flags = _cpuinfo_words(cpuinfo, "flags")
    if _is_xen_control_domain(files):
        return NO_HYPERVISOR
    if flags and "hypervisor" not in flags and "User Mode Linux" not in cpuinfo:
        return NO_HYPERVISOR
    found = next(_names(files, cpuinfo), None)
    if found == "qemu" and "kvm-clock" in _clock_sources(files):
        return "kvm"
    return found or (UNKNOWN_HYPERVISOR if flags else None)


def _names(files: HostFiles, cpuinfo: str) -> Iterator[str]:
    if "User Mode Linux" in cpuinfo:
        yield "uml"
    yield from _firmware_names(files)
    sources = _clock_sources(files)
    yield from (name for mark, name in CLOCK_MARKS if mark in sources)
    if files.names("/sys/bus/vmbus/devices"):
        yield "hyper-v"
    if "QEMU" in cpuinfo:
        yield "qemu"


def _firmware_names(files: HostFiles) -> Iterator[str]:
    dmi = [files.text(f"/sys/class/dmi/id/{name}") or "" for name in DMI_FILES]
    if dmi[:2] == ["Virtual Machine", "Microsoft Corporation"]:
        yield "hyper-v"
    yield from (name for mark, name in DMI_MARKS if any(mark in text for text in dmi))
    kind = files.text("/sys/hypervisor/type")
    if kind:
        yield kind
    compatible = files.text("/proc/device-tree/hypervisor/compatible")
    if compatible:
        yield "kvm" if "kvm" in compatible else compatible.strip("\0").partition(",")[0]


def _is_xen_control_domain(files: HostFiles) -> bool:
    return "control_d" in (files.text("/proc/xen/capabilities") or "")


def _clock_sources(files: HostFiles) -> str:
    return files.text("/sys/devices/system/clocksource/clocksource0/available_clocksource") or ""


def _cpuinfo_words(cpuinfo: str, key: str) -> list[str]:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.split()
    return []


def container(files: HostFiles) -> str | None:
    """Return the kind of container that the worker itself runs in, ``none``, or None if unknown.

    A marker file left in a virtual machine's disk that was made from an image does not count: there the root is a
    whole file system on a disk.
    """
    manager = files.text("/run/systemd/container") or files.text("/run/host/container-manager")
    if manager:
        return manager
    markers = [marker for marker in CONTAINER_MARKERS if files.exists(marker)]
    if markers and not _root_is_a_disk(files):
        return "podman" if markers == ["/run/.containerenv"] else "docker"
    return "none" if files.text("/proc/self/mountinfo") else None


def _root_is_a_disk(files: HostFiles) -> bool:
    for line in (files.text("/proc/self/mountinfo") or "").splitlines():
        words = line.split()
        if len(words) > 4 and words[4] == "/":  # noqa: PLR2004  proc(5): the fifth field is the mount point
            source = line.partition(" - ")[2].split()[1:2]
            return words[3] == "/" and bool(source) and source[0].startswith("/dev/")
    return False


def cgroup_layout(files: HostFiles) -> str | None:
    """Return ``v2``, ``hybrid`` (v1 controllers beside a v2 tree), ``v1``, or None if no cgroups are mounted."""
    kinds = set()
    for line in (files.text("/proc/self/mountinfo") or "").splitlines():
        kind = line.partition(" - ")[2].partition(" ")[0]
        if kind in ("cgroup", "cgroup2"):
            kinds.add(kind)
    if kinds == {"cgroup", "cgroup2"}:
        return "hybrid"
    return {"cgroup": "v1", "cgroup2": "v2"}[kinds.pop()] if kinds else None


_CAP_SYS_NICE: Final = 23
"""The number of the capability (linux/capability.h)."""
RELEVANT_BOOT_OPTIONS: Final = (
    "mitigations",
    "nopti",
    "pti",
    "spectre_v2",
    "spectre_v2_user",
    "spec_store_bypass_disable",
    "retbleed",
    "l1tf",
    "mds",
    "tsx",
    "isolcpus",
    "nohz",
    "nohz_full",
    "rcu_nocbs",
    "rcu_nocb_poll",
    "rcupdate.rcu_expedited",
    "rcupdate.rcu_normal",
    "rcupdate.rcu_normal_after_boot",
    "rcutree.enable_rcu_lazy",
    "skew_tick",
    "threadirqs",
    "irqaffinity",
    "audit",
    "selinux",
    "apparmor",
    "psi",
    "swapaccount",
    "cgroup_enable",
    "cgroup_disable",
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
    return " ".join(word for word in text.split() if word.partition("=")[0] in RELEVANT_BOOT_OPTIONS) or "none"


def kernel_config(files: HostFiles) -> Mapping[str, str]:
    """Return the options that this kernel was built with, by name without ``CONFIG_``; empty where it hides them."""
    release = files.text("/proc/sys/kernel/osrelease") or ""
    for path in ("/proc/config.gz", f"/boot/config-{release}", f"/lib/modules/{release}/config"):
        text = files.text(path)
        if text:
            return dict(CONFIG_LINE.findall(text))
    return {}


CONFIG_LINE: Final = re.compile(r"^CONFIG_(HZ|RCU_NOCB_CPU|RCU_NOCB_CPU_DEFAULT_ALL)=(.*)$", re.MULTILINE)
"""The options of a kernel's build that facts are made of: a build has thousands."""


def _rcu_nocbs(files: HostFiles) -> str | None:
    """Return the CPUs whose RCU callbacks threads run, ``all`` or ``none``; None where nothing says.

    A boot option says which, else the kernel's build (Documentation/admin-guide/kernel-parameters.txt).
    """
    words = (files.text("/proc/cmdline") or "").split()
    given = next((word for word in reversed(words) if word.partition("=")[0] == "rcu_nocbs"), None)
    config = kernel_config(files)
    if not config:
        return None if given is None else given.partition("=")[2] or "all"
    if config.get("RCU_NOCB_CPU") != "y":
        return "none"
    if given is not None:
        return given.partition("=")[2] or "all"
    return "all" if config.get("RCU_NOCB_CPU_DEFAULT_ALL") == "y" else "none"


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


def real_time_priority(files: HostFiles) -> str | None:
    """Return whether threads of this process may have real-time priority: ``allowed`` or ``refused``."""
    for line in (files.text("/proc/self/status") or "").splitlines():
        if line.startswith("CapEff:"):
            return "allowed" if int(line.partition(":")[2], 16) >> _CAP_SYS_NICE & 1 else "refused"
    return None


def machine_id(files: HostFiles) -> str | None:
    """Return a digest that tells this machine from others and says nothing else about it.

    The machine's own id is confidential, as machine-id(5) says.
    """
    for path in ("/etc/machine-id", "/sys/class/dmi/id/product_uuid"):
        text = (files.text(path) or "").strip().lower()
        if text:
            return hashlib.sha256(f"weighbridge machine {text}".encode()).hexdigest()[:16]
    return None


SYSTEM_FACTS: Final = (
    Fact("hostname", "the host's name", lambda files: files.text("/proc/sys/kernel/hostname"), identity=True),
    Fact(
        "boot_id",
        "this boot of this host",
        lambda files: files.text("/proc/sys/kernel/random/boot_id"),
        identity=True,
    ),
    Fact("machine_id", "a digest of the machine's own id", machine_id, identity=True),
    file_fact("kernel", "/proc/sys/kernel/osrelease", "the kernel's release"),
    file_fact("kernel_build", "/proc/sys/kernel/version", "the kernel's build, with its preemption model"),
    Fact("kernel_options", "boot options that change measurements", _boot_options),
    Fact(
        "kernel_hz",
        "the kernel's timer interrupts a second (CONFIG_HZ)",
        lambda files: whole_number(kernel_config(files).get("HZ")),
    ),
    number_fact("rcu_expedited", "/sys/kernel/rcu_expedited", "whether RCU grace periods are hurried: 1 always"),
    number_fact("rcu_normal", "/sys/kernel/rcu_normal", "whether none is: 1 never, over rcu_expedited"),
    Fact("rcu_nocbs", "CPUs whose RCU callbacks threads run: a list, all or none", _rcu_nocbs),
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
    Fact(
        "real_time_priority",
        "whether threads that stamp ends may have real-time priority (CAP_SYS_NICE)",
        real_time_priority,
    ),
    Fact("cpus_allowed", "CPUs that the worker may run on", affinity),
    number_fact("connection_backlog", "/proc/sys/net/core/somaxconn", "connections that may wait to be accepted"),
    number_fact("dirty_ratio", "/proc/sys/vm/dirty_ratio", "percent of memory that may await writing to disk"),
    number_fact("dirty_background_ratio", "/proc/sys/vm/dirty_background_ratio", "percent at which writing begins"),
)
