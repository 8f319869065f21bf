"""The closed set of messages between master and worker: who may say what, where, how large, with which fields.

A frame is one msgpack array ``[version, type, epoch, fields]``. `encode` checks what we send as strictly as `decode`
checks what comes in: a frame that is not exactly one of `MESSAGES` raises `ProtocolError`, is counted and dropped.
Nothing is ever unpickled or evaluated. High-rate content (jobs and results) travels as packed rows in one bin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import msgpack

from bench_common.cli import MAX_NAME, MAX_SLOTS
from bench_common.errors import ProtocolError

VERSION: Final = 1
KIB: Final = 1 << 10
MIB: Final = 1 << 20
MAX_FRAME: Final = 16 * MIB
"""The largest message of any type, in bytes."""
MAX_PART_BYTES: Final = 256 * KIB
"""Results that are larger than so many bytes travel in parts of that size, which arrive together."""
MAX_EPOCH: Final = 1 << 63

Side = Literal["master", "worker"]
Lane = Literal["control", "work", "results"]


class FieldSpec(NamedTuple):
    """What a field's value must be: of this type, and a whole number, or text of a length, within these bounds."""

    kind: Any
    low: int = 0
    high: int | None = None

    def __call__(self, value: Any) -> bool:
        """Return whether a value is one for this field."""
        if self.kind is float:
            return type(value) in (int, float)
        if self.kind is int:
            return type(value) is int and (self.high is None or self.low <= value <= self.high)
        return isinstance(value, self.kind) and (self.high is None or self.low <= len(value) <= self.high)


def _text(limit: int) -> FieldSpec:
    return FieldSpec(str, 0, limit)


def _int_range(low: int = 0, high: int = MAX_EPOCH) -> FieldSpec:
    return FieldSpec(int, low, high)


_any_int: Final = FieldSpec(int)
_number: Final = FieldSpec(float)
_flag: Final = FieldSpec(bool)
_raw: Final = FieldSpec(bytes)
_map: Final = FieldSpec(dict)
_list: Final = FieldSpec(list)


@dataclass(frozen=True, slots=True)
class MessageType:
    """One type of message: its sender, its lane, its size limit in bytes, and what each of its fields must be."""

    name: str
    sender: Side
    lane: Lane
    fields: Mapping[str, FieldSpec] = field(default_factory=dict)
    max_bytes: int = 64 * KIB
    quick: tuple[tuple[str, Any, int, Any], ...] = field(init=False)
    """Name, type and bounds of each field, as `_check_fields` goes by them first; None: not to be told so quickly."""

    def __post_init__(self) -> None:
        quick = [
            (name, None if one.kind in (str, float) else one.kind, one.low, one.high)
            for name, one in self.fields.items()
        ]
        object.__setattr__(self, "quick", tuple(quick))


_SERVICE_REQUEST: Final[Mapping[str, FieldSpec]] = {
    "treatment": _int_range(),
    "service": _text(MAX_NAME),
    "ticket": _int_range(),
    "act": _text(16),
}
_SERVICE_REPLY: Final[Mapping[str, FieldSpec]] = {
    "address": _text(256),
    "port": _int_range(0, 65535),
    "kind": _text(64),
    "problem": _text(4096),
    "stdout": _raw,
    "stderr": _raw,
    "truncated": _flag,
}

