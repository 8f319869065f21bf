"""The hosts of a run beyond what the coordinator needs: names, clocks and load, as their workers report them.

Samples from workers are checked, turned into arrays, and moved to the master's clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from msgspec import Struct, field

from bench_common.clock import max_drift_ns
from bench_common.errors import ProtocolError
from bench_common.host_info import (
    DIGEST_DETAIL,
    IMAGE_DETAIL,
    OTHER_ENGINE,
    PROGRAM_DETAIL,
    SIDE_DETAIL,
    EngineInfo,
    HostInfo,
)
from bench_common.messages import Heartbeat, Samples
from bench_common.records import MAX_INSTANT_NS
from bench_common.stats.rows import INTEGER_SAMPLES
from bench_master.coordinator.roster import Member
from bench_master.formatting import plural
from bench_master.progress.view import HostRow

Column = np.ndarray[Any, np.dtype[Any]]

MAX_COLUMNS: Final = 256
MAX_ROWS: Final = 10_000
TIME_COLUMN: Final = "time_ns"


def validate_columns(columns: Mapping[Any, Any], offset_ns: int) -> dict[str, Column]:
    """Return equally long arrays by name, `time_ns` less the worker's clock offset; raise `ProtocolError`."""
    if not 0 < len(columns) <= MAX_COLUMNS or TIME_COLUMN not in columns:
        raise ProtocolError(f"samples with {len(columns)} columns, or without {TIME_COLUMN}")
    lengths = set()
    checked: dict[str, Column] = {}
    for name, values in columns.items():
        if not isinstance(name, str) or not isinstance(values, list) or not 0 < len(values) <= MAX_ROWS:
            raise ProtocolError(f"sample column {str(name)[:40]!r} is not a list of readings")
        # NaN is allowed: a share of nothing is not a number.
        if not all(type(value) in (int, float) and (abs(value) < 1 << 62 or math.isnan(value)) for value in values):
            raise ProtocolError(f"sample column {name[:40]!r} contains a value that is not a number")
        whole = all(type(value) is int for value in values)
        checked[name] = np.array(values, np.int64 if whole else np.float64)
        lengths.add(len(values))
    for name in INTEGER_SAMPLES & checked.keys():
        if checked[name].dtype.kind != "i":
            raise ProtocolError(f"sample column {name!r} contains a value that is not a whole number")
    if len(lengths) != 1:
        raise ProtocolError("sample columns of different lengths")
    if not (np.abs(checked[TIME_COLUMN]) <= MAX_INSTANT_NS).all():
        raise ProtocolError(f"sample column {TIME_COLUMN!r} contains an instant that no clock shows")
    checked[TIME_COLUMN] = checked[TIME_COLUMN].astype(np.int64) - offset_ns
    return checked


def busy_percent(columns: Mapping[str, Column]) -> float | None:
    """Return the busy share of the last reading, in percent of all CPUs; None where unknown."""
    idle, iowait = columns.get("cpu_idle_percent"), columns.get("cpu_iowait_percent")
    if idle is None:
        return None
    waiting = float(iowait[-1]) if iowait is not None else 0.0
    return min(100.0, max(0.0, 100.0 - float(idle[-1]) - waiting))


UNKNOWN_UNCERTAINTY_NS = -1
"""The uncertainty of a clock offset that is only estimated from one-way messages."""


