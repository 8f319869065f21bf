"""sysbench cpu: its command line, and its output read to the last digit or refused."""

from __future__ import annotations

import re

import places
import pytest

from bench_common.errors import ParseError, UsageError
from bench_common.long_output import OUTPUT_LIMIT_BYTES, keep_ends
from bench_workloads.sysbench_cpu import SysbenchCpu

DATA = places.DATA / "sysbench"
parse = SysbenchCpu().parse


def sample(name: str) -> str:
    return (DATA / f"{name}.txt").read_bytes().decode()


def params(**changes):
    return {**SysbenchCpu().defaults(), **changes}


def test_every_number_of_a_run_is_read():
    """Each measure of sysbench 1.0's report arrives under its own name and unit."""
    assert parse(sample("cpu-2t-events")) == {
        "events_per_second": 669.12,
        "total_time_s": 2.9872,
        "total_events": 2000,
        "latency_min_ms": 2.49,
        "latency_avg_ms": 2.98,
        "latency_max_ms": 11.78,
        "latency_p95_ms": 3.30,
        "latency_sum_ms": 5962.46,
        "thread_events_avg": 1000,
        "thread_events_stddev": 46,
        "thread_time_avg_s": 2.9812,
        "thread_time_stddev_s": 0,
    }


def test_the_result_of_hours_of_reports_is_read():
    """One report a second for 40 hours is more than is kept of an output, and its result stands at the end."""
    text = sample("cpu-2t-events")
    reports = "".join(f"[ {n}s ] thds: 2 eps: 669.12 lat (ms,95%): 3.30\n" for n in range(1, 144_000))
    kept, cut = keep_ends(
        text.replace("Threads started!\n", f"Threads started!\n\n{reports}").encode(), OUTPUT_LIMIT_BYTES
    )
    assert cut
    assert parse(kept.decode()) == parse(text)


@pytest.mark.parametrize(
    ("name", "rate", "latency_sum_ms"),
    [
        ("cpu-0.4.12", 10000 / 26.0489, 26047.3),
        ("cpu-0.4.12-4t", 10000 / 45.8467, 183332.1),
        ("cpu-0.5", 10000 / 31.0954, 31083.0),
        ("cpu-1.1.0-early", 3420 / 10.0027, 9997.19),
    ],
)
def test_what_old_versions_do_not_print_follows_by_arithmetic(name, rate, latency_sum_ms):
    """0.4, 0.5 and the first of 1.x print no rate, the first two no sum in ms; both follow from their totals."""
    metrics = parse(sample(name))
    assert metrics["events_per_second"] == pytest.approx(rate, rel=1e-12)
    assert metrics["latency_sum_ms"] == pytest.approx(latency_sum_ms, rel=1e-12)


def test_a_terminals_output_gives_the_same_numbers():
    """CR LF, and what a terminal echoes in front, change no number."""
    metrics = parse(sample("docker-cpu-tty-crlf"))
    assert metrics["events_per_second"] == 396.22
    assert metrics == parse(sample("docker-cpu-tty-crlf").removeprefix("^@").replace("\r", ""))
    assert parse("\ufeff" + sample("cpu-1t").replace("\n", "\r\n")) == parse(sample("cpu-1t"))


def test_a_decimal_comma_is_a_decimal_point():
    """A locale that prints 5,0011 means 5.0011."""
    text = sample("cpu-1t")
    assert parse(
        re.sub(r"(?<=\d)\.(?=\d)", ",", text.replace("1.0.20", "VERSION")).replace("VERSION", "1.0.20")
    ) == parse(text)


def test_seconds_of_the_oldest_versions_are_milliseconds():
    """A latency printed in s is stored in ms."""
    text = sample("cpu-0.4.12").replace("2.59ms", "0.0025s").replace("2.62ms", "0.0026s")
    metrics = parse(text)
    assert metrics["latency_min_ms"] == pytest.approx(2.5)
    assert metrics["latency_p95_ms"] == pytest.approx(2.6)


def test_the_banner_of_0_4_8_has_a_v():
    """Its rate is the number of events over the total time."""
    assert parse(sample("cpu-v0.4.8"))["events_per_second"] == pytest.approx(162.60, abs=0.005)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("  3.30", " 33.00", "percentile"),
        ("  3.30", "  1.30", "percentile"),
        ("  2.98\n", "  9.98\n", "a mean of 2.98"),
    ],
)
def test_latencies_that_contradict_one_another_are_refused(old, new, said):
    """A percentile lies between the fastest and the slowest event; the mean is the sum over their number."""
    text = sample("cpu-2t-events")
    assert old in text
    with pytest.raises(ParseError, match=said):
        parse(text.replace(old, new))


def test_a_speed_without_its_rate_is_refused():
    """Who prints the one prints the other; a line that was removed is not computed."""
    for line in ("CPU speed:", "events per second:   396.41"):
        text = re.sub(r"(?m)^ *" + line.split(":")[0] + ".*$", "", sample("cpu-1t"))
        assert text != sample("cpu-1t")
        with pytest.raises(ParseError, match="are printed together, and one of them is missing"):
            parse(text)


