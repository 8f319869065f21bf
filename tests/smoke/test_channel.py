"""Channels on real sockets: nothing lies in a queue for want of an edge, and nothing that comes in ends one."""

import time
from functools import partial

import deadlines
import gevent
import pytest
import zmq
from deadlines import ANSWER_S, START_S

from bench_common import eventloop
from bench_common.channel import ZmqChannel, configure_socket
from bench_common.fields import MAX_PART_BYTES


@pytest.fixture
def context():
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


def socket(context, kind):
    made = context.socket(kind)
    configure_socket(made)
    return made


wait_until = partial(deadlines.wait_until, sleep=gevent.sleep)


@pytest.mark.parametrize("attempt", range(30))
def test_what_is_sent_before_the_peer_is_there_arrives(context, tmp_path, attempt):
    """Messages queued on a lane without a peer leave as soon as it connects, in order."""
    endpoint = f"ipc://{tmp_path}/lane"
    push = socket(context, zmq.PUSH)
    push.bind(endpoint)
    lane = ZmqChannel(push)
    for number in range(5):
        assert lane.send(b"%d" % number)
    got = []
    gevent.sleep(0.001 * (attempt % 5))
    pull = socket(context, zmq.PULL)
    reader = ZmqChannel(pull, lambda batch: got.extend(frames[0].bytes for frames in batch))
    pull.connect(endpoint)
    wait_until(lambda: len(got) == 5)
    assert got == [b"0", b"1", b"2", b"3", b"4"]
    reader.close()
    lane.close()


@pytest.mark.parametrize("quick_ns", [0, 1 << 40], ids=["asleep", "awake"])
def test_ten_thousand_round_trips_lose_nothing(context, tmp_path, monkeypatch, quick_ns):
    """A ping-pong over two lanes never waits for an edge that has passed, nor does one that is waited for awake."""
    monkeypatch.setattr(eventloop, "POLL_INTERVAL_NS", quick_ns)
    monkeypatch.setattr(eventloop, "MAX_YIELD_NS", 1 << 40)
    monkeypatch.setattr(eventloop, "CPU_COUNT", 2)
    there, back = f"ipc://{tmp_path}/there", f"ipc://{tmp_path}/back"
    pushes = [socket(context, zmq.PUSH) for _ in range(2)]
    pulls = [socket(context, zmq.PULL) for _ in range(2)]
    for push, pull, endpoint in zip(pushes, pulls, (there, back), strict=True):
        push.bind(endpoint)
        pull.connect(endpoint)
    senders = [ZmqChannel(push) for push in pushes]
    seen = []

    def answer(batch):
        for _ in batch:
            senders[1].send(b"pong")

    def count(batch):
        seen.extend(batch)
        for _ in batch:
            senders[0].send(b"ping")

    channels = [ZmqChannel(pulls[0], answer), ZmqChannel(pulls[1], count), *senders]
    senders[0].send(b"ping")
    senders[0].send(b"ping")
    wait_until(lambda: len(seen) >= 10_000, START_S)
    assert [channel._busy_poller and channel._busy_poller.polling for channel in channels] == [bool(quick_ns)] * 2 + [
        None
    ] * 2
    for channel in channels:
        channel.close()
    # A loop that nobody keeps awake any more is idle, and so is whoever waits for it.
    began = time.thread_time()
    gevent.sleep(0.2)
    assert time.thread_time() - began < 0.1


def test_a_receiver_that_raises_does_not_end_its_channel(context, tmp_path, caplog):
    """What a batch breaks is logged, and the next batch is handled."""
    endpoint = f"ipc://{tmp_path}/lane"
    push, pull = socket(context, zmq.PUSH), socket(context, zmq.PULL)
    push.bind(endpoint)
    pull.connect(endpoint)
    got = []

    def receive(batch):
        if not got:
            got.append("broke")
            raise RuntimeError("no")
        got.extend(frames[0].bytes for frames in batch)

    sender, receiver = ZmqChannel(push), ZmqChannel(pull, receive)
    sender.send(b"one")
    wait_until(lambda: got)
    sender.send(b"two")
    wait_until(lambda: len(got) == 2)
    assert got == ["broke", b"two"]
    assert "could not be handled" in caplog.text
    receiver.close()
    sender.close()


