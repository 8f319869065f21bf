"""Has the traced trials run when the measured ones are over: one query of `bench-worker` on this machine.

Its jobs are in no row, count or verdict of the run; what it finds is an event of the stats file for each treatment.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench_common.errors import WeighbridgeError
from bench_common.messages import DefineTreatment, encode
from bench_master.coordinator.messages import LogEvent
from bench_master.run_data.traced_types import TRACED
from bench_master.worker_query import query_worker
from bench_workloads.script import job_limit_s

if TYPE_CHECKING:
    from bench_common.engine_traits import EngineLabel
    from bench_common.treatment import Treatment
    from bench_master.options.run import WorkerOptions

_LONGEST_S: Final = 60.0
"""How long a treatment's jobs may take beside the last one of them: the worker begins none after half of that."""
ELSEWHERE: Final = "the run has workers on other hosts, or started by hand; only engines of this machine are traced"


def trace_treatments(
    treatments: Sequence[Treatment], options: WorkerOptions, labels: Iterable[EngineLabel], *, elsewhere: bool
) -> list[LogEvent]:
    """Trace a few jobs of each treatment on this machine; return the events that say what was found.

    With `elsewhere`, where workers ran on other hosts, nothing runs, and the events say why. An error is told in the
    events, too: the run has its results by then.
    """
    if elsewhere:
        return [_event({"treatment": one.index, "problem": ELSEWHERE}) for one in treatments]
    try:
        found = _query(treatments, options, labels)
    except WeighbridgeError as error:
        return [_event({"treatment": one.index, "problem": str(error)}) for one in treatments]
    return [_event(row) for row in found]


def _event(fields: dict[str, Any]) -> LogEvent:
    return LogEvent(TRACED, fields)


def _query(
    treatments: Sequence[Treatment], options: WorkerOptions, labels: Iterable[EngineLabel]
) -> list[dict[str, Any]]:
    flags = ["--explain"]
    flags += ["--allow-swapoff"] if options.allow_swapoff else []
    flags += ["--allow-cold"] if options.allow_cold else []
    flags += ["--allow-host-mounts"] if options.allow_host_mounts else []
    for setting in options.allow_host_settings:
        flags += ["--allow-host-settings", setting]
    for label in labels:
        flags += ["--engine", str(label)]
    limit_s = sum(_LONGEST_S + 2 * job_limit_s(one) for one in treatments)
    with tempfile.TemporaryDirectory(prefix="weighbridge-explain-") as folder:
        plan = Path(folder, "treatments")
        frames = [
            encode(DefineTreatment(epoch=1, number=number, treatment=one)) for number, one in enumerate(treatments, 1)
        ]
        plan.write_bytes(msgspec.msgpack.encode(frames))
        doing = "tracing a few jobs of each treatment"
        return query_worker(*flags, "--explain-plan", str(plan), timeout_s=limit_s, doing=doing)
