"""sysbench fileio: its three steps, and its output by four versions that print different things."""

from __future__ import annotations

import places
import pytest

from bench_common.errors import ParseError, UsageError
from bench_features.compat.log_files import split_runs
from bench_workloads.sysbench_fileio import MODES, SysbenchFileio

DATA = places.DATA / "sysbench"
NEW = "fileio-1.1.0-seqrewr-direct"
parse = SysbenchFileio().parse


def sample(name: str) -> str:
    return (DATA / f"{name}.txt").read_text("utf-8")


def params(**changes):
    return {**SysbenchFileio().defaults(), **changes}


def test_every_number_of_a_run_is_read():
    """Each measure of sysbench 1.0's report arrives under its own name."""
    assert parse(sample("fileio-rndrw")) == {
        "reads_per_second": 56034.66,
        "writes_per_second": 37356.44,
        "fsyncs_per_second": 14948.57,
        "read_mib_per_second": 218.89,
        "written_mib_per_second": 145.92,
        "mib_per_second": pytest.approx(364.81),
        "total_time_s": 4.0009,
        "total_events": 433600,
        "latency_min_ms": 0,
        "latency_avg_ms": 0.02,
        "latency_max_ms": 10.94,
        "latency_p95_ms": 0.11,
        "latency_sum_ms": 7807.74,
        "thread_events_avg": 216800,
        "thread_events_stddev": 2449,
        "thread_time_avg_s": 3.9039,
        "thread_time_stddev_s": 0,
    }


def test_sizes_of_old_versions_become_mib():
    """0.4 and 0.5 scale by 1024 and write b, Kb, Mb and Gb; rates are over the total time."""
    metrics = parse(sample("fileio-0.4.12-seqrd"))
    assert metrics["read_mib_per_second"] == pytest.approx(8 * 1024 / 49.0325)
    assert "written_mib_per_second" not in metrics
    assert metrics["reads_per_second"] == pytest.approx(524288 / 49.0325)
    metrics = parse(sample("fileio-0.5-rndrw-direct"))
    assert metrics["written_mib_per_second"] == pytest.approx(31.312 / 2.6090)
    assert metrics["fsyncs_per_second"] == pytest.approx(10 / 2.6090)


def test_1_1_prints_two_units_and_no_totals():
    """MiB/s are taken, not the MB/s beside them; what 1.1 does not print is left out."""
    metrics = parse(sample(NEW))
    assert metrics["written_mib_per_second"] == 88.45
    assert metrics["writes_per_second"] == 9057.41
    assert metrics["latency_sum_ms"] == 4358.00
    assert "total_time_s" not in metrics
    assert "thread_events_avg" not in metrics


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("fileio-seqrd", {"reads", "read_mib"}),
        ("fileio-rndrd", {"reads", "read_mib"}),
        ("fileio-0.4.12-seqrd", {"reads", "read_mib"}),
        ("fileio-seqwr", {"writes", "written_mib", "fsyncs"}),
        ("fileio-rndwr", {"writes", "written_mib", "fsyncs"}),
        (NEW, {"writes", "written_mib", "fsyncs"}),
        ("fileio-rndrw-direct", {"reads", "read_mib", "writes", "written_mib", "fsyncs"}),
    ],
)
def test_a_rate_that_the_mode_cannot_have_is_no_metric(name, kinds):
    """Where files are only read, writes are not measured as 0: they are not measured."""
    assert {metric for metric in parse(sample(name)) if metric.endswith("per_second")} == {
        f"{kind}_per_second" for kind in kinds | {"mib"}
    }


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("fileio-help", 3, "printed help or refused"),
        ("fileio-prepare", 3, "makes or removes its files"),
        ("fileio-cleanup", 3, "makes or removes its files"),
        ("fail-fileio-badmode", 3, "sysbench failed.*mode: foo"),
        ("fail-fileio-nomode", 3, "sysbench failed.*--file-test-mode"),
        ("fail-fileio-noprepare", 18, "sysbench failed.*No such file"),
        ("fail-fileio-initrng", 2, "refused its arguments"),
        ("cpu-1t", 8, "another test of sysbench, not of fileio"),
        ("cpu-1.1.0", None, "another test of sysbench, not of fileio"),
        ("memory-complete", 9, "another test of sysbench, not of fileio"),
        ("oltp_read_only", 12, "another test of sysbench, not of fileio"),
        ("mutex", None, "this is another test of sysbench"),
    ],
)
def test_what_is_not_a_complete_run_of_fileio_is_refused(name, line, reason):
    """Failures, help, preparation and other tests are refused with the line that shows what they are."""
    with pytest.raises(ParseError, match=reason) as caught:
        parse(sample(name))
    if line:
        assert caught.value.line == line


