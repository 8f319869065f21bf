"""Checks of what a process may do, and of the interpreter."""

from __future__ import annotations

from collections.abc import Iterator

from bench_worker.doctor.base import Check, Finding
from bench_worker.doctor.scene import Scene
from bench_worker.facts.system import open_files_limit

FEW_FILES = 256
SOME_FILES = 4096
OLDEST_PYTHON = (3, 11)


class OpenFilesCheck(Check):
    """Each job in flight holds a few files and sockets."""

    name = "open files"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield one finding."""
        limit = open_files_limit(scene.files)
        advice = f"ulimit -n {SOME_FILES} in the shell that you start from"
        if limit is None:
            yield self.ok("no limit that can be seen")
        elif limit < FEW_FILES:
            yield self.problem(f"at most {limit}: not enough for a handful of jobs", advice, limit)
        elif limit < SOME_FILES:
            yield self.note(f"at most {limit}: enough for about {limit // 8} jobs in flight", advice, limit)
        else:
            yield self.ok(f"at most {limit}", limit)


class PythonCheck(Check):
    """Weighbridge needs a Python that it is tested with."""

    name = "Python"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield one finding."""
        version = scene.python_version
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_PYTHON:
            needed = ".".join(map(str, OLDEST_PYTHON))
            yield self.problem(version, f"install Python {needed} or newer and set up Weighbridge with it", version)
        else:
            yield self.ok(version, version)