_MESSAGE_TYPES = (
    # A worker asks to join; epoch 0. `info`: host, versions, engines, environment fingerprint.
    MessageType(
        "hello",
        "worker",
        "control",
        {
            "worker_id": _text(MAX_NAME),
            "environment": _text(MAX_NAME),
            "slots": _int_range(1, MAX_SLOTS),
            "sent_ns": _any_int,
            "info": _map,
        },
        256 * KIB,
    ),
    # Before it is admitted: does its host have what the plan's containers need? `needs`: `needs.Requirement`, as
    # plain maps;
    # `engines`: names of those that are to be looked at again, as they may have changed since the worker was started.
    MessageType("ask", "master", "control", {"needs": _list, "engines": _list}, 1 * MIB),
    # What is lacking, if anything; `unusable`: an engine could not even be asked; `engines`: as in a hello's `info`.
    MessageType("lacks", "worker", "control", {"reasons": _list, "unusable": _flag, "engines": _map}, 256 * KIB),
    # The master admits it: where its lane and the results are, what the run needs of it, and how it is driven.
    MessageType(
        "welcome",
        "master",
        "control",
        {
            "run_id": _text(64),
            "number": _int_range(0, 65535),
            "lane": _text(256),
            "results": _text(256),
            "noop": _flag,
            "heartbeat_s": _number,
            "lease_s": _number,
            "sampling_s": _number,
            "keep": _flag,
            "profile": _flag,
            "overhead": _map,
        },
    ),
    # What the worker is doing no longer counts: drop the run; `final`: and do not ask again.
    MessageType("dismiss", "master", "control", {"reason": _text(1024), "final": _flag}),
    # Heartbeats both ways, with the stamps of a clock exchange (ns; the first three of four, the last is at arrival).
    MessageType(
        "beat",
        "worker",
        "control",
        {"sent_ns": _any_int, "running": _int_range(), "offset_ns": _any_int, "bound_ns": _any_int},
    ),
    MessageType("pulse", "master", "control", {"echo_ns": _any_int, "received_ns": _any_int, "sent_ns": _any_int}),
    # The load process of the worker ended: what it held will never be reported.
    MessageType("gone", "worker", "control", {"worker_id": _text(128), "reason": _text(1024)}),
    # Rows of host or loop samples: `columns` name -> list of numbers.
    MessageType("samples", "worker", "control", {"source": _text(64), "columns": _map, "units": _map}, 1 * MIB),
    # A trial's containers are up, or the host is full of them: the jobs that it does not need go back.
    MessageType(
        "packed",
        "worker",
        "control",
        {
            "trial": _int_range(),
            "containers": _int_range(),
            "reason": _text(1024),
            "full": _flag,
            "returned": _list,
            "hold_s": _number,
            "memory_before": _int_range(),
        },
        1 * MIB,
    ),
    # Something that whoever reads the report must know, and that stops nothing.
    MessageType("remark", "worker", "control", {"text": _text(1024)}),
    # How a step gets on that reports while it runs, in a few words; empty when it is over. For the screen alone.
    MessageType("progress", "worker", "control", {"text": _text(1024)}),
    # A job here needs a service of its treatment that is placed elsewhere: `act` is of `placement.SERVICE_ACTIONS`.
    # And what
    # came of an act that this worker was told to do, see `placement.ServiceReply`.
    MessageType("want", "worker", "control", _SERVICE_REQUEST),
    MessageType("served", "worker", "control", {**_SERVICE_REQUEST, **_SERVICE_REPLY}, 256 * KIB),
    # Where the load process spent its time, packed, if the welcome asked for it.
    MessageType("profile", "worker", "control", {"content": _raw}, 1 * MIB),
    # Remove what the run left on the host; and what came of it.
    MessageType("sweep", "master", "control", {"run_id": _text(64)}),
    MessageType("swept", "worker", "control", {"removed": _int_range(), "failed": _list}, 256 * KIB),
    # The run is over; with `exit` the worker's program ends too.
    MessageType("stop", "master", "control", {"exit": _flag}),
    # On the lane, so that order is kept: a treatment before its jobs. Jobs are rows of `records.ASSIGNMENT_FIELDS`,
    # of one trial;
    # at most `width` of them run at once, and results leave when `batch` of them are there or nothing else is to do.
    MessageType("define", "master", "work", {"treatment": _map}, 1 * MIB),
    MessageType(
        "jobs",
        "master",
        "work",
        {
            "treatment": _int_range(),
            "trial": _int_range(),
            "width": _int_range(1),
            "batch": _int_range(1),
            "rows": _raw,
        },
        4 * MIB,
    ),
    # What a job of another worker wants of a service that is placed here; and, to that worker, what came of it.
    MessageType("serve", "master", "work", _SERVICE_REQUEST),
    MessageType("supplied", "master", "work", {**_SERVICE_REQUEST, **_SERVICE_REPLY}, 256 * KIB),
    MessageType("ack", "master", "work", {"sequences": _list}),
    MessageType("cancel", "master", "work", {}),
    # Results are rows of `records.RESULT_FIELDS`, of one trial; `loop` is how the load process's event loop was since
    # the
    # batch before, the words of `records.LOOP_FIELDS`; what is rare is lists in its record's order.
    MessageType(
        "results",
        "worker",
        "results",
        {
            "sequence": _int_range(),
            "treatment": _int_range(),
            "trial": _int_range(),
            "rows": _raw,
            "loop": _raw,
            "metrics": _list,
            "errors": _list,
            "outputs": _list,
        },
        MAX_FRAME,
    ),
)

