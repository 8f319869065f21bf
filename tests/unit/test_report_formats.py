"""The reports for programs: JSON, CSV, JSON Lines, the rate histogram, and plug-ins."""

import csv
import io
import json
from importlib.metadata import EntryPoint

import pytest
from builders import (
    MS,
    S,
    StatsBuilder,
    footer,
    header,
    host,
    job_rows,
    lifecycle_run,
    operation_rows,
    treatment_wire,
    write_report,
)
from msgspec.structs import replace

from bench_common.errors import UsageError
from bench_common.records import ErrorRecord, MetricRecord, Outcome, ticket_of
from bench_common.stats.reader import Block, StatsFile
from bench_master import reports
from bench_master.analysis.report_types import ThresholdReport
from bench_master.commands.report_scenario import write_rate_histogram
from bench_master.reports import ReportSource, report_named
from bench_master.reports.jsonl import JobWindow, job_lines


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.stats.gz"


def printed(path, name, pctile=95.0):
    out = io.StringIO()
    write_report(path, out, name, pctile)
    return out.getvalue()


def plain_header(**changes):
    return header([treatment_wire(0, {"engine": "native"}, ("start", "exec"))], [(0, 0, False)], **changes)


def test_json_has_no_nan_or_infinity(path):
    """NaN and infinities of a host's fingerprint become null, so that every parser reads the report."""
    builder = StatsBuilder(path, plain_header()).add(
        "host", host(0, fingerprint={"load": float("nan"), "raw": "\ufffd"})
    )

    def refuse(constant):
        raise AssertionError(constant)

    report = json.loads(printed(builder.close(), "json"), parse_constant=refuse)
    assert report["hosts"][0]["fingerprint"] == {"load": None, "raw": "\ufffd"}


def test_a_label_named_like_a_column_keeps_both(path):
    """A matrix key called `n` does not overwrite the count, and other label values are spelled as in JSON."""
    treatment = treatment_wire(0, {"n": 5, "tuned": True, "memory": None}, ("start",))
    builder = StatsBuilder(path, header([treatment], [(0, 0, False)]))
    (row, _) = csv.DictReader(io.StringIO(printed(builder.close(), "csv")))
    assert (row["label_n"], row["n"], row["tuned"], row["memory"]) == ("5", "0", "true", "")


def test_json_lines_have_every_job_with_its_details(path):
    """Each job is one line with its treatment, outcome, times, operations, metrics and error."""
    run, compared, *lines = [json.loads(line) for line in printed(lifecycle_run(path), "jsonl").splitlines()]
    assert compared["comparison"]["verdict"] == "inconclusive"
    assert not any(line["disturbed"] for line in lines)
    assert (run["run_id"], run["run_state"], run["incomplete"]) == ("20260102-030405-abcdef", "complete", [])
    assert [line["id"] for line in lines] == list(range(8))
    assert [line["warmup"] for line in lines] == [True, True] + [False] * 6
    failed = lines[6]
    assert failed["treatment"] == {"environment": "bare-metal", "engine": "docker"}
    assert (failed["outcome"], failed["trial"], failed["block"], failed["worker"]) == ("failed", 6, 3, "w0")
    assert failed["duration_s"] == pytest.approx(0.106)
    assert failed["error"] == {"operation": "exec", "kind": "exit-code", "message": "exit code 3: no such table"}
    assert [failed["operations"][name]["ok"] for name in ("start", "exec", "remove")] == [True, False, True]
    assert lines[5]["metrics"] == {"events_per_second": 505.0}
    assert lines[0]["start_s"] == 1.0
    assert (lines[0]["end_uncertainty_s"], lines[7]["end_uncertainty_s"]) == (0.00001, 0.00008)


def test_a_job_that_never_ran_has_no_times(path):
    """A lost job has an outcome, its attempt, and no invented duration."""
    builder = StatsBuilder(path, plain_header()).add_jobs({"ticket": ticket_of(5, 2), "outcome": Outcome.LOST})
    (line,) = job_lines(ReportSource(StatsFile(builder.close())))
    assert (line["id"], line["attempt"], line["outcome"]) == (5, 2, "lost")
    assert (line["start_s"], line["duration_s"], line["end_uncertainty_s"], line["operations"]) == (
        None,
        None,
        None,
        {},
    )


