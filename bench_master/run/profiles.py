"""The profiles of a run, beside its stats file: of the master and of each worker's load process.

Each is two files: a text to read at once, and one for https://www.speedscope.app, which draws it in a browser.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Final

from bench_common.profiling import Profile, Profiler
from bench_common.stats.reader import SUFFIX

log = logging.getLogger(__name__)

MAX_NAME_CHARS: Final = 64
"""How much of a worker's id becomes part of its files' names, in characters."""


class Profiles:
    """Profiles the master from `start` to `finish`, and keeps what the workers send."""

    def __init__(self, stats: Path) -> None:
        self._stats = stats
        self._profiler = Profiler("master")
        self._file_stems: dict[str, Path] = {}
        self._missing: dict[str, None] = {}
        self._received: dict[str, Profile] = {}

    def start(self) -> None:
        """Start to profile this process."""
        self._profiler.start()

    def expect(self, worker_id: str) -> None:
        """Note that a worker will send its profile."""
        if worker_id not in self._received:
            self._missing[worker_id] = None

    def add(self, worker_id: str, packed: bytes) -> None:
        """Keep a worker's profile; raise `ProtocolError` on an invalid one."""
        self._received[worker_id] = Profile.unpack(packed)
        self._missing.pop(worker_id, None)

    def finish(self) -> list[Path]:
        """Write every profile; return the texts. One that cannot be written is logged and skipped."""
        for worker_id in self._missing:
            log.warning("no profile received from worker %s; see its log", worker_id)
        base = self._stats.with_name(f"{self._stem}.master.profile")
        written = [_write(base, self._profiler.stop())]
        for worker_id, profile in self._received.items():
            written.append(_write(self.base(worker_id), profile))
        return [path for path in written if path is not None]

    def base(self, worker_id: str) -> Path:
        """Return the path that a worker's files begin with: unique, and in this folder whatever the id is."""
        if worker_id not in self._file_stems:
            word = re.sub(r"[^A-Za-z0-9_.+-]", "-", worker_id)[:MAX_NAME_CHARS]
            taken = set(self._file_stems.values())
            count, base = 1, self._stats.with_name(f"{self._stem}.worker-{word}.profile")
            while base in taken:
                count += 1
                base = self._stats.with_name(f"{self._stem}.worker-{word}-{count}.profile")
            self._file_stems[worker_id] = base
        return self._file_stems[worker_id]

    @property
    def _stem(self) -> str:
        return self._stats.name.removesuffix(SUFFIX) or self._stats.name


def _write(base: Path, profile: Profile) -> Path | None:
    text, drawing = (base.with_name(f"{base.name}.{suffix}") for suffix in ("txt", "speedscope.json"))
    try:
        text.write_text(profile.text, "utf-8")
        drawing.write_text(profile.speedscope, "utf-8")
    except OSError as error:
        log.warning("%s: the profile cannot be written: %s", base, error.strerror)
        return None
    return text