_pack: Final = msgpack.Packer(use_bin_type=True).pack
"""Packs in one go, without a switch to anybody else; `msgpack.packb` would make a packer for every message."""

MESSAGES: Final[Mapping[str, MessageType]] = {message.name: message for message in _MESSAGE_TYPES}


def largest_frame(sender: Side, lane: Lane) -> int:
    """Return the size of the largest frame that `sender` may send on `lane`, in bytes; 0 where it says nothing.

    So much a socket has to take in before it knows who is there.
    """
    fitting = (message.max_bytes for message in _MESSAGE_TYPES if (message.sender, message.lane) == (sender, lane))
    return min(max(fitting, default=0), MAX_PART_BYTES if lane == "results" else MAX_FRAME)


@dataclass(slots=True)
class Message:
    """A checked message: its type's name, the epoch it was said in, its fields."""

    type: str
    epoch: int
    fields: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]


def encode(name: str, epoch: int, **fields: Any) -> bytes:
    """Return the frame of a message. Raises `ProtocolError` where it would not be accepted on the other side.

    Text that is no Unicode (a file name in an error, decoded with surrogates) goes out with its escapes.
    """
    message = MESSAGES[name]
    _check_fields(message, fields)
    whole = [VERSION, name, epoch, fields]
    frame: bytes
    try:
        frame = _pack(whole)
    except UnicodeEncodeError:
        frame = msgpack.packb(whole, use_bin_type=True, unicode_errors="backslashreplace")
    if len(frame) > message.max_bytes:
        raise ProtocolError(f"a message {name!r} of {len(frame)} bytes is larger than {message.max_bytes}")
    return frame


def decode(frame: bytes, *, sender: Side, lane: Lane) -> Message:
    """Return the message in a frame that `sender` sent on `lane`; raise `ProtocolError` on anything else."""
    if len(frame) > MAX_FRAME:
        raise ProtocolError(f"a frame of {len(frame)} bytes is larger than any message")
    try:
        unpacked = msgpack.unpackb(frame, raw=False, strict_map_key=True, use_list=True)
    except Exception as error:  # msgpack raises a dozen unrelated types on hostile bytes
        raise ProtocolError(f"not msgpack: {type(error).__name__}") from error
    if not isinstance(unpacked, list) or len(unpacked) != 4:  # noqa: PLR2004  the four parts of a frame
        raise ProtocolError("not an array of version, type, epoch and fields")
    version, name, epoch, fields = unpacked
    if version != VERSION or type(version) is not int:
        raise ProtocolError(f"protocol version {version!r}, where {VERSION} is spoken: upgrade the older side")
    message = MESSAGES.get(name) if isinstance(name, str) else None
    if message is None:
        raise ProtocolError(f"unknown message type {str(name)[:40]!r}")
    if message.sender != sender or message.lane != lane:
        raise ProtocolError(f"a message {name!r} does not come from the {sender} on the {lane} lane")
    if len(frame) > message.max_bytes:
        raise ProtocolError(f"a message {name!r} of {len(frame)} bytes is larger than {message.max_bytes}")
    if type(epoch) is not int or not 0 <= epoch < MAX_EPOCH:
        raise ProtocolError(f"epoch {str(epoch)[:40]!r} of a message {name!r}")
    if not isinstance(fields, dict):
        raise ProtocolError(f"the fields of a message {name!r} are no map")
    _check_fields(message, fields)
    return Message(name, epoch, fields)


def _check_fields(message: MessageType, fields: Mapping[str, Any]) -> None:
    # Said twice, for its cost: fields as those of jobs and results nearly always are, and then all others.
    if len(fields) == len(message.quick):
        for name, kind, low, high in message.quick:
            value: Any = fields.get(name)
            if type(value) is not kind or (high is not None and not low <= value <= high):
                break
        else:
            return
    if fields.keys() != message.fields.keys():
        odd = sorted(map(str, fields.keys() ^ message.fields.keys()))
        raise ProtocolError(f"a message {message.name!r} with fields missing or unknown: {', '.join(odd)[:200]}")
    for name, fits in message.fields.items():
        if not fits(fields[name]):
            raise ProtocolError(f"a message {message.name!r} whose {name!r} is not what it should be")
