"""A network that can be cut: a relay between a worker and its master, for each of the master's ports."""

import contextlib
import re
import selectors
import socket
import struct
import threading
import time
from collections import deque

from deadlines import ANSWER_S

ADDRESS = "127.0.0.2"
"""Where the worker finds the relay; the ports are the master's own, as the welcome names them."""


GREETING_BYTES = 64
FIRST_READ = re.compile(rb"GET \S*/weighbridge-[^ /?]+/")
"""The first request of a trial on objects: what is made before it is written only."""


def has_message(sent):
    """Whether what one side of a ZeroMQ connection has sent goes beyond its greeting and commands (ZMTP 3.1)."""
    place = GREETING_BYTES
    while place < len(sent):
        flags = sent[place]
        if not flags & 4:
            return True
        long = flags & 2
        head = sent[place + 1 : place + (9 if long else 2)]
        place += 1 + len(head) + int.from_bytes(head, "big")
    return False


class Relay:
    """Carries bytes both ways; once `cut` nothing passes and nothing is closed, as when a cable is pulled.

    `sever` also forgets the connections without a word to either side, so that what was under way is gone for good.
    """

    def __init__(self, ports):
        self._selector = selectors.DefaultSelector()
        self._pairs = {}
        self._ports = {}
        self._open = True
        self._cut = False
        self._lock = threading.RLock()
        self._abandoned = []
        self._losing = {}
        """The ports whose messages are lost, each with how many connections were reset for that."""
        self._delays_s = {}
        """By how much the bytes of a port's connections are late, by port."""
        self._late = deque()
        """What is under way: when it arrives, at which end, and the bytes; none at the end of a connection."""
        self._sent = {}
        """What a host has sent over a connection to such a port, of which no message is known yet."""
        self._deed = None
        """What bytes are awaited, and what is done then."""
        for port in ports:
            listener = socket.create_server((ADDRESS, port))
            self._selector.register(listener, selectors.EVENT_READ, port)
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Be gone, as a host whose processes have ended."""
        self._open = False
        self._thread.join(ANSWER_S)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        for end in (*self._abandoned, *self._pairs):
            end.close()

    def cut(self):
        """Let nothing pass any more."""
        with self._lock:
            self._cut = True

    def sever(self):
        """Cut, and lose what is under way: the connections of now never carry a byte again."""
        with self._lock:
            self._cut = True
            for end in list(self._pairs):
                self._selector.unregister(end)
                self._abandoned.append(end)
            self._pairs.clear()

    def at_first(self, pattern, deed):
        """Call `deed()` when bytes that have a pattern in them come, once, and before they pass."""
        with self._lock:
            self._deed = (pattern, deed)

    @property
    def is_cut(self):
        """Whether nothing passes."""
        return self._cut

    def delay(self, ports, seconds):
        """Have what passes on connections to these ports from now on arrive so much later, in either direction."""
        with self._lock:
            self._delays_s |= dict.fromkeys(ports, seconds)

    def reset(self, port):
        """Reset all connections to a port, on both sides (TCP RST): what is under way is lost; return how many."""
        with self._lock:
            pairs = [end for end in self._pairs if self._ports.get(end) == port]
            for near in pairs:
                self._reset(near)
            return len(pairs)

    def lose_messages(self, port):
        """From now on reset each connection to a port at the first ZeroMQ message from there, which does not pass."""
        with self._lock:
            self._losing[port] = 0

    def pass_messages(self, port):
        """Let messages pass again; return how many connections were reset meanwhile."""
        with self._lock:
            return self._losing.pop(port)

    def connections_reset(self, port):
        """Return how many connections were reset since `lose_messages`."""
        with self._lock:
            return self._losing[port]

    def _reset(self, near):
        for end in (near, self._pairs[near]):
            self._selector.unregister(end)
            self._pairs.pop(end)
            self._sent.pop(end, None)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()
        del self._ports[near]

    def _loses(self, far, near, data):
        """Whether these bytes of the port's host bring a message that must not pass."""
        port = self._ports.get(near)
        if port not in self._losing:
            return False
        self._sent[far] = self._sent.get(far, b"") + data
        if not has_message(self._sent[far]):
            return False
        self._losing[port] += 1
        return True

    def heal(self):
        """Let everything pass again. Connections that were severed are closed, as hosts do that find no such peer."""
        with self._lock:
            for end in self._abandoned:
                end.close()
            self._abandoned.clear()
            self._cut = False

    def _carry(self):
        while self._open:
            with self._lock:
                if not self._cut:
                    for key, _ in self._selector.select(0):
                        self._take(key)
                    self._deliver()
            threading.Event().wait(0.002)

    def _take(self, key):
        if key.fileobj.fileno() < 0:
            return
        if key.data is not None:
            near, _ = key.fileobj.accept()
            self._connect(near, key.data)
            return
        if key.fileobj not in self._pairs:
            return
        other = self._pairs[key.fileobj]
        data = b""
        with contextlib.suppress(OSError):
            data = key.fileobj.recv(1 << 16)
        if self._deed is not None and self._deed[0].search(data):
            (_, deed), self._deed = self._deed, None
            deed()
        try:
            if data:
                if self._loses(key.fileobj, other, data):
                    self._reset(other)
                    return
                if not self._postpone(key.fileobj, other, data):
                    other.sendall(data)
                return
        except OSError:
            pass
        if self._postpone(key.fileobj, other, b""):
            self._selector.unregister(key.fileobj)
            return
        self._close(key.fileobj, other)

    def _connect(self, near, port):
        try:
            far = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)
        except OSError:
            near.close()
            return
        self._pairs[near], self._pairs[far] = far, near
        self._ports[near] = port
        for end in (near, far):
            self._selector.register(end, selectors.EVENT_READ)

    def _postpone(self, near, far, data):
        """Keep bytes for later where their port is slow; return whether it is. What is late stays in order."""
        delay_s = self._delays_s.get(self._ports.get(near, self._ports.get(far)))
        if delay_s is not None:
            self._late.append((time.monotonic() + delay_s, near, far, data))
        return delay_s is not None

    def _deliver(self):
        """Let what is late arrive, if it is time."""
        while self._late and self._late[0][0] <= time.monotonic():
            _, near, far, data = self._late.popleft()
            if far in self._pairs:
                try:
                    far.sendall(data)
                except OSError:
                    data = b""
                if not data:
                    self._close(near, far)

    def _close(self, *ends):
        for end in ends:
            self._pairs.pop(end, None)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end)
            end.close()
