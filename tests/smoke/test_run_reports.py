"""What a run shows while it goes on and afterwards, and what can be made of its stats file."""

import csv
import io
import json
import re

import pytest
from workspace import NAP, Workspace

TRUE = {"operations": ["run", "wait", "remove"], "container": {"command": ["true"]}}
FALSE = {"operations": ["run", "wait", "remove"], "container": {"command": ["false"]}}


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """A run with characters for its progress: eight jobs are done, eight fail, and four more only warm up."""
    with Workspace(tmp_path_factory.mktemp("mixed")) as workspace:
        scenario = workspace.scenario(
            sampling_interval="200ms",
            repeats=2,
            iterations=2,
            concurrency=2,
            jobs={"good": {**NAP, "warmup": 1}, "bad": FALSE},
        )
        return workspace.run(scenario, "--progress", "chars", status=3)


@pytest.fixture
def report(workspace):
    """A function that reports a stats file with some flags; one treatment of it has no result, so it ends with 3."""

    def of(stats, *flags, status=3):
        ended = workspace.master("report-scenario", "-s", stats, *flags)
        assert ended.status == status, ended.err
        return ended.out

    return of


def shown(run):
    """Return the characters that a run showed for its jobs."""
    lines = re.findall(r"^  ([.oO*XLA-]+)$", run.err, re.MULTILINE)
    # Which of them took a second is the machine's business.
    return re.sub("[oO*]", ".", "".join(lines).replace("-", ""))


def test_a_character_for_each_job(mixed):
    """The legend comes first, then one character per job, another for failures; the last line sums up."""
    assert ".  done in < 1 s" in mixed.err
    assert "X  failed" in mixed.err
    assert re.search(r"^  \d+:\d\d  waiting for workers: 0 of 1 joined; local-0 is ", mixed.err, re.MULTILINE)
    assert len(mixed.jobs) == 20
    assert sorted(shown(mixed)) == sorted("." * 12 + "X" * 8)
    assert re.search(r"^20 jobs in .*: 12 done, 8 failed$", mixed.err, re.MULTILINE)


def test_the_formats_count_alike(mixed, report):
    """Text, CSV, JSON and JSON Lines have the same jobs, operations and errors."""
    document = json.loads(report(mixed.stats, "--format", "json"))
    head, *lines = [json.loads(line) for line in report(mixed.stats, "--format", "jsonl").splitlines()]
    assert (head["run_state"], head["jobs_planned"], head["jobs_missing"]) == ("complete", 20, 0)
    rows = list(csv.DictReader(io.StringIO(report(mixed.stats, "--csv"))))
    counted = [line for line in lines if not line["warmup"]]
    assert len(lines) == 20
    assert document["totals"].items() >= {"jobs": 16, "done": 8, "failed": 8, "lost": 0, "aborted": 0}.items()
    for treatment in document["treatments"]:
        label = treatment["treatment"]["job"]
        mine = [line for line in counted if line["treatment"]["job"] == label]
        for outcome in ("done", "failed"):
            assert treatment["jobs"][outcome] == sum(line["outcome"] == outcome for line in mine)
        for name, cell in treatment["operations"].items():
            if name == "job":
                continue
            done = [line["operations"][name] for line in mine if line["outcome"] == "done"]
            assert cell["n"] == len(done)
            if done:
                seconds = sorted(one["duration_s"] for one in done)
                assert cell["min_s"] == pytest.approx(seconds[0])
                assert cell["max_s"] == pytest.approx(seconds[-1])
                assert cell["mean_s"] == pytest.approx(sum(seconds) / len(seconds))
            (row,) = [one for one in rows if one["job"] == label and one["name"] == name]
            assert int(row["n"]) == cell["n"]
    assert {line["error"]["message"] for line in counted if line["error"]} == {"wait: exit code 1"}


