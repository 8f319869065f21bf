"""Decodes the blocks of a stats file within limits, and checks them against the types in `block_types`.

`decode` returns Structs of headers, hosts and footers, else plain maps, with records in those of ``metrics``,
``errors`` and ``outputs``. A body that is nested too deeply, has too many items, or is not what its kind declares
raises `ValueError` before it takes much memory: an item of one byte can become an object of 64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgpack  # type: ignore[import-untyped]
import msgspec
import numpy as np

from bench_common.stats import block_types

MAX_PAYLOAD: Final = 32 << 20
"""Bytes; a block that claims more is damage or malice, and is never unpacked."""
MAX_PLAIN_BYTES: Final = 16 << 20
"""The most bytes of a block without rows; the text of an item takes up to 20 times its bytes in memory."""
MAX_CONTAINERS: Final = 2 << 20
"""The most lists and maps in such a block, at some 90 bytes of memory each: a header of a million trials fits."""
MAX_DEPTH: Final = 64
"""How deeply maps and lists may be nested in a block."""

Body: TypeAlias = Any
"""Plain data, but of a header, a host and a footer a Struct."""


def _checker(declared: Any) -> Callable[[bytes | memoryview], Any]:
    return msgspec.msgpack.Decoder(declared).decode


_ROWS: Final[Mapping[str, Callable[[bytes | memoryview], Any]]] = {
    "jobs": _checker(block_types.Jobs),
    "operations": _checker(block_types.Operations),
    "transfers": _checker(block_types.Operations),
    "samples": _checker(block_types.Samples),
    "metrics": _checker(block_types.Metrics),
    "errors": _checker(block_types.Errors),
    "outputs": _checker(block_types.Outputs),
    "transactions": _checker(block_types.Transactions),
}
_PLAIN: Final[Mapping[str, Callable[[bytes | memoryview], Any]]] = {
    "header": _checker(block_types.Header),
    "host": _checker(block_types.StoredHost),
    "event": _checker(block_types.StoredEvent),
    "footer": _checker(block_types.StoredFooter),
}
_EVENTS: Final[Mapping[str, Callable[[bytes | memoryview], Any]]] = {
    **dict.fromkeys(("worker-joined", "worker-reconnected", "worker-lost"), _checker(block_types.WorkerEvent)),
    **dict.fromkeys(("trial-begin", "trial-end", "trial-skipped"), _checker(block_types.TrialEvent)),
    "packed": _checker(block_types.Packed),
    "host-finding": _checker(block_types.HostFinding),
    "cpu-contention": _checker(block_types.CpuContention),
    "disk-full": _checker(block_types.DiskFull),
    "last-look": _checker(block_types.LastLook),
    "look": _checker(block_types.Look),
    "rounds-over": _checker(block_types.RoundsOver),
    "run-begin": _checker(block_types.RunBegin),
    "resumed": _checker(block_types.Resumed),
}
KINDS: Final = frozenset({*_ROWS, *_PLAIN})
"""The kinds that are declared."""
_split: Final = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw]).decode


def split(payload: bytes | memoryview) -> tuple[str, bytes | memoryview]:
    """Return kind and encoded body of a payload; raise `ValueError` where it is no such pair."""
    try:
        kind, body = _split(payload)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no pair of kind and body: {error}") from error
    return kind, memoryview(body)


KIND_BYTES: Final = 48
"""So many bytes of a payload say of which kind it is."""
_PAIR: Final = 0x92
_SHORT_TEXT: Final = range(0xA0, 0xC0)


def kind_at_start(start: bytes | bytearray) -> str:
    """Return the kind of a payload by its first `KIND_BYTES`, or all of it; raise `ValueError` where it has none."""
    if len(start) < 2 or start[0] != _PAIR or start[1] not in _SHORT_TEXT:  # noqa: PLR2004
        raise ValueError("it does not begin as a pair of kind and body")
    return bytes(start[2 : 2 + start[1] - _SHORT_TEXT.start]).decode()


def most_bytes(kind: str) -> int:
    """Return how long the payload of a block of a kind may be."""
    return MAX_PAYLOAD if kind in _ROWS else MAX_PLAIN_BYTES + KIND_BYTES


def decode(kind: str, data: bytes | memoryview) -> Any:
    """Return the body of a block of a kind; raise `ValueError` where it is not what the kind declares."""
    try:
        if kind in _ROWS:
            return _ROWS[kind](data)
        plain = _unpack_plain(data)
        if kind not in _PLAIN:
            return plain
        checked = _PLAIN[kind](data)
        if kind == "event":
            if plain["kind"] in _EVENTS:
                _EVENTS[plain["kind"]](data)
            return plain
        if kind == "header":
            _check_trials(checked)
    except (RecursionError, msgpack.UnpackException) as error:
        raise ValueError(str(error) or type(error).__name__) from error
    return checked


def _check_trials(header: block_types.Header) -> None:
    """Raise `ValueError` where a trial is of a treatment that the header does not list."""
    treatments = len(header.treatments)
    for trial, entry in enumerate(header.trials):
        if entry[0] >= treatments:
            raise ValueError(f"trial {trial} is of treatment {entry[0]}, and there are {treatments}")


# -- limits ----------------------------------------------------------------------------------------------------------

_CONTAINER_CODES: Final = np.zeros(256, np.bool_)
"""The bytes that begin an array or a map in msgpack."""
_CONTAINER_CODES[0x80:0xA0] = _CONTAINER_CODES[0xDC:0xE0] = True
_SMALL_BYTES: Final = 64 << 10
"""So few bytes cannot hold too many containers."""
_PLAIN_TYPES: Final = frozenset({dict, list, str, bytes, int, float, bool, type(None)})


def _unpack_plain(data: bytes | memoryview) -> Body:
    """Return a map of names; raise `ValueError` beyond the limits, where possible before objects are made of it."""
    if len(data) > MAX_PLAIN_BYTES:
        raise ValueError(f"{len(data)} bytes: at most {MAX_PLAIN_BYTES} expected")
    # Bytes within numbers and texts count, too: what passes has no more containers than that.
    if len(data) > _SMALL_BYTES and int(_CONTAINER_CODES[np.frombuffer(data, np.uint8)].sum()) > MAX_CONTAINERS:
        raise ValueError(f"more than {MAX_CONTAINERS} lists and maps")
    body = msgpack.unpackb(data, raw=False, strict_map_key=True)
    if not isinstance(body, dict) or not all(isinstance(key, str) for key in body):
        raise ValueError("the body is no map of names")
    level: list[Any] = [body]
    for _ in range(MAX_DEPTH):
        level = [item for one in level for item in (one.values() if isinstance(one, dict) else one)]
        if not _PLAIN_TYPES.issuperset(map(type, level)):
            raise ValueError("a value of a type that no block has")
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return body
    raise ValueError(f"nested more than {MAX_DEPTH} deep")
