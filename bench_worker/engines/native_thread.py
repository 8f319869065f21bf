"""A native thread that does what would block the event loop, or what belongs to one thread, such as a namespace.

gevent's own pool of threads makes an object, a watcher and several locks for each call, which together take longer
than the calls that an engine makes for each container. Here a call is one entry of a queue, and one watcher for all
of them wakes the greenlets that wait.
"""

from __future__ import annotations

from _queue import SimpleQueue  # the interpreter's own: gevent replaces the one of `queue`
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

import gevent
from gevent.event import Event
from gevent.monkey import get_original

if TYPE_CHECKING:
    from collections.abc import Callable

ResultT = TypeVar("ResultT")

_native_lock: Final = get_original("_thread", "allocate_lock")
_start_native_thread: Final = get_original("_thread", "start_new_thread")


class _Inbox:
    """The calls that are over, for the event loop whose greenlets wait for them."""

    def __init__(self) -> None:
        self.over: deque[_Call] = deque()
        self.waiting = 0
        """How many greenlets wait for a call: while any does, it has to listen."""
        self._lock = _native_lock()
        self._closed = False
        self.hub = gevent.get_hub()
        self.watcher = self.hub.loop.async_()
        self.watcher.start(self._deliver)

    def add(self, call: _Call) -> None:
        """Wake whoever waits for a call; from any thread."""
        self.over.append(call)
        with self._lock:
            if not self._closed:
                self.watcher.send()

    def close(self) -> None:
        """Stop listening; what is over later is of interest to nobody."""
        with self._lock:
            self._closed = True
            self.watcher.stop()
            self.watcher.close()

    def _deliver(self) -> None:
        while self.over:
            self.over.popleft().ended.set()


class _Call:
    """One call, and how it went. Nobody waits for one without an inbox."""

    __slots__ = ("do", "ended", "error", "inbox", "result")

    def __init__(self, do: Callable[[], Any], inbox: _Inbox | None) -> None:
        self.do = do
        self.inbox = inbox
        self.ended = Event()
        self.result: Any = None
        self.error: BaseException | None = None


class NativeThread:
    """Runs calls one after the other, from its first call until `close`."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._inbox: _Inbox | None = None

    def call(self, do: Callable[[], ResultT]) -> ResultT:
        """Run `do` in the thread and return its result, or raise what it raised. Blocks this greenlet, not the loop.

        A greenlet that is interrupted meanwhile does not wait any longer; the call is made all the same.
        """
        self._start()
        inbox = self._inbox
        if inbox is None or inbox.hub is not gevent.get_hub():
            # Called from another thread, with an event loop of its own.
            inbox = _Inbox()
        inbox.waiting += 1
        try:
            call = _Call(do, inbox)
            self._calls.put(call)
            call.ended.wait()
        finally:
            inbox.waiting -= 1
            if inbox is not self._inbox and not inbox.waiting:
                inbox.close()
        if call.error is not None:
            raise call.error
        result: ResultT = call.result
        return result

    def post(self, do: Callable[[], object]) -> None:
        """Run `do` in the thread, after what was asked for before; nobody waits, so it handles its own errors."""
        self._start()
        self._calls.put(_Call(do, None))

    def close(self) -> None:
        """End the thread when it has made the calls that it has; a later call starts another one.

        Whoever waits for one of them gets its result; the last of them closes the inbox.
        """
        if self._inbox is not None:
            self._calls.put(None)
            if not self._inbox.waiting:
                self._inbox.close()
            self._calls, self._inbox = SimpleQueue(), None

    def _start(self) -> None:
        if self._inbox is None:
            inbox = _Inbox()
            try:
                _start_native_thread(_run_all, (self._calls,))
            except BaseException:
                inbox.close()
                raise
            self._inbox = inbox


def _run_all(calls: SimpleQueue[_Call | None]) -> None:
    while (call := calls.get()) is not None:
        try:
            call.result = call.do()
        except BaseException as error:  # noqa: BLE001  raised again where it was called
            call.error = error
        if call.inbox is not None:
            call.inbox.add(call)
