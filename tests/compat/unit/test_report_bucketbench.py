"""bucketbench's table and the scaling tables: rates by jobs in flight, and untruncated times."""

import io

import pytest
from builders import (
    MS,
    S,
    StatsBuilder,
    footer,
    header,
    host,
    overhead_report,
    sample_report,
    treatment_wire,
    write_report,
)
from msgspec.structs import replace

from bench_common.records import ErrorRecord, Outcome, ticket_of
from bench_features.compat.bucketbench_report import lines
from bench_master.run_data.treatment_types import RelativeOverheadReport

NAMES = ("run", "unpause", "stop", "wait", "remove", "remove-2")


def written(path, name="bucketbench"):
    out = io.StringIO()
    source = write_report(path, out, name)
    return out.getvalue(), source


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.stats.gz"


def swept(path, *series, head=None, failing=(), **foot):
    """Write a run and return its path; each series is (labels, threads, iterations of a thread, ns of an operation).

    A trial takes as long as the jobs of one thread. `failing` are jobs whose `stop` fails.
    """
    treatments = [
        treatment_wire(index, {"environment": "local", **labels}, NAMES)
        | {"concurrency": threads, "iterations": iterations}
        for index, (labels, threads, iterations, _) in enumerate(series)
    ]
    trials = [(index, 0, False) for index in range(len(series))]
    builder = StatsBuilder(path, header(treatments, trials, **(head or {})))
    builder.add("host", host(0))
    clock, job = 1001 * S, 0
    for index, (_, threads, iterations, each) in enumerate(series):
        builder.add("event", {"at_ns": clock, "kind": "trial-begin", "trial": index})
        for number in range(threads * iterations):
            begin = clock + number // threads * each * len(NAMES)
            row = {"ticket": ticket_of(job), "treatment": index, "trial": index, "start_ns": begin}
            failed = job in failing
            ended = 3 if failed else len(NAMES)
            outcome = Outcome.FAILED if failed else Outcome.DONE
            builder.add_jobs(row | {"end_ns": begin + ended * each, "outcome": outcome})
            builder.add_operations(
                *(
                    row | {"operation": k, "duration_ns": each, "ok": not (failed and k == ended - 1)}
                    for k in range(ended)
                )
            )
            if failed:
                builder.writer.errors(
                    [ErrorRecord(ticket_of(job), index, index, "stop", "conflict", "no such\nthing")]
                )
            job += 1
        clock += iterations * len(NAMES) * each
        builder.add("event", {"at_ns": clock, "kind": "trial-end", "trial": index})
    return builder.close(footer(**foot))


DOCKER, RUNC = {"engine": "docker", "job": "Docker"}, {"engine": "runc", "job": "Runc"}

GOLDEN = """\
SUMMARY TIMINGS/THREAD RATES

                   Iter/Thd  1 thrd  2 thrds  4 thrds
            Limit        10    2000
quickstart:Docker         2   83.33    166.7
  quickstart:Runc         5                      3333

DETAILED COMMAND TIMINGS/STATISTICS (ms)

quickstart:Docker:1    Min    Max    Avg  Median  Stddev  Errors
                run  2.000  2.000  2.000   2.000   0.000       0
             resume  2.000  2.000  2.000   2.000   0.000       0
               stop  2.000  2.000  2.000   2.000   0.000       0
               wait  2.000  2.000  2.000   2.000   0.000       0
             delete  2.000  2.000  2.000   2.000   0.000       0
           delete-2  2.000  2.000  2.000   2.000   0.000       0
"""


