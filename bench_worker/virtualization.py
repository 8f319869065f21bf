"""What a host runs inside of: a hypervisor, a container, a cgroup hierarchy; told from files that need no root.

Evidence in the order of its worth: what firmware says, then the CPU's hypervisor bit and model, then the clock
sources and buses that only a hypervisor offers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_worker.host_files import HostFiles

NO_HYPERVISOR: Final = "none"
UNIDENTIFIED: Final = "unidentified"

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
    return found or (UNIDENTIFIED if flags else None)


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
    told = files.text("/run/systemd/container") or files.text("/run/host/container-manager")
    if told:
        return told
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
