"""A wire between a blade and its switch that can be cut, slowed down and made to lose frames, each way on its own.

Where the kernel has no netem: two TAP devices, one in each namespace, with this process carrying frames between them.
Run as a program, `faulty_link.py NAMESPACE DEVICE NAMESPACE DEVICE`, it says `ready` and then takes a command a line,
each a JSON object: for ``to`` and ``from`` (as the second namespace sees them) what frames suffer there, any of
``cut`` (bool), ``loss`` (0 to 1) and ``delay_s``; it answers each with `done`. It ends with its input.
"""

import contextlib
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time
from itertools import count

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
LARGEST = 65_536
SEED = 11


def open_tap(namespace, device):
    """Make a TAP device in a network namespace; return its file descriptor."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{namespace}") as space:  # noqa: PTH123  a descriptor is wanted
        if libc.setns(space.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH14x", device.encode(), IFF_TAP | IFF_NO_PI))
    return tap


class Wire:
    """Carries frames between two ends; `sufferings` are those of what comes from each end."""

    def __init__(self, ends):
        self._other = {ends[0]: ends[1], ends[1]: ends[0]}
        self._sufferings = {end: {} for end in ends}
        self._draw = random.Random(SEED)
        self._order = count()
        self._late = []

    def suffer(self, end, **sufferings):
        """Say what becomes of frames that come from an end from now on."""
        self._sufferings[end] = sufferings

    def take(self, end):
        """Take what has come from an end, and let go of it now or later, or never."""
        with contextlib.suppress(OSError):  # nothing is there any more, or the device is down
            for _ in range(64):
                frame = os.read(end, LARGEST)
                given = self._sufferings[end]
                if given.get("cut") or self._draw.random() < given.get("loss", 0):
                    continue
                due = time.monotonic() + given.get("delay_s", 0)
                heapq.heappush(self._late, (due, next(self._order), self._other[end], frame))

    def deliver(self):
        """Hand over what is due; return how long there is nothing more to do (s)."""
        while self._late and self._late[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(self._late)
            with contextlib.suppress(OSError):
                os.write(end, frame)
        return max(0.0, self._late[0][0] - time.monotonic()) if self._late else 1.0


def main(near_space, near_device, far_space, far_device):
    """Carry frames and obey, until the input ends."""
    near, far = open_tap(near_space, near_device), open_tap(far_space, far_device)
    wire = Wire((near, far))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    wait_s = 0.0
    while True:
        ready, _, _ = select.select([near, far, sys.stdin], [], [], wait_s)
        for one in ready:
            if one is not sys.stdin:
                wire.take(one)
                continue
            line = sys.stdin.readline()
            if not line:
                return
            command = json.loads(line)
            wire.suffer(near, **command.get("to", {}))
            wire.suffer(far, **command.get("from", {}))
            sys.stdout.write("done\n")
            sys.stdout.flush()
        wait_s = wire.deliver()


if __name__ == "__main__":
    main(*sys.argv[1:])
