"""Options whose value is a duration."""

from __future__ import annotations

from bench_common.errors import UsageError
from bench_common.units import parse_duration


def parse_duration_option(text: str, flag: str) -> float:
    """Return the value of an option in seconds; raise `UsageError` for an invalid duration."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{flag} {text}: {error}") from error