def test_a_percentile_is_named_by_its_rank():
    """p99 is never stored under p95's name, and a percentile that was switched off, or of an odd rank, is absent."""
    assert {name for name in parse(sample("cpu-p99-debug")) if name.startswith("latency_p")} == {"latency_p99_ms"}
    assert not {name for name in parse(sample("cpu-percentile0")) if name.startswith("latency_p")}
    odd = parse(sample("cpu-1t").replace("95th", "97th"))
    assert odd == {name: value for name, value in parse(sample("cpu-1t")).items() if name != "latency_p95_ms"}


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("cpu-help", 3, "printed help or refused"),
        ("help", 1, "printed help or refused"),
        ("version", 1, "cut off, or sysbench refused its arguments"),
        ("fail-badcommand", 1, "cut off, or sysbench refused its arguments"),
        ("fail-badoption", 1, "cut off, or sysbench refused its arguments"),
        ("fail-nocommand", 1, "cut off, or sysbench refused its arguments"),
        ("fail-badtest", 3, "sysbench failed.*nosuchtest"),
        ("fail-prime0", 3, "sysbench failed.*cpu-max-prime: 0"),
        ("fail-zero-threads", 1, "sysbench failed.*threads: 0"),
        ("fail-forced-shutdown", 15, "sysbench failed.*forcing shutdown"),
        ("cpu-checkpoints", 15, "report of a part of the run"),
        ("memory-complete", 9, "another test of sysbench, not of cpu.*memory"),
        ("fileio-rndrw", 8, "another test of sysbench, not of cpu"),
        ("oltp_read_only", 12, "another test of sysbench, not of cpu"),
    ],
)
def test_what_is_not_a_complete_run_of_cpu_is_refused(name, line, reason):
    """Failures, help and other tests are refused with the line that shows what they are."""
    with pytest.raises(ParseError, match=reason) as caught:
        parse(sample(name))
    assert caught.value.line == line


def test_a_table_without_a_limit_of_primes_is_not_a_cpu_run():
    """The mutex test prints nothing but the common table, and that is not enough."""
    with pytest.raises(ParseError, match="it has no line that only sysbench cpu prints"):
        parse(sample("mutex"))


def test_two_runs_in_one_text_are_refused():
    """Which of two runs was meant nobody can know."""
    with pytest.raises(ParseError, match="second run") as caught:
        parse(sample("cpu-1t") + sample("cpu-2t-events"))
    assert caught.value.line == sample("cpu-1t").count("\n") + 1


def test_an_unknown_version_is_refused():
    """A version whose report nobody has checked is not read on the strength of a likeness."""
    with pytest.raises(ParseError, match=r"sysbench 2\.0 is not known") as caught:
        parse(sample("cpu-1t").replace("sysbench 1.0.20", "sysbench 2.0.0"))
    assert caught.value.line == 1


def test_totals_that_contradict_each_other_are_refused():
    """An altered count no longer fits the fairness among threads."""
    with pytest.raises(ParseError, match="do not make 1892 events"):
        parse(sample("cpu-1t").replace(" 1891\n", " 1892\n"))
    with pytest.raises(ParseError, match="order min, avg, max"):
        parse(sample("cpu-1t").replace(" 3.31\n", " 1.31\n"))


def test_the_command_line_of_the_defaults():
    """One step, whose argument vector states every limit."""
    (step,) = SysbenchCpu().steps(params())
    assert step.argv == (
        "sysbench",
        "cpu",
        "--cpu-max-prime=10000",
        "--threads=1",
        "--time=10",
        "--events=0",
        "--percentile=95",
        "run",
    )
    assert step.timed
    assert step.parse


def test_rate_and_progress_are_given_only_when_asked_for():
    """0 means none, and sysbench before 1.0 knows neither switch."""
    (step,) = SysbenchCpu().steps(params(rate=50, report_interval=2.0, time=3.0))
    assert step.argv[-3:] == ("--rate=50", "--report-interval=2", "run")
    assert "--time=3" in step.argv


def test_progress_is_the_latest_report_and_not_its_queue():
    """With a rate, sysbench says below each report how many events wait."""
    text = sample("cpu-rate-report")
    assert "[ 2s ] queue length: 1 concurrency: 0" in text
    assert SysbenchCpu().progress(text) == "[ 2s ] thds: 1 eps: 33.00 lat (ms,95%): 18.61"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"time": 0.0, "events": 0}, "it would never end"),
        ({"time": 2.5}, r"whole seconds: time cannot be 2\.5 s; try 2 s"),
        ({"report_interval": 0.5}, r"report_interval cannot be 0\.5 s; try 1 s"),
    ],
)
def test_parameters_that_sysbench_cannot_serve_are_refused(changes, reason):
    """A run without an end and a fraction of a second are refused before anything starts."""
    with pytest.raises(UsageError, match=reason):
        SysbenchCpu().steps(params(**changes))


def test_a_run_shorter_than_its_clock_shows_is_a_run():
    """Ten short events take 0.0000s as it is printed; sysbench 1.0 gives their rate all the same."""
    metrics = SysbenchCpu().parse(sample("cpu-instant"))
    assert (metrics["total_events"], metrics["total_time_s"]) == (10, 0.0)
    assert metrics["events_per_second"] > 1000


def test_a_run_without_rate_and_without_time_is_refused():
    """Before 1.0 the rate is events over time, which a time of nothing does not give."""
    text = re.sub(r"total time: +\S+s", "total time:                          0.0000s", sample("cpu-0.4.12"), count=1)
    with pytest.raises(ParseError, match="too short"):
        SysbenchCpu().parse(text)
