"""From a stats file to what the index has of it. A damaged or incomplete file gives what can be read, and says so."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bench_common.errors import NotAStatsFileError, StatsFileError, UsageError
from bench_common.safe_text import one_line, shorten
from bench_common.stats.block_types import StoredTreatment
from bench_common.stats.reader import StatsFile
from bench_common.thresholds import Primary
from bench_common.units import unix_seconds
from bench_features.archive.types import ArchivedRun, ArchivedTreatment
from bench_master.analysis.document import document_of
from bench_master.analysis.parameters import parameters
from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.run_summary import summary_of
from bench_master.analysis.verdict_types import DIRECTED_WORDS, VerdictsReport, change_text
from bench_master.run_data.measured import MeasuredRun, trial_values
from bench_master.run_data.summary import RunSummary
from bench_master.scenario.model import is_again

_ODD: Final = (
    *(KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError),
    *(UsageError, msgspec.MsgspecError),
)
"""What a header that is odd in a way that no check finds can raise."""
ARCHIVED_PARTS: Final = frozenset({trial_values})
"""What the archive has of a run and its report may not have."""
MAX_PROBLEM_CHARS: Final = 400
_END_S: Final = 32_503_680_000.0
"""The year 3000: later times are odd, and near the last date there is, neither zones nor axes have room."""


def contents_of(path: Path, sha256: str, size: int, run: MeasuredRun | None = None) -> ArchivedRun:
    """Read a stats file, of which there may already be the sums; raise `NotAStatsFileError` for anything else."""
    found = ArchivedRun(sha256=sha256, state="damaged", bytes=size)
    try:
        stats = StatsFile(path) if run is None else run.stats
        run_id, created = stats.header.run_id, _seconds(stats.header.created)
        found = replace(found, run_id=None if run_id is None else str(run_id), created=created)
        row = _row(found, MeasuredRun(stats) if run is None else run)
        # An odd run is known here, and not when the index is read.
        return msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=ArchivedRun)
    except NotAStatsFileError:
        raise
    except StatsFileError as error:
        problem = error.message.removeprefix(f"{path}: ")
    except _ODD as error:
        problem = f"its run cannot be read: {type(error).__name__}: {error}"
    return replace(found, problem=_short(problem))


def _row(found: ArchivedRun, run: MeasuredRun) -> ArchivedRun:
    document, summary = document_of(run, also=ARCHIVED_PARTS), summary_of(run)
    entries = [entry for entry in run.sums.treatments if not is_again(entry.labels)]
    return replace(
        found,
        state=document.run_state,
        problem=_short(_problem(document, summary, found.created)),
        scenario=summary.scenario,
        report=document.run,
        totals=document.totals,
        hosts=dict(summary.hosts),
        verdict=_verdict(document.verdicts),
        trust=document.trust.word,
        treatments=[
            _treatment(entry, report, summary) for entry, report in zip(entries, document.treatments, strict=True)
        ],
    )


def _treatment(entry: StoredTreatment, report: Any, summary: RunSummary) -> ArchivedTreatment:
    own = summary.treatments.get(report.title)
    measure = None if own is None else own.measure
    engine = entry.engine
    versions = (host.engines.get(engine) for host in summary.hosts.values())
    return ArchivedTreatment(
        title=report.title,
        series=series_key(summary, entry, measure),
        labels=report.treatment,
        engine_version=next(filter(None, versions), ""),
        failed=report.jobs.failed + report.jobs.lost,
        measure=measure,
        trials=[] if own is None else [value for value in own.trials.values.tolist() if math.isfinite(value)],
        operations=report.operations,
        metrics=report.metrics,
    )


def series_key(run: RunSummary, treatment: StoredTreatment, measure: Primary | None) -> str:
    """Return what is the same in all runs of a treatment that may be compared: not its repeats and not its seed.

    That is the scenario's name, the labels, every parameter, the measure that trials are compared by, and the names
    of the hosts.
    """
    identity = None if measure is None else [measure.name, measure.unit, measure.direction]
    treated = [run.scenario, treatment.labels, parameters(treatment), identity]
    digest = hashlib.sha256(msgspec.json.encode(treated, order="sorted")).hexdigest()[:32]
    return hashlib.sha256(f"{digest} {', '.join(sorted(run.hosts))}".encode()).hexdigest()[:16]


def _verdict(verdicts: VerdictsReport | None) -> str:
    found = list(verdicts.comparisons) if verdicts is not None else []
    if len(found) == 1 and found[0].verdict in DIRECTED_WORDS:
        return f"{found[0].word.lower()}, {change_text(found[0])}"
    words = Counter(each.word.lower() for each in found)
    return ", ".join(word if len(found) == 1 else f"{number} {word}" for word, number in words.items())


def _problem(document: ReportDocument, summary: RunSummary, created: float | None) -> str:
    """Return why the run enters no trend; an empty text if it does."""
    if document.run_state != "complete":
        return "; ".join(document.incomplete) or document.run_state
    if summary.problem is not None:
        return summary.problem.sentence()
    return "" if created is not None else "nobody knows when it began"


def _short(text: str) -> str:
    return shorten(one_line(text), MAX_PROBLEM_CHARS)


def _seconds(text: object) -> float | None:
    seconds = unix_seconds(text)
    return seconds if 0 <= seconds < _END_S else None
