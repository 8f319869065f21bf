"""Imports results that were measured elsewhere: from the output of a tool to a stats file that every report reads.

The file has metrics, outputs and samples like any other, but no times, hosts, order or parameters, which a tool does
not print. Its header says ``imported``, so that readers ignore its stamps. Runs with different stated parameters are
separate treatments, never averaged. All that an output states is a label of its treatment, even where all runs of the
import state the same: the next import may be of other runs, and the two must differ where they are laid side by side.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from bench_common import __version__
from bench_common.errors import UsageError
from bench_common.job_rows import JOB_ROW
from bench_common.records import (
    ErrorRecord,
    MetricRecord,
    Outcome,
    OutputRecord,
    ticket_of,
)
from bench_common.stats.reader import FORMAT, VERSION, StatsWriter
from bench_common.units import format_duration, format_size
from bench_features.compat.log_files import ImportedRun, MonitorLog, decode_text, read_bytes, read_monitor, split_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench_common.treatment import Scalar
    from bench_workloads.base import Workload

    Stated = Mapping[str, Scalar]


__all__ = [
    "ImportSpec",
    "ImportedRun",
    "MonitorLog",
    "decode_text",
    "import_header",
    "read_bytes",
    "read_monitor",
    "split_runs",
    "write_import",
]


@dataclass(slots=True)
class RunGroup:
    """Runs whose outputs state the same parameters."""

    stated_params: Stated
    labels: dict[str, Scalar] = field(default_factory=dict)
    """The user's labels, and what the outputs state."""
    members: list[int] = field(default_factory=list)
    """The indexes of its runs among all runs."""


def group_runs(workload: Workload, runs: Sequence[ImportedRun], given: Mapping[str, Scalar]) -> list[RunGroup]:
    """Return the runs in groups, in the order of each group's first run.

    A failed run states fewer parameters than a complete one: it joins the only group that it does not contradict,
    else it is a group of its own. `given` are the user's labels; `UsageError` if an output states another value.
    """
    groups: list[RunGroup] = []
    for at, run in sorted(enumerate(runs), key=lambda pair: (bool(pair[1].error), pair[0])):
        group = _matching_group(run, groups)
        if group is None:
            group = RunGroup(run.stated_params)
            groups.append(group)
        group.members.append(at)
    for group in groups:
        shown = {key: _label_value(workload, key, value) for key, value in group.stated_params.items()}
        _check_given_labels(given, shown)
        group.labels = {**given, **shown}
    return sorted(groups, key=lambda group: min(group.members))


def _matching_group(run: ImportedRun, groups: Sequence[RunGroup]) -> RunGroup | None:
    """Return the group that a run belongs to; None if there is none yet, or if more than one fits."""
    fitting = [one for one in groups if one.stated_params == run.stated_params]
    if run.error and not fitting:
        fitting = [one for one in groups if run.stated_params.items() <= one.stated_params.items()]
    return fitting[0] if len(fitting) == 1 else None


def _check_given_labels(given: Mapping[str, Scalar], shown: Mapping[str, Scalar]) -> None:
    for key, value in given.items():
        if key in shown and str(shown[key]) != str(value):
            raise UsageError(f"--label {key}={value}: an output states {shown[key]}; give that value or no label")


def _label_value(workload: Workload, key: str, value: Scalar) -> Scalar:
    """Return a stated value as a label shows it."""
    kind = next((parameter.type for parameter in workload.parameters if parameter.name == key), "text")
    if kind == "size" and isinstance(value, int):
        return format_size(value)
    if kind == "duration" and isinstance(value, float):
        return format_duration(value)
    return value


@dataclass(slots=True)
class ImportSpec:
    """The contents of an imported stats file."""

    workload: Workload
    """The workload that printed the outputs."""
    environment: str
    engine: str
    run_id: str
    """The id of the imported run."""
    argv: Sequence[str]
    """The command line of the import."""
    labels: Mapping[str, Scalar] = field(default_factory=dict)
    """More labels from the user."""
    interval_s: float | None = None
    """Seconds between two readings of a monitor, if the user stated them."""
    files: list[dict[str, Any]] = field(default_factory=list)
    """Name, size and checksum of each file that was read."""
    runs: list[tuple[str, ImportedRun]] = field(default_factory=list)
    """Each run with the place where it was found."""
    monitors: list[MonitorLog] = field(default_factory=list)
    """The logs of the host's monitors."""

    @property
    def failed(self) -> int:
        """The number of incomplete runs."""
        return sum(bool(run.error) for _, run in self.runs)


