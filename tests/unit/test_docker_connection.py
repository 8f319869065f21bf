"""Answers of a Docker Engine, in whatever pieces they come in."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_worker.engines.docker.connection import Answer
from bench_worker.http import ProtocolError

LENGTH = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\none\ntwo\nend"
CHUNKS = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\none\nt\r\n6;x=y\r\nwo\nend\r\n0\r\n\r\n"
CLOSED = b"HTTP/1.1 200 OK\r\n\r\none\ntwo\nend"
NOTHING = b"HTTP/1.1 204 No Content\r\nServer: Docker\r\n\r\n"
LATER = b"HTTP/1.1 100 Continue\r\n\r\n" + LENGTH
BODY = b"one\ntwo\nend"


class Pieces:
    """A connection that delivers an answer in pieces, and then its end."""

    def __init__(self, pieces):
        self._pieces = [*pieces]

    def receive(self, _timed):
        return self._pieces.pop(0) if self._pieces else b""


def answer_of(data, cuts=()):
    places = [0, *sorted(cuts), len(data)]
    pieces = [data[begin:end] for begin, end in itertools.pairwise(places)]
    return Answer(Pieces([piece for piece in pieces if piece]), None)


@pytest.mark.parametrize(
    ("data", "status", "body", "reusable"),
    [
        (LENGTH, 201, BODY, True),
        (CHUNKS, 200, BODY, True),
        (CLOSED, 200, BODY, False),
        (NOTHING, 204, b"", True),
        (LATER, 201, BODY, True),
        (LENGTH.replace(b"Content-T", b"Connection: close\r\nContent-T"), 201, BODY, False),
    ],
)
@given(cuts=st.lists(st.integers(1, 100), max_size=6))
def test_an_answer_is_the_same_in_any_pieces(data, status, body, reusable, cuts):
    """Its status, its body, and whether the connection is of use afterwards."""
    answer = answer_of(data, [cut for cut in cuts if cut < len(data)])
    assert (answer.status, answer.read(), answer.read()) == (status, body, b"")
    assert answer.reusable is reusable


@pytest.mark.parametrize("data", [LENGTH, CHUNKS, CLOSED])
def test_a_body_is_read_by_pieces_and_by_lines(data):
    """A piece is shorter than asked for only at the end; lines keep theirs."""
    answer = answer_of(data, range(1, len(data)))
    assert not answer.reusable
    assert [answer.read(5), answer.read(5), answer.read(5)] == [b"one\nt", b"wo\nen", b"d"]
    assert list(answer_of(data, range(1, len(data)))) == [b"one\n", b"two\n", b"end"]


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (b"", ConnectionResetError, "without an answer"),
        (b"HTTP/1.1 200 O", ConnectionResetError, "without an answer"),
        (LENGTH[:-1], ConnectionAbortedError, "in the middle"),
        (CHUNKS[:-7], ConnectionAbortedError, "in the middle"),
        (LENGTH + b"x", ProtocolError, "1 bytes more"),
        (CHUNKS + b"xy", ProtocolError, "2 bytes more"),
        (NOTHING + b"x", ProtocolError, "1 bytes more"),
        (b"\x00\xff no http\r\n\r\n", ProtocolError, "status line"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 6000, ProtocolError, "longer than"),
    ],
)
def test_what_is_no_whole_answer_is_an_error(data, error, words):
    """An engine that breaks off, and one that sends something else."""
    with pytest.raises(error, match=words):
        answer_of(data).read()