def test_details_before_and_after_their_job_are_joined(path):
    """Operations before the job and an error one block later belong to it."""
    builder = StatsBuilder(path, plain_header())
    builder.add_operations({"ticket": 1, "duration_ns": MS}).flush()
    builder.add_jobs({"ticket": 1, "end_ns": 2 * MS, "outcome": Outcome.FAILED}).flush()
    builder.add_jobs({"ticket": 2, "end_ns": 3 * MS}).flush()
    builder.add_operations({"ticket": 1, "operation": 1, "ok": 0}, {"ticket": 2, "duration_ns": MS})
    builder.writer.errors([ErrorRecord(1, 0, 0, "exec", "timeout", "late")])
    first, second = job_lines(ReportSource(StatsFile(builder.close())))
    assert (list(first["operations"]), first["error"]["kind"]) == (["start", "exec"], "timeout")
    assert list(second["operations"]) == ["start"]


def test_a_nan_metric_is_null_in_its_line_only(path):
    """NaN becomes null; the next job keeps its measure."""
    builder = StatsBuilder(path, plain_header()).add_jobs({"ticket": 1}, {"ticket": 2})
    builder.writer.metrics([MetricRecord(1, 0, 0, "speed", float("nan")), MetricRecord(2, 0, 0, "speed", 2.5)])
    out = io.StringIO()
    write_report(builder.close(), out, "jsonl")
    assert [json.loads(line)["metrics"]["speed"] for line in out.getvalue().splitlines()[1:]] == [None, 2.5]


def test_a_detail_too_far_from_its_job_gets_its_own_line(path):
    """Beyond the window nothing is lost: the detail is printed separately, marked late, and memory stays bounded."""
    builder = StatsBuilder(path, plain_header())
    builder.add_operations({"ticket": 99, "duration_ns": MS})
    for ticket in range(6):
        builder.add_jobs({"ticket": ticket}).flush()
    builder.writer.metrics([MetricRecord(0, 0, 0, "speed", 1.0)])
    lines = list(job_lines(ReportSource(StatsFile(builder.close())), window_rows=1))
    assert [line["id"] for line in lines if "late" not in line] == list(range(6))
    late = {line["id"]: line for line in lines if line.get("late")}
    assert late[99]["operations"]["start"]["duration_s"] == 0.001
    assert late[0]["metrics"] == {"speed": 1.0}


def test_no_detail_is_given_up_while_its_job_is_held(path):
    """Many small blocks pass before a full window releases its oldest job, which still has its details."""
    builder = StatsBuilder(path, plain_header())
    for ticket in range(40):
        builder.add_jobs({"ticket": ticket}).flush()
        builder.add_operations({"ticket": ticket, "duration_ns": ticket * MS}).flush()
    lines = list(job_lines(ReportSource(StatsFile(builder.close())), window_rows=10))
    assert [line["operations"]["start"]["duration_s"] for line in lines] == [ticket / 1e3 for ticket in range(40)]
    assert not any(line.get("late") for line in lines)


def test_the_window_has_a_limit():
    """For any number of jobs, the window releases the oldest ones, each exactly once."""
    window = JobWindow(rows=4)
    seen = []
    for first in range(0, 30, 3):
        tickets = [{"ticket": first + k} for k in range(3)]
        leaving = list(window.add(Block("jobs", job_rows(*tickets))))
        list(window.add(Block("operations", operation_rows(*tickets))))
        seen += [int(ticket) for rows, _ in leaving for ticket in rows["ticket"]]
        assert window._held <= 4
    seen += [int(ticket) for rows, _ in window.drain() for ticket in rows["ticket"]]
    assert seen == list(range(30))
    assert window.take_expired() == []


