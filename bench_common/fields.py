"""What messages are made of: their base, the types of their fields with their bounds, and how frames are read."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from bench_common.argument_types import MAX_NAME
from bench_common.errors import ProtocolError
from bench_common.job_kind import read_job
from bench_common.records import MAX_COUNT, MAX_INSTANT_NS, Count, Integer
from bench_common.safe_text import shorten

VERSION: Final = 3
KIB: Final = 1 << 10
MIB: Final = 1 << 20
MAX_FRAME: Final = 16 * MIB
"""The largest message of any type, in bytes."""
MAX_PART_BYTES: Final = 256 * KIB
"""Results that are larger than so many bytes travel as `ResultsPart` messages, each no larger than this."""
PART_CONTENT_BYTES: Final = MAX_PART_BYTES - KIB
MAX_PARTS: Final = MAX_FRAME // PART_CONTENT_BYTES + 1
"""How many parts the largest results have."""
MAX_REASONS: Final = 100
"""How many reasons or failures one message lists."""
MAX_REASON_CHARS: Final = 1024
MAX_FAILURE_CHARS: Final = 512
MAX_RETURNED: Final = 100_000
"""How many jobs a worker gives back in one message."""
MAX_SAMPLE_COLUMNS: Final = 256
MAX_SAMPLE_ROWS: Final = 10_000

Instant: TypeAlias = Annotated[int, Meta(ge=-MAX_INSTANT_NS, le=MAX_INSTANT_NS)]
"""Nanoseconds of CLOCK_MONOTONIC, or a difference of such."""
Uncertainty: TypeAlias = Annotated[int, Meta(ge=-1, le=MAX_INSTANT_NS)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
RunId: TypeAlias = Annotated[str, Meta(max_length=64)]
Token: TypeAlias = Annotated[str, Meta(max_length=64)]
Endpoint: TypeAlias = Annotated[str, Meta(max_length=256)]
Reason: TypeAlias = Annotated[str, Meta(max_length=MAX_REASON_CHARS)]
Failure: TypeAlias = Annotated[str, Meta(max_length=MAX_FAILURE_CHARS)]
Reading: TypeAlias = Integer | float
"""NaN is allowed: a share of nothing is not a number."""
Readings: TypeAlias = Annotated[list[Reading], Meta(min_length=1, max_length=MAX_SAMPLE_ROWS)]

Side: TypeAlias = Literal["master", "worker"]
Lane: TypeAlias = Literal["control", "work", "results"]


def _tag(class_name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", class_name).lower()


class Message(Struct, forbid_unknown_fields=True, tag=_tag):
    """What every message has. Its ``type`` on the wire is the name of its class in snake case."""

    sender: ClassVar[Side]
    lane: ClassVar[Lane]
    max_bytes: ClassVar[int] = 64 * KIB

    epoch: Count
    """The worker's admission that the message belongs to; 0 outside of any."""

    @property
    def needs_check(self) -> bool:
        """Whether `encode` checks the fields: not in messages of every few jobs with our own counts and bytes."""
        return True


class Numbered(Message, kw_only=True):
    """What arrives once and in order although connections break (`bench_common.ordered`)."""

    number: Count = 0
    """Its place among the numbered messages of this direction in the epoch, from 1."""


MAX_DIAGNOSED_BYTES: Final = 4 * KIB
"""A larger frame that cannot be decoded is not unpacked to say what is wrong with it."""
_HEAD: Final = (
    rb"\x92%b(?:[\x80-\x8f]|\xde..)\xa4type(%b)\xa5epoch(?:([\x00-\x7f])|\xcc(.)|\xcd(..)|\xce(.{4})|\xcf(.{8}))"
)
"""How each frame begins, as a pattern: the version, the message's type and its epoch, in this order."""


pack: Final = msgspec.msgpack.Encoder().encode

MessageT_co = TypeVar("MessageT_co", covariant=True)


