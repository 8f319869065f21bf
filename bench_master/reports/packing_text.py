"""What packings say in words, for every format and for their chart: what each container takes, and the knee."""

from __future__ import annotations

from typing import Final

from bench_common.safe_text import one_line
from bench_master.formatting import format_bytes, format_significant, format_value, plural
from bench_master.run_data.treatment_types import (
    HostCurveReport,
    HostSlopeReport,
    PackingSummary,
    StartCurveReport,
    TreatmentReport,
)

_WORDS: Final = {
    "memory_bytes": "{} of memory",
    "cpu_percent": "{} of a CPU while idle",
    "start_s": "up in {}",
}


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
