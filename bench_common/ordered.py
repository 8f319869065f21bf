"""Messages that arrive once each and in order, although connections break: numbered, acknowledged, sent again.

zmq opens a connection that broke again, but what was queued for it and what TCP had in flight is lost without a word.
So the sender keeps each message until the receiver confirms its number, and sends all of them again where that takes
too long; the receiver takes them in order and drops repeats and whatever follows a gap. Pure: time is an argument.
"""

from __future__ import annotations

from collections import deque
from typing import Final

RESEND_S: Final = 0.75
"""A message that is not confirmed after so long is sent again, in seconds; heartbeats confirm within 0.6 s."""
MAX_DOUBLINGS: Final = 4
"""How often the interval doubles while nothing is confirmed, so that a slow network is not filled with repeats."""


class OrderedSender:
    """Numbers messages from 1 on and keeps each until it is confirmed."""

    def __init__(self) -> None:
        self.last = 0
        """The number of the last message."""
        self._unconfirmed: deque[tuple[int, bytes, float]] = deque()
        self._repeated_at = 0.0
        self._repeats = 0

    def keep(self, frame: bytes, now: float) -> None:
        """Keep the message after the last one, which has the number ``last + 1`` and is sent at `now` (s)."""
        self.last += 1
        self._unconfirmed.append((self.last, frame, now))

    def confirm(self, number: int) -> None:
        """Drop every message up to a number: the receiver has taken them."""
        unconfirmed = self._unconfirmed
        while unconfirmed and unconfirmed[0][0] <= number:
            unconfirmed.popleft()
            self._repeats = 0

    def overdue(self, now: float) -> list[bytes]:
        """Return all unconfirmed messages, in order, if the first has waited for too long; else none."""
        if not self._unconfirmed:
            return []
        since = max(self._unconfirmed[0][2], self._repeated_at)
        if now - since < RESEND_S * (1 << self._repeats):
            return []
        self._repeats = min(self._repeats + 1, MAX_DOUBLINGS)
        self._repeated_at = now
        return [frame for _, frame, _ in self._unconfirmed]


class OrderedReceiver:
    """Admits each message once, in the order of their numbers."""

    def __init__(self) -> None:
        self.taken = 0
        """The number of the last message that was admitted."""

    def admit(self, number: int) -> bool:
        """Return whether a message is the next; a repeat, and one after a gap, is dropped: it is sent again."""
        if number != self.taken + 1:
            return False
        self.taken = number
        return True
