"""From a stats file to what the index has of it. A damaged or incomplete file gives what can be read, and says so."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
import numpy as np

from bench_common.errors import NotAStatsFileError, StatsFileError, UsageError
from bench_common.histogram import nearest_rank
from bench_common.safe_text import one_line, shorten
from bench_common.stats.block_types import Header, StoredTreatment
from bench_common.stats.reader import StatsFile
from bench_common.thresholds import Primary
from bench_features.archive.contents import HostContents, RunContents, TreatmentContents, TrialContents, ValueContents
from bench_features.archive.facts import split_facts
from bench_features.archive.types import METRIC, OPERATION, PRIMARY, STATISTICS, State
from bench_features.charts.chart_data import quantile_shares
from bench_master.analysis.document import document_of
from bench_master.analysis.parameters import parameters
from bench_master.analysis.report_types import as_json
from bench_master.run_data.aggregate import Aggregator
from bench_master.run_data.measured import MeasuredRun, Part
from bench_master.run_data.trial_statistics import Numbers
from bench_master.run_data.trial_values import TrialTable
from bench_master.scenario.model import is_again

_ODD: Final = (
    *(KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError),
    *(UsageError, msgspec.MsgspecError),
)
"""What a header that is odd in a way that no check finds can raise."""
ARCHIVED_PARTS: Final = frozenset({Part.TRIALS, Part.STATISTICS})
"""What the archive has of a run and its report may not have."""
MAX_PROBLEM_CHARS: Final = 400
_END_S: Final = 32_503_680_000.0
"""The year 3000: later times are odd, and near the last date there is, neither zones nor axes have room."""


def contents_of(path: Path, sha256: str, size: int, run: MeasuredRun | None = None) -> RunContents:
    """Read a stats file, of which there may already be the sums; raise `NotAStatsFileError` for anything else."""
    try:
        stats = StatsFile(path) if run is None else run.stats
        _ = stats.header
    except NotAStatsFileError:
        raise
    except StatsFileError as error:
        return RunContents(sha256=sha256, state="damaged", bytes=size, problem=_short(_without(error, path)))
    try:
        return _contents(MeasuredRun(stats) if run is None else run, sha256, size)
    except StatsFileError as error:
        problem = _without(error, path)
    except _ODD as error:
        problem = f"its run cannot be read: {type(error).__name__}: {error}"
    found = RunContents(sha256=sha256, state="damaged", bytes=size, problem=_short(problem))
    created = stats.header.get("created")
    return msgspec.structs.replace(found, run_id=stats.header.get("run_id"), created=_seconds(created))


def _without(error: StatsFileError, path: Path) -> str:
    return error.message.removeprefix(f"{path}: ")


def _short(text: str) -> str:
    return shorten(one_line(text), MAX_PROBLEM_CHARS)


def _contents(run: MeasuredRun, sha256: str, size: int) -> RunContents:
    header, ledger = run.header, run.sums
    document = document_of(run, also=ARCHIVED_PARTS)
    state: State = document.run_state if document.run_state in ("complete", "incomplete") else "damaged"  # type: ignore[assignment]
    table = run.trials("worst")
    hosts = _hosts(ledger)
    scenario = header.get("scenario") or {}
    name = None if scenario.get("name") is None else str(scenario["name"])
    summaries = {one["title"]: one for one in as_json(document)["treatments"]}
    treatments = [
        _treatment(index, name, run, table, hosts, summaries)
        for index, entry in enumerate(ledger.treatments)
        if not is_again(entry.get("labels", {}))
    ]
    footer = ledger.footer or {}
    return RunContents(
        sha256=sha256,
        state=state,
        bytes=size,
        problem=_short(_problem(header, state, document.incomplete)),
        run_id=header.get("run_id"),
        created=_seconds(header.get("created")),
        ended=_seconds(footer.get("ended")),
        duration_s=document.totals.duration_s,
        status=footer.get("status"),
        scenario=name,
        scenario_hash=_hash(scenario.get("document")),
        seed=header.get("seed"),
        noop=bool(header.get("noop")),
        imported=bool(header.get("imported")),
        version=str((header.get("versions") or {}).get("weighbridge") or ""),
        versions=dict(header.get("versions") or {}),
        argv=list(header.get("argv") or ()),
        hosts=hosts,
        treatments=treatments,
    )


def _problem(header: Header, state: State, reasons: Sequence[str]) -> str:
    """Return why the run enters no trend; an empty text if it does."""
    if state != "complete":
        return "; ".join(reasons) or state
    if header.get("noop"):
        return "a no-op run measures the harness alone"
    if header.get("imported"):
        return "imported results: nobody knows when and how they were measured"
    return "" if _seconds(header.get("created")) is not None else "nobody knows when it began"


def _seconds(text: object) -> float | None:
    try:
        seconds = datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < _END_S else None


def _hash(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:32]


def _hosts(ledger: Aggregator) -> list[HostContents]:
    found: dict[str, HostContents] = {}
    for worker, body in sorted(ledger.hosts.items()):
        readings = [reading.cpu_ns for reading in ledger.speeds.get(worker, ())]
        label = str(body.get("host") or body.get("environment") or f"worker {worker}")
        facts, noise = split_facts(body.get("fingerprint") or {})
        speed = float(median(readings)) if readings else None
        if label in found:  # one worker of a host measures its speed
            found[label].speed_ns = found[label].speed_ns or speed
            continue
        engines = {name: str(version) for name, version in (body.get("engines") or {}).items()}
        found[label] = HostContents(
            label=label,
            environment=body.get("environment"),
            facts=facts,
            noise=noise,
            engines=engines,
            speed_ns=speed,
        )
    return list(found.values())


def _treatment(
    index: int,
    scenario: str | None,
    run: MeasuredRun,
    table: TrialTable,
    hosts: Sequence[HostContents],
    summaries: Mapping[str, dict[str, Any]],
) -> TreatmentContents:
    header, ledger, statistics, began_ns = run.header, run.sums, run.statistics, run.stats.began_ns
    entry = ledger.treatments[index]
    trials = [
        (number, int(trial[1]), bool(trial[2]))
        for number, trial in enumerate(header.get("trials") or ())
        if trial[0] == index
    ]
    measured = [number for number, _, warmup in trials if not warmup]
    measure = table.measures.get(index)
    values = [_operation(name, rows) for name, rows in statistics.operations(measured).items()]
    for name in ledger.metric_names(index):
        declared = (entry.get("metrics") or {}).get(name) or {}
        found = ledger.trial_metrics(index, name)
        if found:
            means = [found[number].mean if number in found else None for number in measured]
            values.append(
                ValueContents(
                    kind=METRIC,
                    name=name,
                    unit=str(declared.get("unit") or ""),
                    direction=declared.get("direction"),
                    level=_middle(means),
                    trials={"mean": means},
                )
            )
    if measure is not None:
        values.append(_primary(measure, table, index, measured))
    engine, title = str(entry.get("engine")), str(entry.get("title"))
    outcomes = ledger.outcomes[index]
    spans = {span.trial: span for span in run.spans}
    return TreatmentContents(
        position=index,
        title=title,
        labels=dict(entry.get("labels") or {}),
        engine=engine,
        engine_version=next((host.engines[engine] for host in hosts if host.engines.get(engine)), ""),
        key_hash=series_identity(scenario, entry, measure),
        done=outcomes["done"],
        failed=outcomes["failed"] + outcomes["lost"],
        trials=[
            TrialContents(
                number=number,
                block=block,
                warmup=warmup,
                begin_s=(spans[number].begin_ns - began_ns) / 1e9 if number in spans else None,
                end_s=(spans[number].end_ns - began_ns) / 1e9 if number in spans else None,
                done=statistics.counts.get(number, (0, 0))[0],
                failed=statistics.counts.get(number, (0, 0))[1],
            )
            for number, block, warmup in trials
        ],
        values=values,
        summary=summaries.get(title, {}),
        quantiles=_quantiles(index, ledger),
    )


def _operation(name: str, rows: Sequence[Numbers | None]) -> ValueContents:
    values = {each: [None if row is None else row[each] for row in rows] for each in STATISTICS}
    return ValueContents(
        kind=OPERATION,
        name=name,
        unit="s",
        direction="lower",
        level=_middle(values["p50"]),
        trials=values,
    )


def _middle(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that are known; None if there is none."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    return float(np.median(known)) if known else None


def _primary(measure: Primary, table: TrialTable, index: int, measured: Sequence[int]) -> ValueContents:
    by_trial = {one.trial: one for one in table.rounds[index].values()}
    rows = [by_trial.get(number) for number in measured]
    lists = {name: [_finite(getattr(row, name, None)) for row in rows] for name in ("value", "low", "high")}
    return ValueContents(
        kind=PRIMARY,
        name=measure.name,
        unit=measure.unit,
        direction=measure.direction,
        level=_middle(lists["value"]),
        trials=lists,
    )


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _quantiles(index: int, ledger: Aggregator) -> dict[str, list[list[float]]]:
    found = {}
    for (treatment, operation), series in ledger.series.items():
        histogram = series.histogram
        if treatment != index or not histogram.n:
            continue
        points: dict[int, float] = {}
        for share in quantile_shares(histogram.n):
            points[nearest_rank(histogram.n, Fraction(share).limit_denominator(10**7))] = share
        ends = {1: float(histogram.min or 0), histogram.n: float(histogram.max or 0)}
        seconds = [ends.get(rank) or histogram.value_in(histogram.locate(rank)[0]) for rank in points]
        found[operation] = [list(points.values()), [value / 1e9 for value in seconds]]
    return found


def series_identity(scenario: str | None, treatment: StoredTreatment, measure: Primary | None) -> str:
    """Return what is the same in all runs of a treatment that may be compared: not its repeats, its seed or its host.

    That is the scenario's name, the labels, every parameter, and the measure that trials are compared by.
    """
    identity = None if measure is None else [measure.name, measure.unit, measure.direction]
    return _hash([scenario, treatment.get("labels") or {}, parameters(treatment), identity])
