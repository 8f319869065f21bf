"""Heads and chunks of answers, as odd as servers make them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench_worker.http import (
    CHUNKED,
    LINE_LIMIT_BYTES,
    UNTIL_CLOSE,
    ChunkDecoder,
    ProtocolError,
    body_of,
    fields_of,
    find_head_end,
    normal_head,
    status_of,
)

OK = b"HTTP/1.1 200 OK\r\n"


def body(*lines, status=200, bodiless=False, first=OK):
    return body_of(first + b"".join(line + b"\r\n" for line in lines) + b"\r\n", status, bodiless=bodiless)


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody\r\n\r\n", 25),
        (b"HTTP/1.1 200 OK\nA: b\n\nbody\r\n\r\n", 22),
        (b"HTTP/1.1 200 OK\nA: b\n\r\nbody", 23),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n", 0),
        (b"HTTP/1.1 200 OK\r\nA: b\r\n\r", 0),
        (b"", 0),
    ],
)
def test_a_head_ends_with_an_empty_line(data, end):
    """Whatever ends its lines, and whatever the body has in it."""
    assert find_head_end(bytearray(data + b"\r\n\r\n"), len(data)) == end


def test_lines_of_any_kind_become_the_same():
    """LF alone becomes CRLF; a folded line is one field."""
    head = normal_head(b"HTTP/1.1 200 OK\nA: one\n  two\nB: three\n\n")
    assert head == b"HTTP/1.1 200 OK\r\nA: one\r\n  two\r\nB: three\r\n\r\n"
    assert fields_of(head) == {b"a": b"one two", b"b": b"three"}


def test_names_have_no_case_and_values_no_margins():
    """White space before a colon, which old servers send, is not part of a name; repeated names are one list."""
    head = OK + b'ETag:  "x" \r\nX-Trans-Id : tx1\r\nVary: a\r\nvary:b\r\nodd line\r\n\r\n'
    assert fields_of(head) == {b"etag": b'"x"', b"x-trans-id": b"tx1", b"vary": b"a, b"}


@pytest.mark.parametrize("line", [b"HTTP/1.1 200 OK", b"HTTP/1.0 200", b"HTTP/1.1 200 ", b"HTTP/1.1 200 \xe4h"])
def test_a_status_line(line):
    """The reason may be missing, and of any bytes."""
    assert status_of(line + b"\r\n\r\n") == 200


@pytest.mark.parametrize("line", [b"HTTP/2 200", b"HTTP/1.1 20 OK", b"SSH-2.0-x", b"HTTP/1.1 2000 OK", b"ICY 200 OK"])
def test_what_is_no_status_line_is_refused(line):
    """The error shows how the answer began."""
    with pytest.raises(ProtocolError, match="begins with"):
        status_of(line + b"\r\n\r\n")


@pytest.mark.parametrize(
    ("lines", "length", "kept"),
    [
        ((b"Content-Length: 5",), 5, True),
        ((b"content-LENGTH:5  ",), 5, True),
        ((b"Content-Length : 5",), 5, True),
        ((b"Content-Length: 5", b"Content-Length: 5"), 5, True),
        ((b"Content-Length: 5", b"Connection: close"), 5, False),
        ((b"Content-Length: 5", b"connection: foo, Close"), 5, False),
        ((b"Transfer-Encoding: chunked",), CHUNKED, True),
        ((b"Transfer-Encoding: Chunked", b"Content-Length: 5"), CHUNKED, True),
        ((b"Transfer-Encoding: identity",), UNTIL_CLOSE, False),
        ((), UNTIL_CLOSE, False),
    ],
)
def test_how_long_a_body_is(lines, length, kept):
    """A length, chunks, or the end of the connection, which is of no more use then (RFC 9112, 6.3)."""
    assert body(*lines) == (length, kept)


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body(status):
    """Whatever their fields say; nor has the answer to HEAD."""
    assert body(b"Content-Length: 5", status=status) == (0, True)
    assert body(b"Content-Length: 5", bodiless=True) == (0, True)


def test_old_servers_close_unless_they_say_otherwise():
    """HTTP/1.0 has no persistent connections by default."""
    old = b"HTTP/1.0 200 OK\r\n"
    assert body(b"Content-Length: 5", first=old) == (5, False)
    assert body(b"Content-Length: 5", b"Connection: keep-alive", first=old) == (5, True)


@pytest.mark.parametrize(
    "lines",
    [
        (b"Content-Length: five",),
        (b"Content-Length: -5",),
        (b"Content-Length: 5", b"Content-Length: 6"),
        (b"Content-Length: 5, 6",),
        (b"Content-Length: 9999999999999999999",),
        (b"Transfer-Encoding: gzip, chunked",),
    ],
)
def test_an_ambiguous_length_is_refused(lines):
    """Two readings of one answer would make the next answer another's."""
    with pytest.raises(ProtocolError):
        body(*lines)


def decoded(wire, cuts):
    """Return the content of chunks that come in pieces, and how many bytes were used."""
    decoder, content, used = ChunkDecoder(), [], 0
    for begin, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        if not decoder.done:
            used += decoder.feed(memoryview(wire)[begin:end], lambda piece: content.append(bytes(piece)))
    assert decoder.received == sum(map(len, content))
    return decoder.done, b"".join(content), used


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=5), st.data())
def test_chunks_come_apart_however_they_are_cut(chunks, data):
    """With extensions and trailers, and what follows is left alone."""
    wire = b"".join(b"%x;name=value\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\nTrailer: x\r\n\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=6)))
    assert decoded(wire, cuts) == (True, b"".join(chunks), len(wire))
    assert decoded(wire + b"HTTP/1.1", [])[2] == len(wire)
    assert decoded(wire[:-1], [])[0] is False


@pytest.mark.parametrize("wire", [b"xyz\r\n", b"\r\n", b"-5\r\n", b"3\r\nabcdef\r\n", b"1" * 17 + b"\r\n"])
def test_what_is_no_chunk_is_refused(wire):
    """A size is hexadecimal, and a chunk is as long as it says."""
    with pytest.raises(ProtocolError):
        decoded(wire, [])


def test_a_line_without_an_end_is_refused():
    """Memory does not grow with what a broken server sends."""
    with pytest.raises(ProtocolError, match="longer than"):
        decoded(b"1;" + b"x" * 3 * LINE_LIMIT_BYTES, [])
