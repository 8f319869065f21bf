"""What a run found that compares nothing, in a sentence for each treatment: its answer without a verdict.

A packing tells what each container takes and where the knee is. Any other treatment has its primary measure: the
first primary metric of its workload, what a store did in a second, the response time of jobs that arrive by
themselves, or the time of a job.
"""

from __future__ import annotations

from typing import Final

from bench_common.safe_text import one_line
from bench_master.analysis.failed_sides import failure_words, reason_of
from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.trust import short_names
from bench_master.formatting import format_count, format_significant, format_value, plural
from bench_master.reports.packing_text import each_text, fill_text, knee_text
from bench_master.reports.side_by_side import primary_metrics
from bench_master.run_data.transfer_types import TransfersReport
from bench_master.run_data.treatment_types import TreatmentReport

_TIMES: Final = ("response", "job")


def value_sentences(document: ReportDocument) -> list[str]:
    """Return what each treatment's figure is, with the treatment's name where there are several."""
    names = short_names(document.treatments)
    ran = [(name, entry) for name, entry in zip(names, document.treatments, strict=True) if not entry.skipped]
    texts = [(name, _failure_text(entry, document) or _value_text(entry)) for name, entry in ran]
    return [one_line(f"{name}: {text}" if len(names) > 1 else text) for name, text in texts]


def only_value(document: ReportDocument) -> str:
    """Return the sentence of a run whose only treatment is not compared; empty where a table has several."""
    found = value_sentences(document) if document.verdicts is None else []
    return found[0] if len(document.treatments) == 1 and found else ""


def _failure_text(entry: TreatmentReport, document: ReportDocument) -> str:
    """Return how many jobs of a treatment failed and why, where none was done; else empty."""
    jobs = entry.jobs
    if jobs.done or not jobs.failed:
        return ""
    reasons = [reason_of(group.message) for group in document.errors if entry.title in group.treatments]
    return f"failed: {failure_words(jobs.failed, jobs.done + jobs.failed, reasons[0] if reasons else '')}."


def _value_text(entry: TreatmentReport) -> str:
    packing = entry.packing
    if packing is not None and (each := each_text(packing)):
        knee = "" if packing.starts is None or packing.starts.reason else knee_text(packing.starts)
        return " ".join(filter(None, (each, knee, fill_text(packing.fill))))
    counts = f"{plural(entry.jobs.done, 'job')} done, {format_count(entry.jobs.failed)} failed"
    for name in primary_metrics([entry])[:1]:
        metric = entry.metrics[name]
        of = "" if metric.n == 1 else f" (median of {plural(metric.n, 'trial')})"
        return f"{name} {format_value(metric.median, metric.unit)}{of}, {counts}."
    if entry.objects is not None and entry.jobs_per_s is not None:
        return f"{_store_text(entry, entry.objects)}, {counts}."
    for name in _TIMES:
        time = entry.operations.get(name)
        if time is not None and time.n:
            words = "response time" if name == "response" else "job time"
            return f"{words} {format_value(time.percentiles_s['p50'], 's')} (p50), {counts}."
    return f"{counts}."


def _store_text(entry: TreatmentReport, moved: TransfersReport) -> str:
    """Return what a store is judged by: operations and content a second, and what they took."""
    parts = [format_value(entry.jobs_per_s, "operations/s")]
    if moved.mb_per_s:
        parts.append(f"{format_significant(moved.mb_per_s)} MB/s")
    time = entry.operations.get("job")
    if time is not None and time.n:
        parts += [f"{name} {format_value(time.percentiles_s[name], 's')}" for name in ("p50", "p99")]
    return ", ".join(parts)
