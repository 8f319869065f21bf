"""mbw: labels that some versions swap are put right where it can be known, and said to be unknown where not."""

from __future__ import annotations

import re

import places
import pytest

from bench_common.errors import ParseError, UsageError
from bench_workloads.mbw import SCRIPT, Mbw
from bench_workloads.mbw_output import read_output

DATA = places.DATA / "mbw"
RUNS = {
    "1.2.2": (
        "1.2.2-2014",
        "1.2.2-default-n3",
        "1.2.2-quiet",
        "1.2.2-t0",
        "1.2.2-t1",
        "1.2.2-t2",
        "1.2.2-quiet-no-average",
    ),
    "1.4": ("1.4-default-n3", "1.4-quiet", "1.4-t2"),
    "2.0": ("2.0-default-n3", "2.0-quiet", "2.0-quiet-no-average"),
}
GOOD = tuple((version, name) for version, names in RUNS.items() for name in names)
MIB = 2**20

parse = Mbw().parse


def sample(name: str) -> str:
    return (DATA / f"{name}.txt").read_text("utf-8")


def with_help(version: str, name: str) -> str:
    """What the workload's own step prints: the help of the version that runs, then the run."""
    return sample(f"{version}-help") + sample(name)


def averages(metrics):
    return {name: value for name, value in metrics.items() if not re.search(r"_(min|median|max)_", name)}


def params(**changes):
    return {**Mbw().defaults(), **changes}


def test_swapped_labels_of_1_2_2_are_put_right():
    """What 1.2.2 prints as MEMCPY is the loop, as DUMB is memcpy; its MCBLOCK is not that of other versions."""
    assert averages(parse(with_help("1.2.2", "1.2.2-default-n3"))) == {
        "dumb_mib_per_second": 4663.703,
        "memcpy_mib_per_second": 4861.006,
        "mcblock_hot_mib_per_second": 6429.576,
    }


@pytest.mark.parametrize(
    ("version", "rates"),
    [("1.4", (3623.599, 3967.270, 3789.524)), ("2.0", (4835.663, 5220.938, 4555.592))],
)
def test_labels_of_later_versions_are_taken_as_printed(version, rates):
    """Since 1.4 the help names the version, and the labels are right."""
    metrics = averages(parse(with_help(version, f"{version}-default-n3")))
    assert metrics == dict(
        zip(("memcpy_mib_per_second", "dumb_mib_per_second", "mcblock_mib_per_second"), rates, strict=True)
    )


@pytest.mark.parametrize(("version", "name"), GOOD)
def test_a_bare_run_is_never_taken_for_one_of_a_known_version(version, name):
    """Without the help nobody can tell the versions apart, so the metrics say that they are as labelled."""
    metrics = parse(sample(name))
    assert metrics
    assert all(metric.startswith("labelled_") for metric in metrics)
    assert sorted(metrics.values()) == sorted(parse(with_help(version, name)).values())


def test_runs_are_kept_one_by_one():
    """The rate of each run is at hand, and its least, median and greatest are metrics."""
    table = read_output(sample("1.4-default-n3")).tables["MEMCPY"]
    assert table.runs == (4513.081, 3187.727, 3417.343)
    assert table.average == 3623.599
    metrics = parse(with_help("1.4", "1.4-default-n3"))
    assert metrics["memcpy_min_mib_per_second"] == 3187.727
    assert metrics["memcpy_median_mib_per_second"] == 3417.343
    assert metrics["memcpy_max_mib_per_second"] == 4513.081
    assert len(read_output(sample("1.2.2-2014")).tables["MCBLOCK"].runs) == 100


