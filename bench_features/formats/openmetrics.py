"""The OpenMetrics report: medians, effects with their intervals, and counts, for node_exporter's textfile collector.

The text is both OpenMetrics and Prometheus's own format, of which the collector reads the latter: all families are
gauges. ``--format openmetrics=/var/lib/node_exporter/weighbridge.prom`` replaces the file at once, so that no scrape
sees half of it. A measure without a value has no sample.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TextIO, TypeAlias

from bench_common.safe_text import one_line, shorten
from bench_common.units import unix_seconds
from bench_master.analysis.report_types import ReportDocument
from bench_master.reports import ReportSource
from bench_master.reports.verdict_text import FULL_INTERVAL
from bench_master.run_data.treatment_types import TreatmentReport

Sample: TypeAlias = tuple[str, Mapping[str, str], float | None]
"""The family's name without `PREFIX`, labels and value."""

PREFIX: Final = "weighbridge_"
FAMILIES: Final[Mapping[str, tuple[str, str]]] = {
    "run_complete": ("", "1 if the figures cover the whole run, else 0."),
    "run_exit_code": ("", "Exit code that the report of the run gives: 0 is ok."),
    "run_began_timestamp_seconds": ("seconds", "When the run began, in seconds since 1970."),
    "run_duration_seconds": ("seconds", "How long the run took."),
    "jobs": ("", "Measured jobs by outcome."),
    "jobs_per_second": ("", "Jobs done per second of the measured trials."),
    "operations": ("", "Successful operations of successful jobs."),
    "operation_errors": ("", "Failed operations."),
    "operation_median_seconds": ("seconds", "Median duration of an operation, or of the whole job."),
    "metric_trials": ("", "Trials that gave a metric."),
    "metric_median": ("", "Median of a metric over the trials, in the unit that is a label."),
    "effect_ratio": ("", "Middle of the rounds' ratios of a treatment to its baseline."),
    "effect_ratio_low": ("", "Lower end of the interval of the ratio."),
    "effect_ratio_high": ("", "Upper end of the interval of the ratio."),
    "effect_difference": ("", "Measure of a treatment minus that of its baseline, in the unit that is a label."),
    "effect_difference_low": ("", "Lower end of the interval of the difference."),
    "effect_difference_high": ("", "Upper end of the interval of the difference."),
    "effect_rounds": ("", "Rounds behind an effect."),
    "effect_verdict": ("", "1 for the verdict that is a label."),
    "thresholds": ("", "Thresholds by outcome."),
    "gates": ("", "Gates by outcome."),
    "claims": ("", "Registered claims by outcome."),
}
"""Unit and help of each family, in the order in which they are written."""

_MAX_CHARS: Final = 1000
"""How much of a text a label holds, in characters."""


class OpenMetricsReport:
    """Writes a file for node_exporter's textfile collector: a line for each sample.

    The labels are the scenario's name and those of the treatment.
    """

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the families, then the end that tells a reader that nothing is missing."""
        samples: dict[str, dict[str, str]] = {}
        for name, labels, value in _samples(source):
            if value is not None and math.isfinite(value):
                # A pair of treatments whose labels read alike must not make the whole file invalid.
                samples.setdefault(name, {}).setdefault(_label_text(labels), _number(value))
        for name, (unit, about) in FAMILIES.items():
            if name not in samples:
                continue
            out.write(f"# TYPE {PREFIX}{name} gauge\n")
            if unit:
                out.write(f"# UNIT {PREFIX}{name} {unit}\n")
            out.write(f"# HELP {PREFIX}{name} {about}\n")
            out.writelines(f"{PREFIX}{name}{labels} {value}\n" for labels, value in samples[name].items())
        out.write("# EOF\n")


def _samples(source: ReportSource) -> Iterator[Sample]:
    document = source.document
    run = {"scenario": str(document.scenario.name), "noop": str(document.run.noop).lower()}
    yield "run_complete", {**run, "state": document.run_state}, float(document.run_state == "complete")
    yield "run_exit_code", run, float(source.exit_code())
    yield "run_began_timestamp_seconds", run, unix_seconds(document.run.created)
    yield "run_duration_seconds", run, document.totals.duration_s
    names = _label_names(document)
    for entry in document.treatments:
        labels = run | {names[key]: _label_value(value) for key, value in entry.treatment.items()}
        yield from _treatment_samples(entry, labels)
    yield from _effect_samples(document, run, names)
    judged = [document.threshold_state(one) for one in document.thresholds]
    for state in ("passed", "failed", "undecided"):
        yield "thresholds", run | {"state": state}, float(judged.count(state))
        yield "gates", run | {"state": state}, float(sum(gate.state == state for gate in source.gates))
    claims = document.verdicts.claims if document.verdicts is not None else None
    if claims is not None:
        for state in ("kept", "broken", "undecided"):
            yield "claims", run | {"state": state}, float(sum(claim.state == state for claim in claims.claims))


def _treatment_samples(entry: TreatmentReport, labels: Mapping[str, str]) -> Iterator[Sample]:
    for outcome in ("done", "failed", "lost", "aborted"):
        yield "jobs", {**labels, "outcome": outcome}, float(getattr(entry.jobs, outcome))
    yield "jobs_per_second", labels, entry.jobs_per_s
    for name, operation in entry.operations.items():
        own = {**labels, "operation": name}
        yield "operations", own, float(operation.n)
        yield "operation_errors", own, float(operation.errors)
        yield "operation_median_seconds", own, operation.percentiles_s.get("p50")
    for name, metric in entry.metrics.items():
        own = {**labels, "metric": name, "unit": metric.unit}
        yield "metric_trials", own, float(metric.n)
        yield "metric_median", own, metric.median


def _effect_samples(document: ReportDocument, run: Mapping[str, str], names: Mapping[str, str]) -> Iterator[Sample]:
    for each in () if document.verdicts is None else document.verdicts.comparisons:
        labels = {names.get(key, key): _label_value(value) for key, value in each.labels.items() if key in names}
        labels = {**run, **labels, "baseline": each.a, "measure": each.measure}
        family = f"effect_{each.scale}"
        own = {**labels, "unit": each.unit} if each.scale == "difference" else labels
        yield family, own, each.ratio
        if each.confidence >= FULL_INTERVAL:
            # Below it they are the range of a few rounds, which an alert would take for more.
            yield f"{family}_low", own, each.low
            yield f"{family}_high", own, each.high
        yield "effect_rounds", labels, float(each.rounds)
        yield "effect_verdict", {**labels, "verdict": each.verdict}, 1.0


_OWN_LABELS: Final = frozenset(
    {"scenario", "noop", "state", "outcome", "operation", "metric", "unit", "baseline", "measure", "verdict"}
)


def _label_names(document: ReportDocument) -> dict[str, str]:
    """Return a valid name for each label of the treatments, different from all others."""
    found: dict[str, str] = {}
    for key in dict.fromkeys(key for entry in document.treatments for key in entry.treatment):
        name = re.sub(r"[^a-zA-Z0-9_]", "_", key)
        # Names that begin with two underscores are Prometheus's own.
        if name in _OWN_LABELS or not re.match(r"(?!__)[a-zA-Z_]", name):
            name = f"label_{name}"
        while name in found.values():
            name += "_"
        found[key] = name
    return found


def _label_value(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _label_text(labels: Mapping[str, str]) -> str:
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"'})
    cells = (f'{name}="{shorten(one_line(value), _MAX_CHARS).translate(escapes)}"' for name, value in labels.items())
    return f"{{{','.join(cells)}}}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(float(value))
