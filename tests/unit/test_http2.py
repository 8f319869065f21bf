"""The client's side of HTTP/2 against a complete implementation of the other side, without sockets."""

import random
import struct

import h2.config
import h2.connection
import h2.events
import hpack
import pytest

from bench_worker.engines.http2 import Http2Connection, Http2Error, encode_headers

REQUEST = encode_headers(
    ((":method", "POST"), (":scheme", "http"), (":path", "/a.B/C"), (":authority", "localhost"), ("te", "trailers"))
)
REPLY = [(":status", "200"), ("content-type", "application/grpc")]
TRAILERS = [("grpc-status", "0"), ("grpc-message", "ü%20" * 20)]


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def service():
    """Return a client and a service that know of each other's settings."""
    client = Http2Connection()
    other = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding="utf-8"))
    other.initiate_connection()
    exchange(client, other)
    return client, other


def exchange(client, other):
    """Carry bytes from one to the other until neither has any; return the service's events."""
    events = []
    while True:
        sent, answered = client.take_output() + client.take_pongs(), other.data_to_send()
        if not sent and not answered:
            return events
        events += other.receive_data(sent)
        # In pieces, since a socket may cut anywhere.
        for start in range(0, len(answered), 7):
            client.receive(answered[start : start + 7])


def call(client, other, body):
    """Send `body` as fast as the service takes it; return what it received and its stream."""
    client.begin(REQUEST)
    events = []
    while body:
        body = body[client.send(body, is_last=True) :]
        for event in exchange(client, other):
            events.append(event)
            if isinstance(event, h2.events.DataReceived):
                other.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        exchange(client, other)
    ended = [event for event in events if isinstance(event, h2.events.StreamEnded)]
    assert len(ended) == 1
    data = b"".join(event.data for event in events if isinstance(event, h2.events.DataReceived))
    return data, ended[0].stream_id


def test_calls_of_any_size_one_after_the_other():
    """Windows and frames are kept to on the way there, and all that comes back is taken, whole and in order."""
    client, other = service()
    for size in (1, 5, 16_384, 16_385, 65_535, 65_536, 400_000):
        body = random.Random(size).randbytes(size)
        received, stream = call(client, other, body)
        assert received == body
        assert not client.finished
        other.send_headers(stream, REPLY)
        for start in range(0, size, 16_384):
            piece = body[start : start + 16_384]
            # Both windows are as large as can be: a service waits for nothing.
            other.send_data(stream, piece, pad_length=9 if len(piece) < 9000 else None)
        other.send_headers(stream, TRAILERS, end_stream=True)
        other.ping(b"12345678")
        answers = exchange(client, other)
        assert [event.ping_data for event in answers if isinstance(event, h2.events.PingAckReceived)] == [b"12345678"]
        assert (client.finished, client.broken, client.takes_calls) == (True, "", True)
        assert bytes(client.body) == body
        assert client.headers == dict(REPLY + TRAILERS)


def test_settings_change_what_is_sent():
    """A smaller window holds for the call that runs, and a larger frame for the next."""
    client, other = service()
    client.begin(REQUEST)
    client.send(b"x" * 1000, is_last=False)
    exchange(client, other)
    other.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 500})
    exchange(client, other)
    assert client.send(b"y" * 1000, is_last=True) == 0
    other.increment_flow_control_window(600, 1)
    exchange(client, other)
    assert client.send(b"y" * 1000, is_last=True) == 100


def test_headers_that_come_in_parts():
    """A block that is longer than a frame goes on in others, in both directions."""
    client, other = service()
    long = "v" * 20_000
    client.begin(REQUEST + encode_headers([("x-long", long), ("x-127", "a" * 127), ("x-255", "b" * 255)]))
    client.send(b"x", is_last=True)
    (received,) = [event for event in exchange(client, other) if isinstance(event, h2.events.RequestReceived)]
    found = dict(received.headers)
    assert (found["x-long"], found["x-127"], found["x-255"]) == (long, "a" * 127, "b" * 255)
    other.send_headers(1, [*REPLY, ("grpc-message", "ab" * 20_000)], end_stream=True)
    exchange(client, other)
    assert client.finished
    assert client.headers["grpc-message"] == "ab" * 20_000


def test_a_call_that_the_service_breaks_off():
    """A reset call leaves the connection, and one that ends takes no more calls; what it answered before counts."""
    client, other = service()
    _, stream = call(client, other, b"x")
    other.reset_stream(stream, 11)
    exchange(client, other)
    assert "HTTP/2 error 11" in client.broken
    assert client.takes_calls
    _, stream = call(client, other, b"x")
    assert not client.broken
    other.send_headers(stream, REPLY, end_stream=True)
    other.close_connection(last_stream_id=stream)
    exchange(client, other)
    assert (client.finished, client.broken, client.takes_calls) == (True, "", False)
    client, other = service()
    call(client, other, b"x")
    other.close_connection(last_stream_id=0)
    exchange(client, other)
    assert "ended" in client.broken


@pytest.mark.parametrize(
    "data",
    [
        frame(0, stream=1, payload=bytes(1 << 14) + b"x"),
        frame(0, flags=8, stream=1, payload=b"\5abc"),
        frame(0, flags=8, stream=1),
        frame(1, stream=1, payload=b"\x88") + frame(0, stream=1),
        frame(9, flags=4, stream=1, payload=b"\x88"),
        frame(1, flags=4, stream=1, payload=b"\xbe"),
        frame(1, flags=4, stream=1, payload=hpack.Encoder().encode([("a", "b")]) + b"\xbe"),
        frame(1, flags=4, stream=1, payload=b"\x3f\xe1\x1f"),
        frame(1, stream=1, payload=bytes(1 << 14)) + frame(9, stream=1, payload=bytes(1 << 14)) * 8,
        frame(3, stream=1, payload=b"abc"),
        frame(4, payload=bytes(5)),
        frame(5, stream=1, payload=bytes(9)),
        frame(7, payload=b"abc"),
        frame(8, payload=b"abc"),
    ],
)
def test_what_breaks_the_rules_is_one_kind_of_error(data):
    """Frames too large, cut short or out of order, a table of headers that was refused, headers without end."""
    client = Http2Connection()
    client.begin(REQUEST)
    with pytest.raises(Http2Error):
        client.receive(data)


def test_arbitrary_bytes_raise_nothing_else():
    """Whatever a service sends, the connection is given up or goes on; frames of unknown types are ignored."""
    chance = random.Random(9113)
    for _ in range(2000):
        client = Http2Connection()
        client.begin(REQUEST)
        for _ in range(5):
            data = chance.randbytes(chance.randrange(40))
            try:
                client.receive(frame(chance.randrange(12), chance.randrange(256), chance.choice((0, 1, 3)), data))
            except Http2Error:
                break
            client.take_output()
    client.receive(frame(10, payload=b"whatever"))