def test_an_average_that_was_switched_off_is_computed_as_mbw_does():
    """All data over all time, which is not the mean of the rates."""
    text = "".join(line for line in sample("1.4-default-n3").splitlines(keepends=True) if "AVG" not in line)
    metrics = parse(text)
    assert metrics["labelled_memcpy_mib_per_second"] == pytest.approx(3623.599, rel=1e-4)
    bare = "".join(line for line in text.splitlines(keepends=True) if "Method" in line)
    assert parse(bare) == metrics
    for part in (bare[: bare.index("\t", bare.index("MCBLOCK")) - 40], "".join(bare.splitlines(keepends=True)[:-1])):
        with pytest.raises(ParseError, match="the intended number is unknown"):
            parse(part.rpartition("\n")[0])


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("1.2.2-help", 13, "only the help"),
        ("1.4-help", 14, "only the help"),
        ("2.0-help", 14, "only the help"),
        ("2.0-n0", 1, "mbw failed.*nr_loops"),
        ("2.0-t9", 1, "mbw failed.*between 0 and 2"),
        ("fail-badsize", 1, "mbw failed.*array size wrong"),
        ("fail-noarg", 1, "mbw failed.*no array size"),
        ("fail-smallsize-block", 1, "mbw failed.*larger than block size"),
        ("fail-huge", 2, "cut off, or says why on stderr"),
    ],
)
def test_what_is_not_a_run_is_refused(name, line, reason):
    """Errors on stdout and help are refused with their line."""
    with pytest.raises(ParseError, match=reason) as caught:
        parse(sample(name))
    assert caught.value.line == line


@pytest.mark.parametrize("name", ["fail-badoption", "fail-badtest"])
def test_a_run_that_ignored_an_option_is_a_whole_run(name):
    """1.2.2 goes on after an option or a test that it does not know, says so on stderr or not at all, and exits 0."""
    assert len(averages(parse(sample(name)))) == 3


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("v1.4", "v1.3", "whose labels are unverified"),
        ("mbw memory benchmark v1.4, https://github.com/raas/mbw\n", "", "whose labels are unverified"),
        ("-t2: memcpy", "-t2 : memcpy", "whose labels are unverified"),
        ("Options:", "Choices:", "expected the help of mbw"),
        ("AVG\tMethod: DUMB\tElapsed: 0.01613", "AVG\tMethod: DUMB\tElapsed: 1.01613", "are not 3967"),
        (
            "0.01613\tMiB: 64.00000\tCopy: 3967.270",
            "0.01655\tMiB: 64.00000\tCopy: 3867.270",
            "the average of these runs is 3967",
        ),
        ("Copy: 4513.081", "Copy: 5413.081", "are not 5413"),
        ("Copy: 4513.081", "Copy: inf", "shorter than the clock's resolution"),
        ("1\tMethod: DUMB", "2\tMethod: DUMB", "expected run 1 of DUMB here"),
        ("Doing 3 runs", "Doing 4 runs", "3 runs of MEMCPY, expected 4"),
        ("Getting down", "Hello\nGetting down", "not a line that mbw prints here"),
    ],
)
def test_altered_texts_are_refused(old, new, reason):
    """An unsupported version, numbers that contradict each other and foreign lines are no result."""
    text = with_help("1.4", "1.4-default-n3")
    assert old in text
    with pytest.raises(ParseError, match=reason):
        parse(text.replace(old, new))


def test_two_runs_in_one_text_are_refused():
    """Which of two runs counts is unknown."""
    with pytest.raises(ParseError, match="second run begins here"):
        parse(sample("1.4-default-n3") * 2)
    with pytest.raises(ParseError, match="second run begins here"):
        parse(sample("1.4-quiet") * 2)
    with pytest.raises(ParseError, match="second text begins here"):
        parse(with_help("1.4", "1.4-quiet") * 2)


def test_a_terminals_line_ends_change_nothing():
    """CR LF and a byte order mark change no number."""
    text = sample("2.0-default-n3")
    assert parse("\ufeff" + text.replace("\n", "\r\n")) == parse(text)


