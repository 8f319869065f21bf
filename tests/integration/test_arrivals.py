"""The arrival of an answer is stamped when it comes, not when it is read."""

import socket
import sys
import time

import pytest
from gevent.monkey import get_original

from bench_worker.timing.socket_stamps import SocketArrival, SocketArrivalWatcher

pytestmark = pytest.mark.alone

native_sleep = get_original("time", "sleep")
native_thread = get_original("_thread", "start_new_thread")


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_late_reader_knows_when_the_answer_came(pair):
    """The reader is held up well beyond the arrival; the stamp is the arrival's."""
    ours, theirs = pair
    written = []

    def answer():
        native_sleep(0.05)
        written.append(time.monotonic_ns())
        theirs.send(b"x")

    with SocketArrivalWatcher().watch_socket(ours.fileno()) as arrival:
        native_thread(answer, ())
        native_sleep(0.5)
        assert ours.recv(1) == b"x"
        read_ns = time.monotonic_ns()
    assert written[0] <= arrival.latest_at(read_ns, 1) <= written[0] + 0.3e9
    assert read_ns >= written[0] + 0.4e9


def test_the_stamp_is_that_of_the_last_bytes(pair):
    """An answer that comes in two parts, and is read as one, is complete with the second."""
    ours, theirs = pair
    written = []

    def answer():
        for part in (b"head", b"body"):
            native_sleep(0.1)
            written.append(time.monotonic_ns())
            theirs.send(part)

    with SocketArrivalWatcher().watch_socket(ours.fileno()) as arrival:
        native_thread(answer, ())
        native_sleep(0.5)
        assert ours.recv(100) == b"headbody"
        read_ns = time.monotonic_ns()
    assert written[1] <= arrival.latest_at(read_ns, 8) <= written[1] + 0.2e9


def test_bytes_that_nobody_noticed_have_no_earlier_stamp():
    """The watcher has reported only the first part when both are read: the second arrived since."""
    arrival = SocketArrival(1)
    arrival.notice(4, 3, 5)
    assert arrival.latest_at(9, 4) == 5
    assert arrival.latest_at(9, 8) == 9


def test_the_end_of_a_stream_is_stamped_when_it_comes(pair):
    """It is read as no bytes at all."""
    ours, theirs = pair
    with SocketArrivalWatcher().watch_socket(ours.fileno()) as arrival:
        native_thread(lambda: (native_sleep(0.05), theirs.close()), ())
        native_sleep(0.5)
        assert ours.recv(1) == b""
        read_ns = time.monotonic_ns()
    assert arrival.latest_at(read_ns, 0) <= read_ns - 0.2e9


def test_what_is_there_already_is_stamped_when_it_is_read(pair):
    """Nobody saw it come; the reading is the only instant that is known."""
    ours, theirs = pair
    theirs.send(b"x")
    with SocketArrivalWatcher().watch_socket(ours.fileno()) as arrival:
        assert ours.recv(1) == b"x"
        read_ns = time.monotonic_ns()
    assert arrival.latest_at(read_ns, 1) == read_ns


def test_an_expectation_never_takes_an_earlier_ones_arrival(pair):
    """On one socket, answer after answer: no stamp lies before the writing of its own answer."""
    ours, theirs = pair
    clock = SocketArrivalWatcher()
    for _ in range(300):
        with clock.watch_socket(ours.fileno()) as arrival:
            written_ns = time.monotonic_ns()
            theirs.send(b"x")
            assert ours.recv(1) == b"x"
            read_ns = time.monotonic_ns()
        assert written_ns <= arrival.latest_at(read_ns, 1) <= read_ns


def test_the_writing_lies_within_the_bound(pair):
    """Whoever reads it, and however busy the interpreter is: the bytes were written between the two instants.

    Two rounds may tell of more than 0.1 ms for a wake-up: a hypervisor wakes a sleeping CPU when it can.
    """
    ours, theirs = pair
    clock = SocketArrivalWatcher()
    written, late_wake_ups = [], []

    def answer(after_s):
        native_sleep(after_s)
        before_ns = time.monotonic_ns()
        theirs.send(b"x")
        written.append((before_ns, time.monotonic_ns()))

    widths = []
    for round_ in range(60):
        with clock.watch_socket(ours.fileno()) as arrival:
            native_thread(answer, (0.001 * (round_ % 5),))
            if round_ % 2:
                until = time.monotonic() + 0.01
                while time.monotonic() < until:
                    pass
            assert ours.recv(1) == b"x"
            read_ns = time.monotonic_ns()
        while len(written) <= round_:
            native_sleep(0.001)
        before_ns, after_ns = written[round_]
        if arrival.earliest_at(read_ns) > after_ns:
            late_wake_ups.append((arrival.earliest_at(read_ns) - after_ns) / 1e6)
        assert before_ns <= arrival.latest_at(read_ns, 1) <= read_ns
        widths.append((arrival.latest_at(read_ns, 1) - arrival.earliest_at(read_ns)) / 1e6)
    assert len(late_wake_ups) <= 2, late_wake_ups
    sys.stdout.write(f"widths of the bound in ms: {sorted(widths)}\n")


def test_bytes_that_were_there_already_have_no_earliest_instant(pair):
    """Nobody watched for them, so only the one who asked for them can say since when they may have been there."""
    ours, theirs = pair
    theirs.send(b"x")
    with SocketArrivalWatcher().watch_socket(ours.fileno()) as arrival:
        ours.recv(1)
        assert arrival.earliest_at(time.monotonic_ns()) == 0


def test_an_expectation_can_be_cancelled(pair):
    """A reader that ran out of time, or whose socket was closed, leaves nothing behind."""
    ours, _theirs = pair
    clock = SocketArrivalWatcher()
    with pytest.raises(TimeoutError), clock.watch_socket(ours.fileno()):
        raise TimeoutError
    with clock.watch_socket(ours.fileno()):
        ours.close()
    assert clock._expected == {}
