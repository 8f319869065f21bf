"""The profiles of a run, beside its stats file: of the master and of each worker's load process.

Each is two files: a text to read at once, and one for https://www.speedscope.app, which draws it in a browser.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from bench_common.profiling import Call, Profile, Profiler
from bench_master.formatting import plural

log = logging.getLogger(__name__)

MAX_FUNCTIONS: Final = 40
"""How many functions a list of the text names."""
MIN_SHARE: Final = 0.01
"""The share of the time from which on a call is in the text's tree."""
MAX_NAME_CHARS: Final = 64
"""How much of a worker's id becomes part of its files' names, in characters."""
SUFFIX: Final = ".stats.gz"


class Profiles:
    """Profiles the master from `start` to `finish`, and keeps what the workers send."""

    def __init__(self, stats: Path) -> None:
        self._stats = stats
        self._profiler = Profiler()
        self._file_stems: dict[str, Path] = {}
        self._missing: dict[str, None] = {}
        self._received: dict[str, Profile] = {}

    def start(self) -> None:
        """Begin to profile this process."""
        self._profiler.start()

    def expect(self, worker_id: str) -> None:
        """Note that a worker was asked for its profile."""
        if worker_id not in self._received:
            self._missing[worker_id] = None

    def add(self, worker_id: str, packed: bytes) -> None:
        """Take a worker's profile in; raise `ProtocolError` on an invalid one."""
        self._received[worker_id] = Profile.unpack(packed)
        self._missing.pop(worker_id, None)

    def finish(self) -> list[Path]:
        """Write every profile; return the texts. One that cannot be written is logged and skipped."""
        for worker_id in self._missing:
            log.warning("no profile received from worker %s; see its log", worker_id)
        base = self._stats.with_name(f"{self._stem}.master.profile")
        written = [_write(base, "master", self._profiler.stop())]
        for worker_id, profile in self._received.items():
            written.append(_write(self.base(worker_id), f"load process of worker {ascii(worker_id)[1:-1]}", profile))
        return [path for path in written if path is not None]

    def base(self, worker_id: str) -> Path:
        """Return what the names of a worker's files begin with: whatever its id is, no other's and in this folder."""
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


def _write(base: Path, title: str, profile: Profile) -> Path | None:
    text, drawing = (base.with_name(f"{base.name}.{suffix}") for suffix in ("txt", "speedscope.json"))
    try:
        text.write_text("\n".join([*render_text(title, profile), ""]), "utf-8")
        drawing.write_text(json.dumps(speedscope(title, profile), separators=(",", ":")), "utf-8")
    except OSError as error:
        log.warning("%s: the profile cannot be written: %s", base, error.strerror)
        return None
    return text


def speedscope(title: str, profile: Profile) -> dict[str, Any]:
    """Return a profile in speedscope's file format."""
    stacks = dict(profile.stacks)
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": title,
        "exporter": "weighbridge",
        "activeProfileIndex": 0,
        "shared": {
            "frames": [{"name": call.function, "file": call.file, "line": call.line} for call in profile.calls]
        },
        "profiles": [
            {
                "type": "sampled",
                "name": title,
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": profile.total_ns,
                "samples": [list(stack) for stack in stacks],
                "weights": list(stacks.values()),
            }
        ],
    }


def render_text(title: str, profile: Profile) -> Iterator[str]:
    """Yield the lines of a profile as text: the functions by their own time and by all below them, the call tree."""
    total_ns = max(1, profile.total_ns)
    own: Counter[int] = Counter()
    below: Counter[int] = Counter()
    for stack, spent_ns in profile.stacks.items():
        own[stack[-1] if stack else -1] += spent_ns
        for index in set(stack):
            below[index] += spent_ns
    share = total_ns / max(1, profile.elapsed_ns)
    yield f"Profile of the {title}"
    yield (
        f"{total_ns / 1e9:.3f} s of processor time in {profile.elapsed_ns / 1e9:.3f} s ({share:.1%}), "
        f"{plural(profile.samples, 'sample')}"
    )
    yield "Shares are of the processor time of the thread of the event loop; waiting is not included."
    for heading, ranked in (
        ("Functions by the time in themselves", own),
        ("Functions by the time in them and all that they call", below),
    ):
        yield from ("", heading, "", "   self   total  function")
        for index, _ in ranked.most_common(MAX_FUNCTIONS):
            where = _place(profile.calls[index]) if index >= 0 else "(stacks beyond those that are told apart)"
            yield f"{own[index] / total_ns:7.1%} {below[index] / total_ns:7.1%}  {where}"
    yield from ("", f"Who calls whom, from {MIN_SHARE:.0%} on", "")
    yield from _tree(profile, profile.stacks, 0, total_ns)


def _tree(profile: Profile, stacks: Mapping[tuple[int, ...], int], depth: int, total_ns: int) -> Iterator[str]:
    spent: Counter[int] = Counter()
    for stack, spent_ns in stacks.items():
        if len(stack) > depth:
            spent[stack[depth]] += spent_ns
    for index, spent_ns in spent.most_common():
        if spent_ns < MIN_SHARE * total_ns:
            break
        yield f"{spent_ns / total_ns:7.1%} {'  ' * depth}{_place(profile.calls[index])}"
        inner = {stack: ns for stack, ns in stacks.items() if len(stack) > depth + 1 and stack[depth] == index}
        yield from _tree(profile, inner, depth + 1, total_ns)


def _place(call: Call) -> str:
    return f"{call.function}  {call.file}:{call.line}"
