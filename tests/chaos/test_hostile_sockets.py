"""While a run goes on over TCP, everything is thrown at its ports: it must neither stop, nor grow, nor miscount."""

import contextlib
import os
import random
import re
import socket
from pathlib import Path

import msgpack
import pytest
import zmq
from deadlines import ANSWER_S
from live_run import NATIVE, OverTcp
from workspace import UNHURRIED, naps_until

from bench_common.errors import ProtocolError
from bench_common.fields import MAX_FRAME, MAX_PART_BYTES, VERSION
from bench_common.messages import (
    DIRECTIONS,
    TYPES,
    CleanupDone,
    Heartbeat,
    Hello,
    Results,
    Samples,
    WorkerDied,
    encode,
)
from bench_common.records import LOOP_BYTES

SEED = 20
GREETING = b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)
"""What a ZMTP 3 peer says first (RFC 23)."""
MEMORY_BYTES = 200 << 20
JOBS = 800


def scenario(gone):
    """Return jobs for a minute and until there is a file `gone`; from then on the rest takes next to no time."""
    job = {**NATIVE["job"], "container": {"command": naps_until(gone)}}
    return {**NATIVE, "repeats": 1, "iterations": JOBS // 4, "job": job}


def wait_for_more(live):
    """Wait until forty more jobs are done, or all but the one that is held."""
    live.wait_for_jobs(min(live.jobs_shown() + 40, JOBS - 1))


NO_RECORDS = {"metrics": [], "errors": [], "outputs": []}
REAL = [
    encode(Hello(epoch=0, worker_id="x", environment="local", slots=4, sent_ns=1, info={"host": "h", "engines": {}})),
    encode(Heartbeat(epoch=3, sent_ns=1, running=1, offset_ns=0, uncertainty_ns=-1)),
    encode(WorkerDied(epoch=3, worker_id="solo", reason="so it says")),
    encode(Samples(epoch=3, source="host", columns={"time_ns": [1], "x": [2.0]}, units={"x": "1"})),
    encode(CleanupDone(epoch=3, removed=0, failed=[])),
    encode(Results(epoch=3, sequence=0, treatment=0, trial=0, rows=bytes(64), loop=bytes(LOOP_BYTES), **NO_RECORDS)),
]


def _fits(message, key, value):
    """Return whether a message may have this value in this field."""
    (direction,) = [one for one in DIRECTIONS if TYPES[message["type"]] in one.types]
    try:
        direction.decode(msgpack.packb([VERSION, {**message, key: value}]))
    except ProtocolError:
        return False
    return True


class Attacker:
    """Throws things at the ports of a master, the same each time.

    Results of a stranger do not pass its port; those of a bearer of a token do, whose place the socket for workers of
    the master's own takes here.
    """

    def __init__(self, live):
        self.control, self.results, self.lane = live.ports
        (self.inside,) = (
            one.laddr for one in live.master.net_connections("unix") if str(one.laddr).endswith("/results")
        )
        self.random = random.Random(SEED)
        self.context = zmq.Context()
        self.sockets = []

    def connect(self, kind, port):
        """Open a zmq socket to a port."""
        made = self.context.socket(kind)
        made.setsockopt(zmq.LINGER, 2000)
        made.setsockopt(zmq.SNDTIMEO, 5000)
        made.connect(f"ipc://{self.inside}" if port == self.results else f"tcp://127.0.0.1:{port}")
        self.sockets.append(made)
        return made

    def raw(self):
        """Plain TCP: random bytes, a greeting and garbage behind it, a greeting alone."""
        for port in (self.control, self.results, self.lane):
            for opening in (b"", GREETING, GREETING[:11], GREETING + b"\x04\x19\x05READY"):
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as plain,
                ):
                    plain.sendall(opening + self.random.randbytes(self.random.choice((1, 100, 70_000))))

    def half_open(self):
        """Connections that say nothing, or begin to; they are kept open."""
        for place in range(60):
            plain = socket.create_connection(("127.0.0.1", (self.control, self.results, self.lane)[place % 3]))
            plain.sendall(GREETING[: place % len(GREETING)])
            self.sockets.append(plain)

    def garbage(self, count):
        """Valid ZMTP with anything in the frames, in one part or many; return how many were sent to each port."""
        for kind, port in ((zmq.DEALER, self.control), (zmq.PUSH, self.results)):
            peer = self.connect(kind, port)
            for _ in range(count):
                parts = [
                    self.random.randbytes(self.random.randrange(80)) for _ in range(self.random.choice((1, 2, 9)))
                ]
                peer.send_multipart(parts)
        return count

    def mutations(self, count):
        """Real messages with bytes changed, cut off or repeated."""
        control, results = self.connect(zmq.DEALER, self.control), self.connect(zmq.PUSH, self.results)
        for _ in range(count):
            frame = bytearray(self.random.choice(REAL))
            for _ in range(self.random.randrange(1, 4)):
                frame[self.random.randrange(len(frame))] = self.random.randrange(256)
            if self.random.random() < 0.3:
                frame = frame[: self.random.randrange(len(frame))] * self.random.randrange(1, 3)
            self.random.choice((control, results)).send(bytes(frame))

    def misfits(self):
        """Well-formed frames with a wrong version, type, epoch, field, value or place; return how many were sent."""
        real = [msgpack.unpackb(frame)[1] for frame in REAL]
        frames = [[VERSION, {**one, "epoch": epoch}] for one in real for epoch in (-1, 1 << 63, 1.5, None, "3")]
        frames += [[version, one] for one in real for version in (0, VERSION - 1, VERSION + 1, True, "1", None)]
        frames += [[VERSION, {**one, "more": 1}] for one in real]
        frames += [[VERSION, {**one, key: value}]
                   for one in real for key in one for value in (None, [[]], {"a": 1}, -5, "x" * 300_000)
                   if not _fits(one, key, value)]  # fmt: skip
        names = ("welcome", "jobs", "cancel_jobs", "acknowledge", "stop", "no-such-type")
        frames += [[VERSION, {"type": name, "epoch": 3}] for name in names]
        frames += [[], {}, 7, None, [1, 2], [1] * 5, [[[[]]]]]
        for kind, port in ((zmq.DEALER, self.control), (zmq.PUSH, self.results)):
            peer = self.connect(kind, port)
            for frame in frames:
                peer.send(msgpack.packb(frame))
        return 2 * len(frames)

    def huge(self):
        """Frames as large as is let in, and larger ones."""
        for kind, port in ((zmq.DEALER, self.control), (zmq.PUSH, self.results)):
            for size in (MAX_PART_BYTES, MAX_FRAME - 100, MAX_FRAME + 1, 3 * MAX_FRAME):
                self.connect(kind, port).send(os.urandom(1000) + bytes(size - 1000))
            for count in (2, MAX_FRAME // MAX_PART_BYTES, MAX_FRAME // MAX_PART_BYTES + 1):
                self.connect(kind, port).send_multipart([os.urandom(1000) + bytes(MAX_PART_BYTES - 1000)] * count)

    def strangers(self):
        """Workers that were not asked for: unknown, unfit, or under a name that is taken."""
        peer = self.connect(zmq.DEALER, self.control)
        for name, slots in (("stranger", 64), ("unfit", 1), ("solo", 64)):
            info = {"host": "h", "engines": {}}
            hello = Hello(epoch=0, worker_id=name, environment="local", slots=slots, sent_ns=1, info=info)
            peer.send(encode(hello))

    def wrong_kinds(self):
        """Sockets of kinds that do not fit the port."""
        for kind in (zmq.PUSH, zmq.REQ, zmq.PUB, zmq.DEALER):
            with contextlib.suppress(zmq.Again):
                self.connect(kind, self.lane).send(b"x", zmq.NOBLOCK)

    def close(self):
        """Let go of everything."""
        for one in self.sockets:
            one.close()
        self.context.destroy(0)


def highest(process):
    """Return the most memory that a process ever had resident, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text("ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


@pytest.fixture
def gone(tmp_path):
    """A file that says that the attacker has gone."""
    return tmp_path / "gone"


@pytest.fixture
def live(tmp_path, gone):
    with OverTcp(tmp_path / "live", scenario(gone), *UNHURRIED) as live:
        live.join("-c", 4, "--environment", "local", "solo")
        live.wait_for_jobs()
        yield live


def test_a_run_withstands_garbage_at_its_ports(live, gone):
    """The run completes with one outcome a job; dropped messages are counted and reported; memory stays bounded."""
    attacker = Attacker(live)
    try:
        attacker.half_open()
        attacker.raw()
        attacker.wrong_kinds()
        dropped = 2 * attacker.garbage(1500) + attacker.misfits()
        attacker.mutations(3000)
        attacker.strangers()
        attacker.huge()
        wait_for_more(live)
        peak = highest(live.master)
        gone.touch()
        assert live.end() == 0
    finally:
        attacker.close()
    assert not live.faults()
    assert live.run.outcomes() == {"done": JOBS}
    assert not any(job["attempt"] for job in live.run.jobs)
    footer = live.run.blocks("footer")[0]
    assert footer.dropped_messages >= dropped
    assert "messages broke the protocol and were dropped" in live.run.details
    assert peak < MEMORY_BYTES, f"{peak >> 20} MiB"
    assert len(live.err) < 20_000, "a flood does not fill the log"


@pytest.mark.slow
def test_a_flood_does_not_starve_the_run(live, gone):
    """While ten thousand messages come in one go jobs go on."""
    attacker = Attacker(live)
    try:
        attacker.mutations(10_000)
        wait_for_more(live)
        gone.touch()
        assert live.end() == 0
    finally:
        attacker.close()
    assert not live.faults()
    assert live.run.outcomes() == {"done": JOBS}
