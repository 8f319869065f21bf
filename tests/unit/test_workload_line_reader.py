"""The reader of lines of tools: what a text may be full of costs nothing."""

import pytest

from bench_common.errors import ParseError
from bench_workloads import line_reader
from bench_workloads.registry import workload

NEWLINES = "\n" * (1 << 20)
TESTS = ("sysbench-cpu", "sysbench-memory", "sysbench-fileio", "sysbench-oltp")


class CountedPattern:
    """A pattern that counts how often it is applied."""

    def __init__(self, pattern):
        self.applied = 0
        self._pattern = pattern

    def match(self, text):
        self.applied += 1
        return self._pattern.match(text)


@pytest.fixture
def noise(monkeypatch):
    """Count the lines that are cleaned."""
    counted = CountedPattern(line_reader._TERMINAL_NOISE)
    monkeypatch.setattr(line_reader, "_TERMINAL_NOISE", counted)
    return counted


@pytest.mark.parametrize("name", TESTS)
def test_a_mebibyte_of_newlines_is_empty_at_once(noise, name):
    """No pattern is applied to a line of nothing, neither for the metrics nor for what the text states."""
    with pytest.raises(ParseError, match="empty: sysbench printed nothing"):
        workload(name).parse(NEWLINES)
    assert workload(name).stated_params(NEWLINES) == {}
    assert noise.applied == 0
