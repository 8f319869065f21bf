"""ab: commands from parameters, and metrics from what ab really printed."""

import re

import pytest
from places import DATA

from bench_common.errors import ParseError, UsageError
from bench_common.treatment import Guest, Treatment
from bench_master.scenario.load import caveats
from bench_workloads.ab import Ab

OUTPUTS = DATA / "ab"


def output(name):
    return (OUTPUTS / f"{name}.txt").read_text()


def parsed(text):
    return Ab().parse(text)


def params(**changes):
    return Ab().defaults() | changes


@pytest.mark.parametrize(
    ("name", "rate", "requests", "longest"),
    [
        ("ok-c1", 1734.79, 200, 13),
        ("ok-n2000-c4", 3240.58, 2000, 35),
        ("ok-n2000-c4-keepalive", 9361.10, 2000, 2),
        ("ok-quiet", 1773.79, 500, 5),
        ("ok-time", 2880.98, 5762, 20),
        ("ok-length-l", 3706.50, 300, 2),
        ("ok-https-sni", 140.95, 20, 16),
        ("ok-https-keepalive-2.4.62", 1189.48, 50, 23),
        ("ok-https-tls1.2-2.4.69", 140.32, 20, 13),
        ("ok-keepalive-csv-gnuplot", 26925.15, 50, 0),
        ("ok-post", 3954.13, 20, 0),
    ],
)
def test_a_run_gives_its_rate(name, rate, requests, longest):
    """With and without keep-alive, TLS, progress, a time limit, a body, and ab's own doubts of its averages."""
    metrics = parsed(output(name))
    assert metrics["requests_per_second"] == rate
    assert metrics["requests"] == requests
    assert metrics["latency_max_ms"] == longest
    assert metrics["latency_p50_ms"] <= metrics["latency_p99_ms"] <= longest


def test_times_are_those_of_the_table():
    """Means of the parts, not their medians; the mean request is that of a connection, not the share of all."""
    metrics = parsed(output("ok-n2000-c4"))
    assert metrics["latency_mean_ms"] == 1.234
    assert (metrics["connect_mean_ms"], metrics["processing_mean_ms"], metrics["waiting_mean_ms"]) == (0, 1, 1)
    assert metrics["transfer_kib_per_second"] == 566.47
    assert metrics["total_time_s"] == 0.617


def test_progress_in_the_same_file_is_passed_over():
    """stderr before stdout, as a shell's 2>&1 leaves it."""
    assert parsed(output("ok-n2000-c4-stderr") + output("ok-n2000-c4")) == parsed(output("ok-n2000-c4"))


def test_a_run_of_one_request_has_no_percentiles():
    """ab prints none."""
    text = output("ok-c1").replace("Complete requests:      200", "Complete requests:      1")
    text = text.replace("1734.79 [#/sec]", "76.92 [#/sec]").replace("0.115 seconds", "0.013 seconds")
    text = text.replace("0.576 [ms]", "13.000 [ms]")
    metrics = parsed(text[: text.index("WARNING")])
    assert metrics["latency_max_ms"] == 13
    assert "latency_p50_ms" not in metrics


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ok-failed-length", "line 18: 299 requests failed, or got a response of another length"),
        ("fail-serverdies", "line 6: ab gave up here"),
        ("fail-refused", "the text ends here, before 'Server Software'"),
        ("fail-badhost", "the text ends here"),
        ("fail-badopt", "ab refused its arguments"),
        ("version", "ab printed its version and ran nothing"),
        ("fail-tls-handshake", "line 19: no byte was received: no request was answered"),
        ("fail-verbose2", "line 5: run ab without -v"),
    ],
)
def test_what_is_no_run_is_refused(name, said):
    """With the line that shows why."""
    with pytest.raises(ParseError) as caught:
        parsed(output(name))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "Failed requests:        0",
            "Failed requests:        0\nNon-2xx responses:      7",
            "7 responses had a status",
        ),
        ("Failed requests:        0", "Failed requests:        0\nWrite errors:           2", "could not be written"),
        ("Complete requests:      2000", "Complete requests:      0", "no request was answered"),
        ("Complete requests:      2000", "Complete requests:      3000", "are not this rate"),
        ("Version 2.3", "Version 2.0.40-dev", "ab 2.0.40-dev is not supported"),
        ("  98%      3", "  98%      9", "not in order"),
        ("Total:          0    1", "Total:          0   99", "min, mean, max"),
        ("Concurrency Level:      4", "Concurrency Level:      40", "do not take"),
        ("Server Software:", "socket: Too many open files (24)\nServer Software:", "ab failed"),
        ("Server Software:", "Send request failed!\nServer Software:", "ab failed"),
        (" 100%     35", " 100%     36", "not the largest of the connection times"),
        ("HTML transferred:", "HTML received:", "expected 'HTML transferred'"),
        ("Server Software:", "<p>\nServer Software:", "ab -w"),
        ("Server Software:", "LOG: header received:\nServer Software:", "without -v"),
        ("(longest request)\n", "(longest request)\nThis is ApacheBench, Version 2.3 <x>\n", "a second run begins"),
    ],
)
def test_a_text_that_is_not_one_good_run_is_refused(old, new, said):
    """ab itself ended with 0."""
    text = output("ok-n2000-c4")
    assert old in text
    with pytest.raises(ParseError) as caught:
        parsed(text.replace(old, new))
    assert said in str(caught.value)