@pytest.mark.parametrize("name", ["fileio-rndrw", "fileio-0.4.12-seqrd"])
def test_a_fatal_line_is_a_failure(name):
    """A disk that fills up while it runs is told on stdout."""
    text = sample(name).replace("Threads started!\n", "Threads started!\nFATAL: Failed to write file! file: 3\n")
    with pytest.raises(ParseError, match=r"sysbench failed.*Failed to write"):
        parse(text)


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("fileio-0.4.12-rndrw", "62.453Mb", "62.453Kb", "do not make the total"),
        ("fileio-0.4.12-rndrw", "2.9644Mb/sec", "3.1084Mb/sec", "are not 3.1084 MiB/s"),
        ("fileio-0.4.12-rndrw", "22805 Total", "22806 Total", "do not make their total"),
        ("fileio-rndrw", "reads/s:   ", "writes/s:  ", "occurs twice"),
        (NEW, "IOPS=9057.41 88.45 MiB/s (92.75 MB/s)", "IOPS=0.00 0.00 MiB/s (0.00 MB/s)", "no request"),
        (NEW, "4358.00\n\n", "4358.0", "cut off"),
        ("fileio-rndrd", "writes/s:                     0.00", "writes/s:  7.00", "which this test does not do"),
    ],
)
def test_altered_texts_are_refused(name, old, new, reason):
    """Numbers that contradict each other, and lines of another version, are no result."""
    assert old in sample(name)
    with pytest.raises(ParseError, match=reason):
        parse(sample(name).replace(old, new))


def test_files_are_made_and_removed_by_steps_that_are_not_measured():
    """Three steps, of which only the run is timed and parsed; the extra flags are the run's alone."""
    steps = SysbenchFileio().steps(params(mode="rndwr", extra_flags="direct", total_size=2**30, file_num=16))
    assert [(step.name, step.timed, step.parse) for step in steps] == [
        ("prepare", False, False),
        ("run", True, True),
        ("cleanup", False, False),
    ]
    base = (
        "sysbench",
        "fileio",
        "--file-num=16",
        "--file-total-size=1073741824",
        "--file-block-size=16384",
        "--file-test-mode=rndwr",
    )
    assert steps[0].argv == (*base, "prepare")
    assert steps[1].argv == (
        *base,
        "--file-io-mode=sync",
        "--file-extra-flags=direct",
        "--file-fsync-freq=100",
        "--file-rw-ratio=1.5",
        "--threads=1",
        "--time=10",
        "--events=0",
        "--percentile=95",
        "run",
    )
    assert steps[2].argv == (*base, "cleanup")


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_given_to_every_step(mode):
    """sysbench's own preparation differs by mode: it makes no files for seqwr, which creates them."""
    for step in SysbenchFileio().steps(params(mode=mode)):
        assert f"--file-test-mode={mode}" in step.argv
        assert not any(word.startswith("--file-extra-flags") for word in step.argv)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"time": 0.0, "events": 0}, "it would never end"),
        ({"time": 2.5}, r"whole seconds: time cannot be 2\.5 s"),
        ({"total_size": 2**20}, "less than one block of 16KiB in each"),
    ],
)
def test_parameters_that_sysbench_cannot_serve_are_refused(changes, reason):
    """What sysbench would refuse in every job is refused before anything starts."""
    with pytest.raises(UsageError, match=reason):
        SysbenchFileio().steps(params(**changes))


def test_making_the_files_is_part_of_the_expected_time():
    """Without it a large set of files on a slow disk would count as hung."""
    assert SysbenchFileio().expected_seconds(params(time=10.0, total_size=640 * 2**20)) == 20.0
    assert SysbenchFileio().expected_seconds(params(time=0.0, events=5)) is None


def test_the_format_follows_from_the_lines_and_not_from_the_version():
    """Builds of 1.1.0 print the table of 1.0, with totals; a transcript has two runs between prompts and warnings."""
    assert parse(sample("fileio-1.1.0-totals"))["total_time_s"] == 30.05
    first, second = split_runs(SysbenchFileio(), (DATA / "fileio-transcript.md").read_text())
    names = ("reads_per_second", "writes_per_second", "fsyncs_per_second", "mib_per_second")
    assert [first.metrics[name] for name in names] == pytest.approx([300, 200, 320, 7.81])
    assert second.metrics["reads_per_second"] == 206.25
