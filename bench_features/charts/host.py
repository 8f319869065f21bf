"""What each host did during the run (F6): CPU as stacked shares, memory, disk and network, under the trials."""

from __future__ import annotations

from typing import Final

import numpy as np

from bench_features.charts.chart_sums import CPU_STATES, TIME_BINS, HostReadings
from bench_features.charts.layout import Chart, ChartSource, NoChartError, left_out, stairs
from bench_features.charts.picture import Frame, text_width
from bench_features.charts.scales import Scale, linear
from bench_master.formatting import format_value

MOST_HOSTS: Final = 4
CPU_OPACITIES: Final = (0.85, 0.6, 0.35, 0.15)
"""Of `CPU_STATES`: one hue, and a colour of no engine."""
_CPU: Final = 140.0
_STRIP: Final = 50.0
_STRIPS: Final = (
    ("memory", "B", "memory in use"),
    ("disk", "B/s", "disk read and written"),
    ("net", "B/s", "network"),
)


def draw_host(source: ChartSource, picture: Chart, *, cpu: bool = True, strips: bool = True) -> None:
    """Draw each host: its CPU, and below it its memory, disk and network in strips; or one of the two alone."""
    data = source.data
    every = [host for host in data.hosts() if any(state in host.columns for state in CPU_STATES)]
    if not every:
        raise NoChartError("no host was sampled (--sampling-interval)")
    hosts = every[:MOST_HOSTS]
    picture.name = "host" if cpu else "host-more"
    picture.title = "The hosts during the run" if cpu else "Memory, disk and network of the hosts"
    picture.key([source.styles[place] for place in dict.fromkeys(mark.treatment for mark in source.trials)])
    said: list[str] = []
    for host in hosts:
        said += _draw_host(picture, host, source, cpu=cpu, strips=strips)
    if not said:
        raise NoChartError("the samples have neither memory, disk nor network")
    readings = ", ".join(f"{host.host} {host.readings:,}" for host in hosts)
    negative = sum(host.negative_iowait for host in hosts)
    picture.caption = (
        "Strip: the treatment under way (pale: warm-up). "
        + ("CPU: shares stacked, white is idle. " if cpu else "")
        + f"Mean of each {format_value(data.bin_s, 's')}"
        + ("; grey: from the lowest to the highest reading in it. " if strips else ". ")
        + f"Gaps are gaps. Readings: {readings}."
        + (f" In {negative} readings iowait ran backwards; they are drawn as 0." if negative and cpu else "")
        + " ".join(["", *dict.fromkeys(said)])
        + left_out(len(hosts), len(every), "hosts")
    )


def _draw_host(picture: Chart, host: HostReadings, source: ChartSource, *, cpu: bool, strips: bool) -> list[str]:
    data, said = source.data, []
    if not cpu:
        picture.text(8, picture.extend(18) + 14, host.host, bold=True, room=picture.width - 16)
    frame = picture.panel(_CPU if cpu else 1.0, title=f"{host.host}: CPU" if cpu else "")
    times = Scale(0.0, data.duration_s, frame.left, frame.right, "s")
    for mark in source.trials:
        if mark.end_s is not None:
            x = times(mark.begin_s)
            style = source.styles[mark.treatment]
            tip = f"trial {mark.trial}: {style.label}{' (warm-up)' if mark.warmup else ''}" if cpu else ""
            opacity = 0.35 if mark.warmup else 1
            picture.rect(x, frame.top - 6, times(mark.end_s) - x, 6, style.hue, opacity=opacity, tip=tip)
    if cpu:
        said.append(_draw_cpu(picture, host, data.bin_s, times, frame))
    for name, unit, title in _STRIPS if strips else ():
        values = host.columns.get(name)
        if values is None or not np.isfinite(values).any():
            continue
        frame = picture.panel(_STRIP, title=title)
        lows, highs = host.extremes(name)
        strip = linear(highs[np.isfinite(highs)].tolist(), frame.bottom, frame.top, unit)
        picture.y_axis(frame, strip, most=2)
        bands = zip(*(stairs(times, strip, each, data.bin_s) for each in (values, lows, highs)), strict=True)
        for line, lower, upper in bands:
            picture.area([*upper, *reversed(lower)], "muted", opacity=0.35)
            picture.line(line, "ink")
        said.append(strip.words(title.capitalize()))
    picture.x_axis(frame, times, "since the run began", grid=False)
    return said


def _draw_cpu(picture: Chart, host: HostReadings, bin_s: float, times: Scale, frame: Frame) -> str:
    scale = Scale(0.0, 100.0, frame.bottom, frame.top + 4, "%")
    picture.y_axis(frame, scale)
    states = [pair for pair in zip(CPU_STATES, CPU_OPACITIES, strict=True) if pair[0] in host.columns]
    base = np.zeros(TIME_BINS)
    for state, opacity in states:
        top = base + np.maximum(host.columns[state], 0.0)
        known = np.isfinite(top)
        bands = zip(
            *(stairs(times, scale, np.where(known, each, np.nan), bin_s) for each in (top, base)), strict=True
        )
        for upper, lower in bands:
            picture.area([*upper, *reversed(lower)], "muted", opacity=opacity, tip=state)
        base = np.where(np.isfinite(top), top, base)
    # What each shade is stands at the right end of the panel's title.
    x = frame.right
    for state, opacity in reversed(states):
        x -= text_width(state, 11)
        picture.text(x, frame.top - 11, state, ink="muted", size=11, unless_covered=True)
        picture.rect(x - 14, frame.top - 19, 10, 9, "muted", opacity=opacity)
        x -= 26
    return scale.words("CPU")
