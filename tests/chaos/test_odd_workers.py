"""Workers that join and then break the protocol: each loses its own part of the run, and nothing of the others."""

import contextlib
import threading
import time
from pathlib import Path

import msgpack
import zmq
from deadlines import ANSWER_S, wait_until
from live_run import NATIVE, OverTcp

from bench_common.fields import VERSION
from bench_common.messages import FROM_MASTER, Heartbeat, Hello, Preflight, PreflightResult, Results, Welcome, encode
from bench_common.records import LOOP_BYTES, RESULT_FIELDS, WORD_BYTES

ENGINES = {
    "native": {"name": "native", "usable": True, "operations": ["run", "wait", "remove"], "settings": ["command"]}
}
OPERATIONS = 3
"""Of a job of `live_run.NATIVE`."""


class OddWorker:
    """A worker that joins and sends heartbeats, and nothing else until it is told to."""

    def __init__(self, port, name, boot_id):
        self.name = name
        self.context = zmq.Context()
        self.control = self.context.socket(zmq.DEALER)
        self.control.linger = 0
        self.control.sndtimeo = 500  # a master that is gone, or that has cut this worker off, reads no more
        self.control.connect(f"tcp://127.0.0.1:{port}")
        self.host = {"host": "odd", "engines": ENGINES, "allow_native": True, "boot_id": boot_id}
        self.welcome = None
        self.lock = threading.Lock()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()

    def send(self, frame):
        """Send a frame on the control socket, unless nobody reads there any more."""
        with self.lock, contextlib.suppress(zmq.Again):
            self.control.send(frame)

    def results(self):
        """Return a socket for results."""
        made = self.context.socket(zmq.PUSH)
        made.linger = 2000
        made.plain_username, made.plain_password = str(self.welcome.epoch).encode(), self.welcome.token.encode()
        made.connect(f"tcp://127.0.0.1:{self.welcome.results_endpoint.rpartition(':')[2]}")
        return made

    def close(self):
        """End without a word."""
        self.over.set()
        self.thread.join(ANSWER_S)
        self.context.destroy(0)

    def _live(self):
        while not self.over.wait(0.2):
            with self.lock, contextlib.suppress(zmq.Again):
                while self.control.poll(0):
                    self._take(FROM_MASTER.decode(self.control.recv()))
                if self.welcome is None:
                    place = {"worker_id": self.name, "environment": "local", "slots": 4, "info": self.host}
                    sign = Hello(epoch=0, sent_ns=time.monotonic_ns(), **place)
                else:
                    sign = beat(self.welcome.epoch)
                self.control.send(encode(sign))

    def _take(self, message):
        if isinstance(message, Preflight):
            self.control.send(encode(PreflightResult(epoch=0, reasons=[], forbidden=[], engines=ENGINES)))
        elif isinstance(message, Welcome):
            self.welcome = message


def beat(epoch):
    """Return a heartbeat."""
    return Heartbeat(epoch=epoch, sent_ns=time.monotonic_ns(), running=0, offset_ns=0, uncertainty_ns=-1)


def odd_rows(word):
    """Return one row of results in which each stamp is this number."""
    head = [0, 0, -1, 0, word, word]
    assert len(head) == len(RESULT_FIELDS)
    return b"".join(value.to_bytes(WORD_BYTES, "little", signed=True) for value in head + [word] * 2 * OPERATIONS)


def test_each_odd_worker_ends_its_own_part_only(tmp_path):
    """An offset of -2**63, stamps of 2**63 - 1: all results of the honest worker count."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    with OverTcp(tmp_path / "live", {**NATIVE, "repeats": 1, "iterations": 16}, workers=3) as live:
        odd = {name: OddWorker(live.ports[0], name, boot_id) for name in ("clock", "stamps")}
        try:
            live.join("-c", 4, "--environment", "local", "solo")
            live.wait_for_jobs(2)
            wait_until(lambda: all(one.welcome for one in odd.values()), ANSWER_S, "welcomes that are read")
            fields = {"running": 0, "sent_ns": 1, "uncertainty_ns": 0, "taken": 0, "token": ""}
            epoch = odd["clock"].welcome.epoch
            odd["clock"].send(
                msgpack.packb([VERSION, {"type": "heartbeat", "epoch": epoch, **fields, "offset_ns": -(1 << 63)}])
            )
            results = Results(epoch=odd["stamps"].welcome.epoch, sequence=0, taken=0, treatment=0, trial=0,
                              rows=odd_rows((1 << 63) - 1), loop=bytes(LOOP_BYTES), metrics=[],
                              errors=[], outputs=[])  # fmt: skip
            push = odd["stamps"].results()
            push.send(encode(results))
            assert live.end() == 3, live.err
        finally:
            for one in odd.values():
                one.close()
    outcomes = live.run.outcomes()
    assert outcomes["done"] == 64, "the share of the honest worker"
    assert {job["worker"] for job in live.run.jobs if job["outcome"] == "done"} == {"solo"}
    report = live.run.details
    assert "worker clock was lost (it broke the protocol: message 'heartbeat': Expected `int` >= -" in report
    assert "worker stamps was lost (it broke the protocol: results with a number that" in report
    assert "internal error" not in live.err
