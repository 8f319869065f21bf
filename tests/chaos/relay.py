"""A network that can be cut: a relay between a worker and its master, for each of the master's ports."""

import contextlib
import selectors
import socket
import struct
import threading

from deadlines import ANSWER_S

ADDRESS = "127.0.0.2"
"""Where the worker finds the relay; the ports are the master's own, as the welcome names them."""


GREETING_BYTES = 64


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
        self._lock = threading.Lock()
        self._abandoned = []
        self._losing = {}
        """The ports whose messages are lost, each with how many connections were reset for that."""
        self._sent = {}
        """What a host has sent over a connection to such a port, of which no message is known yet."""
        for port in ports:
            listener = socket.create_server((ADDRESS, port))
            self._selector.register(listener, selectors.EVENT_READ, port)
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._open = False
        self._thread.join(ANSWER_S)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        for end in self._abandoned:
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
            threading.Event().wait(0.002)

    def _take(self, key):
        if key.fileobj.fileno() < 0:
            return
        if key.data is not None:
            near, _ = key.fileobj.accept()
            try:
                far = socket.create_connection(("127.0.0.1", key.data), timeout=ANSWER_S)
            except OSError:
                near.close()
                return
            self._pairs[near], self._pairs[far] = far, near
            self._ports[near] = key.data
            for end in (near, far):
                self._selector.register(end, selectors.EVENT_READ)
            return
        if key.fileobj not in self._pairs:
            return
        other = self._pairs[key.fileobj]
        data = b""
        with contextlib.suppress(OSError):
            data = key.fileobj.recv(1 << 16)
        try:
            if data:
                if self._loses(key.fileobj, other, data):
                    self._reset(other)
                    return
                other.sendall(data)
                return
        except OSError:
            pass
        for end in (key.fileobj, other):
            self._pairs.pop(end, None)
            self._selector.unregister(end)
            end.close()
