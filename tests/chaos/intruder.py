"""Somebody on a host of the network who wants in, or wants to do harm: a program for the network of a blade.

Its input is JSON: the master's ``host``, its ``ports`` (``control``, ``results``, ``lanes``), its
public key, the key file of a ``mole``, who is on the allow-list and takes no part, the ``victims``' epochs,
how long to go on (``seconds``), and for how much longer to wait until a silent connection is shut (``patience``).
All attacks run at once for that long; then it prints their results as JSON.
"""

import contextlib
import json
import os
import random
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import zmq
from deadlines import ANSWER_S

from bench_common.fields import MAX_FRAME
from bench_common.keys import read_worker_key
from bench_common.messages import FROM_MASTER, CleanupDone, Heartbeat, Hello, Results, Samples, WorkerDied, encode
from bench_common.records import LOOP_BYTES

SEED = 5
CURVE_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15) + b"\x00" + bytes(31)
PLAIN_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)
READY = b"\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
"""What peers of ZMTP 3 say first (RFC 23), with and without keys, and what one without keys says next."""
HALF_OPEN = 300
SLOW = 40
PAUSE_S, PATIENCE_S = 0.1, 5
"""Between two attempts, and for the answer to one: attacks go on for a given time."""


def forged(epoch):
    """Return what a worker of this epoch could say: that it is there, that it is gone, that its jobs are done."""
    return {
        "control": [
            encode(Heartbeat(epoch=epoch, sent_ns=1, running=0, offset_ns=0, uncertainty_ns=-1)),
            encode(WorkerDied(epoch=epoch, worker_id="blade-2", reason="so it says")),
            encode(CleanupDone(epoch=epoch, removed=0, failed=[])),
            encode(Samples(epoch=epoch, source="host", columns={"time_ns": [1]}, units={})),
        ],
        "results": [
            encode(Results(epoch=epoch, sequence=sequence, treatment=0, trial=0, rows=bytes(96),
                   loop=bytes(LOOP_BYTES), metrics=[], errors=[], outputs=[]))
            for sequence in (0, 10_000)
        ],
    }  # fmt: skip


def hello(name):
    """Return what a worker of that name asks with."""
    info = {"host": name, "engines": {"native": {"usable": True}}}
    return encode(Hello(epoch=0, worker_id=name, environment="hypervisor", slots=4, sent_ns=1, info=info))


