"""The master's boundary to the wire: what comes in and does not fit is dropped, counted, and told of sparingly."""

import logging
from collections import Counter
from types import SimpleNamespace

import msgpack
import zmq

from bench_common.errors import ProtocolError
from bench_common.messages import VERSION, Heartbeat, Results, encode
from bench_common.records import LOOP_BYTES
from bench_master.run.incoming import SRCFD, Incoming
from bench_master.run.message_handler import MessageHandler

BEAT = encode(Heartbeat(epoch=3, sent_ns=1, running=0, offset_ns=0, uncertainty_ns=-1))
RESULTS = encode(
    Results(
        epoch=3, sequence=0, treatment=0, trial=0, rows=b"", loop=bytes(LOOP_BYTES), metrics=[], errors=[], outputs=[]
    )
)


class Proven(zmq.Frame):
    """A frame that came with a key, as zmq hands it over."""

    def get(self, name):
        """Return who the key belongs to, and the connection."""
        return {"User-Id": "blade-1", SRCFD: 7}[name]


def board(deed, *, keys=False):
    """Return what takes frames, and what it dropped; its receiver does `deed` with every message."""
    dropped = Counter()
    receiver = SimpleNamespace(on_control=deed, on_results=deed, epoch_state=lambda _: "current", on_broken=print)
    return Incoming(receiver, dropped, keyed=keys), dropped


def break_down(*_):
    """Do what our own code must never do."""
    raise ValueError("a mistake of ours")


def object_to(*_):
    """Do what the session does with a message that lies."""
    raise ProtocolError("message WorkerDied in the epoch of another worker")


def test_a_flood_that_breaks_our_code_fills_no_log(caplog):
    """Whatever it is, the listener goes on; a traceback is told for the first, and then ever more seldom."""
    made, dropped = board(break_down)
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            made.on_control_frames([[zmq.Frame(b"peer"), zmq.Frame(BEAT)]])
            made.on_result_frames([[zmq.Frame(RESULTS)]])
    assert dropped == {"control: internal error": 1000, "results: internal error": 1000}
    assert len(caplog.records) == 20
    assert all(record.exc_info for record in caplog.records)
    assert "a mistake of ours" in caplog.text


def test_who_lies_is_named_by_the_key_that_it_came_with(caplog):
    """So that the one to revoke is known; a lie is no mistake of ours, and has no traceback."""
    made, _ = board(object_to, keys=True)
    with caplog.at_level(logging.WARNING):
        made.on_control_frames([[zmq.Frame(b"peer"), Proven(BEAT)]])
        made.on_result_frames([[Proven(RESULTS)]])
    lie = "message WorkerDied in the epoch of another worker"
    assert [record.getMessage() for record in caplog.records] == [
        f"dropped a message on {where} from worker blade-1 (1 so far): {lie}" for where in ("control", "results")
    ]
    assert not any(record.exc_info for record in caplog.records)


def test_a_frame_without_a_proven_sender_is_heard_by_nobody(caplog):
    """Where keys are demanded, a message without one never gets to those who act on it."""
    heard = []
    made, _ = board(lambda *message: heard.append(message), keys=True)
    with caplog.at_level(logging.WARNING):
        made.on_result_frames([[zmq.Frame(RESULTS)]])
    assert heard == []
    assert "without a proven sender" in caplog.text


ODD_HELLO = {"type": "hello", "epoch": 0, "worker_id": "w", "environment": "e", "slots": 1, "sent_ns": 1,
             "info": {"fingerprint": {"memory": {"a": 1}}}}  # fmt: skip


def test_a_worker_with_an_odd_hello_is_refused_with_the_reason():
    """It would ask for ever otherwise, and the master would wait for it; nothing else is touched by it."""
    sent = []
    parts = SimpleNamespace(
        coordinator=SimpleNamespace(roster=None),
        dispatcher=SimpleNamespace(send=lambda *message: sent.append(message)),
        recorder=None,
        plan=SimpleNamespace(treatments=(), trials=()),
    )
    dropped = Counter()
    incoming = Incoming(MessageHandler(parts, None), dropped, keyed=False)
    frame = msgpack.packb([VERSION, ODD_HELLO])
    incoming.on_control_frames([[zmq.Frame(b"peer"), zmq.Frame(frame)]])
    ((peer, dismiss),) = sent
    assert (peer, dismiss.final, dropped) == (b"peer", True, {"control": 1})
    assert "message 'hello': Expected `bool | int | float | str | null`, got `object`" in dismiss.reason
