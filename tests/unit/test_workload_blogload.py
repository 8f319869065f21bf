"""blogload: rates of our own, from a text that is complete or refused."""

import pytest

from bench_common.errors import ParseError, UsageError
from bench_workloads.blogload import Blogload, program

TEXT = """\
blogload 1: 3 writers, 1 rewriters, 5 commenters, 10 readers; seed 1, fsync off
[1.0s] blogs=5 articles=20 pictures=10 rewrites=7 comments=9 reads=30 written_bytes=1048576 read_bytes=2097152
total time: 2.0000s
blogs: 10
articles: 40
pictures: 20
rewrites: 14
comments: 18
reads: 60
written_bytes: 2097152
read_bytes: 4194304
done
"""

parse = Blogload().parse


def test_rates_are_over_the_time_that_it_took():
    """Each count is divided by the time, sizes are in MiB."""
    assert parse(TEXT) == {
        "blogs_per_second": 5.0,
        "files_written_per_second": 30.0,
        "rewrites_per_second": 7.0,
        "comments_per_second": 9.0,
        "reads_per_second": 30.0,
        "written_mib_per_second": 1.0,
        "read_mib_per_second": 2.0,
        "total_time_s": 2.0,
    }
    assert list(parse(TEXT)) == [metric.name for metric in Blogload.metrics]


@pytest.mark.parametrize("count", range(len(TEXT.splitlines())))
def test_a_run_that_was_cut_is_refused(count):
    """After no line but the last is a run complete."""
    with pytest.raises(ParseError):
        parse("\n".join(TEXT.splitlines()[:count]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.replace("blogload 1:", "blogload 2:"), "blogload 2 is not supported; supported is 1"),
        (TEXT.replace("blogs: 10", "blogs: 0"), "no blog was completed"),
        (TEXT + TEXT, "give one run at a time"),
        (TEXT.replace("reads: 60\n", ""), "expected 'reads: ...'"),
        (TEXT.replace("[1.0s]", "hello"), "expected 'total time"),
    ],
)
def test_what_is_not_one_complete_run_is_refused(text, message):
    """The offending line is told."""
    with pytest.raises(ParseError, match=message):
        parse(text)


def test_the_program_goes_to_the_interpreter_as_it_is():
    """The same text runs on a host and in any image with an interpreter; it needs nothing of ours."""
    (step,) = Blogload().steps({**Blogload().defaults(), "fsync": True})
    assert step.argv[:3] == ("python3", "-c", program())
    assert step.argv[-1] == "--fsync"
    assert "bench_workloads" not in program()
    assert len(program()) < 64 * 1024


def test_an_interval_is_no_longer_than_the_run():
    """It would never be reported."""
    with pytest.raises(UsageError, match="report_interval 20 s is longer than time 10 s"):
        Blogload().steps({**Blogload().defaults(), "report_interval": 20.0})