def write_import(path: Path, what: ImportSpec) -> None:
    """Write the stats file; raise `StatsFileError` if it exists or cannot be written."""
    groups = group_runs(what.workload, [run for _, run in what.runs], what.labels)
    treatment_of = {member: index for index, group in enumerate(groups) for member in group.members}
    writer = StatsWriter(path)
    writer.put("header", _header(what, groups, treatment_of))
    host = {"worker": 0, "worker_id": "imported", "host": None, "environment": what.environment, "slots": None}
    writer.put("host", {**host, "engines": {what.engine: ""}, "fingerprint": None, "clock": None})
    rows = np.zeros(len(what.runs), JOB_ROW)
    for number, (place, run) in enumerate(what.runs):
        ticket = ticket_of(number)
        # Stamps stay 0, which means unknown in an imported file.
        rows[number]["ticket"], rows[number]["trial"] = ticket, number
        rows[number]["outcome"] = Outcome.FAILED if run.error else Outcome.DONE
        rows[number]["treatment"] = treatment_of[number]
        key = (ticket, treatment_of[number], number)
        writer.outputs([OutputRecord(*key, "run", run.text.encode("utf-8", "replace"))])
        if run.error:
            writer.errors([ErrorRecord(*key, "parse", "incomplete-run", f"{place}: {run.error}")])
        else:
            writer.metrics([MetricRecord(*key, name, float(value)) for name, value in run.metrics.items()])
    writer.jobs(rows)
    for monitor in what.monitors:
        _samples(writer, monitor, what.interval_s)
    done = len(what.runs) - what.failed
    writer.close(
        {
            "ended": None,
            "status": "complete",
            "duration_s": None,
            "counts": {"planned": len(what.runs), "done": done, "failed": what.failed, "lost": 0, "aborted": 0},
            "not_started": 0,
            "warnings": list(dict.fromkeys(caveat for monitor in what.monitors for caveat in monitor.caveats)),
        }
    )


def _treatment(what: ImportSpec, index: int, group: RunGroup) -> dict[str, Any]:
    labels = {"environment": what.environment, "engine": what.engine, **group.labels}
    given = {name for at in group.members for name in what.runs[at][1].metrics}
    # A label that names a parameter states it: results with other values are not compared.
    own = {parameter.name for parameter in what.workload.parameters}
    params = {key: value for key, value in group.labels.items() if key in own} | dict(group.stated_params)
    metrics = what.workload.declared_metrics()
    return {
        "index": index,
        "labels": labels,
        "title": " ".join(f"{key}={value}" for key, value in labels.items()),
        "environment": what.environment,
        "engine": what.engine,
        "job": {"kind": "guest", "workload": what.workload.name, "params": params},
        "operation_names": [],
        "jobs_per_trial": 1,
        "metrics": {name: metric for name, metric in metrics.items() if name in given},
        "primary": next((name for name in (*what.workload.primary_metrics, *metrics) if name in given), None),
    }


def _header(what: ImportSpec, groups: Sequence[RunGroup], treatment_of: Mapping[int, int]) -> dict[str, Any]:
    treatments = [_treatment(what, index, group) for index, group in enumerate(groups)]
    name = f"{what.workload.name}, measured elsewhere"
    header = import_header(what.workload.name, what.files, what.run_id, what.argv, treatments, scenario=name)
    return header | {"sampling_interval_s": what.interval_s, "trials": _trials(groups, treatment_of)}


def import_header(
    workload: str,
    files: Sequence[Mapping[str, Any]],
    run_id: str,
    argv: Sequence[str],
    treatments: Sequence[Any],
    *,
    scenario: str,
    timed: bool = False,
    tools: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the header of an imported stats file, without its trials; what nobody knows is null.

    `timed` says that the tool kept times; `tools` are the versions of the tools that measured.
    """
    stored = {"name": scenario, "description": "", "path": ", ".join(str(file["name"]) for file in files), "text": ""}
    return {
        "format": FORMAT,
        "version": VERSION,
        "run_id": run_id,
        "created": None,
        "imported": {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "workload": workload,
            "files": [dict(file) for file in files],
            **({"timed": True} if timed else {}),
        },
        "scenario": {**stored, "document": {}, "notes": []},
        "thresholds": [],
        "order": None,
        "seed": None,
        "argv": list(argv),
        "versions": {"weighbridge": __version__, "python": platform.python_version(), **(tools or {})},
        "noop": False,
        "sampling_interval_s": None,
        "treatments": list(treatments),
    }


def _trials(groups: Sequence[RunGroup], treatment_of: Mapping[int, int]) -> list[list[Any]]:
    """Return the planned order: the n-th run of each treatment is in block n, as there is nothing else to pair by."""
    places = {member: place for group in groups for place, member in enumerate(sorted(group.members))}
    return [[treatment_of[number], places[number], False] for number in sorted(treatment_of)]


def _samples(writer: StatsWriter, monitor: MonitorLog, interval_s: float | None) -> None:
    columns = {name: np.asarray(values, dtype=np.float64) for name, values in monitor.columns.items()}
    units = dict(monitor.units)
    rows = len(next(iter(columns.values()), ()))
    if interval_s is not None:
        columns["interval_ns"] = np.full(rows, interval_s * 1e9)
        units["interval_ns"] = "ns"
    writer.samples(0, "host", columns, units)
