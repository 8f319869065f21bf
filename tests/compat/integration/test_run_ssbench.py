"""One of ssbench's scenario files against a real Swift, with the command line of ssbench's own documentation."""

import csv
import io
import json
import re

from places import DATA

FILE = DATA / "ssbench" / "small_test.scenario"
FLAGS = ("-u", "4", "-c", "8", "-o", "150", "--pctile", "50", "--format", "ssbench", "--progress", "chars")


def test_a_scenario_of_ssbench_runs_unmodified_and_is_reported_in_its_words(workspace, store):
    """Counts agree with the server's log, both alphabets are shown, and nothing is left on the server."""
    variables = store.swift_variables
    access = ("-A", variables["ST_AUTH"], "-U", variables["ST_USER"], "-K", variables["ST_KEY"])
    before = len(store.requests())
    run = workspace.run(str(FILE), *FLAGS, *access, workers=2)
    report = lambda *flags: workspace.master("report-scenario", "-s", run.stats, *flags).out  # noqa: E731
    (treatment,) = json.loads(report("--format", "json"))["treatments"]
    assert (treatment["jobs"]["done"], treatment["jobs"]["failed"]) == (150, 0)
    text = report("--format", "ssbench", "--pctile", "50")
    assert "Small test scenario  (generated with weighbridge version" in text
    assert "Worker count:   2   Concurrency:   4  Ran " in text
    assert " 45%   % 50  17  17  17        1 kB -  16 kB  tiny\n" in text
    assert "       Count:   150 (    0 error;     0 retries:  0.00%)  Average requests per second:" in text
    assert "50%-ile" in text
    assert "Average MB per second (10^6 bytes): TOTAL " in text
    counts = dict(re.findall(r"^([A-Z]+)\n       Count: +(\d+)", text, re.MULTILINE))
    assert sum(int(counts[name]) for name in ("CREATE", "READ", "UPDATE", "DELETE")) == int(counts["TOTAL"]) == 150
    logged = [one for one in store.requests()[before:] if one.path.split("?")[0].count("/") == 4]
    methods = {one.transaction_id: one.method for one in logged}
    assert sum(one.method == "GET" for one in logged) == int(counts["READ"])
    (row,) = csv.DictReader(io.StringIO(report("--format", "ssbench-csv", "--pctile", "50")))
    assert (row["total_count"], row["concurrency"], row["worker_count"]) == ("150", "4", "2")
    assert methods[row["read_last_all_worst_txid"]] == methods[row["read_first_tiny_worst_txid"]] == "GET"
    assert methods[row["create_last_small_worst_txid"]] == "PUT"
    assert float(row["read_first_all_50_pctile"]) <= float(row["read_last_all_50_pctile"])
    rates = workspace.folder / "rps.csv"
    report("--format", "ssbench", "-r", str(rates))
    header, *lines = rates.read_text().splitlines()
    assert header == '"Seconds Since Start","Requests Completed"'
    assert sum(int(line.split(",")[1]) for line in lines) == 150
    assert "first byte in < 1 s" in run.err
    assert re.search(r"^  [._o|]{20}", run.err, re.MULTILINE)
    assert not [name for name in store.containers() if name.startswith("ssbench_")]
