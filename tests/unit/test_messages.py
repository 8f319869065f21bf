"""The wire's contract: what is not a message of the closed set is refused with `ProtocolError`, and nothing else."""

import msgpack
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import inspect

from bench_common.errors import ProtocolError
from bench_common.fields import MAX_FRAME, MAX_REASON_CHARS, VERSION, Message
from bench_common.messages import DIRECTIONS, FROM_WORKER, TYPES, Heartbeat, Results, RunWarning, clip, encode
from bench_common.records import LOOP_BYTES
from bench_master.run.hosts import UNKNOWN_UNCERTAINTY_NS, WorkerHost
from bench_master.run.results import to_rows, unpack_results

HEARTBEAT = {"type": "heartbeat", "epoch": 7, "sent_ns": 1, "running": 2, "offset_ns": -3, "uncertainty_ns": -1,
             "taken": 0, "token": ""}  # fmt: skip
ACK = {"type": "heartbeat_ack", "epoch": 7, "echo_ns": 1, "received_ns": 1, "sent_ns": 1}

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


def framed(message, version=VERSION):
    """Return a frame around what may be no message."""
    return msgpack.packb([version, message])


def without(name):
    return {key: value for key, value in HEARTBEAT.items() if key != name}


def test_a_message_survives_the_wire():
    """encode and decode are each other's inverse."""
    message = Heartbeat(epoch=7, sent_ns=1, running=2, offset_ns=-3, uncertainty_ns=-1)
    assert FROM_WORKER.decode(encode(message)) == message
    assert msgpack.unpackb(encode(message)) == [VERSION, HEARTBEAT]


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "not MessagePack"),
        (b"\xc1", "not MessagePack"),
        (encode(Heartbeat(epoch=7, sent_ns=1, running=2, offset_ns=0, uncertainty_ns=0)) + b"\0", "not MessagePack"),
        (msgpack.packb("heartbeat"), "not an array"),
        (msgpack.packb([VERSION, HEARTBEAT, 1]), "not an array"),
        (msgpack.packb([1, "beat", 7, {}]), "protocol version 1 is not supported .expected 3.: upgrade"),
        (framed(HEARTBEAT, VERSION + 1), "protocol version 4 is not supported"),
        (framed(HEARTBEAT, True), "not an array of version and message"),
        (framed({**HEARTBEAT, "type": "bleat"}), "unknown message type 'bleat'"),
        (framed({**HEARTBEAT, "type": ["heartbeat"]}), "unknown message type"),
        (framed(without("type")), "unknown message type"),
        (framed({**HEARTBEAT, "epoch": -1}), "epoch"),
        (framed({**HEARTBEAT, "epoch": "7"}), "epoch"),
        (framed([]), "not an array of version and message"),
        (framed({**HEARTBEAT, "extra": 1}), "extra"),
        (framed(without("running")), "running"),
        (framed({**HEARTBEAT, "running": True}), "running"),
        (framed({**HEARTBEAT, "running": 1.0}), "running"),
        (framed({**HEARTBEAT, "sent_ns": 1 << 63}), "sent_ns"),
        (framed(ACK), "'heartbeat_ack' is not sent by the worker on the control lane"),
        (framed({"type": "results"}), "'results' is not sent by the worker on the control lane"),
        (b"[" * 100_000, "not"),
        (b"\x91" * 100_000 + b"\x00", "not"),
        (b"\xdd\xff\xff\xff\xff", "not MessagePack"),
    ],
)
def test_a_frame_that_breaks_the_contract_is_refused(frame, why):
    """The error names the fault."""
    with pytest.raises(ProtocolError, match=why):
        FROM_WORKER.decode(frame)


def test_text_that_is_not_unicode_goes_out_with_its_escapes():
    """The name of a file in an error must not keep a worker's results from leaving."""
    frame = encode(RunWarning(epoch=3, text="cannot open caf\udce9"))
    assert FROM_WORKER.decode(frame).text == r"cannot open caf\udce9"


def test_a_clipped_text_always_fits():
    """Escapes are longer than what they stand for."""
    text = clip("\udce9" * MAX_REASON_CHARS)
    assert len(text) == MAX_REASON_CHARS
    assert FROM_WORKER.decode(encode(RunWarning(epoch=3, text=text))).text == text


