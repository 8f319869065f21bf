"""A terminal of 80 columns of its own, and what is printed on it."""

import fcntl
import os
import pty
import select
import struct
import termios
from contextlib import contextmanager


@contextmanager
def narrow_terminal():
    """Yield a text stream that is a terminal, and a function that returns what was printed until now."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 48, 80, 0, 0))

    def printed():
        stream.flush()
        text = b""
        while select.select([ours], [], [], 0)[0]:
            text += os.read(ours, 65536)
        return text.decode().replace("\r\n", "\n")

    try:
        with os.fdopen(theirs, "w", encoding="utf-8") as stream:
            yield stream, printed
    finally:
        os.close(ours)
