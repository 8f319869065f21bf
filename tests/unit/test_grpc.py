"""Calls of gRPC services on a real socket, whose other end a test plays with h2."""

import contextlib
import socket
import struct
import threading
import time

import h2.config
import h2.connection
import h2.events
import pytest
from deadlines import ANSWER_S

from bench_worker.engines.base import OperationFailed
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.grpc import CallSequence, GrpcChannel, GrpcError

PREFIX = struct.Struct(">BI")


def framed(*parts):
    """Return messages as gRPC frames them."""
    return b"".join(PREFIX.pack(0, len(part)) + part for part in parts)


class Service(threading.Thread):
    """Answers each call on one connection after another with the same bytes; notes what it was sent."""

    def __init__(self, path, body=b"", status="0", text="", *, early=False):
        super().__init__(daemon=True)
        self.body, self.status, self.text, self.early = body, status, text, early
        self.requests, self.headers, self.connections = [], [], 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.start()

    def run(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection, contextlib.suppress(OSError):
                self.serve(connection)

    def serve(self, connection):
        http = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        http.initiate_connection()
        received = bytearray()
        while True:
            connection.sendall(http.data_to_send())
            data = connection.recv(1 << 16)
            if not data:
                return
            for event in http.receive_data(data):
                if isinstance(event, h2.events.RequestReceived):
                    self.headers.append({key.decode(): value.decode() for key, value in event.headers})
                    if self.early:
                        self.answer(http, event.stream_id)
                elif isinstance(event, h2.events.DataReceived) and not self.early:
                    received += event.data
                    http.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded) and not self.early:
                    self.requests.append(bytes(received))
                    received.clear()
                    self.answer(http, event.stream_id)

    def answer(self, http, stream):
        http.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc")])
        if self.body:
            http.send_data(stream, self.body)
        http.send_headers(stream, [("grpc-status", self.status), ("grpc-message", self.text)], end_stream=True)


@pytest.fixture
def serve(tmp_path):
    """Give a way to start a service and to get a channel to it."""
    made = []

    def start(*arguments, **options):
        service = Service(tmp_path / "socket", *arguments, **options)
        channel = GrpcChannel(str(tmp_path / "socket"), "some.services", {"namespace": "ours"})
        made.extend((channel.close, service.listener.close))
        return service, channel

    yield start
    for close in made:
        close()


def image(name):
    return messages.ImageRequest(name=name)


def test_calls_share_a_connection_and_are_stamped(serve):
    """Method and headers are the service's, and the times those of the socket."""
    reply = messages.ImageMessage(image=messages.Image(name="found"))
    service, channel = serve(framed(reply.SerializeToString()))
    for number in range(3):
        before_ns = time.monotonic_ns()
        done = channel.call("images.v1.Images/Get", [image(f"i{number}")], messages.ImageMessage, timeout_s=ANSWER_S)
        assert before_ns <= done.start_ns <= done.end_ns <= time.monotonic_ns()
        assert 0 <= done.end_uncertainty_ns <= done.end_ns - done.start_ns
        assert done.messages[0].image.name == "found"
    assert service.connections == 1
    assert service.requests == [framed(image(f"i{number}").SerializeToString()) for number in range(3)]
    assert service.headers[0][":path"] == "/some.services.images.v1.Images/Get"
    assert service.headers[0]["namespace"] == "ours"


def test_more_than_a_window_is_sent_and_each_reply_of_a_stream_is_read(serve):
    """HTTP/2 lets no more than 64 KiB be on the way: the rest waits for the service."""
    parts = [messages.WriteContentResponse(offset=number).SerializeToString() for number in (1, 2, 3)]
    service, channel = serve(framed(*parts))
    pieces = [messages.WriteContentRequest(offset=number, data=bytes(100_000)) for number in range(5)]
    done = channel.call("Write", iter(pieces), messages.WriteContentResponse, timeout_s=ANSWER_S)
    assert [reply.offset for reply in done.messages] == [1, 2, 3]
    assert service.requests == [framed(*(piece.SerializeToString() for piece in pieces))]


def test_a_service_may_refuse_before_it_has_read_everything(serve):
    """The rest is not sent, and the next call has a connection of its own."""
    service, channel = serve(status="6", text="already%20exists", early=True)
    for _ in range(2):
        pieces = (messages.WriteContentRequest(data=bytes(100_000)) for _ in range(5))
        with pytest.raises(GrpcError, match="already exists") as caught:
            channel.call("Write", pieces, messages.WriteContentResponse, timeout_s=ANSWER_S)
        assert caught.value.code == 6
    assert service.connections == 2


@pytest.mark.parametrize("body", [framed(b"\x0a\x05ab"), framed(b"abc")[:-1], framed(b"\xff" * 12)])
def test_a_reply_that_is_not_valid_is_an_error_of_the_service(serve, body):
    """A text shorter than it says, a message that is cut short, a number without its end."""
    _, channel = serve(body)
    with pytest.raises(GrpcError, match="is not valid"):
        channel.call("Get", [image("i")], messages.ImageMessage, timeout_s=ANSWER_S)


def test_an_operation_lasts_from_its_first_call_to_its_last(serve):
    """Its failures begin with the first call, too, and nothing is called when its time is over."""
    service, channel = serve(framed(b""))
    calls = CallSequence(channel, 5)
    calls.do("One", image("a"))
    first_ns = calls.start_ns
    calls.do("Two", image("b"))
    done = calls.result(exit_code=3)
    assert (done.start_ns, done.exit_code) == (first_ns, 3)
    assert done.end_ns >= calls.last_start_ns > first_ns
    service.status, service.text = "2", "out of luck"
    with pytest.raises(OperationFailed, match="out of luck") as caught:
        calls.do("Three", image("c"))
    assert (caught.value.kind, caught.value.start_ns) == ("engine", first_ns)
    late = CallSequence(channel, 0)
    with pytest.raises(OperationFailed) as caught:
        late.do("Four", image("d"))
    assert caught.value.kind == "timeout"
    assert len(service.requests) == 3


def test_a_service_that_does_not_answer_or_is_gone(serve, tmp_path):
    """A timeout, and nobody at the socket."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "deaf"))
    listener.listen()
    for path, code in (("deaf", 4), ("nobody", 14)):
        channel = GrpcChannel(str(tmp_path / path), "some")
        with pytest.raises(GrpcError) as caught:
            channel.call("Get", [image("i")], messages.ImageMessage, timeout_s=0.05)
        assert caught.value.code == code
        assert caught.value.start_ns <= caught.value.end_ns
    listener.close()
