"""The wire's contract: what is no message of the closed set is refused with `ProtocolError`, and nothing else."""

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bench_common.errors import ProtocolError
from bench_common.messages import MAX_FRAME, MESSAGES, VERSION, decode, encode

BEAT = {"sent_ns": 1, "running": 2, "offset_ns": -3, "bound_ns": -1}

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


def test_a_message_comes_back_as_it_went():
    """encode and decode are each other's inverse."""
    message = decode(encode("beat", 7, **BEAT), sender="worker", lane="control")
    assert (message.type, message.epoch, message.fields) == ("beat", 7, BEAT)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "not msgpack"),
        (b"\xc1", "not msgpack"),
        (msgpack.packb("beat"), "not an array"),
        (msgpack.packb([2, "beat", 7, BEAT]), "protocol version 2"),
        (msgpack.packb([True, "beat", 7, BEAT]), "protocol version"),
        (msgpack.packb([1, "bleat", 7, BEAT]), "unknown message type 'bleat'"),
        (msgpack.packb([1, ["beat"], 7, BEAT]), "unknown message type"),
        (msgpack.packb([1, "beat", -1, BEAT]), "epoch"),
        (msgpack.packb([1, "beat", "7", BEAT]), "epoch"),
        (msgpack.packb([1, "beat", 7, []]), "no map"),
        (msgpack.packb([1, "beat", 7, {**BEAT, "extra": 1}]), "extra"),
        (msgpack.packb([1, "beat", 7, {"sent_ns": 1}]), "running"),
        (msgpack.packb([1, "beat", 7, {**BEAT, "running": True}]), "running"),
        (msgpack.packb([1, "pulse", 7, {"echo_ns": 1, "received_ns": 1, "sent_ns": 1}]), "does not come from"),
        (msgpack.packb([1, "results", 7, {}]), "does not come from"),
        (b"[" * 100_000, "not"),
        (b"\x91" * 100_000 + b"\x00", "not msgpack"),
        (b"\xdd\xff\xff\xff\xff", "not msgpack"),
    ],
)
def test_what_breaks_the_contract_is_refused(frame, why):
    """Each way of being wrong is named."""
    with pytest.raises(ProtocolError, match=why):
        decode(frame, sender="worker", lane="control")


def test_text_that_is_no_unicode_goes_out_with_its_escapes():
    """The name of a file in an error must not keep a worker's results from leaving."""
    frame = encode("remark", 3, text="cannot open caf\udce9")
    assert decode(frame, sender="worker", lane="control")["text"] == r"cannot open caf\udce9"


def test_a_frame_that_is_too_large_is_refused_unread():
    """Neither a huge frame nor a message larger than its type allows gets in."""
    with pytest.raises(ProtocolError, match="larger than any"):
        decode(b"\x00" * (MAX_FRAME + 1), sender="worker", lane="control")
    large = msgpack.packb([1, "beat", 7, {**BEAT, "sent_ns": "x" * 100_000}])
    with pytest.raises(ProtocolError, match="larger than"):
        decode(large, sender="worker", lane="control")


def test_we_do_not_send_what_would_not_be_accepted():
    """encode checks as strictly as decode."""
    with pytest.raises(ProtocolError, match="running"):
        encode("beat", 7, **{**BEAT, "running": -1})


@given(st.binary(max_size=300), st.sampled_from(["control", "work", "results"]))
@example(b"\x94\x01\xa4beat\x07\x80", "control")
def test_any_bytes_are_a_message_or_a_protocol_error(frame, lane):
    """No bytes whatever raise anything else."""
    for sender in ("master", "worker"):
        try:
            decode(frame, sender=sender, lane=lane)
        except ProtocolError:
            continue


@given(st.sampled_from(sorted(MESSAGES)), plain, plain)
def test_any_values_in_the_right_shape_are_a_message_or_a_protocol_error(name, epoch, value):
    """Fields of whatever type are checked, one by one."""
    message = MESSAGES[name]
    fields = dict.fromkeys(message.fields, value)
    try:
        frame = msgpack.packb([VERSION, name, epoch, fields])
        decoded = decode(frame, sender=message.sender, lane=message.lane)
    except (ProtocolError, OverflowError):
        return
    assert all(message.fields[key](decoded[key]) for key in message.fields)
