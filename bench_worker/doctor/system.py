"""Checks of what the host runs inside of."""

from __future__ import annotations

from collections.abc import Iterator

from bench_worker.doctor.base import Check, Finding
from bench_worker.doctor.scene import Scene
from bench_worker.virtualization import NO_HYPERVISOR, UNIDENTIFIED, cgroup_layout, container, hypervisor


class HypervisorCheck(Check):
    """Numbers of a virtual machine are the hypervisor's as well."""

    name = "hypervisor"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield one finding."""
        found = hypervisor(scene.files)
        if found == NO_HYPERVISOR:
            yield self.ok("none: bare metal", found)
        elif found is None:
            yield self.note("cannot be told here", "say what this is with --environment", found)
        else:
            name = "one that does not give its name" if found == UNIDENTIFIED else found
            yield self.note(
                f"this is a guest of {name}",
                "name it with --environment hypervisor or control, and look at steal in the report",
                found,
            )


class ContainerCheck(Check):
    """A worker in a container weighs containers within its own limits."""

    name = "container"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield one finding."""
        found = container(scene.files)
        if found in (None, "none"):
            yield self.ok("the worker does not run in one", found)
        else:
            yield self.warning(
                f"the worker itself runs in a container ({found})",
                "start it on the host: in here, limits and files are the container's, and native is not stock",
                found,
            )


class CgroupCheck(Check):
    """Engines enforce limits through cgroups; the two versions account differently."""

    name = "cgroups"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield one finding."""
        found = cgroup_layout(scene.files)
        if found is None:
            yield self.problem(
                "none is mounted: no engine can limit or account",
                "mount -t cgroup2 none /sys/fs/cgroup (systemd and cgroupfs-mount do it at boot)",
            )
        elif found == "hybrid":
            yield self.note(
                "v1 controllers beside a v2 tree (hybrid)",
                "some runtimes refuse this layout; compare with hosts laid out alike, or boot with "
                "systemd.unified_cgroup_hierarchy=1",
                found,
            )
        elif found == "v1":
            yield self.note("v1", "compare with hosts that use v1 too: accounting differs from v2", found)
        else:
            yield self.ok(found, found)
