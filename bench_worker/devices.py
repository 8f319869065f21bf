"""Which disks and network interfaces are counted, so that no byte is counted twice.

A write to a file on LVM on RAID on a partition shows in /proc/diskstats four times; a container's packet on veth,
bridge and network card. Counted is what stands nearest to the hardware.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench_worker.host_files import HostFiles

STACKED_DISK: Final = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|drbd|bcache)\d")
PARTITION: Final = re.compile(r"(?P<disk>[a-z]+)\d+|(?P<numbered>.*\d)p\d+")
INNER_INTERFACE: Final = re.compile(
    r"(lo$|docker|br-|virbr|veth|cni|flannel|cali|podman|bond|team|tun|tap|wg|ifb|dummy)|.*[.@:]"
)


def physical_disks(files: HostFiles, names: Iterable[str]) -> frozenset[str]:
    """Return those of `names` (of /proc/diskstats) that are whole physical or paravirtual disks.

    sysfs knows: a whole disk has an entry in /sys/block, and one with a driver behind it a `device` link; loop, ram,
    device mapper and RAID devices have none. Hidden paths of a multipath NVMe disk are left out. Without sysfs the
    names decide.
    """
    names = set(names)
    blocks = files.names("/sys/block")
    if not blocks:
        return frozenset(name for name in names if not STACKED_DISK.match(name) and not _is_partition(name, names))
    return frozenset(
        name
        for name in names & set(blocks)
        if files.exists(f"/sys/block/{name}/device") and files.text(f"/sys/block/{name}/hidden") != "1"
    )


def _is_partition(name: str, names: set[str]) -> bool:
    match = PARTITION.fullmatch(name)
    return match is not None and (match["disk"] or match["numbered"]) in names


def outer_interfaces(files: HostFiles, names: Iterable[str]) -> frozenset[str]:
    """Return those of `names` (of /proc/net/dev) through which traffic leaves the host or its network namespace.

    Interfaces with a driver behind them (`device` link) count, unless their master counts too (a cloud's accelerated
    interface below its paravirtual one). In a namespace without any, those count that are no bridge, stand on no
    other interface and are in no bridge. Where sysfs shows another namespace than /proc does, names decide.
    """
    candidates = {name for name in names if name != "lo"}
    if set(files.names("/sys/class/net")) - {"lo", "bonding_masters"} != candidates:
        return frozenset(name for name in candidates if not INNER_INTERFACE.match(name)) or frozenset(candidates)
    driven = {name for name in candidates if files.exists(f"/sys/class/net/{name}/device")}
    if driven:
        return frozenset(name for name in driven if _master(files, name) not in driven)
    return frozenset(name for name in candidates if not _is_inner(files, name))


def _master(files: HostFiles, name: str) -> str | None:
    target = files.target(f"/sys/class/net/{name}/master")
    return target.rpartition("/")[2] if target else None


def _is_inner(files: HostFiles, name: str) -> bool:
    inside = files.names(f"/sys/class/net/{name}")
    return "bridge" in inside or "master" in inside or any(entry.startswith("lower_") for entry in inside)
