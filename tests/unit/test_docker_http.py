"""The frames of Docker's two streams."""

import io
import struct

from hypothesis import given
from hypothesis import strategies as st

from bench_common.long_output import OUTPUT_GAP
from bench_worker.engines.docker.http import capture, capture_end, frames


def frame(stream, payload):
    return struct.pack(">BxxxL", stream, len(payload)) + payload


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=200)), max_size=20))
def test_the_streams_come_apart_as_they_were_put_together(pieces):
    """Whatever order frames come in, each stream is the concatenation of its own."""
    body = io.BytesIO(b"".join(frame(*piece) for piece in pieces))
    stdout, stderr = capture(body, 1_000_000, drain=True)
    assert stdout.data == b"".join(payload for stream, payload in pieces if stream == 1)
    assert stderr.data == b"".join(payload for stream, payload in pieces if stream == 2)
    assert not stdout.truncated
    assert not stderr.truncated


@given(st.integers(0, 60))
def test_a_body_that_is_cut_gives_what_came_before(cut):
    """A connection that ends in the middle of a frame, or of its head, loses nothing that was received whole."""
    whole = frame(1, b"first") + frame(2, b"second") + frame(1, b"third")
    got = b"".join(piece for _, piece in frames(io.BytesIO(whole[:cut])))
    assert b"firstsecondthird".startswith(got)
    if cut >= len(whole):
        assert got == b"firstsecondthird"


def test_a_stream_is_kept_up_to_its_limit():
    """The limit holds for each stream by itself, and what was left out is said."""
    body = io.BytesIO(frame(1, b"x" * 10) + frame(2, b"y" * 3) + frame(1, b"z"))
    stdout, stderr = capture(body, 4, drain=True)
    assert (stdout.data, stdout.truncated) == (b"xx\n%b\nxz" % OUTPUT_GAP.encode(), True)
    assert (stderr.data, stderr.truncated) == (b"yyy", False)
    assert body.read() == b""


def test_without_draining_a_full_stream_ends_the_reading():
    """A container that printed gigabytes is not read to its end for the sake of the first kilobyte."""
    body = io.BytesIO(frame(1, b"x" * 10) + frame(1, b"y" * 10))
    capture(body, 4, drain=False)
    assert body.read() != b""


def test_exactly_the_limit_is_not_too_much():
    """A stream that just fits is not called truncated."""
    stdout, _ = capture(io.BytesIO(frame(1, b"1234")), 4, drain=False)
    assert (stdout.data, stdout.truncated) == (b"1234", False)


def test_the_end_of_a_log_is_asked_for():
    """What came between the beginning and the end is not taken for either."""
    streams = capture(io.BytesIO(frame(1, b"1\n2\n3\n4\n5\n" * 4)), 8, drain=False)
    capture_end(io.BytesIO(frame(1, b"7\n8\n9\n")), streams)
    assert streams[0].data.splitlines() == [b"1", b"2", OUTPUT_GAP.encode(), b"8", b"9"]