def test_a_frame_that_is_too_large_is_refused():
    """Neither a huge frame nor a message larger than its type allows gets in."""
    with pytest.raises(ProtocolError, match="larger than any"):
        FROM_WORKER.decode(b"\x00" * (MAX_FRAME + 1))
    large = {"type": "hello", "epoch": 0, "worker_id": "w", "environment": "e", "slots": 1, "sent_ns": 1}
    with pytest.raises(ProtocolError, match="more than its limit of 262144"):
        FROM_WORKER.decode(framed({**large, "info": {"x": "x" * (256 << 10)}}))


def test_we_do_not_send_what_would_not_be_accepted():
    """encode checks as strictly as decode."""
    with pytest.raises(ProtocolError, match=r"message 'heartbeat': Expected `int` >= 0 - at `\$\.running`"):
        encode(Heartbeat(epoch=7, sent_ns=1, running=-1, offset_ns=0, uncertainty_ns=0))


def test_every_message_type_belongs_to_one_direction():
    """No declared message is forgotten in the unions."""

    def declared(one):
        below = one.__subclasses__()
        return {one} if not below and not one.__name__.startswith("_") else set().union(*map(declared, below))

    assert declared(Message) == set(TYPES.values())
    assert len(TYPES) == sum(len(direction.types) for direction in DIRECTIONS)
    for direction in DIRECTIONS:
        assert {(one.sender, one.lane) for one in direction.types} == {(direction.sender, direction.lane)}


@given(st.binary(max_size=300), st.sampled_from(DIRECTIONS))
@example(b"\x92\x03\x80", FROM_WORKER)
def test_any_bytes_are_a_message_or_a_protocol_error(frame, direction):
    """No bytes whatever raise anything else."""
    try:
        direction.decode(frame)
    except ProtocolError:
        return


@given(st.sampled_from(sorted(TYPES)), plain, plain)
def test_any_values_in_the_right_shape_are_a_message_or_a_protocol_error(name, epoch, value):
    """Each field is checked, whatever its value; what gets in is of the declared types."""
    kind = TYPES[name]
    (direction,) = [one for one in DIRECTIONS if kind in one.types]
    fields = {"type": name, **dict.fromkeys(kind.__struct_fields__, value), "epoch": epoch}
    try:
        decoded = direction.decode(framed(fields))
    except (ProtocolError, OverflowError):
        return
    assert (
        msgspec.convert(msgspec.to_builtins(decoded, builtin_types=(bytes,)), kind, builtin_types=(bytes,)) == decoded
    )


HELLO = {"type": "hello", "epoch": 0, "worker_id": "w", "environment": "e", "slots": 1, "sent_ns": 1, "info": {}}
nested = []
for _ in range(900):
    nested = [nested]


@pytest.mark.parametrize(
    "info",
    [
        {"fingerprint": [1]},
        {"fingerprint": {"memory": {"a": 1}}},
        {"fingerprint": {"memory": nested}},
        {"fingerprint": {1: "a"}},
        {"fingerprint": {"memory": 1 << 63}},
        {"fingerprint": {f"fact-{number}": 1 for number in range(501)}},
        {"engines": ["docker"]},
        {"engines": {"docker": "20.10"}},
        {"engines": {"docker": {"usable": "yes"}}},
        {"engines": {"docker": {"usable": True, "details": {"a": 1}}}},
        {"labels": {"rack": 7}},
        {"host": 7},
        {"host": "x" * 2000},
        {"clock": {"offset_ns": -(1 << 63), "uncertainty_ns": 0}},
        {"clock": [1, 2]},
        {"load": float("nan")},
        {"allow_host_mounts": "yes"},
    ],
)
def test_a_hello_with_an_odd_description_of_its_host_is_refused(info):
    """Facts are flat, maps and texts are limited, and each key has its type: the reason names the place."""
    with pytest.raises(ProtocolError, match=r"message 'hello': .*\$\.info"):
        FROM_WORKER.decode(framed(HELLO | {"info": info}))


def test_a_key_that_a_hello_does_not_declare_is_dropped():
    """What a newer worker reports beyond the declared keys reaches no stats file."""
    info = {"host": "blade", "novelty": [[[]]], "fingerprint": {"kernel": "6.1", "swap": 0, "disk": None}}
    assert FROM_WORKER.decode(framed(HELLO | {"info": info})).info == {
        "host": "blade",
        "fingerprint": {"kernel": "6.1", "swap": 0, "disk": None},
    }


