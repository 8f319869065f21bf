"""Reads stat files of ssbench, whose every value may be hostile.

A stat file is a msgpack stream, plain or gzip: the scenario, then lists of results. Python 2 wrote texts as raw
strings, Python 3 as text or as bytes. A failed result holds the whole job, with the user's password or token in
``auth_kwargs``: only the keys in `_RESULT_KEYS` are decoded, and every other value is skipped in the stream.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import re
import weakref
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import msgpack  # type: ignore[import-untyped]

from bench_common.errors import UsageError
from bench_common.files import STDIN, open_regular, spool_stdin
from bench_common.safe_text import mask_credentials, shorten

OPERATIONS: Final = {
    "upload_object": "create",
    "get_object": "read",
    "update_object": "update",
    "delete_object": "delete",
}
"""ssbench's types of jobs, and what these operations are called here."""

_SCENARIO_KEYS: Final = frozenset(
    {
        "_scenario_data", "name", "version", "user_count", "operation_count", "run_seconds", "container_base",
        "container_count", "container_concurrency", "delete_after",
    }
)  # fmt: skip
_RESULT_KEYS: Final = frozenset(
    {
        "type", "size_str", "size", "first_byte_latency", "last_byte_latency", "trans_id", "retries", "completed_at",
        "worker_id", "exception", "traceback",
    }
)  # fmt: skip
"""The keys of a result that are decoded; all others are skipped, above all ``auth_kwargs``."""

_MAX_STDIN_BYTES: Final = 4 << 30
_GZIP: Final = b"\x1f\x8b"
_MAX_LAYERS: Final = 2
"""``-s X.gz`` of ssbench writes X.gz.gz."""
_MAX_TEXT, _MAX_ITEMS, _MAX_MESSAGE = 1 << 20, 1 << 16, 400
_MAX_LATENCY_S: Final = 1e9
_MAX_TIME_S: Final = 8e9
"""In the year 2223; nanoseconds since 1970 fit 64 bits up to 2262."""

Plain: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StatResult:
    """One finished job of ssbench."""

    operation: str
    """``create``, ``read``, ``update`` or ``delete``."""
    size_class: str
    """The name of its size class."""
    worker: str
    """The id of its worker."""
    completed_s: float
    """When it ended, in seconds since 1970."""
    first_s: float | None
    """The time to the header of the answer, in seconds; None for all but reads."""
    last_s: float | None
    """The time to the last byte, in seconds; None if it failed."""
    retries: int
    """How many tries failed before the one that counted; their time is in no latency."""
    size: int | None
    """How many bytes were sent; None for reads and deletes, whose size ssbench does not keep."""
    transaction: str
    """Swift's id of the transaction."""
    failure: tuple[str, str] | None = None
    """Kind and message of its failure."""


class StatFile:
    """The results of one run of ssbench. Raises `UsageError` if the file cannot be read or is no stat file."""

    def __init__(self, name: str) -> None:
        self.place = "<stdin>" if name == STDIN else name
        """What messages call the file."""
        self.skipped = 0
        """How many results lack a key that every result has."""
        self.damage = ""
        """Why it ends early; empty if it does not, and until the results have been read."""
        try:
            self._file = spool_stdin(_MAX_STDIN_BYTES) if name == STDIN else open_regular(name)
            weakref.finalize(self, self._file.close)
            self._file.seek(0)
            digest = hashlib.file_digest(self._file, "sha256")  # type: ignore[arg-type]
        except OSError as error:
            raise UsageError(f"{self.place}: {error.strerror or error} (- reads standard input)") from error
        self.size_bytes = self._file.tell()
        """The size of the file."""
        self.sha256 = digest.hexdigest()
        self._stream = _CountingReader(_plain_stream(cast("io.BufferedIOBase", self._file)))
        self._unpacker = msgpack.Unpacker(
            self._stream,
            raw=False,
            unicode_errors="replace",
            strict_map_key=False,
            max_str_len=_MAX_TEXT,
            max_bin_len=_MAX_TEXT,
            max_array_len=_MAX_ITEMS,
            max_map_len=_MAX_ITEMS,
        )
        self.scenario = self._read_scenario()
        """The scenario, with what the command line changed in it."""

    def _read_scenario(self) -> Plain:
        found: dict[str, Any] = {}
        with self._naming_damage() as damage:
            found = self._read_map(_SCENARIO_KEYS)
        if not isinstance(found.get("_scenario_data"), dict):
            self._file.close()
            why = damage[0] if damage else "its first record has no scenario"
            raise UsageError(f"{self.place}: not a stat file of ssbench: {why}")
        return found

    def results(self) -> Iterator[StatResult]:
        """Yield the results, once."""
        with self._naming_damage() as damage:
            while self._has_more():
                for _ in range(self._unpacker.read_array_header()):
                    result = _result(self._read_map(_RESULT_KEYS))
                    if result is None:
                        self.skipped += 1
                    else:
                        yield result
        self.damage = "; ".join(damage)

    def _has_more(self) -> bool:
        return self._unpacker.tell() < self._stream.count or self._stream.peek()

    def _read_map(self, wanted: frozenset[str]) -> dict[str, Any]:
        """Return the wanted items of the next map; the values of all others are skipped, not decoded."""
        found = {}
        for _ in range(self._unpacker.read_map_header()):
            key = _text(self._unpacker.unpack())
            if key in wanted:
                found[key] = _plain(self._unpacker.unpack())
            else:
                self._unpacker.skip()
        return found

    @contextmanager
    def _naming_damage(self) -> Iterator[list[str]]:
        """Catch what a truncated or malformed file raises; the list that is yielded then says what is wrong."""
        damage: list[str] = []
        try:
            yield damage
        except msgpack.OutOfData:
            damage.append("it ends in the middle of a record")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            damage.append(f"its compressed data are damaged or end early ({error})")
        except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
            damage.append(f"it is malformed ({str(error) or type(error).__name__})")
        except OSError as error:
            damage.append(f"it cannot be read ({error.strerror or error})")


