"""What holds where a scenario does not say otherwise: one value for records, keys and their readers."""

from __future__ import annotations

from typing import Final

TIMEOUT_S: Final = 60.0
"""The time limit of one operation."""
QUEUE_TIMEOUT_S: Final = 10.0
"""How long a job that arrived waits for a slot before it is dropped."""
SETTLE_S: Final = 0.0
"""The pause after each trial."""
SAMPLING_INTERVAL_S: Final = 1.0
"""How often the resources of a host are read."""
ORDER: Final = "interleaved"
"""The order of the trials."""


def in_seconds(value_s: float) -> str:
    """Return a default as a scenario writes it, such as ``60s``."""
    return f"{value_s:g}s"
