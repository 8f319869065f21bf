"""From a stats file to what the index has of it. A damaged or incomplete file gives what can be read, and says so."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec

from bench_common.errors import NotAStatsFileError, StatsFileError, UsageError
from bench_common.safe_text import one_line, shorten
from bench_common.stats.block_types import Header, StoredMetric, StoredTreatment
from bench_common.stats.reader import StatsFile
from bench_common.thresholds import Primary
from bench_features.archive.facts import split_facts
from bench_features.archive.types import (
    METRIC,
    OPERATION,
    PRIMARY,
    STATISTICS,
    ArchivedHost,
    ArchivedRun,
    ArchivedTreatment,
    ArchivedValue,
    State,
)
from bench_master.analysis.document import document_of
from bench_master.analysis.parameters import parameters
from bench_master.analysis.verdict_types import DIRECTED_WORDS, VerdictsReport, change_text
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


def contents_of(path: Path, sha256: str, size: int, run: MeasuredRun | None = None) -> ArchivedRun:
    """Read a stats file, of which there may already be the sums; raise `NotAStatsFileError` for anything else."""
    try:
        stats = StatsFile(path) if run is None else run.stats
        _ = stats.header
    except NotAStatsFileError:
        raise
    except StatsFileError as error:
        return ArchivedRun(sha256=sha256, state="damaged", bytes=size, problem=_short(_without(error, path)))
    try:
        return _contents(MeasuredRun(stats) if run is None else run, sha256, size)
    except StatsFileError as error:
        problem = _without(error, path)
    except _ODD as error:
        problem = f"its run cannot be read: {type(error).__name__}: {error}"
    return ArchivedRun(
        sha256=sha256,
        state="damaged",
        bytes=size,
        problem=_short(problem),
        run_id=_text(stats.header.run_id),
        created=_seconds(stats.header.created),
    )


def _without(error: StatsFileError, path: Path) -> str:
    return error.message.removeprefix(f"{path}: ")


def _short(text: str) -> str:
    return shorten(one_line(text), MAX_PROBLEM_CHARS)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _contents(run: MeasuredRun, sha256: str, size: int) -> ArchivedRun:
    header, ledger = run.header, run.sums
    document = document_of(run, also=ARCHIVED_PARTS)
    state: State = document.run_state if document.run_state in ("complete", "incomplete") else "damaged"  # type: ignore[assignment]
    table = run.trials("worst")
    hosts = _hosts(ledger)
    found = ArchivedRun(
        sha256=sha256,
        state=state,
        bytes=size,
        problem=_short(_problem(header, state, document.incomplete)),
        run_id=_text(header.run_id),
        created=_seconds(header.created),
        duration_s=document.totals.duration_s,
        scenario=_text(header.scenario.name),
        noop=header.noop,
        imported=bool(header.imported),
        version=str(header.versions.get("weighbridge") or ""),
        versions={name: str(version) for name, version in header.versions.items()},
        argv=[str(word) for word in header.argv],
        hosts=hosts,
        verdict=_verdict(document.verdicts),
        trust=document.trust.word,
    )
    for index, entry in enumerate(ledger.treatments):
        if not is_again(entry.labels):
            found.treatments.append(_treatment(index, found, run, table))
            outcomes = ledger.outcomes[index]
            found.done += outcomes["done"]
            found.failed += outcomes["failed"] + outcomes["lost"]
    found.treatment_count = len(found.treatments)
    if found.treatment_count == 1 and (primary := found.treatments[0].primary) is not None:
        known = [value for value in primary.trials["value"] if value is not None]
        found.measure, found.unit, found.value = primary.name, primary.unit, median(known) if known else None
    return found


def _verdict(verdicts: VerdictsReport | None) -> str:
    found = list(verdicts.comparisons) if verdicts is not None else []
    if len(found) == 1 and found[0].verdict in DIRECTED_WORDS:
        return f"{found[0].word.lower()}, {change_text(found[0])}"
    words = Counter(each.word.lower() for each in found)
    return ", ".join(word if len(found) == 1 else f"{number} {word}" for word, number in words.items())


def _problem(header: Header, state: State, reasons: Sequence[str]) -> str:
    """Return why the run enters no trend; an empty text if it does."""
    if state != "complete":
        return "; ".join(reasons) or state
    if header.noop:
        return "a no-op run measures the harness alone"
    if header.imported:
        return "imported results: nobody knows when and how they were measured"
    return "" if _seconds(header.created) is not None else "nobody knows when it began"


def _seconds(text: object) -> float | None:
    try:
        seconds = datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < _END_S else None


def _hash(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:32]


def _hosts(ledger: Aggregator) -> list[ArchivedHost]:
    found: dict[str, ArchivedHost] = {}
    for worker, body in sorted(ledger.hosts.items()):
        label = str(body.host or body.environment or f"worker {worker}")
        if label not in found:  # several workers of a host have the same facts
            facts, noise = split_facts(body.fingerprint or {})
            engines = {name: str(version) for name, version in (body.engines or {}).items()}
            environment = _text(body.environment)
            found[label] = ArchivedHost(
                label=label, environment=environment, facts=facts, noise=noise, engines=engines
            )
    return [found[label] for label in sorted(found)]


def _treatment(index: int, archived: ArchivedRun, run: MeasuredRun, table: TrialTable) -> ArchivedTreatment:
    ledger, statistics = run.sums, run.statistics
    entry, measure = ledger.treatments[index], table.measures.get(index)
    trials = enumerate(run.header.trials)
    measured = [number for number, trial in trials if trial[0] == index and not trial[2]]
    values = [_operation(name, rows) for name, rows in statistics.operations(measured).items()]
    for name in ledger.metric_names(index):
        declared = entry.metrics.get(name, StoredMetric())
        found = ledger.trial_metrics(index, name)
        if found:
            means = [found[number].mean if number in found else None for number in measured]
            values.append(
                ArchivedValue(
                    kind=METRIC, name=name, unit=declared.unit, direction=declared.direction, trials={"mean": means}
                )
            )
    if measure is not None:
        values.append(_primary(measure, table, index, measured))
    engine, outcomes = entry.engine, ledger.outcomes[index]
    return ArchivedTreatment(
        title=entry.title,
        series=series_key(archived.scenario, entry, measure, archived.place),
        labels=dict(entry.labels),
        engine_version=next((host.engines[engine] for host in archived.hosts if host.engines.get(engine)), ""),
        failed=outcomes["failed"] + outcomes["lost"],
        values=values,
    )


def _operation(name: str, rows: Sequence[Numbers | None]) -> ArchivedValue:
    values = {each: [None if row is None else row[each] for row in rows] for each in STATISTICS}
    return ArchivedValue(kind=OPERATION, name=name, unit="s", direction="lower", trials=values)


def _primary(measure: Primary, table: TrialTable, index: int, measured: Sequence[int]) -> ArchivedValue:
    by_trial = {one.trial: one for one in table.rounds[index].values()}
    values = [_finite(getattr(by_trial.get(number), "value", None)) for number in measured]
    return ArchivedValue(
        kind=PRIMARY, name=measure.name, unit=measure.unit, direction=measure.direction, trials={"value": values}
    )


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def series_key(scenario: str | None, treatment: StoredTreatment, measure: Primary | None, place: str) -> str:
    """Return what is the same in all runs of a treatment that may be compared: not its repeats and not its seed.

    That is the scenario's name, the labels, every parameter, the measure that trials are compared by, and the names
    of the hosts.
    """
    identity = None if measure is None else [measure.name, measure.unit, measure.direction]
    treated = _hash([scenario, treatment.labels or {}, parameters(treatment), identity])
    return hashlib.sha256(f"{treated} {place}".encode()).hexdigest()[:16]
