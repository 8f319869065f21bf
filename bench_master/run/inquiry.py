"""What a worker is asked before it is admitted: whether its host has what the plan's containers need.

Hellos wait here for the answer. It takes a worker a few milliseconds, or as long as copying an image does. What a
hello says of engines may be as old as its worker: with the answer comes what those of the plan are like now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench_common.requirements import engines_of, needs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from bench_common.messages import Message
    from bench_common.treatment import Treatment

ANSWER_S: Final = 300.0
"""How long a worker may take to answer, in seconds."""
ALIVE_S: Final = 5.0
"""A worker that waits repeats its hello twice a second; one that has been silent for so long is no more."""


@dataclass(slots=True)
class _Waiting:
    """A hello that waits, as it came last: with the connection's identity, and when it came (ns)."""

    asked_s: float
    heard_s: float
    identity: str | None
    hello: Message
    received_ns: int


class Inquiry:
    """Who was asked, and who has what it takes.

    `ask(peer, needs, engines)` sends the question, `clock()` gives seconds.
    """

    def __init__(
        self,
        treatments: Sequence[Treatment],
        ask: Callable[[bytes, list[dict[str, str | None]], list[str]], None],
        clock: Callable[[], float],
    ) -> None:
        self._treatments = treatments
        self._ask = ask
        self._clock = clock
        self._waiting: dict[bytes, _Waiting] = {}
        self._answered: set[bytes] = set()

    def admits(
        self, peer: bytes, identity: str | None, hello: Message, received_ns: int, *, doubtful: bool = False
    ) -> bool:
        """Say whether this worker has answered, or has not to: nothing is needed, and its hello is not `doubtful`.

        If it was not asked yet, it is, and its hello is kept.
        """
        who = (self._treatments, hello["environment"], identity or hello["worker_id"])
        needs, engines = needs_of(*who), engines_of(*who)
        if peer in self._answered or not (needs or (doubtful and engines)):
            return True
        now = self._clock()
        self._forget(now)
        kept = self._waiting.get(peer)
        if kept is None:
            self._ask(peer, [need.to_wire() for need in needs], engines)
        asked_s = now if kept is None else kept.asked_s
        self._waiting[peer] = _Waiting(asked_s, now, identity, hello, received_ns)
        return False

    def answered(self, peer: bytes, identity: str | None, engines: Mapping[str, Any]) -> tuple[Message, int] | None:
        """Note an answer; return the hello that waited for it, with these engines in it, and when that came (ns).

        None where this worker was not asked.
        """
        kept = self._waiting.get(peer)
        if kept is None or kept.identity != identity:
            return None
        del self._waiting[peer]
        self._answered.add(peer)
        told = kept.hello["info"].get("engines")
        if isinstance(told, dict):
            told |= engines
        return kept.hello, kept.received_ns

    def _forget(self, now: float) -> None:
        """Drop hellos whose connection has been gone for longer than any answer takes."""
        gone = [peer for peer, kept in self._waiting.items() if now - kept.heard_s > ANSWER_S]
        for peer in gone:
            del self._waiting[peer]

    @property
    def open(self) -> bool:
        """Whether an answer is awaited that may still come."""
        now = self._clock()
        return any(now - kept.asked_s < ANSWER_S and now - kept.heard_s < ALIVE_S for kept in self._waiting.values())