@pytest.mark.parametrize(
    ("methods", "words"),
    [("all", ()), ("copy", ("-t0", "-t1")), ("mcblock", ("-t2",))],
)
def test_the_command_line(methods, words):
    """Parameters reach mbw as words of their own, behind a fixed script that prints the help first."""
    (step,) = Mbw().steps(params(methods=methods, array_size=32 * MIB, runs=100, block_size=4096))
    assert step.argv == ("sh", "-c", SCRIPT, "mbw", *words, "-b", "4096", "-n", "100", "32")
    assert step.timed
    assert step.parse


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"array_size": MIB + 1024}, "whole MiB"),
        ({"array_size": MIB, "block_size": 2 * MIB}, "block_size 2MiB is larger than array_size 1MiB"),
    ],
)
def test_parameters_that_mbw_cannot_serve_are_refused(changes, reason):
    """What mbw would round or refuse in every job is refused before anything starts."""
    with pytest.raises(UsageError, match=reason):
        Mbw().steps(params(**changes))


def several(version: str, name: str, count: int) -> str:
    """What the workload's own step prints of several mbw at once."""
    sections = "".join(f"process {number} of {count}\n{sample(name)}" for number in range(1, count + 1))
    return sample(f"{version}-help") + sections


@pytest.mark.parametrize(("version", "name"), GOOD)
def test_several_at_once_have_a_mean_a_sum_and_a_number(version, name):
    """A sum never stands without the number of processes and what one of them did."""
    one, three = averages(parse(with_help(version, name))), parse(several(version, name, 3))
    assert three["processes"] == 3
    for metric, value in one.items():
        assert three[metric] == pytest.approx(value)
        assert three[metric.replace("_mib", "_total_mib")] == pytest.approx(3 * value)
    assert set(three) <= {metric.name for metric in Mbw.metrics}


def test_a_process_that_failed_is_a_failed_run():
    """The line is that of the whole text."""
    text = several("1.4", "1.4-default-n3", 2)
    place = text.index("process 2 of 2\n") + len("process 2 of 2\n")
    broken = f"{text[:place]}Killed\n"
    with pytest.raises(ParseError) as caught:
        parse(broken)
    assert caught.value.line == len(broken.splitlines())


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: text.index("process 2 of 2")],
        lambda text: text.replace("process 2 of 2", "process 3 of 3"),
        lambda text: text + text[text.index("process 1") :],
        lambda text: text.replace("process 1 of 2\n", ""),
        lambda text: text[: text.index("process 2 of 2")] + "process 2 of 2\n" + sample("1.4-t2"),
    ],
)
def test_processes_that_are_missing_or_differ_are_refused(change):
    """All of them, once, each with the same methods."""
    with pytest.raises(ParseError):
        parse(change(several("1.4", "1.4-default-n3", 2)))


STUDY = (
    "Starting test on 2 cores\nWaiting for tests to finish\n"
    "MEMCPY Total AVG: 7781.474 MiB/s\nDUMB Total AVG: 5266.766 MiB/s\nMCBLOCK Total AVG: 9094.090 MiB/s\n"
)


def test_what_the_study_s_script_printed_is_read():
    """Sums of averages, by label as printed: which version it was, nobody noted."""
    assert parse(STUDY) == {
        "processes": 2.0,
        "labelled_memcpy_mib_per_second": 7781.474 / 2,
        "labelled_memcpy_total_mib_per_second": 7781.474,
        "labelled_dumb_mib_per_second": 5266.766 / 2,
        "labelled_dumb_total_mib_per_second": 5266.766,
        "labelled_mcblock_mib_per_second": 9094.090 / 2,
        "labelled_mcblock_total_mib_per_second": 9094.090,
    }


@pytest.mark.parametrize("count", range(1, 5))
def test_the_study_s_script_cut_short_is_refused(count):
    """After no line but the last is it complete; nor is more than one run one."""
    with pytest.raises(ParseError):
        parse("\n".join(STUDY.splitlines()[:count]))
    with pytest.raises(ParseError):
        parse(STUDY + STUDY)
