"""Where a process spends its processor time: a timer of the kernel interrupts it, and it notes its own stack.

A profiler that hooks each call makes code of many small functions several times slower, and takes the time that the
loop waits for work of whichever greenlet is woken next. A thread that looks at the loop's gets the interpreter when
the loop gives it up, so it sees hardly anything but system calls. A signal each few milliseconds of processor time
does none of that: its handler runs where the loop is, in the greenlet that runs.
"""

from __future__ import annotations

import signal
import sys
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Final

import msgpack

from bench_common.errors import ProtocolError

INTERVAL_S: Final = 0.002
"""Processor time between two looks; the kernel rounds it up to its own ticks, of 1 to 10 ms."""
MAX_DEPTH: Final = 256
"""How many calls of a stack are looked at, from the innermost."""
MAX_STACKS: Final = 20_000
"""How many different stacks are told apart; the time in further ones is kept without them."""
MAX_UNPACKED_BYTES: Final = 16 << 20
"""The most bytes that a packed profile may unpack to."""
MAX_PACKED_BYTES: Final = (1 << 20) - (1 << 12)
"""The most bytes of a packed profile: what a message may carry, less its envelope."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function on a stack: its qualified name, its file as it is imported, the line that it begins at."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Profile:
    """What was seen in `elapsed_ns` of real time.

    `stacks` are indices of `calls`, outermost first, with the processor time of the loop's thread spent there (ns).
    """

    elapsed_ns: int
    samples: int
    calls: tuple[Call, ...]
    stacks: Mapping[tuple[int, ...], int]

    @property
    def total_ns(self) -> int:
        """The processor time that the profile covers, in nanoseconds."""
        return sum(self.stacks.values())

    def pack(self) -> bytes:
        """Return the profile as compressed bytes, for `unpack`."""
        content = {
            "elapsed_ns": self.elapsed_ns,
            "samples": self.samples,
            "calls": [[one.function, one.file, one.line] for one in self.calls],
            "stacks": [[spent_ns, list(stack)] for stack, spent_ns in self.stacks.items()],
        }
        packed: bytes = msgpack.packb(content, use_bin_type=True)
        return zlib.compress(packed)

    @classmethod
    def unpack(cls, packed: bytes) -> Profile:
        """Return the profile in bytes that came from elsewhere; raise `ProtocolError` where they are none."""
        try:
            unzip = zlib.decompressobj()
            content = msgpack.unpackb(unzip.decompress(packed, MAX_UNPACKED_BYTES), raw=False)
            calls = tuple(
                Call(_checked_text(function), _checked_text(file), _checked_int(line))
                for function, file, line in content["calls"]
            )
            known = range(len(calls))
            stacks = {
                tuple(known[_checked_int(index)] for index in stack): _checked_int(spent_ns)
                for spent_ns, stack in content["stacks"]
            }
            return cls(_checked_int(content["elapsed_ns"]), _checked_int(content["samples"]), calls, stacks)
        except Exception as error:  # zlib, msgpack and what is inside fail in a dozen ways on hostile bytes
            raise ProtocolError(f"not a profile: {type(error).__name__} {str(error)[:40]}") from error


def _checked_int(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(value)
    return value


def _checked_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    # What comes from elsewhere is read in terminals.
    return value if value.isprintable() else ascii(value)


class Profiler:
    """Profiles the main thread, which has to call it, from `start` to `stop`; a process has one at a time."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        # By identity: to compare code objects by value takes longer than to look at a whole stack. `_seen` has them
        # live on, so that none takes the identity of another.
        self._spent_ns: dict[tuple[int, ...], int] = {}
        self._seen: dict[int, CodeType] = {}
        self._samples = 0
        self._began_ns = 0
        self._last_sample_ns = 0
        self._in_handler = False

    def start(self) -> None:
        """Begin."""
        self._began_ns = time.monotonic_ns()
        signal.signal(signal.SIGPROF, self._look)
        self._last_sample_ns = time.thread_time_ns()
        signal.setitimer(signal.ITIMER_PROF, self._interval_s, self._interval_s)

    def stop(self) -> Profile:
        """Look no more; return what was seen."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        # Not the default, which would end the process at a last signal that is still on its way.
        self._in_handler = True
        numbers: dict[Call, int] = {}
        places = {key: numbers.setdefault(_call(code), len(numbers)) for key, code in self._seen.items()}
        stacks: dict[tuple[int, ...], int] = {}
        for codes, spent_ns in self._spent_ns.items():
            stack = tuple(places[key] for key in reversed(codes))
            stacks[stack] = stacks.get(stack, 0) + spent_ns
        return Profile(time.monotonic_ns() - self._began_ns, self._samples, tuple(numbers), stacks)

    def _look(self, _number: int, frame: FrameType | None) -> None:
        if self._in_handler:
            return  # a signal that came while the last one was dealt with would count that
        self._in_handler = True
        self._note(frame, time.thread_time_ns())
        # What looking took is not the program's.
        self._last_sample_ns = time.thread_time_ns()
        self._in_handler = False

    def _note(self, frame: FrameType | None, now_ns: int) -> None:
        codes: list[CodeType] = []
        while frame is not None and len(codes) < MAX_DEPTH:
            codes.append(frame.f_code)
            frame = frame.f_back
        key = tuple(map(id, codes))
        spent_ns = self._spent_ns.get(key)
        if spent_ns is None:
            if len(self._spent_ns) < MAX_STACKS:
                self._seen.update(zip(key, codes, strict=True))
            else:
                key = ()
            spent_ns = self._spent_ns.get(key, 0)
        self._spent_ns[key] = spent_ns + max(0, now_ns - self._last_sample_ns)
        self._samples += 1


def _call(code: CodeType) -> Call:
    file = code.co_filename
    roots = [root.rstrip("/") + "/" for root in sys.path if root and file.startswith(root.rstrip("/") + "/")]
    file = file.removeprefix(max(roots, key=len, default=""))
    return Call(_checked_text(code.co_qualname), _checked_text(file), code.co_firstlineno)
