"""Checks of the disks that runs write to."""

from __future__ import annotations

from collections.abc import Iterator

from bench_worker.doctor.base import Check, Finding
from bench_worker.doctor.scene import Scene
from bench_worker.host.fingerprint import format_fact

FULL_BYTES = 200 * 1024**2
LOW_BYTES = 2 * 1024**3
FULL_INODES = 1_000
LOW_SHARE = 0.1


class SpaceCheck(Check):
    """Stats files, images and containers need room; a file system that fills up ends a run in its middle."""

    name = "disk space"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield a finding for the working and temporary directory, and for each engine's own."""
        roots = [root for status in scene.engines() if (root := status.details.get("root", ""))]
        for directory in dict.fromkeys([*scene.directories, *roots]):
            yield self._room(scene, directory, must_write=directory in scene.directories)

    def _room(self, scene: Scene, directory: str, *, must_write: bool) -> Finding:
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
        if space.inodes and space.free_inodes < FULL_INODES:
            return self.problem(
                f"{directory}: {space.free_inodes} inodes free", "remove small files", space.free_inodes
            )
        if space.free_bytes < FULL_BYTES:
            return self.problem(words, "make room: images and containers would not fit", space.free_bytes)
        if inodes_low:
            return self.warning(
                f"{directory}: {space.free_inodes} inodes free", "remove small files", space.free_inodes
            )
        if space.free_bytes < LOW_BYTES:
            return self.warning(words, "make room: building an image takes about 1 GiB", space.free_bytes)
        return self.ok(words, space.free_bytes)
