"""What the index has of one stats file, as plain data: what is inserted, and what stays of a pruned run."""

from __future__ import annotations

import gzip
import io
import zlib
from pathlib import Path
from typing import Any, Final

import msgspec

from bench_common.errors import StatsFileError
from bench_common.files import open_regular

MAX_CONTENTS_BYTES: Final = 256 << 20
"""More than the index has of any run."""


class HostContents(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A host."""

    label: str
    environment: str | None = None
    facts: dict[str, str] = {}
    noise: dict[str, str] = {}
    engines: dict[str, str] = {}
    speed_ns: float | None = None


class ValueContents(msgspec.Struct, kw_only=True):
    """A measure of a treatment, trial by trial; None where a trial has no value."""

    kind: str
    """`PRIMARY`, `OPERATION` or `METRIC` of `types`."""
    name: str
    """The measure, the operation or the metric."""
    unit: str = ""
    direction: str | None = None
    """``lower`` or ``higher`` is better; None if undeclared."""
    level: float | None = None
    """The median of the trials' values; of an operation that of their medians."""
    trials: dict[str, list[float | None]] = {}
    """The value of each measured trial, by statistic; of a primary measure ``value``, ``low`` and ``high``."""


class TrialContents(msgspec.Struct, kw_only=True):
    """A trial."""

    number: int
    block: int
    begin_s: float | None = None
    end_s: float | None = None
    warmup: bool = False
    done: int = 0
    failed: int = 0


class TreatmentContents(msgspec.Struct, kw_only=True):
    """A treatment of a run, as it goes into the index and comes out of it."""

    position: int
    title: str
    labels: dict[str, Any] = {}
    engine: str = ""
    engine_version: str = ""
    key_hash: str = ""
    """Of the scenario's name, the labels, all parameters and the primary measure."""
    series: str = ""
    """The key of its series, the same in all runs that may be compared; empty before it is in an index."""
    done: int = 0
    failed: int = 0
    trials: list[TrialContents] = []
    values: list[ValueContents] = []
    summary: dict[str, Any] = {}
    """The treatment as ``report-scenario --format json`` prints it."""
    quantiles: dict[str, list[list[float]]] = {}
    """By operation up to 120 points: shares and seconds, both rising."""


class RunContents(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A run."""

    sha256: str
    state: str
    bytes: int
    problem: str = ""
    run_id: str | None = None
    created: float | None = None
    ended: float | None = None
    duration_s: float | None = None
    status: str | None = None
    scenario: str | None = None
    scenario_hash: str | None = None
    seed: int | None = None
    noop: bool = False
    imported: bool = False
    version: str = ""
    versions: dict[str, str] = {}
    argv: list[str] = []
    hosts: list[HostContents] = []
    treatments: list[TreatmentContents] = []
    pruned_at: float | None = None

    @property
    def host_names(self) -> list[str]:
        """The names of its hosts, each once."""
        return sorted({host.label for host in self.hosts})


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(RunContents).decode


def packed(contents: RunContents) -> bytes:
    """Return the contents as the bytes of a file."""
    return gzip.compress(_encode(contents), mtime=0)


def read_summary(path: Path) -> RunContents:
    """Return what is kept of a pruned run; raise `OSError` or `StatsFileError`."""
    with open_regular(path) as file:
        return unpacked(file.read(), name=str(path))


def unpacked(content: bytes, *, name: str) -> RunContents:
    """Return what `packed` made; raise `StatsFileError` for anything else. gzip's checksum finds a flipped bit."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            plain = file.read(MAX_CONTENTS_BYTES + 1)
        if len(plain) > MAX_CONTENTS_BYTES:
            raise ValueError("it is too large")
        return _decode(plain)
    except (OSError, EOFError, ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise StatsFileError(f"{name}: what was kept of a pruned run cannot be read: {error}") from error
