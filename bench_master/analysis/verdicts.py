"""Judges thresholds: each on every treatment that it applies to."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from bench_common.errors import did_you_mean
from bench_common.thresholds import OPERATORS, Threshold, figure_unit, parse_threshold
from bench_common.units import unit_converter
from bench_master.analysis.report_types import ThresholdReport, as_json
from bench_master.analysis.treatment_types import TreatmentReport

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def evaluate(treatments: Sequence[TreatmentReport], thresholds: Sequence[str]) -> list[ThresholdReport]:
    """Return a verdict for each threshold and treatment that it applies to; at least one for each threshold.

    A threshold that applies to no treatment has failed. An optional treatment that was skipped is not judged.
    """
    verdicts: list[ThresholdReport] = []
    for text in thresholds:
        try:
            threshold = parse_threshold(text)
        except ValueError as error:
            verdicts.append(_failed(text, str(error)))
        else:
            verdicts.extend(_evaluate_threshold(threshold, treatments))
    return verdicts


def _evaluate_threshold(threshold: Threshold, treatments: Sequence[TreatmentReport]) -> list[ThresholdReport]:
    meant = [entry for entry in treatments if threshold.matches_labels(entry.treatment)]
    if not meant:
        conditions = ", ".join(f"{key}={value}" for key, value in threshold.where)
        reason = f"no treatment has {conditions}" if conditions else "there is no treatment"
        return [_failed(threshold.text, reason)]
    here = [entry for entry in meant if not entry.skipped]
    if not here:
        message = f"{threshold.text}: every treatment that it applies to was skipped"
        return [ThresholdReport(threshold.text, treatment="", value=None, passed=True, message=message)]
    verdicts = []
    for entry in here:
        holder = _figure_parent(threshold, entry)
        if holder is not None:
            verdicts.append(_verdict(threshold, entry, holder))
    if verdicts:
        return verdicts
    root, name = threshold.path[:2]
    known = sorted({key for entry in meant for key in as_json(entry).get(root) or ()})
    names = f"; there is: {', '.join(known)}" if known else f"; there is nothing under {root}"
    return [_failed(threshold.text, f"no treatment has {root}.{name}{did_you_mean(name, known)}{names}")]


def _failed(threshold: str, reason: str) -> ThresholdReport:
    return ThresholdReport(threshold, treatment="", value=None, passed=False, message=reason)


def _figure_parent(threshold: Threshold, entry: TreatmentReport) -> Mapping[str, Any] | None:
    """Return the part of the JSON report that the path's last step looks into; None if the treatment has none."""
    node: Any = as_json(entry)
    for step in threshold.path[:-1]:
        node = node.get(step)
        if node is None:
            return None
    return node  # type: ignore[no-any-return]


def _verdict(threshold: Threshold, entry: TreatmentReport, holder: Mapping[str, Any]) -> ThresholdReport:
    title = " ".join(f"{key}={value}" for key, value in entry.treatment.items())
    path, value = ".".join(threshold.path), holder.get(threshold.path[-1])
    if value is None:
        message = f"{path} has no value ({title})"
        return ThresholdReport(threshold.text, title, None, passed=False, message=message)
    unit = figure_unit(threshold.path, holder)
    factor = unit_converter(threshold.unit, unit)
    if factor is None:
        message = f"{path} is in {unit or 'no unit'}, which {threshold.unit!r} cannot be converted to ({title})"
        return ThresholdReport(threshold.text, title, value, passed=False, message=message)
    limit = float(Fraction(repr(threshold.value)) * factor)
    suffix = f" {unit}" if unit else ""
    return ThresholdReport(
        threshold.text,
        title,
        value,
        passed=OPERATORS[threshold.operator](value, limit),
        message=f"{path} is {value:.6g}{suffix}, wanted {threshold.operator} {limit:.6g}{suffix} ({title})",
    )
