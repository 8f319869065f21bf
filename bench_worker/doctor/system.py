"""Checks of what the host runs inside of.

Checks of the disks that runs write to.

Checks of what a process may do, and of the interpreter.

Checks of the ports that a master binds for workers on other hosts.

Checks of what runs containers, and of the tools that native jobs run.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench_worker.doctor.base import Check, Finding, HostSnapshot
from bench_worker.host.facts import (
    NO_HYPERVISOR,
    UNKNOWN_HYPERVISOR,
    cgroup_layout,
    container,
    hypervisor,
    open_files_limit,
)
from bench_worker.host.fingerprint import format_fact


class HypervisorCheck(Check):
    """Numbers of a virtual machine are the hypervisor's as well."""

    name = "hypervisor"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        found = hypervisor(scene.files)
        if found == NO_HYPERVISOR:
            yield self.ok("none: bare metal", found)
        elif found is None:
            yield self.note("cannot be told here", "say what this is with --environment", found)
        else:
            name = "one that does not give its name" if found == UNKNOWN_HYPERVISOR else found
            yield self.note(
                f"this is a guest of {name}",
                "name it with --environment hypervisor or control, and look at steal in the report",
                found,
            )


class ContainerCheck(Check):
    """A worker in a container weighs containers within its own limits."""

    name = "container"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
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

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
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


CRITICAL_BYTES = 200 * 1024**2
LOW_BYTES = 2 * 1024**3
CRITICAL_INODES = 1_000
LOW_SHARE = 0.1


class SpaceCheck(Check):
    """Stats files, images and containers need room; a file system that fills up ends a run in its middle."""

    name = "disk space"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield a finding for the working and temporary directory, and for each engine's own."""
        roots = [root for status in scene.engines() if (root := status.details.get("root", ""))]
        for directory in dict.fromkeys([*scene.directories, *roots]):
            yield self._room(scene, directory, must_write=directory in scene.directories)

    def _room(self, scene: HostSnapshot, directory: str, *, must_write: bool) -> Finding:
        space = scene.files.space(directory)
        if space is None:
            missing = self.problem if must_write else self.note
            return missing(f"{directory}: cannot be looked at", "does it exist, and may you enter it?", directory)
        if must_write and not scene.writable(directory):
            return self.problem(
                f"{directory}: not writable for you", "run elsewhere, or use -s to save elsewhere", directory
            )
        words = f"{directory}: {format_fact('memory', space.free_bytes)} free"
        inodes_low = bool(space.inodes) and space.free_inodes < LOW_SHARE * space.inodes
        if space.inodes and space.free_inodes < CRITICAL_INODES:
            return self.problem(
                f"{directory}: {space.free_inodes} inodes free", "remove small files", space.free_inodes
            )
        if space.free_bytes < CRITICAL_BYTES:
            return self.problem(words, "make room: images and containers would not fit", space.free_bytes)
        if inodes_low:
            return self.warning(
                f"{directory}: {space.free_inodes} inodes free", "remove small files", space.free_inodes
            )
        if space.free_bytes < LOW_BYTES:
            return self.warning(words, "make room: building an image takes about 1 GiB", space.free_bytes)
        return self.ok(words, space.free_bytes)


CRITICAL_OPEN_FILES = 256
LOW_OPEN_FILES = 4096
OLDEST_PYTHON = (3, 11)


class OpenFilesCheck(Check):
    """Each job in flight holds a few files and sockets."""

    name = "open files"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        limit = open_files_limit(scene.files)
        advice = f"ulimit -n {LOW_OPEN_FILES} in the shell that you start from"
        if limit is None:
            yield self.ok("no limit that can be seen")
        elif limit < CRITICAL_OPEN_FILES:
            yield self.problem(f"at most {limit}: not enough for a handful of jobs", advice, limit)
        elif limit < LOW_OPEN_FILES:
            yield self.note(f"at most {limit}: enough for about {limit // 8} jobs in flight", advice, limit)
        else:
            yield self.ok(f"at most {limit}", limit)


class PythonCheck(Check):
    """Weighbridge needs a Python that it is tested with."""

    name = "Python"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        version = scene.python_version
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_PYTHON:
            needed = ".".join(map(str, OLDEST_PYTHON))
            yield self.problem(version, f"install Python {needed} or newer and set up Weighbridge with it", version)
        else:
            yield self.ok(version, version)


LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""


class PortsCheck(Check):
    """A port that somebody listens on cannot be bound."""

    name = "ports"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield one finding."""
        if not scene.ports:
            yield self.ok("none asked for")
            return
        taken = sorted(set(scene.ports) & listening_ports(scene))
        words = ", ".join(map(str, taken))
        if taken:
            yield self.warning(
                f"{words} taken already",
                "end what listens there (ss -ltnp), or use the --zmq-*-port switches; local workers need no port",
                words,
            )
        else:
            yield self.ok(", ".join(map(str, sorted(scene.ports))) + " free")


def listening_ports(scene: HostSnapshot) -> set[int]:
    """Return the TCP ports that somebody listens on, on any address."""
    found = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (scene.files.text(path) or "").splitlines()[1:]:
            words = line.split()
            if words[3:4] == [LISTEN]:
                found.add(int(words[1].rpartition(":")[2], 16))
    return found


MIN_USABLE_ENGINES = 2


class EnginesCheck(Check):
    """An engine must answer, and let us in."""

    name = "engine"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield a finding for each engine: one that cannot be used is graver the fewer others there are."""
        statuses = scene.engines()
        usable = sum(status.usable for status in statuses)
        for status in statuses:
            if status.usable:
                yield self.ok(f"{status.name} {status.version}".strip(), status.name)
                warnings = status.details.get("warnings")
                if warnings:
                    yield self.note(
                        f"{status.name} warns: {warnings}", "settings that need this are refused", status.name
                    )
            else:
                say = self.warning if usable < MIN_USABLE_ENGINES else self.note
                yield say(f"{status.name}: {status.reason}", status.advice, status.name)
        if not usable:
            yield self.problem(
                "no engine can be used", "see the advice above; `bench-master list-engines` looks again", 0
            )
        elif usable < MIN_USABLE_ENGINES:
            yield self.note("only one engine can be used", "there is nothing on this host to compare it with", usable)


class ToolsCheck(Check):
    """Native jobs run the host's own tools."""

    name = "tools"

    def look(self, scene: HostSnapshot) -> Iterator[Finding]:
        """Yield a finding for each program that a workload needs."""
        tools, advice = scene.tools(), scene.advice()
        for program, workloads in sorted(tools.items()):
            place = scene.which(program)
            if place:
                yield self.ok(f"{program}: {place}", place)
            elif program in advice:
                yield self.note(
                    f"{program} is not on PATH: {', '.join(workloads)} cannot run natively", advice[program], program
                )
            else:
                yield self.warning(
                    f"{program} is not on PATH: {', '.join(workloads)} cannot run natively",
                    f"apt-get install {program} (inside containers it comes with the image)",
                    program,
                )
        if not tools:
            yield self.note(
                "no workload is registered", "install Weighbridge with pip, so that its entry points are found"
            )
