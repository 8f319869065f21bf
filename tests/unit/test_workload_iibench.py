"""iibench: commands from parameters, metrics from what it and its originals printed, and the program's own sums."""

import random
import runpy

import pytest
from places import ROOT

from bench_common.errors import ParseError, UsageError
from bench_workloads.iibench import HEADER, Iibench

OUTPUTS = ROOT / "tests" / "data" / "iibench"
OURS = f"""{HEADER}
5000 0.400 0.400 12500.0 5000 12500.0 300 750.0 750.0
10000 0.600 1.000 10000.0 10000 8333.3 900 900.0 1000.0
Done
"""


@pytest.fixture(scope="module")
def program():
    """The program's own names, without running it."""
    return runpy.run_path(str(ROOT / "dockerfiles" / "iibench" / "iibench.py"))


def output(name):
    return (OUTPUTS / f"{name}.txt").read_text()


def parsed(text):
    return Iibench().parse(text)


def params(**changes):
    return Iibench().defaults() | changes


def test_rates_of_the_whole_run_and_of_its_last_interval_are_told_apart():
    """They tell different things, and by the last alone a ranking may turn round."""
    assert parsed(OURS) == {
        "inserts_per_second": 10000,
        "last_inserts_per_second": 8333.3,
        "queries_per_second": 900,
        "last_queries_per_second": 1000,
        "total_time_s": 1.0,
        "rows": 10000,
    }


def test_the_original_of_2012_is_read():
    """Its table's definition is passed over; without queries there are no rates of them."""
    assert parsed(output("py2-2012-insert_only")) == {
        "inserts_per_second": 68709.2,
        "last_inserts_per_second": 70555.2,
        "total_time_s": 0.7,
        "rows": 50000,
    }


@pytest.mark.parametrize(
    ("header", "row", "queries"),
    [
        ("#rows #seconds #total_seconds cum_ips table_size last_ips", "10000 0.6 1.0 10000.0 10000 8333.3", False),
        (
            "#rows #seconds #total_seconds cum_ips table_size last_ips #queries cum_qps last_qps cum_lat",
            "10000 0.6 1.0 10000.0 10000 8333.3 900 900.0 1000.0 7",
            True,
        ),
        (
            "i_sec t_sec i_ips t_ips i_qps t_qps max_i max_q t_ins t_query",
            "0.6 1.0 8333.3 10000 1000.0 900.0 3 4 10000 900",
            True,
        ),
    ],
)
def test_the_columns_follow_from_the_header(header, row, queries):
    """Versions left out and added some; the result stands below its name."""
    end = "Totals: 1.0 secs, 10000 rows/sec, 10000 rows\n" if header.startswith("i_sec") else ""
    found = parsed(f"{header}\n{row}\n{end}Done\n")
    assert (found["inserts_per_second"], found["last_inserts_per_second"], found["rows"]) == (10000, 8333.3, 10000)
    assert found.get("queries_per_second") == (900 if queries else None)


def test_its_successor_is_read():
    """The rate of the whole run is that of its totals."""
    metrics = parsed(output("py3-head-docker-q4"))
    assert (metrics["inserts_per_second"], metrics["last_inserts_per_second"]) == (33282.3, 29988)
    assert (metrics["queries_per_second"], metrics["last_queries_per_second"]) == (6599, 5550)
    assert parsed(output("py3-head-docker"))["inserts_per_second"] == 99937.4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("Traceback (most recent call last):\n", "line 1: not a header of iibench"),
        (f"{HEADER}\nDone\n", "there is no report"),
        (OURS.replace("Done", "iibench: lost\nDone"), "line 4: not a line that iibench prints here"),
        (OURS.replace(" 10000.0 ", " 99999.9 "), "are not 99999.9 a second"),
        (OURS.replace(" 900.0 1000.0", " 900.0"), "8 numbers, where the header has 9"),
        (OURS.replace("5000 0.400", "50000 0.400"), "do not grow"),
        (output("py3-head-docker").replace("Totals:", "Total:"), "expected 'Totals: ...'"),
    ],
)
def test_what_is_no_run_is_refused(text, said):
    """With the line that shows why."""
    with pytest.raises(ParseError) as caught:
        parsed(text)
    assert said in str(caught.value)


def test_fewer_rows_than_asked_for_are_a_failure():
    """Whatever was printed."""
    Iibench().verify(params(max_rows=10), {"rows": 10.0})
    with pytest.raises(ParseError, match="9 of 10 rows were inserted"):
        Iibench().verify(params(max_rows=10), {"rows": 9.0})


def test_parameters_become_options_that_the_program_knows(program):
    """Each parameter but the server's own is one of its options."""
    (step,) = Iibench().steps(params(max_rows=500, rows_per_report=50, query_threads=3))
    words = [word.replace("{mariadb.port}", "3306") for word in step.argv[1:]]
    options = vars(program["options_of"](words))
    assert options | {"max_rows": 500, "rows_per_report": 50, "query_threads": 3, "port": 3306} == options
    assert (options["user"], options["database"], options["data_bytes"]) == ("bench", "bench", 10)
    assert Iibench().service_files(params())["mariadb"]


def test_a_report_after_the_last_row_would_be_none():
    """It is refused before anything runs."""
    with pytest.raises(UsageError, match="rows_per_report are more than the 5 rows of max_rows"):
        Iibench().steps(params(max_rows=5))


def test_the_program_prints_what_the_parser_reads(program):
    """Rates of the interval are over the interval, those of the run over all of it."""
    mark = program["Mark"]
    began, middle, end = mark(5.0, 0, 0), mark(7.0, 1000, 10), mark(8.0, 3000, 40)
    rows = [program["report_row"](began, began, middle), program["report_row"](began, middle, end)]
    assert rows[0] == "1000 2.000 2.000 500.0 1000 500.0 10 5.0 5.0"
    metrics = parsed("\n".join([program["HEADER"], *rows, "Done"]))
    assert (metrics["inserts_per_second"], metrics["last_inserts_per_second"]) == (1000, 2000)
    assert (metrics["queries_per_second"], metrics["last_queries_per_second"]) == (13.3, 30)


def test_the_programs_rows_follow_from_the_seed_and_need_no_quoting(program):
    """So many rows of six values each."""
    text = program["values"](random.Random(3), 50, 20)
    assert text.count("(") == 50
    again = program["values"](random.Random(3), 50, 20)
    assert text.split(",")[1:6] == again.split(",")[1:6]
    assert not set(text) & set('\\";%')
