"""Checks of the CPUs: frequency, time taken by the hypervisor, and which of them are ours."""

from __future__ import annotations

from collections.abc import Iterator

from bench_worker.doctor.base import Check, Finding
from bench_worker.doctor.scene import Scene
from bench_worker.facts.cpu import governor, turbo
from bench_worker.facts.system import affinity
from bench_worker.host.sampler import cpu_row

STEAL_PERCENT = 1.0


class GovernorCheck(Check):
    """A governor that changes the frequency with the load makes short jobs slow and long ones fast."""

    name = "CPU governor"

    def look(self, scene: Scene) -> Iterator[Finding]:
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

    def look(self, scene: Scene) -> Iterator[Finding]:
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

    def look(self, scene: Scene) -> Iterator[Finding]:
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

    def look(self, scene: Scene) -> Iterator[Finding]:
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
