"""What messages are made of: the base of all of them, and the types of their fields with their bounds."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from bench_common.cli import MAX_NAME
from bench_common.records import MAX_COUNT, MAX_INSTANT_NS, Count, Integer

VERSION: Final = 2
KIB: Final = 1 << 10
MIB: Final = 1 << 20
MAX_FRAME: Final = 16 * MIB
"""The largest message of any type, in bytes."""
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
