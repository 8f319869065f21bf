"""blogbench: scores under the name of the version that gave them, and failures that exit with 0 told as failures."""

import places
import pytest

from bench_common.errors import ParseError, UsageError
from bench_workloads.blogbench import SCRIPT, Blogbench

DATA = places.DATA / "blogbench"
GOOD = {
    "1.1": ("1.1-i5-s2",),
    "1.2": ("1.2-i5-s2", "1.2-i3-s2", "1.2-i3-s2-tmpfs", "1.2-i2-s2-mem16m"),
}
EVERY = [(version, name) for version, names in GOOD.items() for name in names]

parse = Blogbench().parse


def sample(name):
    """Return what blogbench printed."""
    return (DATA / f"{name}.txt").read_text()


def with_help(version, name):
    """Return what the workload's own step prints: the help, then the run."""
    return sample(f"{version}-help") + sample(name)


def test_each_version_has_scores_of_its_own():
    """1.1 and 1.2 read files in different ways: their scores never share a name."""
    old, new = parse(with_help("1.1", "1.1-i5-s2")), parse(with_help("1.2", "1.2-i5-s2"))
    assert old == {"reads_score_1_1": 13713.0, "writes_score_1_1": 518.0}
    assert new == {"reads_score_1_2": 132.0, "writes_score_1_2": 56.0}


@pytest.mark.parametrize(("version", "name"), EVERY)
def test_without_the_help_the_version_is_not_known(version, name):
    """A run alone may be of either version, and its scores say so."""
    bare, known = parse(sample(name)), parse(with_help(version, name))
    assert set(bare) == {"reads_score_unknown_version", "writes_score_unknown_version"}
    assert list(bare.values()) == list(known.values())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fail-badopt", "only the help is here"),
        ("fail-missingdir", "blogbench failed, or this is not its output"),
        ("fail-zero-writers", "the text ends here, before"),
        ("fail-nodir", "blogbench failed, or this is not its output"),
    ],
)
def test_a_failure_that_exits_with_0_is_a_failure(name, message):
    """What blogbench prints then is no result, whatever its exit code is."""
    with pytest.raises(ParseError, match=message):
        parse(sample("1.2-help") + sample(name))


def test_what_it_says_of_a_full_disk_is_a_failure():
    """Errors come between the lines of the table, as stderr goes where stdout goes."""
    text = with_help("1.2", "1.2-i5-s2")
    row = next(line for line in text.splitlines() if line.split()[:1] == ["22"])
    broken = text.replace(row, f"{row}\nwrite(): [No space left on device]")
    with pytest.raises(ParseError, match=r"blogbench failed, .*No space left on device"):
        parse(broken)


def test_a_read_only_directory_gives_no_blogs():
    """A table of nothing is no result."""
    lines = sample("1.2-i3-s2").splitlines()
    rows = [" ".join(["0"] * 7) if line.split() and line.split()[0].isdigit() else line for line in lines]
    text = "\n".join(rows).replace("writes:           115", "writes:             0")
    with pytest.raises(ParseError, match="no blog was written: the directory is read-only or full"):
        parse(text)


def test_the_score_for_writes_is_the_number_of_blogs():
    """A text in which the two differ was altered."""
    with pytest.raises(ParseError, match="which is 56"):
        parse(sample("1.2-i5-s2").replace("writes:            56", "writes:            65"))


@pytest.mark.parametrize(
    "text",
    [
        sample("1.2-i3-s2") + sample("1.2-i3-s2"),
        with_help("1.2", "1.2-i3-s2") + with_help("1.2", "1.2-i3-s2"),
        sample("1.2-i3-s2") + "and more\n",
        sample("1.2-help").replace("1.2", "1.3") + sample("1.2-i3-s2"),
        "",
    ],
)
def test_what_is_not_one_run_of_a_known_version_is_refused(text):
    """Two runs, other lines, and an unsupported version."""
    with pytest.raises(ParseError):
        parse(text)


def test_the_command_is_the_study_s():
    """The parameters reach blogbench as words of their own, behind the one fixed line of shell."""
    (step,) = Blogbench().steps({**Blogbench().defaults(), "commenters": 30, "iterations": 20, "sleep": 10.0})
    assert step.argv[:4] == ("sh", "-c", SCRIPT, "blogbench")
    assert {"--commenters=30", "--iterations=20", "--sleep=10", "--directory=."} <= set(step.argv)
    with pytest.raises(UsageError, match="whole seconds"):
        Blogbench().steps({**Blogbench().defaults(), "sleep": 1.5})
