"""Numbered messages: whatever a connection loses, repeats or holds up, each is taken once and in order."""

from hypothesis import given
from hypothesis import strategies as st

from bench_common.ordered import RESEND_S, OrderedReceiver, OrderedSender


def test_what_is_not_confirmed_in_time_is_sent_again_all_of_it():
    """In order, after the deadline, then at intervals that double until something is confirmed."""
    sender = OrderedSender()
    for place in range(3):
        sender.keep(b"%d" % place, 10.0)
    sender.confirm(1)
    assert sender.overdue(10.0 + RESEND_S / 2) == []
    assert sender.overdue(10.0 + RESEND_S) == [b"1", b"2"]
    assert sender.overdue(10.0 + 2 * RESEND_S) == []
    assert sender.overdue(10.0 + 3 * RESEND_S) == [b"1", b"2"]
    sender.confirm(2)
    assert sender.overdue(10.0 + 4 * RESEND_S) == [b"2"]
    sender.confirm(99)
    assert sender.overdue(1e9) == []


def test_repeats_and_what_follows_a_gap_are_dropped():
    """The next one is admitted, and no other."""
    receiver = OrderedReceiver()
    assert [receiver.admit(number) for number in (1, 1, 0, 3, 2, 3, 2, 5)] == [
        *(True, False, False, False),
        *(True, True, False, False),
    ]
    assert receiver.taken == 3


@given(st.lists(st.sampled_from(["send", "break", "arrive", "confirm"]), max_size=60))
def test_every_message_is_taken_once_and_in_order(deeds):
    """Whenever the connection breaks and loses what is under way in both directions."""
    sender, receiver = OrderedSender(), OrderedReceiver()
    wire, taken, now, sent = [], [], 0.0, 0

    def arrive():
        number, frame = wire.pop(0)
        if receiver.admit(number):
            taken.append(frame)

    for deed in [*deeds, *["repeat", *["arrive"] * 200] * 2]:
        now += 100.0
        if deed == "send":
            sent += 1
            frame = sent.to_bytes(2)
            wire.append((sender.last + 1, frame))
            sender.keep(frame, now)
        elif deed == "break":
            wire.clear()
        elif deed == "arrive" and wire:
            arrive()
        elif deed in ("confirm", "repeat"):
            sender.confirm(receiver.taken)
            wire += [(int.from_bytes(frame), frame) for frame in sender.overdue(now)]
    assert taken == [number.to_bytes(2) for number in range(1, sent + 1)]
