"""Checks of the ports that a master binds for workers on other hosts."""

from __future__ import annotations

from collections.abc import Iterator

from bench_worker.doctor.base import Check, Finding
from bench_worker.doctor.scene import Scene

LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp."""


class PortsCheck(Check):
    """A port that somebody listens on cannot be bound."""

    name = "ports"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield one finding."""
        if not scene.ports:
            yield self.ok("none asked for")
            return
        taken = sorted(set(scene.ports) & listening(scene))
        words = ", ".join(map(str, taken))
        if taken:
            yield self.warning(
                f"{words} taken already",
                "end what listens there (ss -ltnp), or use the --zmq-*-port switches; local workers need no port",
                words,
            )
        else:
            yield self.ok(", ".join(map(str, sorted(scene.ports))) + " free")


def listening(scene: Scene) -> set[int]:
    """Return the TCP ports that somebody listens on, on any address."""
    found = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in (scene.files.text(path) or "").splitlines()[1:]:
            words = line.split()
            if words[3:4] == [LISTEN]:
                found.add(int(words[1].rpartition(":")[2], 16))
    return found
