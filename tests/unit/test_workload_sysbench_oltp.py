"""sysbench oltp: commands from parameters, and metrics from what sysbench really printed."""

import pytest
from places import DATA

from bench_common.errors import ParseError, UsageError
from bench_workloads.sysbench_oltp import SysbenchOltp

OUTPUTS = DATA / "sysbench"
PERFORMED = "    queries performed:\n" + "".join(
    f"        {name + ':':<32} {count}\n" for name, count in (("read", 1400), ("write", 0), ("other", 200))
)
REQUESTS = """    read/write requests:                 1400   (700.00 per sec.)
    other operations:                    200    (100.00 per sec.)
"""
OLD_END = """    total time:                          2.0000s
    total number of events:              100
    total time taken by event execution: 7.9000
    {statistics}:
         min:                                  1.50ms
         avg:                                 79.00ms
         max:                                278.15ms
         approx.  95 percentile:              90.57ms

Threads fairness:
    events (avg/stddev):           25.0000/1.50
    execution time (avg/stddev):   1.9750/0.03
"""
OF_0_4 = f"""sysbench 0.4.12:  multi-threaded system evaluation benchmark

No DB drivers specified, using mysql
Running the test with following options:
Number of threads: 4

Doing OLTP test.
Running mixed OLTP test
Doing read-only test
Using Special distribution (12 iterations,  1 pct of values are returned in 75 pct cases)
Using "BEGIN" for starting transactions
Using auto_inc on the id column
Maximum number of requests for OLTP test is limited to 100
Using 1 test tables
Threads started!
[  1s] Intermediate results: 4 threads, tps: 50.1, reads/s: 700.3, writes/s: 0.0 response time: 48.261058ms (95%)
Time limit exceeded, exiting...
(last message repeated 3 times)
Done.

OLTP test statistics:
{PERFORMED}        total:                           1600
    transactions:                        100    (50.00 per sec.)
    deadlocks:                           3      (1.50 per sec.)
{REQUESTS}
Test execution summary:
{OLD_END.format(statistics="per-request statistics")}"""
OF_0_5 = f"""sysbench 0.5:  multi-threaded system evaluation benchmark

Running the test with following options:
Number of threads: 4
Report intermediate results every 1 second(s)
Random number generator seed is 0 and will be ignored


Initializing worker threads...

Threads started!

[   1s] threads: 4, tps: 50.00, reads: 700.00, writes: 0.00, response time: 48.32ms (95%), errors: 0.00
OLTP test statistics:
{PERFORMED}        total:                           1600
    transactions:                        100 (50.00 per sec.)
{REQUESTS}    ignored errors:                      2      (1.00 per sec.)
    reconnects:                          1      (0.50 per sec.)

General statistics:
{OLD_END.format(statistics="response time")}"""


def output(name):
    return (OUTPUTS / f"{name}.txt").read_text()


def parsed(text):
    return SysbenchOltp().parse(text)


def params(**changes):
    return SysbenchOltp().defaults() | changes


@pytest.mark.parametrize(
    ("name", "transactions", "queries", "events"),
    [
        ("oltp_read_only", 1469.83, 23517.21, 7354),
        ("oltp_read_write", 627.45, 12548.96, 3140),
        ("oltp_read_write-report", 921.06, 18421.25, 4612),
        ("oltp-rate-report", 46.41, 928.27, 93),
        ("oltp_point_select", 33141.34, 33141.34, 99494),
        ("oltp_insert", 8751.41, 8751.41, 26282),
        ("oltp-events", 1476.13, 23618.05, 200),
    ],
)
def test_a_run_of_1_0_gives_its_rates(name, transactions, queries, events):
    """What sysbench 1.0 printed, with and without progress lines."""
    metrics = parsed(output(name))
    assert metrics["transactions_per_second"] == transactions
    assert metrics["queries_per_second"] == queries
    assert metrics["total_events"] == events
    assert (metrics["ignored_errors"], metrics["reconnects"]) == (0, 0)
    assert metrics["latency_p95_ms"] > metrics["latency_min_ms"] > 0


def test_0_4_calls_errors_deadlocks_and_prints_no_rate_of_all_queries():
    """The rate is their number over the total time; reconnects are not printed, so there is no such metric."""
    metrics = parsed(OF_0_4)
    assert metrics["transactions_per_second"] == 50
    assert metrics["queries_per_second"] == 800
    assert metrics["ignored_errors"] == 3
    assert "reconnects" not in metrics
    assert metrics["latency_p95_ms"] == 90.57


def test_what_called_itself_1_0_before_its_release_printed_the_table_of_0_5():
    """Under the new banner, with a heading and an ordinal of its own for the latencies."""
    text = OF_0_5.replace(
        "sysbench 0.5:  multi-threaded system evaluation benchmark", "sysbench 1.0 (using bundled LuaJIT)"
    )
    text = text.replace("    response time:\n", "\nLatency statistics:\n").replace("95 percentile", "95th percentile")
    assert parsed(text) == parsed(OF_0_5)