class Direction(Generic[MessageT_co]):
    """The messages that one side sends on one lane."""

    known: ClassVar[dict[str, type[Message]]] = {}
    """All message types by name."""

    def __init__(self, union: Any) -> None:
        self.types: tuple[type[Message], ...] = get_args(union)
        self._limits = {pack(one.__struct_config__.tag): one for one in self.types}
        Direction.known |= {type_name(one): one for one in self.types}
        self.sender: Side = self.types[0].sender
        self.lane: Lane = self.types[0].lane
        self._union = union

    def prepare(self) -> None:
        """Make the decoder now, which takes milliseconds, and not with the first message."""
        _ = self._decode

    @cached_property
    def _head(self) -> Callable[[bytes], re.Match[bytes] | None]:
        return re.compile(_HEAD % (bytes([VERSION]), b"|".join(map(re.escape, self._limits))), re.DOTALL).match

    @cached_property
    def _decode(self) -> Callable[[bytes], tuple[int, Any]]:
        decoder = msgspec.msgpack.Decoder(
            tuple[Literal[VERSION], self._union],  # type: ignore[valid-type,name-defined]
            dec_hook=read_job,
        )
        return decoder.decode

    @property
    def max_bytes(self) -> int:
        """The size of the largest frame of this direction, in bytes: a socket takes it before the peer has a name."""
        largest = max(one.max_bytes for one in self.types)
        return min(largest, MAX_PART_BYTES) if self.lane == "results" else largest

    def peek(self, frame: bytes) -> tuple[type[Message], int]:
        """Return type and epoch of a frame that is no larger than its type may be, without unpacking the rest.

        Raises `ProtocolError` on any other: unpacking takes many times the memory of the frame.
        """
        head = self._head(frame)
        if head is None:
            raise ProtocolError(self._diagnose(frame, ValueError("type and epoch do not come first")))
        kind = self._limits[head[1]]
        if len(frame) > kind.max_bytes:
            raise ProtocolError(too_large(kind, len(frame)))
        epoch = int.from_bytes(head[head.lastindex or 0], "big")
        if epoch > MAX_COUNT:
            raise ProtocolError(f"message {type_name(kind)!r} in epoch {epoch}, which is none")
        return kind, epoch

    def decode(self, frame: bytes) -> MessageT_co:
        """Return the message in a frame; raise `ProtocolError` on anything that is not one of this direction."""
        if len(frame) > MAX_FRAME:
            raise ProtocolError(f"a frame of {len(frame)} bytes is larger than any message")
        try:
            _, message = self._decode(frame)
        except Exception as error:  # hostile bytes raise decoding, Unicode and recursion errors
            raise ProtocolError(self._diagnose(frame, error)) from error
        if len(frame) > message.max_bytes:
            raise ProtocolError(too_large(type(message), len(frame)))
        checked: MessageT_co = message
        return checked

    def _diagnose(self, frame: bytes, error: Exception) -> str:
        """Return what is wrong with a frame that could not be decoded."""
        if len(frame) > MAX_DIAGNOSED_BYTES:
            head = self._head(frame)
            what = (
                f"message {type_name(self._limits[head[1]])!r}" if head else f"{len(frame)} bytes are not a message"
            )
            return f"{what}: {shorten(str(error).replace('$[1]', '$'), 200)}"
        try:
            content = msgspec.msgpack.decode(frame)
        except Exception as broken:  # noqa: BLE001  as above
            return f"not MessagePack: {type(broken).__name__}"
        version = content[0] if isinstance(content, list) and content else None
        if type(version) is int and version != VERSION:
            return f"protocol version {version} is not supported (expected {VERSION}): upgrade the older side"
        if type(version) is not int or len(content) != 2 or not isinstance(content[1], dict):  # noqa: PLR2004
            return "not an array of version and message"
        name = content[1].get("type")
        known = Direction.known.get(name) if isinstance(name, str) else None
        if known is None:
            return f"unknown message type {str(name)[:40]!r}"
        if known not in self.types:
            return f"message {name!r} is not sent by the {self.sender} on the {self.lane} lane"
        return f"message {name!r}: {shorten(str(error).replace('$[1]', '$'), 200)}"


def type_name(kind: type[Message]) -> str:
    """Return the name of a message type on the wire."""
    return str(kind.__struct_config__.tag)


def too_large(kind: type[Message], size: int) -> str:
    """Return the error about a message that is larger than its type may be."""
    return f"message {type_name(kind)!r} has {size} bytes, more than its limit of {kind.max_bytes}"
