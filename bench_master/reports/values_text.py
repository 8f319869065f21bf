"""What a run found in words: of one that compares nothing a sentence for each treatment, and what packings say.

A packing tells what each container takes and where the knee is. Any other treatment has its primary measure: the
first primary metric of its workload, what a store did in a second, the response time of jobs that arrive by
themselves, or the time of a job.
"""

from __future__ import annotations

from typing import Final

from bench_common.safe_text import one_line
from bench_master.analysis.failed_sides import failure_words, reason_of
from bench_master.analysis.report_types import ReportDocument
from bench_master.formatting import format_bytes, format_count, format_significant, format_value, plural
from bench_master.reports.side_by_side import primary_metrics
from bench_master.reports.table import by_treatment
from bench_master.run_data.transfer_types import TransfersReport
from bench_master.run_data.treatment_types import (
    HostCurveReport,
    HostSlopeReport,
    PackingSummary,
    StartCurveReport,
    TreatmentReport,
)

_TIMES: Final = ("response", "job")


def value_sentences(document: ReportDocument) -> list[str]:
    """Return what each treatment's figure is, with the treatment's name where there are several."""
    found = by_treatment(
        document, lambda one: () if one.skipped else (_failure_text(one, document) or _value_text(one),)
    )
    return [*map(one_line, found)]


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


# -- packings --------------------------------------------------------------------------------------------------------


_WORDS: Final = {"memory_bytes": "{} of memory", "cpu_percent": "{} of a CPU while idle", "start_s": "up in {}"}


def each_text(packing: PackingSummary) -> str:
    """Return what each container takes, with its ends; empty where nothing is known.

    Such as ``Each container: 1.2MiB of memory [1.1MiB, 1.4MiB], up in 310 ms [295 ms, 330 ms]; the ends are the 95 %
    interval of 6 packings.``.
    """
    known = {name: packing.each[name] for name in _WORDS if name in packing.each}
    if not known:
        return ""
    parts = [
        f"{_WORDS[name].format(_value(each.middle, each.unit))} "
        f"[{_value(each.low, each.unit)}, {_value(each.high, each.unit)}]"
        for name, each in known.items()
    ]
    first = next(iter(known.values()))
    if first.is_interval:
        over = f"the 95 % interval of {first.n} packings"
    else:
        over = f"the range of {plural(first.containers, 'container')}"
        over += "" if first.n == 1 else f" in {first.n} packings"
    return one_line(f"Each container: {', '.join(parts)}; the ends are {over}.")


def _value(value: float, unit: str) -> str:
    match unit:
        case "B":
            return format_bytes(value)
        case "%":
            return f"{format_significant(value)}%"
    return format_value(value, unit)


def host_text(packing: PackingSummary) -> str:
    """Return what a container costs by the totals of the host; empty where nothing was sampled.

    Such as ``By the host's totals: 1.3MiB of memory for each [1.2MiB, 1.5MiB] (95 % interval of 6 packings), ...``.
    """
    parts = [_by_host(name, slope) for name, slope in packing.host.items()]
    return one_line(f"By the host's totals: {'; '.join(parts)}.") if parts else ""


_OF_HOST: Final = {"memory_bytes": "of memory for each", "cpu_percent": "of a CPU for each"}
_WITHOUT: Final = {"memory_bytes": "memory for each is not known", "cpu_percent": "CPU for each is not known"}


def _by_host(name: str, slope: HostSlopeReport) -> str:
    if slope.limit is not None:
        return f"at most {_value(slope.limit, slope.unit)} {_OF_HOST[name]}, by which the host's own changed"
    if slope.middle is None or slope.low is None or slope.high is None:
        return f"{_WITHOUT[name]}: {slope.reason}"
    ends = "95 % interval of" if slope.is_interval else "range of"
    between = f"[{_value(slope.low, slope.unit)}, {_value(slope.high, slope.unit)}]"
    return f"{_value(slope.middle, slope.unit)} {_OF_HOST[name]} {between} ({ends} {plural(slope.n, 'packing')})"


def knee_text(starts: StartCurveReport | None) -> str:
    """Return from how many containers on each further one takes longer to start, or that there is no such number.

    Empty where nobody knows how long they took.
    """
    if starts is None:
        return ""
    if starts.reason:
        return f"No knee was looked for: {starts.reason}."
    if starts.knee is None:
        return f"No knee up to {plural(starts.most, 'container')}: start-up times do not begin to grow faster."
    knee = starts.knee
    return (
        f"Knee at {knee.containers:.0f} containers [{knee.low:.0f}, {knee.high:.0f}]: each further one takes "
        f"{_growth(knee.before_s)} to start before it, {_growth(knee.after_s)} after it."
    )


def _growth(seconds: float) -> str:
    return f"{format_value(abs(seconds), 's')} {'less' if seconds < 0 else 'more'}"


def fill_text(fill: HostCurveReport | None) -> str:
    """Return from how many containers on each takes more of the host's memory, or that there is no such number.

    Empty where none was looked for, too: JSON has why.
    """
    if fill is None or fill.reason:
        return ""
    if fill.knee is None:
        return f"No knee of the host's memory up to {plural(fill.most, 'container')}."
    knee = fill.knee
    return (
        f"Knee of the host's memory at {knee.containers:.0f} containers [{knee.low:.0f}, {knee.high:.0f}]: each "
        f"further one takes {format_bytes(knee.before_bytes)} before it, {format_bytes(knee.after_bytes)} after it."
    )


def unread_text(packing: PackingSummary) -> str:
    """Return why nothing is known of the containers' own control groups; empty if it is, or nobody tried."""
    return f"memory and CPU of each container are unknown: {one_line(packing.unread)}" if packing.unread else ""


def engine_text(packing: PackingSummary) -> str:
    """Return what the engine's own processes took while containers were held; empty where they were not sampled.

    The readings of all packings count alike, as far as these have as many.
    """
    measured = [trial.steady for trial in packing.trials if not trial.warmup]
    parts = []
    for names, form, words in (
        (("engine_cgroup_bytes", "engine_rss_bytes"), format_bytes, "of memory"),
        (("engine_cpu_percent",), lambda value: f"{format_significant(value)}%", "of a CPU"),
    ):
        found = [steady[name].mean for steady in measured for name in names if name in steady]
        if found:
            parts.append(f"{form(sum(found) / len(found))} {words}")
    return f"The engine's own processes meanwhile: {', '.join(parts)}." if parts else ""


def packing_sentences(entry: TreatmentReport) -> list[str]:
    """Return what a treatment's packings say, a sentence each."""
    packing = entry.packing
    if packing is None:
        return []
    knees = (knee_text(packing.starts), fill_text(packing.fill))
    texts = (each_text(packing), host_text(packing), *knees, engine_text(packing))
    return [text for text in texts if text]