def test_an_announced_message_that_is_taken_back_loses_no_other(context, tmp_path):
    """Where a peer leaves between the announcement and the reading, what was read counts, and so does the rest."""
    took_back = []

    class Fickle(zmq.Socket):
        """Takes its second message back once, as a socket does whose peer has just left."""

        def recv(self, *arguments, **options):
            if read and not took_back:
                took_back.append(True)
                raise zmq.Again
            read.append(True)
            return super().recv(*arguments, **options)

    read, got = [], []
    endpoint = f"ipc://{tmp_path}/lane"
    push = socket(context, zmq.PUSH)
    push.bind(endpoint)
    pull = Fickle(context, zmq.PULL)
    configure_socket(pull)
    pull.connect(endpoint)
    sender = ZmqChannel(push)
    for number in range(3):
        sender.send(b"%d" % number)
    receiver = ZmqChannel(pull, lambda batch: got.extend(frames[0].bytes for frames in batch))
    wait_until(lambda: len(got) == 3)
    sender.send(b"3")
    wait_until(lambda: len(got) == 4)
    assert took_back
    assert got == [b"0", b"1", b"2", b"3"]
    receiver.close()
    sender.close()


def test_a_message_without_a_receiver_is_dropped_and_reported(context, tmp_path):
    """A router refuses to send to a peer that it does not know, instead of dropping it in silence."""
    router = socket(context, zmq.ROUTER)
    router.bind(f"ipc://{tmp_path}/control")
    channel = ZmqChannel(router, lambda _: None)
    assert not channel.send(b"nobody", b"hello")
    channel.close()


def test_a_peer_that_reads_nothing_does_not_block_the_others(context, tmp_path):
    """A ROUTER drops what one peer does not take, and goes on to serve everybody else."""
    endpoint = f"ipc://{tmp_path}/control"
    router = socket(context, zmq.ROUTER)
    router.setsockopt(zmq.SNDHWM, 10)
    router.setsockopt(zmq.SNDBUF, 4096)
    router.bind(endpoint)
    came = []
    control = ZmqChannel(router, lambda batch: came.extend(frames[0].bytes for frames in batch))
    peers = {name: context.socket(zmq.DEALER) for name in (b"deaf", b"good")}
    for name, peer in peers.items():
        peer.setsockopt(zmq.IDENTITY, name)
        peer.setsockopt(zmq.RCVHWM, 10)
        peer.setsockopt(zmq.RCVBUF, 4096)
        peer.connect(endpoint)
        peer.send(b"here")
    wait_until(lambda: len(came) == 2)
    with gevent.Timeout(ANSWER_S):
        while control.send(b"deaf", b"x" * 10_000):
            gevent.sleep(0)
    assert control.send(b"good", b"news")
    wait_until(lambda: peers[b"good"].poll(0))
    assert peers[b"good"].recv() == b"news"
    for peer in peers.values():
        peer.close(linger=0)
    control.close()


def test_a_message_of_many_frames_is_cut_to_show_that_it_is_one(context, tmp_path):
    """However many frames a message has, no more than three of them are kept; what follows arrives whole."""
    endpoint = f"ipc://{tmp_path}/results"
    pull, push = context.socket(zmq.PULL), socket(context, zmq.PUSH)
    configure_socket(pull, MAX_PART_BYTES)
    pull.bind(endpoint)
    got = []
    reader, sender = ZmqChannel(pull, got.extend), ZmqChannel(push)
    push.connect(endpoint)
    for parts in (1, 2, 3, 5000, 1):
        assert sender.send(*[b"x%d" % part for part in range(parts)])
    wait_until(lambda: len(got) == 5)
    assert [[frame.bytes for frame in frames] for frames in got] == [
        [b"x0"], [b"x0", b"x1"], [b"x0", b"x1", b"x2"], [b"x0", b"x1", b"x4999"], [b"x0"]
    ]  # fmt: skip
    reader.close()
    sender.close()
