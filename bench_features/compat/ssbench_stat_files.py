"""Imports stat files of ssbench: each file is one trial of a job on objects, with the times that ssbench measured.

Files of the same scenario with as many users are trials of one treatment. Unlike outputs of other tools they have
times: of each job its end, and its latencies. Failed jobs have an end only. What ssbench does not keep stays unknown:
the size of reads, how late a stamp was, the time of failed tries.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bench_common.errors import ScenarioError, UsageError
from bench_common.job_rows import JOB_ROW, OPERATION_ROW, TRANSFER_ROW
from bench_common.records import (
    FIRST_BYTE,
    OPERATION_DONE,
    OPERATION_FAILED,
    ErrorRecord,
    Outcome,
    TransactionRecord,
    ticket_of,
)
from bench_common.stats.reader import StatsWriter
from bench_features.compat.imports import import_header
from bench_features.compat.ssbench_run import NAMES
from bench_features.objects.common.job import alternative_name
from bench_master.formatting import plural
from bench_master.scenario.dialects import scenario_of
from bench_master.scenario.yaml_tree import Source

if TYPE_CHECKING:
    from bench_common.treatment import Scalar
    from bench_features.compat.ssbench_run import StatRun

_SETTINGS: Final = ("user_count", "container_base", "container_count", "container_concurrency", "delete_after")
"""What the first record of a stat file has beside the scenario: the values that the run had."""
_BATCH: Final = 50_000


@dataclass(slots=True)
class _Group:
    """Runs of the same scenario with as many users: one treatment."""

    definition: dict[str, Any]
    """The treatment, as the header has it."""
    members: list[StatRun] = field(default_factory=list)


def write_stat_import(
    path: Path,
    runs: Sequence[StatRun],
    *,
    labels: Mapping[str, Scalar],
    run_id: str,
    argv: Sequence[str],
) -> list[str]:
    """Write the stats file of some runs; return what to tell of them. `labels` have ``environment`` and ``engine``.

    Raises `StatsFileError` if it exists or cannot be written, `UsageError` where a file's scenario cannot be read.
    """
    groups: dict[str, _Group] = {}
    told: list[str] = []
    for run in runs:
        definition = _definition(run, labels)
        key = json.dumps(definition, sort_keys=True, default=str)
        groups.setdefault(key, _Group(definition)).members.append(run)
        told += _doubts(run)
    base_ns = min(run.begin_ns for run in runs)
    ordered = list(groups.values())
    for index, group in enumerate(ordered):
        group.definition["index"] = index
        sizes = {len(run.end_ns) for run in group.members}
        group.definition["jobs_per_trial"] = sizes.pop() if len(sizes) == 1 else None
    treatment_of = {id(run): index for index, group in enumerate(ordered) for run in group.members}
    writer = StatsWriter(path)
    writer.put("header", _header(runs, ordered, base_ns, run_id, argv))
    numbers: dict[str, int] = {}
    for run in runs:
        for worker in run.workers:
            if worker not in numbers:
                numbers[worker] = len(numbers)
                host = {"worker": numbers[worker], "worker_id": f"ssbench-{worker}", "host": None, "slots": None}
                host |= {"engines": {str(labels["engine"]): ""}, "fingerprint": None, "clock": None}
                host |= {"environment": labels["environment"]}
                writer.put("host", host)
    first_job = 0
    for trial, run in enumerate(runs):
        _write_trial(writer, run, ordered[treatment_of[id(run)]], trial, first_job, base_ns, numbers)
        first_job += len(run.end_ns)
    done, failed = sum(run.done for run in runs), sum(len(run.failures) for run in runs)
    ends_ns = [max(run.end_ns) for run in runs]
    counts = {"planned": first_job, "done": done, "failed": failed, "lost": 0, "aborted": 0}
    duration_s = sum(end - run.begin_ns for end, run in zip(ends_ns, runs, strict=True)) / 1e9
    footer = {"ended": _iso(max(ends_ns)), "status": "complete", "duration_s": duration_s, "counts": counts}
    writer.close({**footer, "not_started": 0, "warnings": told})
    return told


def _doubts(run: StatRun) -> list[str]:
    place, file = run.file.place, run.file
    found = [f"{place}: {file.damage}: the results before it are imported"] if file.damage else []
    if file.skipped:
        found.append(f"{place}: {plural(file.skipped, 'result')} without type, class, worker or time skipped")
    return found


def _definition(run: StatRun, labels: Mapping[str, Scalar]) -> dict[str, Any]:
    """Return the treatment that a run was, as ssbench's scenario in its file says."""
    stated = run.file.scenario
    document = dict(stated["_scenario_data"])
    document |= {key: stated[key] for key in _SETTINGS if stated.get(key) is not None}
    for key in ("operation_count", "run_seconds"):
        document.pop(key, None)
        if stated.get(key):
            document[key] = stated[key]
    if not document.keys() & {"operation_count", "run_seconds"}:
        document["operation_count"] = len(run.end_ns)
    try:
        scenario = scenario_of(Source(run.file.place, json.dumps(document)))
    except ScenarioError as error:
        raise UsageError(f"{run.file.place}: its scenario cannot be read: {error.problems[0]}") from error
    treatment = scenario.treatments[0]
    users = document.get("user_count")
    shown = {**labels, "scenario": scenario.name, "users": users}
    return {
        **treatment.to_dict(),
        "engine": labels["engine"],
        "environment": labels["environment"],
        "labels": shown,
        "title": " ".join(f"{key}={value}" for key, value in shown.items()),
        "concurrency": -(-int(users or 1) // len(run.workers)),
        "users": users,
        "operation_names": _operation_names(run, treatment),
        "metrics": {},
        "primary": None,
    }


def _operation_names(run: StatRun, treatment: Any) -> list[str]:
    """Return the names of the operations: those of the scenario, and any others that the results have."""
    sizes = list(run.classes)
    tried = sorted(set(zip(run.operation, run.size_class, strict=True)))
    names = [alternative_name(NAMES[operation], sizes[size]) for operation, size in tried]
    firsts = [f"{name}{FIRST_BYTE}" for name in names if name.startswith("read[")]
    return list(dict.fromkeys([*treatment.job.operation_names(), *names, *firsts]))


def _header(
    runs: Sequence[StatRun], groups: Sequence[_Group], base_ns: int, run_id: str, argv: Sequence[str]
) -> dict[str, Any]:
    files = [
        {"name": file.place, "bytes": file.size_bytes, "sha256": file.sha256, "runs": 1, "readings": 0}
        for file in (run.file for run in runs)
    ]
    stated = [run.file.scenario for run in runs]
    header = import_header(
        "ssbench",
        files,
        run_id,
        argv,
        [group.definition for group in groups],
        scenario=", ".join(dict.fromkeys(str(one.get("name")) for one in stated)),
        timed=True,
        tools={"ssbench": ", ".join(dict.fromkeys(str(one.get("version")) for one in stated))},
    )
    places = {
        id(run): (index, place) for index, group in enumerate(groups) for place, run in enumerate(group.members)
    }
    return header | {
        "created": _iso(base_ns),
        "clock": {"unix_ns": base_ns, "monotonic_ns": 0, "boot_id": ""},
        "trials": [[*places[id(run)], False] for run in runs],
    }


def _iso(unix_ns: int) -> str:
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).isoformat(timespec="seconds")


