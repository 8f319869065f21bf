"""What `list engines` and `cleanup-containers` print."""

import json

import pytest

from bench_common.cli import CommandParser, read_options
from bench_common.errors import UsageError
from bench_master.cli import configure, run_command_line
from bench_master.commands import cleanup_containers
from bench_master.commands.list import engines as list_engines

USABLE = {
    "name": "docker",
    "usable": True,
    "version": "20.10.24",
    "endpoint": "unix:///var/run/docker.sock",
    "reason": "",
    "advice": "",
    "operations": ("pull", "run", "remove"),
    "details": {
        "setting.memory_bytes": "this host's kernel cannot limit memory",
        "operation.commit": "no images",
        "cgroup": "v1",
    },
}
UNUSABLE = {
    "name": "podman",
    "usable": False,
    "version": "",
    "endpoint": "",
    "reason": "no socket answers at a path that is really rather long and has\nits own line break in it",
    "advice": "install podman",
    "operations": (),
    "details": {},
}


def test_the_table_fits_eighty_columns_and_says_what_to_do():
    """Why not, what to do, and which limits would not hold, in lines that a terminal can show."""
    text = list_engines.as_table([USABLE, UNUSABLE], full=True)
    assert max(map(len, text.splitlines())) <= 80
    assert "docker  yes     20.10.24  unix:///var/run/docker.sock" in text
    assert "podman cannot be used: no socket answers" in text
    assert "to do: install podman" in text
    assert "docker cannot enforce memory: " in text
    assert "docker can do: pull, run, remove" in text
    assert "docker cannot do commit: no images" in text
    assert "cgroup" not in text


def test_a_named_engine_is_listed_alone_and_whole(monkeypatch, capsys):
    """With its limits; a name that no engine has is an error with the one that was meant."""
    run(list_engines, monkeypatch, [USABLE, UNUSABLE], "docker", "--format", "table")
    text = capsys.readouterr().out
    assert "docker cannot enforce memory: " in text
    assert "podman" not in text
    with pytest.raises(UsageError, match=r"no engine 'dokcer' .did you mean 'docker'.*there are: docker, podman"):
        run(list_engines, monkeypatch, [USABLE, UNUSABLE], "dokcer")


def test_the_tab_separated_form_has_one_line_for_each_engine():
    """A program can cut it: the same number of fields in each line, whatever the reasons hold."""
    lines = list_engines.as_tsv([USABLE, UNUSABLE]).splitlines()
    assert [len(line.split("\t")) for line in lines] == [7, 7, 7]
    assert lines[1].endswith("\tpull run remove")
    assert lines[2].split("\t")[1] == "no"


def run(command, monkeypatch, rows, *words):
    asked = []
    monkeypatch.setattr(command, "query_worker", lambda *flags, **_: asked.append(flags) or rows)
    parser = CommandParser()
    configure(parser, command)
    return command.run(read_options(command.Options, parser.parse_args(words))), asked[0]


@pytest.mark.parametrize(
    ("words", "first"), [([], "engine\t"), (["--format", "table"], "ENGINE"), (["--format", "json"], "[")]
)
def test_the_form_follows_the_output(monkeypatch, capsys, words, first):
    """Tab-separated where nobody reads it on a terminal, unless asked otherwise."""
    status, asked = run(list_engines, monkeypatch, [USABLE], *words)
    assert (status, asked) == (0, ("--list-engines",))
    assert capsys.readouterr().out.startswith(first)


def row(verdict, **changes):
    base = {"engine": "docker", "what": "container", "identity": "ab" * 32, "name": "wb-1", "run_id": "r1"}
    return {**base, "age_s": 90.0, "removed": verdict == "removed", "verdict": verdict, "why": "because", **changes}


def test_clean_up_says_what_became_of_each(monkeypatch, capsys):
    """A line for each leftover with its run and age, the reason where it is still there, and a sum."""
    status, asked = run(cleanup_containers, monkeypatch, [row("removed"), row("kept")])
    out = capsys.readouterr().out
    assert status == 0
    assert asked == ("--cleanup-containers",)
    assert "removed  docker container wb-1  run r1  made 1m30s ago\n" in out
    assert "kept     docker container wb-1  run r1  made 1m30s ago  because" in out
    assert out.endswith("1 removed, 1 kept\n")


def test_a_leftover_that_stays_against_our_will_is_an_infrastructure_failure(monkeypatch, capsys):
    """The exit code tells a script that somebody has to look."""
    status, _ = run(cleanup_containers, monkeypatch, [row("failed", age_s=None, name="ab" * 32)])
    assert status == 3
    assert "FAILED   docker container abababababab  run r1  because" in capsys.readouterr().out


def test_the_switches_reach_the_worker(monkeypatch, capsys):
    """A dry run of one run is asked for as such."""
    rows = [row("listed")]
    status, asked = run(cleanup_containers, monkeypatch, rows, "--dry-run", "--run", "r9", "--format", "json")
    assert (status, asked) == (0, ("--cleanup-containers", "--run=r9", "--dry-run"))
    assert json.loads(capsys.readouterr().out) == rows


@pytest.mark.parametrize(
    ("asked", "expected", "status"),
    [
        ("zzz", "--run zzz: there is no such run; runs with leftovers here: 0123456789ab", 2),
        ("0123456789ba", "run 0123456789ba is unknown here, or left nothing (did you mean '0123456789ab'?)", 0),
    ],
)
def test_the_clean_up_of_an_unknown_run_says_so(monkeypatch, capsys, asked, expected, status):
    """With the runs that did leave something; what cannot be the id of a run is a usage error."""

    def worker(*flags, **_):
        return [] if f"--run={asked}" in flags else [row("listed", run_id="0123456789ab")]

    monkeypatch.setattr(cleanup_containers, "query_worker", worker)
    assert run_command_line(["cleanup-containers", "--run", asked]) == status
    printed = capsys.readouterr()
    assert expected in printed.err
    assert printed.out == ("" if status else "nothing was left behind\n")
