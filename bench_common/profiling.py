"""Where a process spends its time: pyinstrument samples its stack, and the result is rendered where it was taken.

A worker sends the rendered profile to the master: a text to read at once, and a file for https://www.speedscope.app.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

import msgpack
import msgspec
from msgspec import Struct

from bench_common.errors import ProtocolError
from bench_common.safe_text import shorten

if TYPE_CHECKING:
    import pyinstrument
    from pyinstrument.session import Session

INTERVAL_S: Final = 0.002
MAX_UNPACKED_BYTES: Final = 16 << 20
"""The most bytes that a packed profile may unpack to."""
MAX_PACKED_BYTES: Final = (1 << 20) - (1 << 12)
"""The most bytes of a packed profile: what a message may carry, less its envelope."""


_unpack: Final = msgspec.msgpack.Decoder(tuple[str, str]).decode


class Profile(Struct, frozen=True):
    """One profile, rendered."""

    text: str
    """Functions by their own time, and the call tree."""
    speedscope: str
    """JSON in speedscope's file format."""

    def pack(self) -> bytes:
        """Return the profile as compressed bytes, for `unpack`."""
        packed: bytes = msgpack.packb([self.text, self.speedscope])
        return zlib.compress(packed)

    @classmethod
    def unpack(cls, packed: bytes) -> Profile:
        """Return the profile in bytes from another process; raise `ProtocolError` if they hold none."""
        try:
            unzip = zlib.decompressobj()
            # Of its declared type: a byte of anything else could become an object of 64.
            text, speedscope = _unpack(unzip.decompress(packed, MAX_UNPACKED_BYTES))
            return cls(_printable(text), _printable(speedscope))
        except Exception as error:  # zlib, msgpack and what is inside fail in a dozen ways on hostile bytes
            raise ProtocolError(f"not a profile: {type(error).__name__} {shorten(str(error), 200)}") from error


def _printable(text: Any) -> str:
    """Return a text whose lines cannot control a terminal; raise `TypeError` for anything but a text."""
    if not isinstance(text, str):
        raise TypeError(type(text).__name__)
    return "\n".join(line if line.isprintable() else ascii(line)[1:-1] for line in text.split("\n"))


class Profiler:
    """Profiles the thread that starts it, all greenlets included, until `stop`; a process has one at a time."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._profiler: pyinstrument.Profiler | None = None

    def start(self) -> None:
        """Start sampling."""
        import pyinstrument  # a run without --profile does not need it

        # Greenlets have contexts of their own; samples of every one of them count.
        self._profiler = pyinstrument.Profiler(interval=INTERVAL_S, async_mode="disabled")
        self._profiler.start()

    def stop(self) -> Profile:
        """Stop sampling; return the profile, whose text begins with the title."""
        if self._profiler is None:
            raise RuntimeError("the profiler was not started")
        session = self._profiler.stop()
        self._profiler = None
        return render(self._title, session)


def render(title: str, session: Session) -> Profile:
    """Return a profile as text and for speedscope."""
    from pyinstrument.renderers import ConsoleRenderer, SpeedscopeRenderer

    functions = ConsoleRenderer(flat=True, time="percent_of_total", short_mode=True).render(session)
    tree = ConsoleRenderer(show_all=True, time="percent_of_total", short_mode=True).render(session)
    head = (
        f"Profile of the {title}\n"
        f"{session.cpu_time:.3f} s of CPU time in {session.duration:.3f} s, {session.sample_count} samples\n"
        "Percentages are of the duration; time in the event loop's `run` is mostly waiting.\n"
    )
    text = f"{head}\nFunctions by their own time\n{functions}\nCall tree\n{tree}\n"
    return Profile(text, SpeedscopeRenderer(show_all=True).render(session))