def _write_trial(
    writer: StatsWriter,
    run: StatRun,
    group: _Group,
    trial: int,
    first_job: int,
    base_ns: int,
    numbers: Mapping[str, int],
) -> None:
    treatment, count = group.definition["index"], len(run.end_ns)
    names = {name: place for place, name in enumerate(group.definition["operation_names"])}
    end = np.array(run.end_ns, np.int64) - base_ns
    last, first = np.array(run.last_ns, np.int64), np.array(run.first_ns, np.int64)
    start = end - np.maximum(last, 0)
    failed = last < 0
    workers = [numbers[worker] for worker in run.workers]
    writer.put("event", {"at_ns": int(start.min()), "kind": "trial-begin", "trial": trial, "workers": workers})
    jobs = np.zeros(count, JOB_ROW)
    jobs["ticket"] = np.arange(first_job, first_job + count)
    jobs["treatment"], jobs["trial"] = treatment, trial
    jobs["worker"] = np.array(workers)[np.array(run.worker, np.int64)]
    jobs["outcome"] = np.where(failed, int(Outcome.FAILED), int(Outcome.DONE))
    jobs["start_ns"], jobs["end_ns"] = start, end
    operations = np.zeros(count, OPERATION_ROW)
    for name in ("ticket", "treatment", "trial", "start_ns"):
        operations[name] = jobs[name]
    operations["ok"] = np.where(failed, OPERATION_FAILED, OPERATION_DONE)
    operations["duration_ns"] = np.maximum(last, 0)
    sizes = list(run.classes)
    table = np.array(
        [[names.get(alternative_name(operation, size), 0) for size in sizes] for operation in NAMES], np.int64
    )
    firsts = np.array([names.get(f"{alternative_name('read', size)}{FIRST_BYTE}", 0) for size in sizes], np.int64)
    of_class = np.array(run.size_class, np.int64)
    operations["operation"] = table[np.array(run.operation, np.int64), of_class]
    read = first >= 0
    first_rows = operations[read]
    first_rows["operation"], first_rows["duration_ns"] = firsts[of_class[read]], first[read]
    transfers = np.zeros(count, TRANSFER_ROW)
    for name in ("ticket", "treatment", "trial", "operation", "ok", "duration_ns"):
        transfers[name] = operations[name]
    transfers["retries"] = np.array(run.retries, np.int64)
    bodyless = np.array(run.operation, np.int64) == NAMES.index("delete")
    transfers["bytes"] = np.where(bodyless, 0, np.array(run.size, np.int64))
    for begin in range(0, count, _BATCH):
        writer.jobs(jobs[begin : begin + _BATCH])
        writer.operations(operations[begin : begin + _BATCH])
        writer.transfers(transfers[begin : begin + _BATCH])
        writer.flush()
    writer.first_bytes(first_rows)
    writer.errors(
        [
            ErrorRecord(ticket_of(first_job + at), treatment, trial, _operation_of(run, at, sizes), kind, message)
            for at, (kind, message) in run.failures.items()
        ]
    )
    writer.transactions(
        [
            TransactionRecord(
                ticket_of(first_job + at),
                treatment,
                trial,
                f"{alternative_name(operation, size)}{FIRST_BYTE if is_first else ''}",
                transaction,
            )
            for (operation, size, is_first), (_, at, transaction) in run.slowest.items()
        ]
    )
    at_ns = int(end.max())
    writer.put("event", {"at_ns": at_ns, "kind": "trial-end", "trial": trial})


def _operation_of(run: StatRun, at: int, sizes: Sequence[str]) -> str:
    return alternative_name(NAMES[run.operation[at]], sizes[run.size_class[at]])