def test_0_5_prints_both():
    """Its progress lines are passed over."""
    metrics = parsed(OF_0_5)
    assert (metrics["ignored_errors"], metrics["reconnects"]) == (2, 1)
    assert metrics["queries_per_second"] == 800


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fail-oltp-noprepare", "line 10: sysbench failed: 'FATAL: mysql_stmt_prepare() failed'"),
        ("fail-oltp-connrefused", "sysbench failed: \"FATAL: unable to connect to MySQL server on host '127.0.0.1'"),
        ("fail-oltp-badpassword", "sysbench failed"),
        ("fail-oltp-legacy-2014", "no such built-in test"),
        (
            "fail-oltp-prepare-twice",
            "sysbench failed: \"FATAL: mysql_drv_query() returned error 1050 (Table 'sbtest1'",
        ),
        ("oltp_read_write-prepare", "it measured nothing"),
        ("oltp_read_write-cleanup", "it measured nothing"),
        ("cpu-1t", "another test of sysbench"),
        ("fileio-rndrw", "another test of sysbench"),
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
            "read:                            43960",
            "read:                            43961",
            "do not make their total",
        ),
        ("queries:                             62800", "queries:                             62801", "are not these"),
        (
            "    reconnects:                          0      (0.00 per sec.)\n",
            "",
            "lines are missing that sysbench oltp",
        ),
        ("(627.45 per sec.)", "(627.45 per min.)", "not a line"),
        ("    transactions:", "    Transactions:", "not a line"),
        ("SQL statistics:", "SQL statistics:\nSQL statistics:", "occurs twice"),
    ],
)
def test_a_text_that_contradicts_itself_is_refused(old, new, said):
    """A number from a text that was altered is worse than none."""
    text = output("oltp_read_write")
    assert old in text
    with pytest.raises(ParseError, match=said):
        parsed(text.replace(old, new))


def test_tables_are_made_once_and_the_run_alone_is_timed():
    """The server goes with its tables, so that nothing has to be cleaned up."""
    steps = SysbenchOltp().steps(params(test="read_write", tables=4, threads=2, warmup=320.0, time=60.0))
    assert [(step.name, step.once, step.timed, step.parse) for step in steps] == [
        ("prepare", True, False, False),
        ("warmup", False, False, False),
        ("run", False, True, True),
    ]
    prepare, warmup, run = (step.argv for step in steps)
    assert prepare[:2] == ("sysbench", "oltp_read_write")
    assert {"--tables=4", "--threads=2", "--mysql-host={mariadb.host}", "--mysql-port={mariadb.port}"} <= set(prepare)
    assert "--time=320" in warmup
    assert {"--time=60", "--threads=2", "--percentile=95"} <= set(run)
    assert not any(word.startswith(("--rate", "--report-interval", "--skip-trx")) for word in run)


def test_tables_can_be_made_for_each_job():
    """Then they are removed again, and neither is timed."""
    steps = SysbenchOltp().steps(params(prepare="each-job", rate=50, report_interval=1.0, skip_trx=True))
    assert [(step.name, step.once, step.timed) for step in steps] == [
        ("prepare", False, False),
        ("run", False, True),
        ("cleanup", False, False),
    ]
    assert {"--rate=50", "--report-interval=1", "--skip-trx=on"} <= set(steps[1].argv)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"time": 0.0}, "it would never end"),
        ({"time": 1.5}, "time cannot be 1.5 s"),
        ({"warmup": 0.5}, "warmup cannot be 0.5 s"),
        ({"report_interval": 0.1}, "report_interval cannot be 0.1 s"),
    ],
)
def test_what_sysbench_cannot_do_is_refused(changes, said):
    """Before anything runs."""
    with pytest.raises(UsageError, match=said):
        SysbenchOltp().steps(params(**changes))


def test_the_time_that_it_takes_holds_warm_up_and_preparation():
    """Nobody knows it where only the number of transactions ends the run."""
    assert SysbenchOltp().expected_seconds(params(warmup=5.0, tables=2, table_size=100_000)) == 25
    assert SysbenchOltp().expected_seconds(params(time=0.0, events=5)) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("oltp-v0.4.8", (39.95, 839.02, 400.3, 1750)),
        ("oltp-mongo", (64.96, 454.71, 153.88, 300.1)),
    ],
)
def test_other_generations_and_drivers_are_read(name, expected):
    """A banner with a ``v``, latencies in seconds, what syslog adds, and a driver's own line before the start."""
    found = SysbenchOltp().parse((OUTPUTS / f"{name}.txt").read_text())
    names = ("transactions_per_second", "queries_per_second", "latency_avg_ms", "latency_p95_ms")
    assert [found[each] for each in names] == pytest.approx(expected, abs=0.005)