def test_the_table_has_bucketbenchs_layout(path):
    """A row for each driver, a column for each thread count, the host ceiling first; then times by command."""
    swept(
        path,
        (DOCKER | {"concurrency": 1}, 1, 2, 2 * MS),
        (DOCKER | {"concurrency": 2}, 2, 2, 2 * MS),
        (RUNC, 4, 5, MS // 5),
        ({"engine": "native", "job": "(host-ceiling)", "iterations": 10}, 1, 10, 83_333),
    )
    text, _ = written(path)
    assert text.startswith(GOLDEN)
    assert "\nquickstart:Docker:2    Min    Max" in text
    assert "\nquickstart:Runc:4    Min    Max" in text
    assert "0.200  0.200  0.200   0.200" in text


def test_failures_have_no_rate_and_no_time(path):
    """Two of four containers succeed: the rate counts these, and errors are shown with the reason."""
    swept(path, (DOCKER, 2, 2, 2 * MS), failing={0, 3})
    text, _ = written(path)
    rate = next(line for line in text.splitlines() if line.split()[:2] == ["quickstart:Docker", "2"])
    assert float(rate.split()[2]) == pytest.approx(2 / 0.024, rel=1e-3)
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.startswith("  ")}
    assert rows["stop"][-1] == "2"
    assert rows["run"][-1] == rows["delete"][-1] == "0"
    assert rows["stop"][:4] == ["2.000"] * 4
    assert "- quickstart:Docker:2: 2 failed of 4, not counted in its rate" in text
    assert "- 2 x stop: conflict: no such" in text


def test_a_treatment_without_success_has_no_measure(path):
    """bucketbench prints 412 iterations a second for an engine that always fails."""
    swept(path, (DOCKER, 1, 2, MS), failing={0, 1})
    text, _ = written(path)
    assert " 0" in next(line for line in text.splitlines() if line.startswith("quickstart:Docker "))
    stop = next(line for line in text.splitlines() if line.split()[:1] == ["stop"])
    assert stop.split() == ["stop", *["-"] * 5, "2"]


def test_incomplete_runs_are_noted_after_the_tables(path):
    """An interrupted run, and options of the definition that were not carried over."""
    swept(path, (DOCKER, 1, 1, MS), status="interrupted", remarks=["old.yaml:4: 'rootfs' is not carried over"])
    text, _ = written(path)
    assert "\n- INCOMPLETE: the run was interrupted\n" in text
    assert "\n- old.yaml:4: 'rootfs' is not carried over\n" in text


def test_other_labels_and_environments_are_part_of_the_name(path):
    """Scenarios that are no bucketbench definitions have the table too."""
    swept(
        path,
        ({"engine": "docker", "network": "host"}, 1, 1, MS),
        ({"engine": "docker", "network": "none", "environment": "vm"}, 1, 1, MS),
    )
    text, _ = written(path)
    assert "quickstart:docker:local:network=host" in text
    assert "quickstart:docker:vm:network=none" in text


def test_overhead_has_a_table_if_it_was_measured(path):
    """Memory, CPU time, and both against the baseline."""
    swept(path, (DOCKER, 1, 1, MS), (RUNC, 1, 1, MS))
    _, source = written(path)
    document = source.document
    assert "OVERHEAD" not in "\n".join(lines(document, source.stats.header.treatments))
    overhead = overhead_report(
        rss_bytes=sample_report("B", mean=65 * 2**20, low=60 * 2**20, high=70 * 2**20),
        cpu_percent=sample_report("%", mean=3.25, high=12.5),
        relative=RelativeOverheadReport("", "rss_bytes", memory_percent=56.1, cpu_factor=1.84),
    )
    first, *others = document.treatments
    document = replace(document, treatments=[replace(first, overhead=overhead), *others])
    text = "\n".join(lines(document, source.stats.header.treatments))
    head, row = text.partition("OVERHEAD\n\n")[2].splitlines()[:2]
    assert head.split("  ")[0] == "Bench / driver / threads"
    assert head.split()[-4:] == ["Mem", "%", "CPU", "x"]
    for measure in ("60.0 MiB", "70.0 MiB", "65.0 MiB", "  -  ", "12.50 %", "3.25 %", "+56.10%", "1.84x"):
        assert measure in row


def test_a_parameter_called_concurrency_is_not_the_number_of_jobs_in_flight(path):
    """ab's connections are a setting like any other: in the name of a row, and scales nothing."""
    swept(path, *((DOCKER | {"concurrency": connections}, 1, 2, MS) for connections in (4, 100)))
    assert "in flight" not in written(path, "text")[0].partition("Run\n")[0]
    table, _ = written(path, "bucketbench")
    assert "1 thrd" in table
    assert "4 thrds" not in table
    assert [f"Docker:concurrency={connections}" in table for connections in (4, 100)] == [True, True]
