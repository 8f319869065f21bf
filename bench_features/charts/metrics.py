"""Charts of metrics: what workloads measured, and what engines used, by what the scenario varies."""

from __future__ import annotations

from statistics import median

from bench_common.cli import check_choice
from bench_features.charts.layout import ChartSource, NoChartError, count_text
from bench_features.charts.measures import Measure, Spot, draw_measures
from bench_features.charts.picture import Picture
from bench_master.formatting import plural
from bench_master.reports.palette import Theme
from bench_master.run_data.treatment_types import SampleReport


def draw_metrics(source: ChartSource, width: int, theme: Theme) -> Picture:
    """Draw the metrics of workloads, each trial of it, by the factor that the scenario varies."""
    measures = _measures(source)
    if not measures:
        raise NoChartError("no workload reported a metric")
    picture = Picture("metrics", width, theme)
    said = draw_measures(picture, source, measures)
    names = [each.name for each in measures]
    picture.title = f"{', '.join(names[:2])}{' and others' if len(names) > 2 else ''}{picture.title}"  # noqa: PLR2004
    trials = count_text(spot.n for each in measures for spot in each.spots.values())
    failed = plural(source.document.totals.failed, "job")
    parts = [
        "Mark: the median of the trials; bar: their range; small: each trial.",
        *said,
        f"{trials} trials a mark; {failed} failed, which no mark contains.",
    ]
    picture.caption = " ".join(parts)
    return picture


def _measures(source: ChartSource) -> list[Measure]:
    """Return the metric that was asked for, or else the primary ones, or else all."""
    found: dict[str, dict[int, Spot]] = {}
    primary: set[str] = set(source.data.metrics.values())
    warmup = {mark.trial for mark in source.data.trials if mark.warmup}
    reports = source.document.treatments
    for place, report in enumerate(reports):
        for name, metric in report.metrics.items():
            own = source.data.values.get((place, name), {})
            values = [value for trial, value in own.items() if trial not in warmup]
            if values:
                spot = Spot(median(values), min(values), max(values), values, len(values))
                found.setdefault(name, {})[place] = spot
                primary |= {name} if metric.primary else set()
    if source.metric is not None:
        check_choice(source.metric, found, what="metric")
        found = {source.metric: found[source.metric]}
    elif not primary.isdisjoint(found):
        found = {name: spots for name, spots in found.items() if name in primary}
    return [
        Measure(name, metric.unit, metric.direction, spots)
        for name, spots in found.items()
        for metric in [reports[next(iter(spots))].metrics[name]]
    ]


def draw_overhead(source: ChartSource, width: int, theme: Theme) -> Picture:
    """Draw the memory and CPU that the engines' own processes used."""
    reports = source.document.treatments
    used = {place: each.overhead for place, each in enumerate(reports) if each.overhead is not None}
    readings = {
        "Memory": {place: each.memory for place, each in used.items() if each.memory is not None},
        "CPU": {place: each.cpu_percent for place, each in used.items() if each.cpu_percent is not None},
    }
    measures = [
        Measure(name, "B" if name.startswith("Memory") else "%", "lower", spots)
        for name, own in readings.items()
        for spots in [{place: _range(each) for place, each in own.items()}]
        if spots
    ]
    if not measures:
        raise NoChartError("the engines' own processes were not sampled (--overhead)")
    picture = Picture("overhead", width, theme)
    said = draw_measures(picture, source, measures)
    picture.title = f"What the engines' own processes used{picture.title}"
    picture.caption = " ".join(
        [
            "Mark: the mean over the measured trials; bar: from the smallest to the largest reading.",
            "100 % is one CPU.",
            *said,
            f"{count_text(spot.n for each in measures for spot in each.spots.values())} readings a mark.",
        ]
    )
    return picture


def _range(reading: SampleReport) -> Spot:
    mean = reading.mean
    low = mean if reading.min is None else reading.min
    return Spot(mean, low, mean if reading.max is None else reading.max, (), reading.n)