def unbounded(kind, path, seen=frozenset()):  # noqa: C901  one case for each type
    """Yield the numbers in a type that have no bounds."""
    match kind:
        case inspect.IntType() | inspect.FloatType():
            if None in (kind.ge if kind.gt is None else kind.gt, kind.le if kind.lt is None else kind.lt):
                yield path
        case inspect.AnyType():
            yield path
        case inspect.StructType() | inspect.TypedDictType():
            if kind.cls not in seen:
                for field in kind.fields:
                    yield from unbounded(field.type, f"{path}.{field.encode_name}", seen | {kind.cls})
        case inspect.UnionType():
            for one in kind.types:
                yield from unbounded(one, path, seen)
        case inspect.ListType() | inspect.VarTupleType():
            yield from unbounded(kind.item_type, path, seen)
        case inspect.DictType():
            yield from unbounded(kind.key_type, path, seen)
            yield from unbounded(kind.value_type, path, seen)


FREE = {"hello.info.fingerprint", "samples.columns", "results.metrics.value"}
"""Floats that may be NaN or infinite: a share of nothing, a metric that a tool does not have."""

BY_KIND = {"preflight.kinds.job"}
"""What the receiver checks by the declaration of its kind, which it may not have: see `host_part.read_need`."""


def test_each_number_of_each_message_has_bounds():
    """No integer and no float that a peer chooses is without them, however deep it is."""
    found = {path for name, kind in TYPES.items() for path in unbounded(inspect.type_info(kind), name)}
    assert found == FREE | BY_KIND


EXTREMES = [0, -1, 1 << 31, 1 << 60, (1 << 60) + 1, -(1 << 60), 1 << 62, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1]


@given(st.sampled_from(EXTREMES), st.sampled_from(EXTREMES), st.sampled_from(EXTREMES), st.sampled_from(EXTREMES))
def test_no_clock_that_a_heartbeat_can_report_makes_results_overflow(sent, offset, uncertainty, stamp):
    """What passes the checks is converted without an error, and without a wrap around; the rest is refused."""
    fields = {"sent_ns": sent, "offset_ns": offset, "uncertainty_ns": uncertainty, "running": 0}
    try:
        beat = FROM_WORKER.decode(framed({"type": "heartbeat", "epoch": 7, **fields}))
        rows = b"".join(word.to_bytes(8, "little", signed=True) for word in (1, 0, -1, 5, stamp, stamp, stamp, 3))
        batch = unpack_results(
            Results(epoch=7, sequence=0, taken=0, treatment=0, trial=0, rows=rows, loop=bytes(LOOP_BYTES), metrics=[],
                    errors=[], outputs=[]),
            [1],
            [0],
        )  # fmt: skip
    except (ProtocolError, OverflowError):
        return
    host = WorkerHost("w", "h", "e", 1, same_clock=False, uncertainty_ns=UNKNOWN_UNCERTAINTY_NS)
    host.estimate_offset(beat.sent_ns, 1 << 50)
    host.update_offset(beat, 1 << 50)
    jobs, operations = to_rows([batch], [0], [host.offset_ns])
    assert int(jobs["start_ns"][0]) == stamp - host.offset_ns == int(operations["start_ns"][0])
    assert abs(int(jobs["start_ns"][0])) < 1 << 62


@given(st.sampled_from(sorted(TYPES)), st.integers(0, 2**63 - 1))
def test_a_frame_shows_type_and_epoch_before_the_rest(name, epoch):
    """They come first in whatever is sent, so that the rest need not be unpacked; a frame without them is refused."""
    kind = TYPES[name]
    (direction,) = [one for one in DIRECTIONS if kind in one.types]
    made = msgspec.msgpack.encode((VERSION, kind(*[epoch] * len(kind.__struct_fields__[:1]), **dict.fromkeys(
        kind.__struct_fields__[1:], 0))))  # fmt: skip
    assert direction.peek(made) == (kind, epoch)
    for frame in (made[:8], b"\x92\x03" + made[3:], framed({"epoch": epoch, "type": name})):
        with pytest.raises(ProtocolError):
            direction.peek(frame)
    with pytest.raises(ProtocolError, match="more than its limit"):
        direction.peek(made + bytes(kind.max_bytes))
