"""The results of one stat file of ssbench in some forty bytes each."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from bench_common.errors import UsageError
from bench_features.compat.ssbench_file import OPERATIONS, StatFile
from bench_features.compat.ssbench_scenarios import ClassLabels

_MAX_USERS: Final = 65_536
NAMES: Final = tuple(OPERATIONS.values())
"""Their names here, by the number that `StatRun` keeps."""


@dataclass(slots=True)
class StatRun:
    """The results of one stat file, some forty bytes each."""

    file: StatFile
    workers: dict[str, int] = field(default_factory=dict)
    """Each worker's number by its id."""
    classes: dict[str, int] = field(default_factory=dict)
    """Each size class's number by its name."""
    operation: array[int] = field(default_factory=lambda: array("B"))
    size_class: array[int] = field(default_factory=lambda: array("H"))
    worker: array[int] = field(default_factory=lambda: array("H"))
    end_ns: array[int] = field(default_factory=lambda: array("q"))
    """Since 1970."""
    first_ns: array[int] = field(default_factory=lambda: array("q"))
    """The latency to the first byte; -1 if there is none."""
    last_ns: array[int] = field(default_factory=lambda: array("q"))
    """The latency to the last byte; -1 if it failed."""
    retries: array[int] = field(default_factory=lambda: array("I"))
    size: array[int] = field(default_factory=lambda: array("q"))
    """-1 if unknown."""
    failures: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Kind and message of each failed job, by its position."""
    slowest: dict[tuple[str, str, bool], tuple[int, int, str]] = field(default_factory=dict)
    """Latency (ns), position and transaction of the slowest job, by operation, class, and whether of a first byte."""

    @property
    def done(self) -> int:
        """How many jobs succeeded."""
        return len(self.end_ns) - len(self.failures)

    @property
    def begin_ns(self) -> int:
        """When the first job began, since 1970."""
        ends, last = np.array(self.end_ns), np.array(self.last_ns)
        return int((ends - np.maximum(last, 0)).min())


def read_run(name: str) -> StatRun:
    """Read a stat file; raise `UsageError` if it is none, or has no results."""
    file = StatFile(name)
    run = StatRun(file)
    sizes = file.scenario["_scenario_data"].get("sizes")
    listed = sizes if isinstance(sizes, list) else []
    labels = ClassLabels(str(one.get("name")) for one in listed if isinstance(one, dict))
    for at, result in enumerate(file.results()):
        size_class = labels[result.size_class]
        run.operation.append(NAMES.index(result.operation))
        run.size_class.append(_position(run.classes, size_class, file, "size classes"))
        run.worker.append(_position(run.workers, result.worker, file, "workers"))
        run.end_ns.append(round(result.completed_s * 1e9))
        for latencies, seconds, is_first in (
            (run.first_ns, result.first_s, True),
            (run.last_ns, result.last_s, False),
        ):
            latencies.append(-1 if seconds is None else round(seconds * 1e9))
            key = result.operation, size_class, is_first
            if latencies[-1] > run.slowest.get(key, (-1, 0, ""))[0]:
                run.slowest[key] = latencies[-1], at, result.transaction
        run.retries.append(result.retries)
        run.size.append(-1 if result.size is None else result.size)
        if result.failure is not None:
            run.failures[at] = result.failure
    if not run.end_ns:
        raise UsageError(
            f"{file.place}: no results in this stat file of ssbench{f': {file.damage}' * bool(file.damage)}"
        )
    return run


def _position(known: dict[str, int], name: str, file: StatFile, what: str) -> int:
    number = known.setdefault(name, len(known))
    if number >= _MAX_USERS:
        raise UsageError(f"{file.place}: more than {_MAX_USERS} {what}: not a stat file of ssbench")
    return number
