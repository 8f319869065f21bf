"""Says once that no master answers: one that is late and one whose name is misspelt look the same."""

from __future__ import annotations

import logging
import socket
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

SILENCE_S: Final = 10.0
"""How long nothing at all is heard before it is told."""
CONNECT_S: Final = 2.0
"""How long the master's port may take to answer when it is looked at."""


class FirstAnswer:
    """Watches for the first word of the master at a zmq endpoint; `clock` gives seconds.

    `keyed` says whether the worker shows a key there.
    """

    def __init__(self, endpoint: str, clock: Callable[[], float] = monotonic, *, keyed: bool = False) -> None:
        self._endpoint = endpoint
        self._keyed = keyed
        self._clock = clock
        self._asked_at = clock()
        self._settled = False

    def came(self) -> None:
        """Note that there is a master."""
        self._settled = True

    def look(self) -> None:
        """Tell, once, that none has answered for `SILENCE_S`."""
        if self._settled or self._clock() - self._asked_at < SILENCE_S:
            return
        self._settled = True
        log.warning("no master answers at %s yet: %s; this worker keeps asking", self._endpoint, self._advice())

    def _advice(self) -> str:
        if not self._endpoint.startswith("tcp://"):
            return "is it still there?"
        host, _, port = self._endpoint.removeprefix("tcp://").rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S).close()
        except socket.gaierror as error:
            return f"the name {host} cannot be resolved ({error.strerror})"
        except OSError as error:
            return f"{error.strerror or error}; is bench-master running there, and TCP port {port} open?"
        if self._keyed:
            return (
                "who listens there does not let this worker in; is it the master that made its key, "
                "and is the key on that master's allow-list (bench-master keygen --list)?"
            )
        return "who listens there does not let this worker in; is it a bench-master, and wants a key (--key FILE)?"