class Intruder:
    """All attacks and their results."""

    def __init__(self, result):
        self.host, self.ports, self.victims = result["host"], result["ports"], result["victims"]
        self.master_public = result["master_public"].encode()
        self.mole = read_worker_key(Path(result["mole"]))
        self.deadline = time.monotonic() + result["seconds"]
        self.patience_s = result["patience"]
        self.context = zmq.Context()
        self.random = random.Random(SEED)
        self.found = {"stolen": 0, "answered": 0, "to_mole": [], "forged": 0, "opened": 0, "shut": 0}
        self.every = [self.ports["control"], self.ports["results"], *self.ports["lanes"]]

    @property
    def going_on(self):
        return time.monotonic() < self.deadline

    def connect(self, kind, port, *, keys=None, master=None, routing_id=None):
        """Open a socket to a port: with keys, or in plain text."""
        made = self.context.socket(kind)
        made.linger = 0
        made.sndtimeo = 200
        if keys is not None:
            made.curve_publickey, made.curve_secretkey = keys
            made.curve_serverkey = master or self.master_public
        if routing_id is not None:
            made.routing_id = routing_id
        made.connect(f"tcp://{self.host}:{port}")
        return made

    def pose_without_a_key_that_counts(self):
        """Nobody's key, none at all, and a listed one towards another master: on every port, in every direction."""
        own = (self.mole.keys.public, self.mole.keys.secret)
        proofs = [{}, {"keys": zmq.curve_keypair()}, {"keys": own, "master": zmq.curve_keypair()[0]}]
        talkers, thieves = [], []
        for proof in proofs:
            talkers.append((self.connect(zmq.DEALER, self.ports["control"], **proof), "control"))
            talkers.append((self.connect(zmq.PUSH, self.ports["results"], **proof), "results"))
            thieves += [self.connect(zmq.PULL, lane, **proof) for lane in self.ports["lanes"]]
        while self.going_on:
            for talker, where in talkers:
                for epoch in self.victims:
                    for frame in (hello("blade-2"), *forged(epoch)[where]):
                        with contextlib.suppress(zmq.Again):
                            talker.send(frame)
                if where == "control":
                    self.found["answered"] += len(self._heard(talker))
            self.found["stolen"] += sum(len(self._heard(thief)) for thief in thieves)
            time.sleep(PAUSE_S)
        for one in (*(talker for talker, _ in talkers), *thieves):
            one.close()

    def steal_an_identity(self):
        """With a key that is listed: under another's name and in its epoch, and at the end of another's lane."""
        keys = (self.mole.keys.public, self.mole.keys.secret)
        control = self.connect(zmq.DEALER, self.ports["control"], keys=keys, routing_id=b"blade-2")
        twin = self.connect(zmq.DEALER, self.ports["control"], keys=keys, routing_id=b"blade-2")
        results = self.connect(zmq.PUSH, self.ports["results"], keys=keys)
        thieves = [self.connect(zmq.PULL, lane, keys=keys) for lane in self.ports["lanes"]]
        while self.going_on:
            for epoch in self.victims:
                for talker, where in ((control, "control"), (twin, "control"), (results, "results")):
                    for frame in forged(epoch)[where]:
                        with contextlib.suppress(zmq.Again):
                            talker.send(frame)
                            self.found["forged"] += 1
            control.send(hello("blade-2"))
            self.found["stolen"] += sum(len(self._heard(thief)) for thief in thieves)
            time.sleep(PAUSE_S)
        # After all of this the door still opens to a key that is listed, and it is told that it is late.
        received = set()
        limit = time.monotonic() + ANSWER_S
        while "Dismiss" not in received and time.monotonic() < limit:
            # Of the two that call themselves alike a ROUTER hears the one that came first, whichever that was.
            for one in (control, twin):
                with contextlib.suppress(zmq.Again):
                    one.send(hello("blade-2"))
            time.sleep(PAUSE_S)
            frames = [*self._heard(control), *self._heard(twin)]
            received |= {type(FROM_MASTER.decode(frame)).__name__ for frame in frames}
        self.found["to_mole"] = sorted(received)
        for one in (control, twin, results, *thieves):
            one.close()

    def say_anything(self):
        """Plain TCP: garbage, other protocols, ZMTP without keys, and hellos larger than any message."""
        huge = b"\x06" + struct.pack(">Q", MAX_FRAME - 1) + b"\x05HELLO" + bytes(1 << 21)
        payloads = [
            self.random.randbytes(5000), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01" + bytes(500), b"",
            PLAIN_GREETING + READY, PLAIN_GREETING + self.random.randbytes(3000), CURVE_GREETING + READY,
            CURVE_GREETING + self.random.randbytes(3000), CURVE_GREETING + huge, PLAIN_GREETING + huge,
        ]  # fmt: skip
        while self.going_on:
            for port in self.every:
                for payload in payloads:
                    self._send(port, payload)

    def leave_half_open(self):
        """Connections by the hundred that say nothing, or begin to: kept until they are shut, and then reopened.

        When all else is over it waits until the first of them is shut: a handshake may take half a minute.
        """
        kept = []
        while self.going_on or (not self.found["shut"] and time.monotonic() < self.deadline + self.patience_s):
            while len(kept) < HALF_OPEN and self.going_on:
                with contextlib.suppress(OSError):
                    line = socket.create_connection((self.host, self.every[len(kept) % len(self.every)]), PATIENCE_S)
                    line.sendall(CURVE_GREETING[: len(kept) % len(CURVE_GREETING)])
                    line.setblocking(False)
                    kept.append(line)
                    self.found["opened"] += 1
            time.sleep(PAUSE_S)
            for line in list(kept):
                if self._is_shut(line):
                    self.found["shut"] += 1
                    kept.remove(line)
                    line.close()
        for line in kept:
            line.close()

    def speak_slowly(self):
        """A byte now and then, of what would be a proper greeting."""
        lines = []
        for number in range(SLOW):
            with contextlib.suppress(OSError):
                lines.append(socket.create_connection((self.host, self.every[number % len(self.every)]), PATIENCE_S))
        place = 0
        while self.going_on:
            for line in lines:
                with contextlib.suppress(OSError):
                    line.sendall((CURVE_GREETING * 4)[place : place + 1])
            place += 1
            time.sleep(PAUSE_S)
        for line in lines:
            line.close()

    def do_it_all(self):
        """Run all attacks at once; return their results."""
        deeds = [
            self.pose_without_a_key_that_counts,
            self.steal_an_identity,
            self.say_anything,
            self.leave_half_open,
            self.speak_slowly,
        ]
        threads = [threading.Thread(target=deed, daemon=True) for deed in deeds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.found

    def _send(self, port, payload):
        with contextlib.suppress(OSError), socket.create_connection((self.host, port), PATIENCE_S) as line:
            line.sendall(payload)
            line.settimeout(0.05)
            line.recv(100)

    def _heard(self, one):
        """Return the last frame of each message that has come."""
        received = []
        while one.poll(1):
            received.append(one.recv_multipart()[-1])
        return received

    @staticmethod
    def _is_shut(line):
        try:
            while data := line.recv(1000):
                del data
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


if __name__ == "__main__":
    print(json.dumps(Intruder(json.loads(sys.stdin.readline())).do_it_all()))  # noqa: T201  its answer
    sys.stdout.flush()
    os._exit(0)