class WorkerHost(Struct):
    """One worker's host."""

    worker_id: str
    name: str
    environment: str
    slots: int
    """How many jobs the worker can run at once."""
    same_clock: bool
    """Whether its clock is the master's own."""
    info: HostInfo = field(default_factory=HostInfo)
    """What the worker's hello says of its host."""
    offset_ns: int = 0
    """How far its monotonic clock is ahead of ours."""
    uncertainty_ns: int = 0
    """The uncertainty of `offset_ns`; `UNKNOWN_UNCERTAINTY_NS` before the first comparison."""
    last_compared_ns: int = 0
    """When the worker last sent its comparison, on our clock."""
    lag_ms: float | None = None
    """The worst delay of the worker's loop, as last reported."""
    cpu_percent: float | None = None
    """The host's busy share, as last reported."""
    status_text: str = ""
    """The progress of a step that reports while it runs."""

    @property
    def title(self) -> str:
        """The worker and its host, as the screen shows them."""
        return f"worker {self.worker_id} on {self.name} ({self.environment}, {plural(self.slots, 'slot')})"

    def estimate_offset(self, sent_ns: int, received_ns: int) -> None:
        """Estimate the offset from a one-way message of unknown delay, until the worker has compared clocks.

        The difference of its two stamps is the offset less the delay, so the largest is the nearest.
        """
        if self.same_clock or self.uncertainty_ns != UNKNOWN_UNCERTAINTY_NS:
            return
        guess = sent_ns - received_ns
        self.offset_ns = max(self.offset_ns, guess) if self.offset_ns else guess

    def update_offset(self, message: Heartbeat, received_ns: int) -> None:
        """Update the offset and its uncertainty from the comparison in the worker's heartbeat."""
        if not self.same_clock and message.uncertainty_ns >= 0:
            self.offset_ns, self.uncertainty_ns = -message.offset_ns, message.uncertainty_ns
            self.last_compared_ns = received_ns

    @property
    def clock_known(self) -> bool:
        """Whether its clock is ours, or was compared with it."""
        return self.uncertainty_ns != UNKNOWN_UNCERTAINTY_NS

    def clock_reading(self, now_ns: int) -> tuple[int, int, int] | None:
        """Return offset, uncertainty and age of the last comparison at an instant of our clock, in ns.

        None where it is the same clock, or unknown. The clocks may have drifted since the comparison, so the
        uncertainty has grown.
        """
        if self.same_clock or not self.clock_known:
            return None
        age_ns = max(0, now_ns - self.last_compared_ns)
        return self.offset_ns, self.uncertainty_ns + max_drift_ns(age_ns), age_ns

    def convert_samples(self, message: Samples) -> dict[str, Column]:
        """Return the columns of a samples message on our clock; raise `ProtocolError` on invalid ones."""
        columns = validate_columns(message.columns, self.offset_ns)
        if message.source == "host":
            self.cpu_percent = busy_percent(columns)
        elif message.source == "loop" and "lag_max_ns" in columns:
            self.lag_ms = float(columns["lag_max_ns"].max()) / 1e6
        return columns

    def row(self, state: str, running: int) -> HostRow:
        """Return what the live view shows."""
        place = (self.worker_id, self.name, self.environment, state, running, self.slots)
        return HostRow(*place, lag_ms=self.lag_ms, cpu_percent=self.cpu_percent, status_text=self.status_text)

    def block(self, number: int, engines: frozenset[str]) -> dict[str, Any]:
        """Return the host block of the stats file; `engines` are those that the plan uses."""
        found = self.info.get("engines", {})
        versions = {name: status.get("version", "") for name, status in found.items() if name in engines}
        programs = {name: _program(status) for name, status in found.items() if name in engines}
        return {
            "worker": number,
            "worker_id": self.worker_id,
            "host": self.name,
            "environment": self.environment,
            "slots": self.slots,
            "engines": versions,
            "programs": {name: facts for name, facts in programs.items() if facts},
            "fingerprint": self.info.get("fingerprint", {}),
            "labels": self.info.get("labels", {}),
            "clock": {"offset_ns": self.offset_ns, "uncertainty_ns": self.uncertainty_ns},
        }


def _program(status: EngineInfo) -> dict[str, str]:
    """Return which programs an engine is and runs, to the byte, how it stores, and what its images are."""
    details = status.get("details", {})
    named = (IMAGE_DETAIL, PROGRAM_DETAIL, DIGEST_DETAIL, SIDE_DETAIL)
    kept = (
        "program",
        "sha256",
        "storage_driver",
        OTHER_ENGINE,
        *(name for name in details if name.startswith(named)),
    )
    return {name: details[name] for name in kept if details.get(name)}


class WorkerHosts:
    """The hosts by roster number. `boot_id` is that of the master's own host."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id
        self._hosts: dict[int, WorkerHost] = {}

    def __getitem__(self, number: int) -> WorkerHost:
        return self._hosts[number]

    def __iter__(self) -> Iterator[tuple[int, WorkerHost]]:
        return iter(self._hosts.items())

    def readings(self, now_ns: int) -> list[tuple[int, int, int, int]]:
        """Return number, offset, uncertainty and age of the last comparison of each clock that is not ours."""
        found = ((number, host.clock_reading(now_ns)) for number, host in self)
        return [(number, *reading) for number, reading in found if reading is not None]

    def shares_our_clock(self, info: HostInfo) -> bool:
        """Whether a worker runs on the master's own host: one boot of one machine has one clock."""
        return bool(self._boot_id) and info.get("boot_id") == self._boot_id

    @property
    def environments(self) -> list[str]:
        """The environments of all workers."""
        return [host.environment for host in self._hosts.values()]

    def join(self, member: Member, info: HostInfo) -> WorkerHost:
        """Note a member that has joined or reconnected, with the information about its host."""
        same_clock = self.shares_our_clock(info)
        name = info.get("host", "unknown")
        host = WorkerHost(member.worker_id, name, member.environment, member.slots, same_clock, info)
        if not same_clock:
            host.uncertainty_ns = UNKNOWN_UNCERTAINTY_NS
        self._hosts[member.number] = host
        return host
