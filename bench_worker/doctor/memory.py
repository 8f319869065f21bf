"""Checks of memory."""

from __future__ import annotations

from collections.abc import Iterator

from bench_worker.doctor.base import Check, Finding
from bench_worker.doctor.scene import Scene
from bench_worker.facts.memory import PAGES, memory
from bench_worker.host.facts import chosen
from bench_worker.host.fingerprint import format_fact

SCARCE_BYTES = 256 * 1024**2
LOW_SHARE = 0.2


class FreeMemoryCheck(Check):
    """Without room, the kernel reclaims and swaps during the measurement."""

    name = "memory"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield one finding."""
        found = memory(scene.files)
        if found is None:
            yield self.note("/proc/meminfo is hidden", "free memory cannot be told here")
            return
        words = f"{format_fact('memory', found.available)} of {format_fact('memory', found.total)} available"
        if found.available < SCARCE_BYTES:
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

    def look(self, scene: Scene) -> Iterator[Finding]:
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

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield one finding."""
        found = chosen(scene.files.text(f"{PAGES}/enabled"))
        if found == "always":
            yield self.note(
                "transparent huge pages: always",
                f"compare with hosts set alike, or echo madvise > {PAGES}/enabled",
                found,
            )
        else:
            yield self.ok(f"transparent huge pages: {found or 'not in this kernel'}", found)
