"""Times that no date or zone can have: in stats files, which anybody can make, and on command lines."""

import io
import json

import pytest
from archive_runs import a_run

from bench_common.argument_types import InvalidValue
from bench_common.stats.reader import StatsFile
from bench_features.archive.extract import contents_of
from bench_features.archive.types import moment, span
from bench_features.formats.junit import JunitReport
from bench_master.cli import run_command_line
from bench_master.reports import ReportSource

BEYOND = ("9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00", "9999-12-31T23:59:59+00:00", "0001-01-01")


@pytest.mark.parametrize("created", BEYOND)
def test_a_run_of_an_impossible_time_is_listed_and_reported(tmp_path, capsys, created):
    """Nobody knows when it began, so it enters no trend; its text is shown as it is."""
    path = a_run(tmp_path / "odd.stats.gz", created=created)
    found = contents_of(path, "0" * 64, path.stat().st_size)
    assert (found.created, found.problem) == (None, "nobody knows when it began")
    at = ["--archive", str(tmp_path / "archive")]
    assert run_command_line(["-q", "archive", "add", str(path), str(a_run(tmp_path / "0.stats.gz", 1)), *at]) == 0
    for words in (["list"], ["list", "--format", "table"], ["show", "00000run"], ["trend"]):
        assert run_command_line(["archive", *words, *at]) == 0
    capsys.readouterr()
    assert run_command_line(["report-scenario", "-s", str(path)]) == 0
    assert created[:10] in capsys.readouterr().out
    out = io.StringIO()
    JunitReport().write(ReportSource(StatsFile(path)), out)
    assert f'timestamp="{created[:10]}' in out.getvalue()
    assert run_command_line(["compare", str(tmp_path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("text", ["\u00b2d", "\u0663d", "0001-01-01", "d", "-1d", "9" * 400 + "d", "9999999d"])
def test_a_time_or_span_that_there_is_not_says_what_is_expected(text):
    """One line, and no internal error."""
    with pytest.raises(InvalidValue, match="expected a date such as 2026-11-22"):
        moment(text)


@pytest.mark.parametrize("text", ["\u00b2d", "\u0663w", "d", "nan", "5"])
def test_a_span_is_in_digits_with_a_unit(text):
    """Digits of other scripts are none."""
    with pytest.raises(InvalidValue, match="expected a span of time"):
        span(text)
