"""Figures and words as people read them: durations, sizes, counts, shares, plurals, and text that is safe to print.

A measured figure has a fixed number of digits and its unit, spelled as in `bench_common.units`. None, a figure that
does not exist, is a dash.
"""

from __future__ import annotations

from typing import Final

from bench_common.units import format_duration

_TIME: Final = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_THOUSANDS: Final = ("", "k", "M", "G", "T", "P")
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DASH: Final = "-"


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, such as ``1 trial`` or ``6 trials``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_seconds(value: float | None, digits: int = 4) -> str:
    """Return a duration with `digits` significant digits and its unit: ``1.234s``, ``51.20ms``, ``980ns``."""
    if value is None:
        return _DASH
    if value == 0:
        return "0s"
    size = abs(value)
    # What would be rounded up to 1000 of a unit is 1 of the next.
    scale, unit = next((pair for pair in _TIME if size >= pair[0] * (1 - 0.5 * 10**-digits)), _TIME[-1])
    number = value / scale
    # A nanosecond is the smallest there is: no invented decimals.
    if unit == "ns":
        return f"{number:.0f}ns"
    power = int(f"{abs(number):.{digits - 1}e}".partition("e")[2])
    return f"{number:.{max(0, digits - 1 - power)}f}{unit}"


def format_span(value: float | None) -> str:
    """Return a duration to three digits, from a minute on in two units: ``31.5ms``, ``42.3s``, ``1m3s``, ``3d4h``."""
    if value is None:
        return _DASH
    value = max(0.0, value)
    if value < 60:  # noqa: PLR2004
        return format_duration(float(f"{value:.3g}"))
    unit = next(unit for unit, limit in ((1, 3600), (60, 86400), (3600, float("inf"))) if value < limit - unit / 2)
    return format_duration(round(value / unit) * unit)


def format_elapsed(seconds: float | None) -> str:
    """Return a duration as a running clock shows it: ``0:42`` or ``1:02:03``; ``-:--`` for None."""
    if seconds is None:
        return "-:--"
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def format_bytes(value: float | None) -> str:
    """Return bytes with a binary unit: ``7.81GiB``."""
    if value is None:
        return _DASH
    power = 0
    while abs(value) >= 1024 and power < len(_BINARY) - 1:  # noqa: PLR2004
        value, power = value / 1024, power + 1
    return f"{value:.3g}{_BINARY[power]}" if abs(value) < 1000 else f"{value:.0f}{_BINARY[power]}"  # noqa: PLR2004


def format_percent(value: float | None) -> str:
    """Return a share (0..1) in percent."""
    return _DASH if value is None else f"{100 * value:.1f}%"


def format_count(value: float) -> str:
    """Return a count, shortened from ten million on: ``9999999``, ``12.35M``."""
    if abs(value) < 1e7:  # noqa: PLR2004
        return f"{value:.0f}"
    power = min((len(f"{abs(value):.0f}") - 1) // 3, len(_THOUSANDS) - 1)
    return f"{value / 1000**power:.4g}{_THOUSANDS[power]}"


def format_significant(value: float) -> str:
    """Return a number with four significant digits, whole from 1000 on: ``0.01234``, ``12.34``, ``123456``."""
    if value == 0:
        return "0"
    size = abs(value)
    # Counts are counts: nobody wants to read 100.0 processes.
    if size >= 1000:  # noqa: PLR2004
        return f"{value:.0f}" if size < 1e7 else format_count(value)  # noqa: PLR2004
    if value == int(value):
        return f"{value:.0f}"
    return f"{value:.4g}" if size >= 1e-4 else f"{value:.1e}"  # noqa: PLR2004


def format_number(value: float) -> str:
    """Return a number of 0 or more with about three digits, and whole from 100 on: ``0.12``, ``9.83``, ``1,234``."""
    for digits, limit in ((2, 9.995), (1, 99.95)):
        if value < limit:
            return f"{value:.{digits}f}"
    return f"{value:,.0f}"


def one_line(text: str) -> str:
    """Return `text` as one line that cannot steer a terminal: an engine's message may hold any characters at all."""
    return escape_control(" ".join(text.split()))


def escape_control(text: str) -> str:
    """Return `text`, lines and indentation kept, with everything that could steer a terminal written out."""
    lines = text.expandtabs().splitlines()
    return "\n".join("".join(c if c.isprintable() else repr(c)[1:-1] for c in line) for line in lines)
