"""Times and spans as the archive's options take them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from bench_common.argument_types import InvalidValue
from bench_common.units import parse_duration

_DAYS_S: Final = {"d": 86_400.0, "w": 7 * 86_400.0}


def span(text: str) -> float:
    """Return a span such as ``30d``, ``2w`` or ``12h`` in seconds: a type of arguments."""
    number, unit = text[:-1], text[-1:]
    if unit.isdigit():  # seconds elsewhere; who asks for the last 5 means days
        raise InvalidValue(f"{text!r}: expected a span of time with its unit, such as {text}d or {text}h")
    if unit in _DAYS_S and number.isascii() and number.replace(".", "", 1).isdigit():
        return float(number) * _DAYS_S[unit]
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidValue(f"{text!r}: expected a span of time, such as 30d, 2w or 12h") from error


def moment(text: str) -> float:
    """Return a date, a time or how long ago it was as Unix seconds: a type of arguments."""
    try:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            found = datetime.now(UTC) - timedelta(seconds=span(text))
        return (found if found.tzinfo else found.astimezone()).timestamp()
    except (InvalidValue, ValueError, OverflowError) as error:
        raise InvalidValue(
            f"{text!r}: expected a date such as 2026-11-22 or 2026-11-22T18:00, or a span such as 30d or 12h"
        ) from error
