"""Facts of memory: size, swap, pages, NUMA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench_worker.host.facts import Fact, chosen, number_fact
from bench_worker.host.procfs import MemoryUse, parse_meminfo

if TYPE_CHECKING:
    from bench_worker.host_files import HostFiles

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
    Fact("huge_pages", "transparent huge pages", lambda files: chosen(files.text(f"{PAGES}/enabled"))),
    Fact(
        "huge_pages_defrag", "when huge pages are made room for", lambda files: chosen(files.text(f"{PAGES}/defrag"))
    ),
    number_fact("reserved_huge_pages", "/proc/sys/vm/nr_hugepages", "huge pages set aside"),
    number_fact("overcommit", "/proc/sys/vm/overcommit_memory", "0 heuristic, 1 always, 2 never"),
    Fact("numa_nodes", "NUMA nodes", _nodes),
    number_fact("numa_balancing", "/proc/sys/kernel/numa_balancing", "whether pages follow their process"),
)
