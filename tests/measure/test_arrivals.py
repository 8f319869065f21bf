"""The arrival of an answer is stamped when it comes, not when it is read."""

import socket
import sys
import time

import pytest
from attention import undisturbed
from deadlines import wait_until
from gevent.monkey import get_original

from bench_worker.timing.socket_stamps import SocketArrival, SocketArrivalWatcher
from bench_worker.timing.wake_up_witness import WakeUpWitness
from bench_worker.timing.wake_ups import WAKE_UPS

LIMIT_S = 0.0002
"""A machine that wakes even a thread of real-time priority later than this may exceed what a bound allows for."""
READINGS = 200
"""Of late wake-ups, before anything is compared with a bound."""

native_sleep = get_original("time", "sleep")
native_thread = get_original("_thread", "start_new_thread")


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def until_noticed(arrival, count):
    """Wait until the watcher has noticed so many bytes; return an instant after that, and before any reading."""
    wait_until(lambda: arrival._noticed[2] and arrival._noticed[0] == count, what="the watcher's notice")
    return time.monotonic_ns()


def test_a_late_reader_knows_when_the_answer_came(pair):
    """The reader is held up beyond the arrival; the stamp is the arrival's."""
    ours, theirs = pair
    with SocketArrivalWatcher().watch_socket(ours.fileno()) as arrival:
        written_ns = time.monotonic_ns()
        theirs.send(b"x")
        noticed_ns = until_noticed(arrival, 1)
        assert ours.recv(1) == b"x"
        read_ns = time.monotonic_ns()
    assert written_ns <= arrival.latest_at(read_ns, 1) <= noticed_ns


def test_the_stamp_is_that_of_the_last_bytes(pair):
    """An answer that comes in two parts, and is read as one, is complete with the second."""
    ours, theirs = pair
    with SocketArrivalWatcher().watch_socket(ours.fileno()) as arrival:
        theirs.send(b"head")
        until_noticed(arrival, 4)
        written_ns = time.monotonic_ns()
        theirs.send(b"body")
        noticed_ns = until_noticed(arrival, 8)
        assert ours.recv(100) == b"headbody"
        read_ns = time.monotonic_ns()
    assert written_ns <= arrival.latest_at(read_ns, 8) <= noticed_ns


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
        theirs.close()
        noticed_ns = until_noticed(arrival, 0)
        assert ours.recv(1) == b""
        read_ns = time.monotonic_ns()
    assert arrival.latest_at(read_ns, 0) <= noticed_ns


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


@pytest.fixture
def wake_ups():
    """Have this host's late wake-ups measured, as in a load process, and return the readings."""
    witness = WakeUpWitness(interval_s=0.005)
    witness.start()
    wait_until(lambda: WAKE_UPS.count >= READINGS, what="readings of late wake-ups")
    yield WAKE_UPS
    witness.stop()


@pytest.mark.alone
def test_the_writing_lies_within_the_bound(pair, wake_ups):
    """Whoever reads it, and however busy the interpreter is: the bytes were written between the two instants.

    Of n wake-ups after n readings one is expected to be later than all of them.
    """
    ours, theirs = pair
    clock = SocketArrivalWatcher()
    written, outside = [], []

    def answer(after_s):
        native_sleep(after_s)
        before_ns = time.monotonic_ns()
        theirs.send(b"x")
        written.append((before_ns, time.monotonic_ns()))

    def write_and_read(round_):
        with clock.watch_socket(ours.fileno()) as arrival:
            native_thread(answer, (0.001 * (round_ % 5),))
            if round_ % 2:
                until = time.monotonic() + 0.01
                while time.monotonic() < until:
                    pass
            assert ours.recv(1) == b"x"
            read_ns = time.monotonic_ns()
        wait_until(lambda: len(written) > round_)
        before_ns, after_ns = written[round_]
        assert before_ns <= arrival.latest_at(read_ns, 1) <= read_ns
        if arrival.earliest_at(read_ns) > after_ns:
            outside.append((arrival.earliest_at(read_ns) - after_ns) / 1e6)
        return (arrival.latest_at(read_ns, 1) - arrival.earliest_at(read_ns)) / 1e6

    def write_and_read_often():
        first = len(written)
        outside.clear()
        widths = [write_and_read(first + round_) for round_ in range(60)]
        sys.stdout.write(f"widths of the bound in ms: {sorted(widths)}\n")
        assert outside == [], f"in ms, of {wake_ups.count} readings the largest is {wake_ups.allowance_ns / 1e6}"

    undisturbed(write_and_read_often, LIMIT_S, beside_load=True)


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
