"""What is kept of a long output."""

from bench_common.long_output import OUTPUT_GAP, keep_ends
from bench_worker.engines.output import Capture, read_ends


def test_a_long_output_keeps_whole_lines_of_both_ends(tmp_path):
    """Half of a line could be read as a figure; results stand at the end."""
    path, lines = tmp_path / "out", [b"line %d\n" % number for number in range(100)]
    path.write_bytes(b"".join(lines))
    kept, more = read_ends(path, 40)
    assert (kept.splitlines(), more) == (
        [b"line 0", b"line 1", OUTPUT_GAP.encode(), b"line 98", b"line 99"], True,
    )  # fmt: skip
    whole = Capture(len(b"".join(lines)))
    streamed = Capture(40)
    for line in lines:
        whole.add(line)
        streamed.add(line)
    assert (streamed.data, streamed.truncated) == (kept, True)
    assert (whole.data, whole.truncated) == (b"".join(lines), False)
    assert read_ends(path, 4096) == (b"".join(lines), False)


def test_a_line_longer_than_an_end_is_cut(tmp_path):
    """A program that prints no line end shows how its output began and ended."""
    (tmp_path / "out").write_bytes(b"a" * 50 + b"b" * 50)
    assert read_ends(tmp_path / "out", 8) == (b"aaaa\n%b\nbbbb" % OUTPUT_GAP.encode(), True)


def test_what_is_kept_fits_with_the_line_between():
    """Into any room; nothing fits into less than that line."""
    for data in (b"line\n" * 100, b"x" * 500):
        for limit in range(501):
            kept, more = keep_ends(data, limit)
            assert len(kept) <= limit
            assert more == (len(data) > limit)
