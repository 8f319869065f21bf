"""What is kept of a long output."""

from bench_common.long_output import OUTPUT_GAP
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
