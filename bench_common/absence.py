"""Tells when a process did not run for a while: the machine was stopped, or it got no processor.

Whoever waits for another to speak hears nothing in that time, however much was said. So silence counts only while
one listens: by the clock alone a virtual machine that was held up would take all of its peers for dead.
"""

from __future__ import annotations

from time import monotonic
from typing import Final

ABSENT_S: Final = 2.0
"""A loop that comes by so much later than it was to was absent; one that is merely busy does not."""


class Rounds:
    """The rounds of a loop that comes by every so often."""

    def __init__(self) -> None:
        self._came = monotonic()

    def come(self, due_s: float) -> float:
        """Note that it comes by, as it was to do in `due_s`; return for how long it was absent, in seconds."""
        left, self._came = self._came, monotonic()
        late_s = self._came - left - due_s
        return late_s if late_s > ABSENT_S else 0.0
