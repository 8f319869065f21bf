"""Tells when a process did not run for a while: the machine was stopped, or it got no processor.

Whoever waits for another to speak hears nothing in that time, however much was said. So silence counts only while
one listens: by the clock alone a virtual machine that was held up would take all of its peers for dead.
"""

from __future__ import annotations

from time import monotonic
from typing import Final

ABSENT_S: Final = 2.0
"""A loop that comes by so much later than it was to was absent; one that is merely busy does not."""


def absent_s(since: float, due_s: float) -> float:
    """Return for how long this process was absent, in seconds: at `since` (monotonic) it was to come by in `due_s`.

    0 where it is no later than one that is merely busy.
    """
    late_s = monotonic() - since - due_s
    return late_s if late_s > ABSENT_S else 0.0
