"""Keeps a load process at hand: starts one where there is none, and notices when it dies."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from bench_worker.supervisor import LoadChild

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

FROZEN_S: Final = 10.0
"""A load process that says nothing for so long is taken for dead."""
READY_S: Final = 300.0
"""How long a load process may take to start.

Ended sooner, it would not get further the next time: where an emulated processor is shared with others, it took more
than 90 s for what it imports to be compiled, once. One that cannot start at all ends by itself.
"""
PROFILE_S: Final = 5.0
"""How long a load process may take to hand over its profile."""
RELEASE_S: Final = 20.0
"""How long a load process may take to remove the services that wait for another job; the sweep takes what is left."""
FALSE_STARTS: Final = 3
"""Where so many in a row do not get ready, none will."""


class LoadKeeper:
    """One load process at a time, ready for the engines that are named (None: for every one).

    `said` gets every message that it sends. `child` is the first one, where it was started already.
    """

    def __init__(
        self,
        engines: Sequence[str] | None,
        said: Callable[[dict[str, Any]], None],
        child: LoadChild | None = None,
    ) -> None:
        self._engines = engines
        self._said = said
        self._child = child
        if child is not None:
            child.said = said
        self._false_starts = 0

    @property
    def ready(self) -> bool:
        """Whether there is one that can be given a run."""
        return self._child is not None and self._child.ready

    @property
    def hopeless(self) -> bool:
        """Whether this is a machine on which none can start."""
        return self._false_starts >= FALSE_STARTS

    def look(self) -> str | None:
        """Start one where there is none; return how it died, None while it lives. One that died is to be ended."""
        child = self._child
        if child is None:
            self._child = LoadChild(self._engines)
            self._child.said = self._said
            return None
        reason = child.death(frozen_s=FROZEN_S, ready_s=READY_S)
        if reason is not None:
            log.warning("the load process %s", reason)
            self._false_starts = 0 if child.ready else self._false_starts + 1
        return reason

    def start(self, orders: dict[str, Any]) -> None:
        """Hand it a run; it is there and ready."""
        assert self._child is not None
        self._child.start(orders)

    def profile(self) -> bytes | None:
        """Return the packed profile of its run, empty where it was too large to be sent; None where it gives none."""
        content = self._child.profile(PROFILE_S) if self._child is not None else None
        if content is None:
            log.warning("the load process gave no profile within %g s", PROFILE_S)
        return content

    def release(self) -> None:
        """Have it remove the services that its jobs no longer need; that it did not is logged."""
        if self._child is not None and not self._child.release(RELEASE_S):
            log.warning("the load process did not remove its jobs' services within %g s", RELEASE_S)

    def end(self) -> None:
        """End the one that there is: the next look starts a fresh one."""
        child, self._child = self._child, None
        if child is not None:
            child.end()