def test_the_rate_histogram_counts_every_second(path):
    """Seconds without a job are lines of zeros; jobs that end outside the run are counted separately."""
    began = 1000 * S
    builder = StatsBuilder(path, plain_header()).add_jobs(
        {"ticket": 0, "end_ns": began + S},
        {"ticket": 1, "end_ns": began + 2 * S - 1},
        {"ticket": 2, "end_ns": began + 3 * S, "outcome": Outcome.FAILED},
        {"ticket": 3, "end_ns": began - 1},
        {"ticket": 4, "end_ns": 2**62},
    )
    out = io.StringIO()
    assert write_rate_histogram(ReportSource(StatsFile(builder.close(footer()))), out) == 2
    assert [line.split("\t") for line in out.getvalue().splitlines()] == [
        ["second", "done", "failed", "lost", "aborted", "run_state"],
        ["1", "2", "0", "0", "0", "complete"],
        ["2", "0", "0", "0", "0", "complete"],
        ["3", "0", "1", "0", "0", "complete"],
    ]


def test_a_run_without_jobs_has_an_empty_rate_histogram(path):
    """Only the header line, no second is invented; but that a run is incomplete has a line."""
    for trials, lines in (([], ""), ([(0, 0, False)], "0,0,0,0,0,incomplete\n")):
        head = header([treatment_wire(0, {"engine": "native"})], trials)
        path.unlink(missing_ok=True)
        out = io.StringIO()
        source = ReportSource(StatsFile(StatsBuilder(path, head).close(footer())))
        assert write_rate_histogram(source, out, delimiter=",") == 0
        assert out.getvalue() == f"second,done,failed,lost,aborted,run_state\n{lines}"


def test_an_unknown_format_names_the_nearest_spelling(path):
    """A misspelling is a usage error that names the right word."""
    with pytest.raises(UsageError, match="did you mean 'jsonl'"):
        printed(lifecycle_run(path), "jsnl")


def test_a_plug_in_gets_the_document_and_the_file(path, monkeypatch):
    """A format of another package is found by its entry point and writes from both."""
    monkeypatch.setattr(
        reports, "report_formats", lambda: {"mine": EntryPoint("mine", f"{__name__}:OwnReport", reports.GROUP)}
    )
    assert printed(lifecycle_run(path), "mine") == "quickstart 8\n"


class OwnReport:
    """What another package might register."""

    name = "mine"

    def write(self, source, out):
        jobs = sum(len(rows) for rows in source.stats.iter_jobs())
        out.write(f"{source.document.scenario.name} {jobs}\n")


def test_the_document_is_computed_once(path, monkeypatch):
    """The report and the verdicts on thresholds share one pass over the file."""
    calls = []
    real = reports.document_of
    monkeypatch.setattr(reports, "document_of", lambda *arguments: calls.append(1) or real(*arguments))
    head = plain_header(thresholds=["jobs.failed == 0", "jobs.done > 5"])
    path = StatsBuilder(path, head).add_jobs({"end_ns": S}).close()
    source = write_report(path, io.StringIO(), "json")
    assert [verdict.threshold for verdict in source.failed_thresholds] == ["jobs.done > 5"]
    assert len(calls) == 1


@pytest.mark.parametrize("reason", ["no-op", "incomplete"])
def test_a_threshold_that_cannot_be_judged_has_failed_in_no_format(path, reason):
    """That of a no-op run, and one whose measure an incomplete run lacks: as the exit code has it."""
    source = ReportSource(StatsFile(lifecycle_run(path)))
    document = source.document
    missed = ThresholdReport("jobs_per_s > 9", "engine=docker", None, passed=False, message="unknown, wanted > 9")
    run, incomplete = replace(document.run, noop=reason == "no-op"), ["interrupted"] if reason == "incomplete" else []
    source.__dict__["document"] = replace(document, thresholds=[missed], run=run, incomplete=incomplete)
    assert (source.failed_thresholds, source.exit_code()) == ([], 3 if incomplete else 0)
    for name in ("text", "markdown", "github", "html"):
        out = io.StringIO()
        report_named(name).write(source, out)
        assert "undecided" in out.getvalue().lower(), name
        assert "FAILED" not in out.getvalue(), name
