"""What real tools printed, cut off, altered or replaced: a parser gives all of the numbers or refuses the text."""

import re

import pytest
from damaged_output import assert_whole_or_refused, cut_after_lines, cut_at_characters, with_junk, without_a_line
from hypothesis import given
from hypothesis import strategies as st
from places import DATA

from bench_common.errors import ParseError
from bench_workloads.registry import workload, workload_classes

GOOD = {
    "ab": ("ab/ok-*.txt", "failed-length|stderr"),
    "blogbench": ("blogbench/1.?-i*.txt", None),
    "iibench": ("iibench/*.txt", None),
    "mbw": ("mbw/[12].*.txt", "help|2.0-[nt]"),
    "sysbench-cpu": ("sysbench/*cpu*.txt", "help|fail|checkpoints|instant"),
    "sysbench-fileio": ("sysbench/fileio-*.txt", "help|prepare|cleanup"),
    "sysbench-memory": ("sysbench/memory-*.txt", "help"),
    "sysbench-oltp": ("sysbench/oltp*.txt", "prepare|cleanup"),
}
"""By workload: the texts of whole runs, and what is in the names of those that are none."""
TEXTS = [
    pytest.param(name, path, id=f"{name} {path.stem}")
    for name, (pattern, but) in GOOD.items()
    for path in sorted(DATA.glob(pattern))
    if not (but and re.search(but, path.name))
]
NAMES = sorted(workload_classes().keys() - {"command"})


def text_of(path):
    return path.read_bytes().decode()


@pytest.mark.parametrize(("name", "path"), TEXTS)
def test_every_metric_is_declared(name, path):
    """With its unit and direction; of a whole run each has a value."""
    metrics = workload(name).parse(text_of(path))
    assert metrics
    assert set(metrics) <= {metric.name for metric in workload(name).metrics}
    assert all(abs(value) < 1e18 for value in metrics.values())


@pytest.mark.parametrize(("name", "path"), [one for one in TEXTS if "quiet" not in one.id])
def test_a_run_cut_at_any_character_is_whole_or_refused(name, path):
    """Even a number cut in half is noticed."""
    parse, text = workload(name).parse, text_of(path)
    whole = parse(text)
    # The last number that blogbench prints has nothing behind it.
    by_line = name == "blogbench"
    for cut in cut_after_lines(text) if by_line else cut_at_characters(text, max(1, len(text) // 400)):
        try:
            # Of one method of mbw alone, the average that is cut away follows from its runs.
            assert parse(cut) == pytest.approx(whole, rel=1e-6)
        except ParseError:
            continue


@pytest.mark.parametrize(("name", "path"), [one for one in TEXTS if "oltp" not in one.id and "sysbench" in one.id])
def test_a_run_that_lost_any_line_of_a_result_is_refused(name, path):
    """Without any one line the text gives the same metrics (the line carried none) or is refused."""
    parse, text = workload(name).parse, text_of(path)
    percentiles = {key: value for key, value in parse(text).items() if re.fullmatch(r"latency_p\d+_ms", key)}
    assert_whole_or_refused(lambda one: parse(one) | percentiles, text, without_a_line(text))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("text", ["", "\n\n", " \t\r\n"])
def test_empty_text_is_refused(name, text):
    """Nothing printed is no result."""
    with pytest.raises(ParseError):
        workload(name).parse(text)


@given(st.sampled_from(NAMES), st.text(max_size=400))
def test_arbitrary_text_is_refused_and_nothing_else(name, text):
    """No text makes a parser raise anything but ParseError."""
    with pytest.raises(ParseError):
        workload(name).parse(text)


@given(st.sampled_from([one.values for one in TEXTS]), st.data())
def test_a_mutilated_run_never_breaks_a_parser(pair, data):
    """A piece replaced by anything is read or refused with ParseError; no number becomes absurd."""
    name, path = pair
    try:
        metrics = workload(name).parse(with_junk(data, text_of(path), "0123456789.,/\n\t msKMGbAVG"))
    except ParseError:
        return
    assert all(abs(value) < 1e30 for value in metrics.values())