class _CountingReader:
    """A stream that counts what was read of it."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self.count = 0
        self._stream = stream
        self._ahead = b""

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes: what comes before damage is not lost."""
        data, self._ahead = self._ahead or self._stream.read1(size), b""
        self.count += len(data)
        return data

    def peek(self) -> bool:
        """Whether there is more."""
        self._ahead = self._ahead or self._stream.read1(io.DEFAULT_BUFFER_SIZE)
        return bool(self._ahead)


def _plain_stream(file: io.BufferedIOBase) -> io.BufferedIOBase:
    """Return a file's content, decompressed as often as it was compressed."""
    file.seek(0)
    stream = file
    for _ in range(_MAX_LAYERS):
        try:
            magic = stream.read(len(_GZIP))
            stream.seek(0)
        except (OSError, EOFError, zlib.error):
            break
        if magic != _GZIP:
            break
        stream = gzip.GzipFile(filename="", mode="rb", fileobj=stream)
    return stream


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _plain(value: Any) -> Any:
    """Return a value with texts in the place of bytes, also within lists and maps."""
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {_text(key): _plain(one) for key, one in value.items()}
    return value


def _result(found: Plain) -> StatResult | None:
    """Return the result that a map is; None if it has not what every result has."""
    operation, completed = OPERATIONS.get(str(found.get("type"))), _number(found.get("completed_at"), _MAX_TIME_S)
    size_class, worker = found.get("size_str"), found.get("worker_id")
    if operation is None or completed is None or size_class is None or worker is None:
        return None
    last = _number(found.get("last_byte_latency"), _MAX_LATENCY_S)
    failed = "exception" in found
    if last is None and not failed:
        return None
    retries, size = found.get("retries"), found.get("size")
    return StatResult(
        operation=operation,
        size_class=str(size_class),
        worker=str(worker),
        completed_s=completed,
        first_s=None if failed else _number(found.get("first_byte_latency"), _MAX_LATENCY_S),
        last_s=None if failed else last,
        retries=retries if type(retries) is int and 0 <= retries <= _MAX_TEXT else 0,
        size=size if type(size) is int and 0 <= size < 1 << 62 else None,
        transaction=str(found.get("trans_id") or "")[:_MAX_MESSAGE],
        failure=describe_failure(str(found["exception"]), str(found.get("traceback") or "")) if failed else None,
    )


def _number(value: Any, most: float) -> float | None:
    if type(value) not in (int, float) or not math.isfinite(value) or not 0 <= value <= most:
        return None
    return float(value)


_STATUS: Final = re.compile(r"\b([1-5]\d\d) [A-Z]")
_KINDS: Final[tuple[tuple[str, str], ...]] = (
    (r"timed? ?out", "timeout"),
    (r"refused", "refused"),
    (r"reset by peer|ECONNRESET|Errno 104", "reset"),
    (r"ConnectionClosed|CannotSendRequest|broken pipe|BadStatusLine|Errno 32", "closed"),
    (r"No fn_results", "gave-up"),
    (r"certificate|SSL", "tls"),
)


def describe_failure(exception: str, traceback: str = "") -> tuple[str, str]:
    """Return kind and message of a failure: the last line of its traceback has the status, the exception has not."""
    last = next((line for line in reversed(traceback.splitlines()) if line.strip()), "")
    message = mask_credentials(last.strip() or exception)
    match = _STATUS.search(message)
    if match:
        return f"http-{match[1]}", shorten(message, _MAX_MESSAGE)
    found = (kind for pattern, kind in _KINDS if re.search(pattern, message, re.IGNORECASE))
    return next(found, "failed"), shorten(message, _MAX_MESSAGE)
