"""Sizes, durations and rates as people write them, and back.

Sizes follow the engines where those have a habit: a bare ``k``, ``m``, ``g`` or ``t`` is binary, as in
``docker run --memory 512m``. ``KiB``, ``MiB`` and so on are binary too (IEC 80000-13); ``kB``, ``MB``, ``GB`` and
``TB`` are decimal, as on the label of a disk. Durations are sums such as ``1h30m``. Every parser raises `ValueError`
with a message that says what to write instead.

Turns a number of one unit into another of its kind: what a threshold says into what a measure is in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Final

from bench_common.errors import did_you_mean

_BINARY: Final = {letter: 1024**power for power, letter in enumerate("kmgt", start=1)}
SIZE_UNITS: Final[Mapping[str, Fraction]] = {
    "B": Fraction(1),
    **{f"{letter}iB": Fraction(1024**power) for power, letter in enumerate("KMGT", start=1)},
    **{f"{letter}B": Fraction(1000**power) for power, letter in enumerate("kMGT", start=1)},
    "KB": Fraction(1000),
    **{letter: Fraction(scale) for letter, scale in _BINARY.items()},
    **{letter.upper() + suffix: Fraction(scale) for letter, scale in _BINARY.items() for suffix in ("", "i")},
}
"""Bytes in each unit of size, wherever one is written."""

TIME_UNITS: Final[Mapping[str, Fraction]] = {
    "d": Fraction(86400),
    "h": Fraction(3600),
    "m": Fraction(60),
    "min": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction("1e-3"),
    "us": Fraction("1e-6"),
    "\u00b5s": Fraction("1e-6"),
    "ns": Fraction("1e-9"),
}
"""Seconds in each unit of time, wherever one is written, from large to small."""

_NUMBER: Final = r"[0-9]{1,19}(?:\.[0-9]{1,18})?"
SIZE_PATTERN: Final = rf"^(?:[0-9]{{1,19}}|{_NUMBER} ?(?:{'|'.join(sorted(SIZE_UNITS, key=len, reverse=True))}))$"
"""What `parse_size` accepts, as a regular expression that ECMA-262 and Python read alike."""
_DURATION_PARTS: Final = ("d", "h", "(?:min|m)", "s", "ms", "(?:us|\u00b5s)", "ns")
DURATION_PATTERN: Final = (
    rf"^(?:{_NUMBER}|(?=[0-9])" + "".join(rf"(?:{_NUMBER}{unit})?" for unit in _DURATION_PARTS) + ")$"
)
"""What `parse_duration` accepts, as a regular expression that ECMA-262 and Python read alike."""

_RATE_UNITS: Final = {
    **{unit: int(seconds) for unit, seconds in TIME_UNITS.items() if seconds >= 1},
    "sec": 1,
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86400,
}
RATE_PATTERN: Final = rf"^{_NUMBER}(?: ?/ ?(?:{'|'.join(sorted(_RATE_UNITS, key=len, reverse=True))}))?$"
"""What `parse_rate` accepts, as a regular expression that ECMA-262 and Python read alike."""

PERCENT_PATTERN: Final = rf"^{_NUMBER} ?%$"
"""What `parse_percent` accepts, as a regular expression that ECMA-262 and Python read alike."""

SIZE_EXPECTED: Final = "a size such as 512MiB, 2GB or a whole number of bytes"
RATE_EXPECTED: Final = "a rate such as 200/s, 30/min or a number a second"
DURATION_EXPECTED: Final = "a duration such as 500ms, 90s, 1h30m or a number of seconds"


def parse_size(text: str) -> int:
    """Return the whole bytes that `text` stands for: ``512MiB``, ``512m`` (binary), ``512MB`` (decimal), ``4096``.

    A fraction of a byte is cut off. Raises `ValueError`.
    """
    match = re.fullmatch(rf"({_NUMBER})(?: ?([A-Za-z]+))?", text)
    if match is None:
        raise ValueError(f"expected {SIZE_EXPECTED}")
    number, unit = match.groups()
    if not unit:
        if "." in number:
            raise ValueError(f"a size without a unit is a whole number of bytes; expected {SIZE_EXPECTED}")
        return int(number)
    if unit not in SIZE_UNITS:
        raise ValueError(f"unknown unit {unit!r}{_size_hint(unit)}; expected {SIZE_EXPECTED}")
    return int(Decimal(number) * int(SIZE_UNITS[unit]))


def _size_hint(unit: str) -> str:
    letter = unit[0].lower()
    if letter in _BINARY and unit.lower() in {f"{letter}b", f"{letter}ib"}:
        decimal = "kB" if letter == "k" else f"{letter.upper()}B"
        return f" (write '{letter.upper()}iB' for powers of 1024 or '{decimal}' for powers of 1000)"
    return did_you_mean(unit, SIZE_UNITS)


def parse_duration(text: str) -> float:
    """Return the seconds that `text` stands for: ``15m``, ``1h30m``, ``500ms``, ``90`` (seconds).

    Units are those of `TIME_UNITS`, the largest first and each at most once. Raises `ValueError`.
    """
    if re.fullmatch(_NUMBER, text):
        return float(text)
    if re.fullmatch(r"[0-9]{1,6}(:[0-9]{1,6}){1,2}", text):
        clock = [int(part) for part in text.split(":")]
        units = ("h", "m", "s")[-len(clock) :]
        meant = "".join(f"{count}{unit}" for count, unit in zip(clock, units, strict=True))
        raise ValueError(f"a duration has units, not colons (did you mean '{meant}'?)")
    if not re.fullmatch(rf"(?:{_NUMBER} ?[A-Za-z\u00b5]+ ?)+", text):
        raise ValueError(f"expected {DURATION_EXPECTED}")
    parts: list[tuple[str, str]] = re.findall(rf"({_NUMBER}) ?([A-Za-z\u00b5]+)", text)
    for _, unit in parts:
        if unit not in TIME_UNITS:
            hint = did_you_mean(unit, TIME_UNITS) or f" (known: {', '.join(TIME_UNITS)})"
            raise ValueError(f"unknown unit {unit!r}{hint}; expected {DURATION_EXPECTED}")
    if not re.fullmatch(DURATION_PATTERN[1:-1], text):
        raise ValueError("write the units of a duration from large to small, each once and without spaces: 1h30m")
    return float(sum(Fraction(number) * TIME_UNITS[unit] for number, unit in parts))


def unix_seconds(created: object) -> float:
    """Return a time of ISO 8601 as seconds since 1970; NaN for what is none."""
    try:
        return datetime.fromisoformat(str(created)).timestamp()
    except (ValueError, OverflowError):
        return math.nan


def parse_rate(text: str) -> float:
    """Return how many a second `text` stands for: ``200/s``, ``30/min``, ``90/h``, ``12.5`` (a second).

    Raises `ValueError`.
    """
    match = re.fullmatch(rf"({_NUMBER})(?: ?/ ?([A-Za-z]+))?", text)
    if match is None:
        raise ValueError(f"expected {RATE_EXPECTED}")
    number, unit = match.groups()
    if unit is not None and unit not in _RATE_UNITS:
        hint = did_you_mean(unit, _RATE_UNITS)
        raise ValueError(f"unknown unit of time {unit!r}{hint}; expected {RATE_EXPECTED}")
    return float(Decimal(number) / _RATE_UNITS[unit or "s"])


def parse_percent(text: str) -> float:
    """Return the share that a percentage such as ``3%`` stands for: 0.03. Raises `ValueError`."""
    match = re.fullmatch(rf"({_NUMBER}) ?(%?)", text)
    if match is None or not match[2]:
        hint = f" (did you mean '{text}%'?)" if match and Decimal(match[1]) else ""
        raise ValueError(f"expected a percentage such as 3%{hint}")
    return float(Decimal(match[1]) / 100)


def format_share(share: float) -> str:
    """Return a share as a percentage: ``3%``."""
    return f"{100.0 * share:.12g}%"


def format_rate(per_second: float) -> str:
    """Return a rate as a person would write it, to 12 digits: ``200/s``, ``30/min``, ``0.5/h``."""
    for unit, seconds in (("s", 1), ("min", 60), ("h", 3600)):
        if per_second * seconds >= 1 and round(per_second * seconds, 9) == round(per_second * seconds, 3):
            return f"{per_second * seconds:.12g}/{unit}"
    return f"{per_second:.12g}/s"


def format_size(size_bytes: int) -> str:
    """Return the shortest exact spelling of a number of bytes: ``512MiB``, ``1.5GiB``, ``5MB``, ``4095B``."""
    binary = (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))
    decimal = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3))
    for parts in (1, 4):
        for suffix, scale in (*binary, *decimal):
            if size_bytes >= scale and size_bytes * parts % scale == 0:
                return f"{_plain(Decimal(size_bytes) / scale)}{suffix}"
    return f"{size_bytes}B"


def format_duration(seconds: float) -> str:
    """Return seconds to the nanosecond in the units of `parse_duration`: ``1h30m``, ``2.5s``, ``500ms``, ``0s``."""
    left_ns = round(Decimal(str(seconds)) * 10**9)
    if left_ns == 0:
        return "0s"
    if left_ns < 10**9:
        for unit, scale in (("ms", 10**6), ("us", 10**3)):
            if left_ns >= scale:
                return f"{_plain(Decimal(left_ns) / scale)}{unit}"
        return f"{left_ns}ns"
    parts = []
    for unit, scale in (("d", 86400 * 10**9), ("h", 3600 * 10**9), ("m", 60 * 10**9)):
        count, left_ns = divmod(left_ns, scale)
        if count:
            parts.append(f"{count}{unit}")
    if left_ns:
        parts.append(f"{_plain(Decimal(left_ns) / 10**9)}s")
    return "".join(parts)


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"


def unit_converter(written: str, own: str) -> Fraction | None:
    """Return what turns a number in unit `written` into unit `own`; None where nothing does.

    It is exact, so that ``== 3ns`` can be true of 3 ns. An empty `written` is `own`. Rates (``MiB/s``) convert like
    what they are rates of.
    """
    if not written or written == own or (written, own) == ("jobs/s", "/s"):
        return Fraction(1)
    rate = "/s" if written.endswith("/s") and own.endswith("/s") else ""
    left, right = written.removesuffix(rate), own.removesuffix(rate)
    for units in (TIME_UNITS, SIZE_UNITS):
        if left in units and right in units:
            return units[left] / units[right]
    return None