def test_the_document_has_the_published_shape(mixed, report):
    """The JSON report has the keys that programs were promised, and hosts with what was sampled of them."""
    document = json.loads(report(mixed.stats, "--format", "json"))
    assert (document["format"], document["version"]) == ("weighbridge-report", 2)
    assert document["run"]["measures"] == "scenario"
    assert set(document) >= {"scenario", "hosts", "totals", "treatments"}
    assert set(document["totals"]) >= {"jobs", "done", "failed", "lost", "aborted", "duration_s", "jobs_per_s"}
    for treatment in document["treatments"]:
        assert set(treatment) >= {"treatment", "jobs", "jobs_per_s", "operations", "metrics"}
        assert treatment["treatment"]["engine"] == "native"
        cell = treatment["operations"]["run"]
        keys = ("n", "errors", "mean_s", "stddev_s", "min_s", "p50_s", "p95_s", "p99_s", "max_s")
        assert set(cell) >= set(keys)
    (host,) = document["hosts"]
    assert host["samples"]["cpu_user_percent"]["unit"] == "%"
    assert host["samples"]["cpu_user_percent"]["n"] >= 1
    assert {"cpu_system_percent", "cpu_iowait_percent", "cpu_steal_percent", "cpu_user_ticks"} <= set(host["samples"])


def test_a_chosen_percentile(mixed, report):
    """--pctile puts the chosen percentile into the text and the document."""
    assert "p75" in report(mixed.stats, "--pctile", "75")
    document = json.loads(report(mixed.stats, "--pctile", "75", "--format", "json"))
    good = next(row for row in document["treatments"] if row["treatment"]["job"] == "good")
    cell = good["operations"]["run"]
    assert cell["min_s"] <= cell["p75_s"] <= cell["max_s"]


def test_the_rate_histogram_sums_to_the_jobs(mixed, report, tmp_path):
    """-r writes how many jobs ended in each second, from the first with one on; together they are all the jobs."""
    rates = tmp_path / "rates.csv"
    report(mixed.stats, "-r", rates)
    rows = list(csv.DictReader(io.StringIO(rates.read_text())))
    ends = [int(job["start_s"] + job["duration_s"]) for job in mixed.jobs]
    assert [int(row["second"]) for row in rows] == list(range(min(ends), max(ends) + 1))
    sums = {name: sum(int(row[name]) for row in rows) for name in rows[0] if name not in ("second", "run_state")}
    assert {row["run_state"] for row in rows} == {"complete"}
    assert sums == {"done": 12, "failed": 8, "lost": 0, "aborted": 0}


def test_a_file_without_a_head_ends_with_3(workspace, mixed):
    """What was cut within its first block cannot be reported; the message names the file, and nothing is printed."""
    cut = workspace.folder / "cut.stats.gz"
    cut.write_bytes(mixed.stats.read_bytes()[:20])
    ended = workspace.master("report-scenario", "-s", cut)
    assert (ended.status, ended.out) == (3, "")
    (message,) = ended.errors
    assert str(cut) in message


def test_no_report_and_csv_and_quiet(workspace):
    """-R prints no report, --csv prints rows, -q prints nothing else; the file is written in each case."""
    scenario = workspace.scenario(job=TRUE)
    silent = workspace.run(scenario, "-R", "-q")
    assert (silent.out, silent.err) == ("", "")
    assert silent.outcomes() == {"done": 1}
    table = workspace.run(scenario, "--csv", "-q")
    assert table.err == ""
    rows = list(csv.DictReader(io.StringIO(table.out)))
    assert {"run", "wait", "remove"} <= {row["name"] for row in rows}
    lines = workspace.run(scenario, "--format", "jsonl", "-o", 3, "--progress", "none")
    assert [json.loads(line)["outcome"] for line in lines.out.splitlines()[1:]] == ["done"] * 3
    assert shown(lines) == ""


def test_a_noop_run_needs_no_engine_and_reports_the_maximum(workspace):
    """--noop needs neither engine nor image, and the report says that nothing was executed."""
    workspace.environ["DOCKER_HOST"] = f"unix://{workspace.folder}/no.sock"
    scenario = workspace.scenario(
        engines=["docker"],
        operation_count=500,
        concurrency=4,
        container={"image": "nowhere/none", "memory": "1GiB", "network": "none"},
        job={"operations": ["create", "start", {"sleep": "60s"}, "stop", "remove"]},
    )
    run = workspace.run(scenario, "--noop")
    assert run.outcomes() == {"done": 500}
    assert "nothing was executed" in run.out
    assert "harness's own maximum" in run.err
    document = run.document
    assert (document["run"]["noop"], document["run"]["measures"]) == (True, "harness-ceiling")
    assert document["totals"]["done"] == 500
    # It is over before the first reading is due, and yet says how busy and how late the harness was meanwhile.
    assert all(0 <= process["loop"]["busy_mean"] <= 1 for process in (document["master"], *document["hosts"]))
    real = workspace.run(scenario, "-R", status=3)
    assert not real.stats.exists()