def test_a_mean_above_the_longest_is_refused():
    """Of 100 connections for 10 requests each but ten waits for nothing, and the mean is ten times the longest."""
    text = output("ok-c1").replace("Concurrency Level:      1", "Concurrency Level:      100")
    with pytest.raises(ParseError, match="above the longest: connections had no request"):
        parsed(text.replace("0.576 [ms] (mean)", "57.600 [ms] (mean)"))


def test_abs_own_doubts_are_passed_over():
    """Of every kind: they are of its averages, and the report shows the spread."""
    doubts = (
        "ERROR: The median and mean for the initial connection time are more than twice the standard\n"
        "       deviation apart. These results are NOT reliable.\n"
        "WARNING: The median and mean for the waiting time are not within a normal deviation\n"
        "        These results are probably not that reliable.\n"
    )
    text = output("ok-n2000-c4").replace("\nPercentage of", f"{doubts}\nPercentage of")
    assert parsed(text) == parsed(output("ok-n2000-c4"))


def without_deviations(text):
    """Return a text as ab -S prints it."""
    text = text.replace("min  mean[+/-sd] median   max", "min   avg   max")
    return re.sub(r"(?m)^(\w+:(?: +\d+){2}) +\d+\.\d +\d+( +\d+)$", r"\1\2", text)


def test_a_table_without_deviations_and_medians_gives_the_same_numbers():
    """Those two columns are none of ours."""
    text = without_deviations(output("ok-n2000-c4"))
    assert "avg" in text
    assert parsed(text) == parsed(output("ok-n2000-c4"))


def test_a_row_is_as_long_as_its_table_says():
    """Or a long row that was cut off would be taken for a whole short one."""
    whole = output("ok-n2000-c4")
    with pytest.raises(ParseError, match="a row with other columns than its table"):
        parsed(whole.replace("min  mean[+/-sd] median   max", "min   avg   max"))


def test_the_run_alone_is_timed_and_parsed():
    """The page is that of the service, wherever it is."""
    warmup, run = Ab().steps(params(requests=1000, concurrency=4, warmup=100, keepalive=True))
    assert (warmup.timed, warmup.parse, run.timed, run.parse) == (False, False, True, True)
    url = "http://{webbench.authority}/index.php"
    assert run.argv == ("ab", "-c", "4", "-s", "30", "-k", "-n", "1000", url)
    assert warmup.argv[-3:] == ("-n", "100", url)


def test_fewer_answers_than_asked_for_are_a_failure():
    """Whatever ab made of it."""
    Ab().verify(params(requests=5), {"requests": 5.0})
    with pytest.raises(ParseError, match="4 of 5 requests were answered"):
        Ab().verify(params(requests=5), {"requests": 4.0})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"requests": 3, "concurrency": 4}, "3 requests are fewer than the 4 connections"),
        ({"warmup": 3, "concurrency": 4}, "3 warmup are fewer than the 4 connections"),
        ({"timeout": 1.5}, "whole seconds"),
    ],
)
def test_what_ab_refuses_is_refused_before(changes, said):
    """Before anything runs."""
    with pytest.raises(UsageError, match=said):
        Ab().steps(params(**changes))


def test_every_report_of_its_numbers_says_what_they_are():
    """A closed model hides what a server that stalls does to those who would have asked."""
    treatments = [Treatment(0, {}, None, "docker", Guest(name)) for name in ("ab", "ab", "sysbench-cpu")]
    (caveat,) = caveats(treatments)
    assert caveat.startswith("ab: a closed model")
