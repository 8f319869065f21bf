"""The archive, over SQLite and over PostgreSQL: what goes in, what comes out, and what survives.

Over PostgreSQL always: adding, finding, pruning and a rebuild, masters at the same time, and texts with NUL.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from archive_runs import a_run
from deadlines import ANSWER_S, END_S
from postgresql import either_database

from bench_common.errors import InfrastructureError, NotAStatsFileError, UsageError
from bench_features.archive import archive as archive_module
from bench_features.archive import database, index
from bench_features.archive import rebuild as rebuild_module
from bench_features.archive.archive import Archive
from bench_features.archive.objects import SUMMARY_SUFFIX, Objects
from bench_features.archive.prune import Rule, find_candidates, remove_file
from bench_features.archive.rebuild import rebuild
from bench_features.archive.schema import META, METADATA, RUN
from bench_features.archive.types import RunFilter
from bench_features.archive.verify import verify
from bench_master.cli import run_command_line

DAY_S = 86_400.0


@pytest.fixture
def archive(archive_url):
    with Archive.open(archive_url, create=True) as opened:
        yield opened


@pytest.fixture
def command(archive_url, capsys):
    """Run `bench-master archive ...` on the archive; return exit code, standard output and error."""

    def call(*words):
        try:
            code = run_command_line(["archive", *map(str, words), "--archive", archive_url])
        except SystemExit as end:
            code = end.code
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def no_home():
    raise RuntimeError("Could not determine home directory.")


def interrupt(*_):
    raise KeyboardInterrupt


def faults(archive):
    """Return the kinds of what is wrong with an archive."""
    return [fault.kind for fault in verify(archive)]


def program(code, *words):
    """Start a Python program and return how it ended."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # what a limit cuts short others would read
        capture_output=True, text=True, timeout=END_S, check=False,
    )  # fmt: skip


def test_a_list_fits_a_page_and_has_no_bare_dash(command, tmp_path):
    """The newest first; what no run has is left out unless it is asked for, and a long title is wrapped."""
    title = "a scenario whose title takes more room than a page of eighty columns has beside the rest"
    paths = [a_run(tmp_path / f"{number}.stats.gz", number, name=title) for number in range(3)]
    assert command("add", *paths)[0] == 0
    head, *rows = command("list", "--format", "table")[1].splitlines()
    assert head.split() == ["id", "created", "done", "value", "hosts", "scenario"]
    assert all(len(line) <= 80 for line in (head, *rows))
    created = [line[14:30] for line in rows if line[:1].strip()]
    assert len(created) == 3
    assert created == sorted(created, reverse=True)
    first = rows[0].split()[0]
    assert command("tag", first, "--name", "golden")[0] == 0
    named = command("list", "--format", "table")[1].splitlines()
    assert named[0].split() == ["id", "created", "done", "value", "hosts", "name", "scenario"]
    asked = command("list", "--format", "table", "--columns", "id,tags,problem,failed")[1].splitlines()
    assert asked[0].split() == ["id", "tags", "problem", "failed"]
    assert asked[1].split()[1:] == ["n/a", "0"]
    assert not [line for line in (*rows, *named, *asked) if "-" in line.split()]


def test_a_list_has_the_state_where_some_run_is_not_complete(command, tmp_path):
    """It fits a page all the same."""
    title = "a scenario whose title takes more room than there is"
    paths = [a_run(tmp_path / f"{number}.stats.gz", number, name=title, whole=number > 0) for number in range(2)]
    assert command("add", *paths)[0] == 0
    head, *rows = command("list", "--format", "table")[1].splitlines()
    assert head.split() == ["id", "created", "state", "done", "value", "hosts", "scenario"]
    assert all(len(line) <= 80 for line in (head, *rows))


@either_database
def test_a_list_has_one_value_of_each_run(command, archive_url, tmp_path):
    """The primary measure of its only treatment, after a rebuild, too; of several it says how many there are."""
    one, several = a_run(tmp_path / "1.stats.gz", 1, engines=("docker",)), a_run(tmp_path / "2.stats.gz", 2)
    assert command("add", one, several)[0] == 0
    for _ in range(2):
        for more in ((), ("--limit", "2"), ("--scenario", "quickstart")):
            out = command("list", "--columns", "value,measure,treatments", *more)[1]
            rows = [line.split("\t") for line in out.splitlines()[1:]]
            assert rows == [["2 treatments", "-", "2"], ["100 ms", "job.p50", "1"]]
        assert command("rebuild")[0] == 0


@either_database
def test_runs_are_added_found_and_shown(command, archive_url, tmp_path):
    """Once, however often they are added; by scenario, host, time and tag; one by its id or its name."""
    paths = [
        a_run(tmp_path / f"{number}.stats.gz", number, name=("quick", "slow")[number % 2]) for number in range(4)
    ]
    code, out, err = command("add", *paths)
    assert (code, out.count("\tadded\tcomplete\t")) == (0, 4), err
    assert command("add", paths[0])[1].split("\t")[1] == "known"
    assert "4 were there already" in command("import", tmp_path)[2]
    code, out, _ = command("list", "--columns", "id,scenario,hosts,state,done,failed")
    head, *rows = [line.split("\t") for line in out.splitlines()]
    assert head == ["id", "scenario", "hosts", "state", "done", "failed"]
    assert [row[1:] for row in rows] == [[name, "blade1", "complete", "6", "0"] for name in ("slow", "quick") * 2]
    assert len(command("list", "--scenario", "quick")[1].splitlines()) == 3
    assert len(command("list", "--host", "blade1", "--limit", "3")[1].splitlines()) == 4
    assert len(command("list", "--since", "2026-01-04")[1].splitlines()) == 3
    first = rows[-1][0]
    assert command("tag", first[:6], "release-1", "--name", "golden", "--baseline")[0] == 0
    assert command("note", "golden", "the", "fan was <b>broken</b>\x1b[31m")[0] == 0
    assert command("list", "--tag", "release-1", "--format", "table")[1].splitlines()[1].startswith(first)
    shown = command("show", "golden")[1]
    for text in (
        "quick",
        "golden",
        "release-1",
        "fan was <b>broken</b>",
        "kernel 6.1.0",
        "job.p50",
        "100 ms",
        "blade1",
    ):
        assert text in shown
    assert "\x1b" not in shown
    assert command("tag", "golden", "--remove", "release-1")[0] == 0
    assert command("list", "--tag", "release-1")[0] == 2
    with Archive.open(archive_url) as archive:
        names = {value.name for value in archive.run("golden").treatments[0].values}
    assert names == {"job", "start", "remove", "job.p50"}
    assert paths[0].exists(), "it was copied"


def test_what_is_typed_wrong_is_answered_with_the_nearest_right(command, tmp_path):
    """Ids, tags, scenarios, columns and files; and of an ambiguous id those that it may mean."""
    paths = [a_run(tmp_path / f"{number}.stats.gz", number) for number in range(2)]
    ids = [line.split("\t")[0] for line in command("add", *paths)[1].splitlines()]
    command("tag", ids[0], "release-1", "--name", "golden")
    wrong = ids[0][:5] + ("0" if ids[0][5] != "0" else "1") + ids[0][6:]
    for words, text in (
        (("show", wrong), f"did you mean '{ids[0]}'?"),
        (("show", "goldne"), "did you mean 'golden'?"),
        (("show", "x"), "an id has 4 characters or more"),
        (("show", "run0"), "names several runs"),
        (("list", "--scenario", "quikstart"), "did you mean 'quickstart'?"),
        (("list", "--tag", "relaese-1"), "did you mean 'release-1'?"),
        (("list", "--host", "blade"), "did you mean 'blade1'?"),
        (("list", "--columns", "id,tag"), "did you mean 'tags'?"),
        (("list", "--since", "yesterday"), "expected a date such as 2026-11-22"),
        (("tag", ids[0]), "says nothing about the run"),
        (("tag", ids[0], "a,b"), "without spaces and commas"),
        (("tag", ids[0], "--remove", "release"), "no such tag (did you mean 'release-1'?)"),
        (("tag", ids[1], "--name", "golden"), "has this name; choose another"),
        (("add", tmp_path), "archive import"),
        (("add", tmp_path / "2.stats.gz"), "No such file or directory"),
        (("add", paths[0], "-"), "-: No such file or directory; nothing was added"),
        (("import", tmp_path / "none"), "No such file or directory; a folder expected"),
        (("import", paths[0]), "archive add"),
        (("tag", ids[1], "--name", ids[0][:4]), "is the beginning of the id of run " + ids[0]),
        (("trend", "quickstart"), "it is a scenario: archive trend --scenario quickstart"),
        (("trend", "--chart", "life.png"), "name it so: life.svg"),
        (("trend", "--chart", "life.svg"), "2 series were found"),
        (("prune",), "add --keep-last N or --older SPAN"),
        (("prune", "--older", "5"), "with its unit, such as 5d"),
        (("compare", ids[0]), "name two runs or more"),
        (("lsit",), "did you mean 'list'?"),
    ):
        code, out, err = command(*words)
        assert (code, out) == (2, ""), words
        assert text in " ".join(err.split()), err
        assert len(err.splitlines()) == 1, err


def test_addresses_that_are_wrong_say_how_they_should_be(tmp_path, monkeypatch):
    """Nothing is made, and no password is printed."""
    monkeypatch.delenv("WEIGHBRIDGE_ARCHIVE", raising=False)
    file = tmp_path / "archive.db"
    file.write_text("")
    for address, text in (
        ("mysql://u:s3cret@h/d", "unknown kind of database 'mysql'"),
        ("postgresq://u:s3cret@h/d", "did you mean 'postgresql'?"),
        ("postgresql://u:s3cret@h/d", "add ?objects=/FOLDER"),
        ("postgresql://u:s3cret@h/d?object=/x", "did you mean 'objects' by 'object'?"),
        ("postgresql://u:s3cret@h/d?objects=x", "begins with /"),
        ("postgresql://u:s3cret@h/?objects=/x", "names no database"),
        ("postgresql://h/d?objects=/x&password=s3cret", "put it before the @"),
        ("postgresql://h/d?objects=/x&sslpassword=s3cret", "'sslpassword' is not taken"),
        ("postgresql://h/d?objects=/x&sslmod=require", "did you mean 'sslmode'?"),
        ("postgresql://u:s3cret@h:x/d?objects=/x", "a port is a number"),
        ("postgresql://u:s3cret@h/d?objects=/x&schema=A-B", "lower-case letters"),
        ("postgresql://u:s3cret@127.0.0.1:1/d?objects=" + str(tmp_path), "127.0.0.1"),
        ("postgresql://u:s3cret@h/d?objects=/x&schema=kept_new", "names that end in _new; choose another"),
        ("sqlite:///x/other.db", "just the folder"),
        (str(file), f"name its folder: --archive {tmp_path}"),
        (str(tmp_path / "none"), "archive add FILE makes one"),
        ("  ", "empty; expected a folder"),
        ("postgresql://u:s3cret@ret@h/d?objects=/x@y", "write @ as %40"),
        ("postgresql://u:s3cret/ret@h/d?objects=/x", "write @ as %40"),
        ("postgresql://u:12?s3cret@h/d?objects=/x", "write @ as %40"),
        ("postgresql://u:s3cret#ret@h/d?objects=/x", "write @ as %40"),
        ("postgres:/u:s3cret@h/d?objects=/x", "has // after its first colon"),
        ("~nobody-has-this-name/x", "name the whole path"),
    ):
        with pytest.raises((UsageError, InfrastructureError)) as error:
            Archive.open(address)
        assert text in str(error.value), address
        assert "s3cret" not in str(error.value)
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(UsageError, match="has no home folder for one; name it with --archive"):
        Archive.open(None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    Archive.open(None, create=True).close()
    monkeypatch.setenv("WEIGHBRIDGE_ARCHIVE", f"sqlite:///{tmp_path}/xdg/weighbridge/archive.db")
    assert Archive.open(None).runs() == []


def test_files_that_are_not_whole_go_in_as_such_and_enter_no_series(archive, tmp_path):
    """Damaged, cut short, without a header, interrupted, no-op: all are listed; what is no stats file is refused."""
    whole = a_run(tmp_path / "whole.stats.gz", 0)
    content = whole.read_bytes()
    for name, data in (
        ("cut", content[: len(content) * 2 // 3]),
        ("flipped", content[:-200] + bytes([content[-200] ^ 1]) + content[-199:]),
        ("head", content[:30]),
    ):
        (tmp_path / f"{name}.stats.gz").write_bytes(data)
        added = archive.add(tmp_path / f"{name}.stats.gz")
        assert (added.new, added.state) == (True, "damaged"), name
        assert added.problem
    assert archive.add(a_run(tmp_path / "killed.stats.gz", 1, whole=False)).state == "incomplete"
    assert archive.add(a_run(tmp_path / "noop.stats.gz", 2, noop=True)).problem.startswith("a no-op run")
    assert archive.series() == []
    (tmp_path / "text.stats.gz").write_text("hello")
    with pytest.raises(NotAStatsFileError):
        archive.add(tmp_path / "text.stats.gz")
    assert archive.add(whole).problem == ""
    assert [series.runs for series in archive.series()] == [1, 1]
    assert sorted(run.state for run in archive.runs()) == ["complete"] * 2 + ["damaged"] * 3 + ["incomplete"]
    assert faults(archive) == []
    assert rebuild(_url(archive)).runs == 6


def _url(archive):
    """Return the address of an open archive."""
    address = archive.address
    return (
        str(address.folder)
        if address.url is None
        else f"{address.url}&objects={address.folder}&schema={address.schema}"
    )


def test_a_series_is_the_same_treatment_on_the_same_machine(archive, tmp_path):
    """Repeats, seeds and boots split nothing; parameters, hosts and figures do; facts of the machine break it."""
    archive.add(a_run(tmp_path / "0.gz", 0, engines=["native"]))
    archive.add(a_run(tmp_path / "1.gz", 1, engines=["native"], times=(90, 110, 100, 120), seed=99))
    archive.add(a_run(tmp_path / "2.gz", 2, engines=["native"], facts={"memory": 2**33 + 2**24, "bogomips": 4000}))
    archive.add(a_run(tmp_path / "3.gz", 3, engines=["native"], facts={"kernel": "6.2.0"}))
    archive.add(a_run(tmp_path / "4.gz", 4, engines=["native"], wire={"concurrency": 4}))
    archive.add(a_run(tmp_path / "5.gz", 5, engines=["native"], name="other"))
    series = archive.series()
    assert [(one.runs, one.scenario, one.measure, one.unit) for one in series] == [
        (1, "other", "job.p50", "s"), (4, "quickstart", "job.p50", "s"), (1, "quickstart", "job.p50", "s")
    ] or [one.runs for one in series] == [1, 1, 4]  # fmt: skip
    (longest,) = [one for one in series if one.runs == 4]
    points = archive.points(longest.key)
    assert [round(point.value, 4) for point in points] == [0.1, 0.105, 0.1, 0.1]
    assert points[1].trials == pytest.approx((0.09, 0.11, 0.1, 0.12))
    assert points[0].machine == points[1].machine == points[2].machine != points[3].machine
    assert points[3].machine["kernel"] == "6.2.0"
    assert not {"boot_id", "hostname", "bogomips"} & points[0].machine.keys()
    assert points[0].version == "1"
    assert archive.points(longest.key, "start.p95")[0].value == pytest.approx(0.025)
    with pytest.raises(UsageError, match=r"did you mean 'start.p95'"):
        archive.points(longest.key, "start.p59")
    with pytest.raises(UsageError, match="no series"):
        archive.points("0" * 16)


def test_a_series_is_called_as_in_its_newest_run(archive, tmp_path):
    """In whatever order they are added, so also after a rebuild."""
    for number in (2, 3, 1):
        archive.add(a_run(tmp_path / f"{number}.gz", number, engines=["native"], wire={"title": f"run {number}"}))
    (series,) = archive.series()
    assert (series.title, series.runs, series.newest) == ("run 3", 3, archive.runs()[0].created)
    (series,) = archive.series(RunFilter(until_s=series.newest))
    assert (series.title, series.runs) == ("run 2", 2)


def test_a_resumed_run_counts_once(archive, tmp_path):
    """Its file grew; the later one counts, in whatever order they are added."""
    later = a_run(tmp_path / "later.gz", 7, times=(100, 100, 100, 100, 100))
    archive.add(later)
    archive.add(a_run(tmp_path / "earlier.gz", 7, times=(50,)))
    assert sorted((run.superseded, run.done) for run in archive.runs()) == [(False, 10), (True, 2)]
    assert [len(archive.points(one.key)) for one in archive.series()] == [1, 1]
    assert archive.run("run000000007").row.done == 10


@either_database
def test_a_database_that_is_thrown_away_comes_back(archive, archive_url, command, tmp_path):
    """Runs, names, tags, notes and pruned runs; also where it is of another version, or damaged."""
    for number in range(5):
        archive.add(a_run(tmp_path / f"{number}.stats.gz", number))
    command("tag", "run000000001", "keep", "--name", "golden")
    command("note", "golden", "a note")
    command("tag", "run000000002", "gone")
    command("tag", "run000000002", "--remove", "gone")
    with archive.annotations.path.open("ab") as file:
        file.write(b'{"uid": "cut sh')
    command("note", "golden", "after a torn line")
    assert command("prune", "--keep-last", "3", "--keep-tagged")[0] == 0
    before = (
        archive.runs(),
        archive.run("golden"),
        archive.series(),
        [archive.points(one.key) for one in archive.series()],
    )
    assert [run.pruned for run in before[0]] == [False, False, False, False, True]
    with archive.database.writing() as connection:
        connection.execute(META.update().where(META.c.key == "schema_version").values(value="0"))
    code, _, err = command("list")
    assert code == 2
    assert "bench-master archive rebuild makes it anew" in err
    code, _, err = command("rebuild")
    assert code == 0, err
    assert "new index of 5 runs, 1 of them pruned" in err
    assert "1 line of annotation.jsonl" in err
    with archive.database.writing() as connection:
        METADATA.drop_all(connection)
    for words in (("list",), ("add", tmp_path / "4.stats.gz")):
        assert "has stats files and no index" in command(*words)[2]
    assert command("rebuild")[0] == 0
    if archive.database.is_sqlite:
        archive.address.database.write_bytes(b"SQLite format 3\0" + b"x" * 5000)
        code, _, err = command("list")
        assert code == 3
        assert "rebuild" in err
        assert command("rebuild")[0] == 0
    after = (
        archive.runs(),
        archive.run("golden"),
        archive.series(),
        [archive.points(one.key) for one in archive.series()],
    )
    assert after == before
    assert after[1].row.tags == ("keep",)
    assert [one.value for one in after[1].annotations if one.key == "note"] == ["a note", "after a torn line"]
    assert faults(archive) == ["annotations"]


@either_database
def test_a_rebuild_names_the_run_whose_file_is_missing(archive, archive_url, tmp_path, command):
    """The old index knew it; once it is told and not in the new one, nobody does."""
    for number in range(2):
        archive.add(a_run(tmp_path / f"{number}.stats.gz", number))
    gone = archive.objects.path(archive.run("run000000001").row.sha256)
    gone.unlink()
    code, _, err = command("rebuild")
    assert code == 3
    assert f"{gone}: not in the new index: is missing; add the original file again" in err
    assert "new index of 1 run" in err
    assert command("rebuild")[0] == 0


def test_what_is_no_file_does_not_stop_an_archive(archive, command, tmp_path):
    """A FIFO in the place of an object, a summary or the annotations: nobody waits for what comes out of it."""
    for number in range(3):
        archive.add(a_run(tmp_path / f"{number}.stats.gz", number))
    assert command("prune", "--keep-last", "2")[0] == 0
    pruned = next(archive.objects.root.rglob("*.pruned.gz"))
    stats = archive.objects.path(archive.run("run000000002").row.sha256)
    for path, kind in ((pruned, "lost-summary"), (stats, "damaged-file")):
        content = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        assert kind in faults(archive)
        code, _, err = command("rebuild")
        assert code == 3
        assert f"{path}: not in the new index" in err
        path.unlink()
        path.write_bytes(content)
        assert command("rebuild")[0] == 0
    archive.annotations.path.unlink(missing_ok=True)
    os.mkfifo(archive.annotations.path)
    code, _, err = command("rebuild")
    assert code == 3
    assert "cannot be read" in err


def test_pruned_runs_keep_what_statistics_need(archive, command, tmp_path):
    """The files go, not after a dry run; what can no longer be asked is said, and comes back with the file."""
    paths = [a_run(tmp_path / f"{number}.stats.gz", number) for number in range(4)]
    ids = [line.split("\t")[0] for line in command("add", *paths)[1].splitlines()]
    command("tag", ids[0], "keep")
    code, out, err = command("prune", "--keep-last", "1", "--keep-tagged", "--dry-run")
    assert ([line.split("\t")[0] for line in out.splitlines()], code) == (ids[1:3], 0)
    assert "2 runs would lose their stats files" in err
    assert "no longer: single jobs" in err
    assert len(list(archive.objects.all())) == 4
    values = archive.run(ids[1]).treatments
    assert command("prune", "--older", "1d", "--keep-last", "1", "--keep-tagged", "-q")[0] == 0
    assert len(list(archive.objects.all())) == 2
    assert archive.objects.find(archive.find(ids[1])) is None
    assert archive.run(ids[1]).treatments == values
    assert [series.runs for series in archive.series()] == [4, 4]
    code, _, err = command("compare", ids[1], ids[3])
    assert code == 2
    assert f"the stats file of run {ids[1]} was pruned" in err
    assert "pruned: reports and comparisons" in " ".join(command("show", ids[1])[1].split())
    assert faults(archive) == []
    assert not archive.add(paths[1]).new
    assert not archive.run(ids[1]).row.pruned
    assert "one run against another" in command("compare", ids[1], ids[3])[1]
    assert faults(archive) == []
    now_s = archive.runs()[0].created + 1.5 * DAY_S
    assert [one.id for one in find_candidates(archive, Rule(older_s=3 * DAY_S), now_s)] == ids[:2]


def test_verify_finds_what_disks_and_people_do(archive, tmp_path):
    """A flipped bit, missing files and rows, lost summaries, an interrupted prune; adding the file again repairs."""
    paths = [a_run(tmp_path / f"{number}.stats.gz", number) for number in range(5)]
    added = [archive.add(path) for path in paths]
    assert faults(archive) == []
    flipped = archive.objects.path(added[0].sha256)
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 4
    flipped.write_bytes(content)
    archive.objects.remove(added[1].sha256)
    with archive.database.writing() as connection:
        connection.execute(RUN.delete().where(RUN.c.sha256 == added[2].sha256))
        connection.execute(RUN.update().where(RUN.c.sha256 == added[4].sha256).values(pruned_at=1.0))
    assert remove_file(archive, find_candidates(archive, Rule(keep_last=1))[1]) is None
    summary = archive.objects.path(added[3].sha256, SUMMARY_SUFFIX)
    content = bytearray(summary.read_bytes())
    content[len(content) // 2] ^= 4
    summary.write_bytes(content)
    found = sorted((fault.kind, fault.where) for fault in verify(archive))
    assert found == sorted(
        [
            ("damaged-file", added[0].id), ("missing-file", added[1].id), ("missing-row", added[2].id),
            ("lost-summary", added[3].id), ("lost-summary", added[4].id), ("unpruned", added[4].id),
        ]
    )  # fmt: skip
    assert remove_file(archive, find_candidates(archive, Rule(keep_last=0))[0]) is not None, "a damaged file stays"
    for path in paths:
        archive.add(path)
    assert faults(archive) == []
    assert all(archive.objects.find(one.sha256) for one in added)


def killed(owner, name, work, *, count=1, half=False):
    """Do some work in a copy of this process, which is killed as it calls a function for the nth time.

    Of what it would write then, the first half is written.
    """
    pid = os.fork()
    if pid:
        return os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    real, left = getattr(owner, name), [count]

    def crash(*given, **more):
        left[0] -= 1
        if left[0]:
            return real(*given, **more)
        if half:
            real(given[0], given[1][: len(given[1]) // 2])
        return os.kill(os.getpid(), signal.SIGKILL)

    try:
        setattr(owner, name, crash)
        work()
    finally:
        os._exit(1)


INSTANTS = {
    "copied": (os, "fsync", {}),
    "named": (Path, "replace", {"count": 2}),
    "read": (archive_module, "contents_of", {}),
    "row": (index, "_add_treatment", {}),
    "last row": (index, "_add_treatment", {"count": 4}),
    "note": (os, "write", {"count": 2, "half": True}),
}


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_killed_process_leaves_an_archive_that_the_next_one_continues(archive_url, tmp_path, instant):
    """At any instant of adding: what it had finished is whole, and adding all again gives all of them once."""
    paths = [a_run(tmp_path / f"{number}.stats.gz", number) for number in range(3)]

    def add():
        with Archive.open(archive_url, create=True) as opened:
            for path in paths:
                opened.annotate([(opened.add(path).sha256, "tag", "t")])

    owner, name, how = INSTANTS[instant]
    assert killed(owner, name, add, **how)
    with Archive.open(archive_url, create=True) as archive:
        assert set(faults(archive)) <= {"missing-row"}
        whole = archive.runs()
        assert all(run.state == "complete" and run.treatments == 2 for run in whole)
        for path in paths:
            archive.annotate([(archive.add(path).sha256, "tag", "t")])
        assert len(archive.runs()) == 3
        assert len(archive.runs(RunFilter(tag="t"))) == 3
        assert set(faults(archive)) <= {"annotations"}
    rebuild(archive_url)
    with Archive.open(archive_url) as archive:
        assert (len(archive.runs(RunFilter(tag="t"))), set(faults(archive)) <= {"annotations"}) == (3, True)


@pytest.mark.parametrize(
    ("owner", "name", "words"),
    [
        (Objects, "settle", ("prune", "--keep-last", "1")),
        (Objects, "remove", ("prune", "--keep-last", "1")),
        (index, "_add_hosts", ("rebuild",)),
        (rebuild_module._Rebuild, "_swap", ("rebuild",)),
    ],
)
def test_upkeep_that_was_killed_is_done_again(archive, archive_url, command, tmp_path, owner, name, words):
    """A prune loses no run, a rebuild leaves the old index in use, and the second time both come to their end."""
    for number in range(3):
        archive.add(a_run(tmp_path / f"{number}.stats.gz", number))
    before = [(run.id, run.done) for run in archive.runs()]
    assert killed(owner, name, lambda: run_command_line(["archive", *words, "--archive", archive_url]))
    assert [(run.id, run.done) for run in archive.runs()] == before
    assert set(faults(archive)) <= {"unpruned"}
    assert command(*words)[0] == 0
    assert command("rebuild")[0] == 0
    assert [(run.id, run.done) for run in archive.runs()] == before
    assert [run.pruned for run in archive.runs()] == [False, *[words[0] == "prune"] * 2]
    assert faults(archive) == []


FULL = """
import resource, sys
from bench_master.cli import run_command_line
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(run_command_line(["archive", *sys.argv[2:]]))
"""


def test_a_full_disk_loses_nothing(archive, archive_url, tmp_path):
    """Wherever it is full: the file, the index or a note; nothing half is left, and with room it goes on."""
    archive.add(a_run(tmp_path / "0.stats.gz", 0))
    more = a_run(tmp_path / "1.stats.gz", 1)
    done = program(FULL, 1000, "add", more, "--archive", archive_url)
    assert done.returncode == 3, done.stderr
    assert "make room" in done.stderr
    assert (len(archive.runs()), faults(archive)) == (1, [])
    limit = (archive.address.database.stat().st_size // 4) if archive.database.is_sqlite else 10
    words = ("add", more) if archive.database.is_sqlite else ("note", "run000000000", "x" * 100)
    done = program(FULL, limit, *words, "--archive", archive_url)
    assert done.returncode == 3, done.stderr
    *progress, error = done.stderr.splitlines()
    assert error.startswith("bench-master: ")
    assert all(line.startswith("adding runs to the archive: ") for line in progress), done.stderr
    assert len(archive.runs()) == 1
    assert archive.add(more).id in [run.id for run in archive.runs()]
    assert faults(archive) == []


@either_database
def test_masters_add_at_the_same_time(archive_url, tmp_path):
    """Two processes with files in common: each run is there once, whoever was first, and nobody fails."""
    for number in range(24):
        for folder in {0: ["a"], 1: ["b"], 2: ["a", "b"]}[number % 3]:
            (tmp_path / folder).mkdir(exist_ok=True)
            a_run(tmp_path / folder / f"{number}.stats.gz", number)
    command = [sys.executable, "-m", "bench_master", "archive", "import"]
    adding = [
        subprocess.Popen([*command, tmp_path / folder, "--archive", archive_url], stderr=subprocess.PIPE, text=True)
        for folder in ("a", "b")
    ]
    for process in adding:
        _, err = process.communicate(timeout=END_S)
        assert process.returncode == 0, err
    with Archive.open(archive_url) as archive:
        assert len({run.run_id for run in archive.runs()}) == len(archive.runs()) == 24
        assert [series.runs for series in archive.series()] == [24, 24]
        assert faults(archive) == []


@either_database
def test_runs_added_during_a_rebuild_are_in_the_new_index(archive, archive_url, tmp_path):
    """The old index takes them while the new one is built, and the end of the rebuild takes them over."""
    archive.add(a_run(tmp_path / "0.stats.gz", 0))
    late = []

    def meanwhile(*_):
        late.append(archive.add(a_run(tmp_path / "1.stats.gz", 1)))
        archive.annotate([(late[0].sha256, "tag", "late")])

    assert rebuild(archive_url, meanwhile).runs == 2
    assert [run.run_id for run in archive.runs(RunFilter(tag="late"))] == ["run000000001"]
    assert faults(archive) == []


@either_database
@pytest.mark.parametrize("moment", ["put", "index"])
def test_a_file_that_is_pruned_while_it_is_added_is_put_again(archive, tmp_path, monkeypatch, moment):
    """Be it removed after it was found there, or once it is in the index: the run has its file in the end."""
    path = a_run(tmp_path / "0.stats.gz")
    archive.add(path)
    where = archive.objects if moment == "put" else archive
    real, prunes = getattr(where, moment), [1]

    def then_prune(*arguments, **options):
        done = real(*arguments, **options)
        if prunes:
            prunes.pop()
            (candidate,) = find_candidates(archive, Rule())
            assert remove_file(archive, candidate) is None
        return done

    if moment == "index":
        (candidate,) = find_candidates(archive, Rule())
        remove_file(archive, candidate)
    monkeypatch.setattr(where, moment, then_prune)
    added = archive.add(path)
    assert prunes == []
    run = archive.run(added.id)
    assert (run.row.pruned, run.file is not None) == (False, True)
    assert faults(archive) == []


@either_database
def test_a_run_that_is_added_in_the_middle_of_its_prune_has_its_file(archive, archive_url, tmp_path, monkeypatch):
    """The prune has noted it and not removed the file yet: who adds it waits for that, and puts the file again."""
    path = a_run(tmp_path / "0.stats.gz")
    sha256 = archive.add(path).sha256
    (candidate,) = find_candidates(archive, Rule())
    go_on = threading.Event()
    real_lock, real_remove = archive_module.lock_within, Objects.remove

    def add():
        try:
            with Archive.open(archive_url) as other:
                other.add(path)
        finally:
            go_on.set()

    adding = threading.Thread(target=add)

    def lock_within(descriptor, timeout_s, *, shared=False):
        if shared and Path(f"/proc/self/fd/{descriptor}").readlink().name == archive_module.OBJECTS_LOCK:
            go_on.set()
        return real_lock(descriptor, timeout_s, shared=shared)

    def remove(objects, sha256, *suffix):
        if not suffix and adding.ident is None:
            adding.start()
            assert go_on.wait(ANSWER_S)
        real_remove(objects, sha256, *suffix)

    monkeypatch.setattr(archive_module, "lock_within", lock_within)
    monkeypatch.setattr(Objects, "remove", remove)
    assert remove_file(archive, candidate) is None
    adding.join(ANSWER_S)
    assert archive.objects.find(sha256) is not None
    assert [run.pruned for run in archive.runs()] == [False]
    assert faults(archive) == []


def test_a_rebuild_names_the_damaged_runs(archive, command, tmp_path):
    """They are in the new index as such, and its exit code says that not all is well, as that of `add` did."""
    content = a_run(tmp_path / "whole.stats.gz", 0).read_bytes()
    (tmp_path / "cut.stats.gz").write_bytes(content[: len(content) * 2 // 3])
    archive.add(tmp_path / "whole.stats.gz")
    assert command("rebuild")[0] == 0
    added = archive.add(tmp_path / "cut.stats.gz")
    code, _, err = command("rebuild")
    assert code == 3
    assert f"run {added.id} is damaged: {added.problem}" in err
    assert "new index of 2 runs" in err
    assert sorted(run.state for run in archive.runs()) == ["complete", "damaged"]


def test_a_comparison_reads_only_what_was_added(archive, command, tmp_path):
    """A file that holds another run than its name says is named, and no ratio is printed."""
    ids = [archive.add(a_run(tmp_path / f"{number}.stats.gz", number)).id for number in range(2)]
    assert command("compare", *ids)[0] == 0
    file = archive.run(ids[1]).file
    file.chmod(0o600)
    file.write_bytes(a_run(tmp_path / "2.stats.gz", 2).read_bytes())
    code, out, err = command("compare", *ids)
    assert (code, out) == (3, "")
    assert f"its content is not that of run {ids[1]}" in err


def test_runs_pruned_during_a_rebuild_are_pruned_in_the_new_index(archive, archive_url, tmp_path):
    """Also those whose files it had read, and each counts once; what prune is at the middle of, it waits for."""
    for number in range(3):
        archive.add(a_run(tmp_path / f"{number}.stats.gz", number))
    found = rebuild(archive_url, lambda *_: [remove_file(archive, one) for one in find_candidates(archive, Rule(1))])
    assert (found.runs, found.pruned) == (1, 2)
    assert [run.pruned for run in archive.runs()] == [False, True, True]
    assert faults(archive) == []


def test_a_rebuild_drops_no_schema_of_others(postgresql, tmp_path):
    """Neither one whose name it would use, nor one that the archive shares; beside them it does its work."""
    url = postgresql.url(tmp_path / "archive")
    with Archive.open(url, create=True) as archive, psycopg.connect(postgresql.dsn, autocommit=True) as connection:
        archive.add(a_run(tmp_path / "0.stats.gz"))
        name = archive.address.schema
        connection.execute(f"CREATE SCHEMA {name}_old CREATE TABLE precious (x int)")
        for others in (
            f"CREATE SCHEMA {name}_new CREATE TABLE precious (x int)",
            f"CREATE SCHEMA {name}_new CREATE VIEW precious AS SELECT 1",
            f"CREATE SCHEMA {name}_new CREATE TABLE run (x int)",
        ):
            connection.execute(others)
            with pytest.raises(UsageError, match=f"the schema {name}_new of this database"):
                rebuild(url)
            connection.execute(f"DROP SCHEMA {name}_new CASCADE")
        connection.execute(f"CREATE TABLE {name}.precious (x int)")
        with pytest.raises(UsageError, match=f"the schema {name} of this database.* \\(table precious\\)"):
            rebuild(url)
        connection.execute(f"DROP TABLE {name}.precious")
        assert rebuild(url).runs == len(archive.runs()) == 1
        connection.execute(f"TABLE {name}_old.precious")


def test_a_file_goes_while_the_index_cannot_be_replaced(archive, tmp_path, monkeypatch):
    """A rebuild between its row and its file would take the run for one that has its file."""
    archive.add(a_run(tmp_path / "0.stats.gz", 0))
    lock, remove = archive.address.folder / archive_module.LOCK_FILE, archive.objects.remove

    def removed(*words):
        with (
            pytest.raises(InfrastructureError, match="in use"),
            archive_module.locked_file(lock, "alone", timeout_s=0),
        ):
            pass
        remove(*words)

    monkeypatch.setattr(archive.objects, "remove", removed)
    (run,) = find_candidates(archive, Rule(keep_last=0))
    assert remove_file(archive, run) is None
    assert archive.objects.find(run.sha256) is None


def test_runs_and_notes_move_to_another_archive(archive, command, tmp_path):
    """`export --to` and `import`; without --to, values of trials are printed for other programs."""
    archive.add(a_run(tmp_path / "0.stats.gz", 0, name="=1+1"))
    command("tag", "run000000000", "release-1", "--name", "golden")
    assert command("export", "--to", tmp_path / "out")[0] == 0
    (copy,) = (tmp_path / "out").glob("*.stats.gz")
    copy.unlink()
    copy.hardlink_to(archive.objects.path(archive.runs()[0].sha256))
    assert command("export", "--to", tmp_path / "out")[0] == 0
    with Archive.open(str(tmp_path / "other"), create=True):
        pass
    assert (
        run_command_line(["-q", "archive", "import", str(tmp_path / "out"), "--archive", str(tmp_path / "other")])
        == 0
    )
    with Archive.open(str(tmp_path / "other")) as other:
        assert other.run("golden").row.tags == ("release-1",)
        assert other.runs() == archive.runs()
    out = command("export")[1].splitlines()
    assert out[0].startswith("run,created,scenario,treatment,series,kind,measure,statistic,unit,trial,value")
    assert sum(",primary,job.p50,value,s," in line for line in out) == 6
    assert ",'=1+1," in out[1]
    rows = [json.loads(line) for line in command("export", "--format", "jsonl")[1].splitlines()]
    assert [row["value"] for row in rows if row["kind"] == "primary" and row["statistic"] == "value"][:3] == [
        0.1,
        0.101,
        0.099,
    ]


def test_two_runs_are_compared_by_the_words_of_compare(command, tmp_path):
    """With its options and exit codes; runs are called by their ids."""
    times = [(100, 101, 99, 100), (110, 111, 109, 110)]
    paths = [a_run(tmp_path / f"{number}.stats.gz", number, times=own) for number, own in enumerate(times)]
    ids = [line.split("\t")[0] for line in command("add", *paths)[1].splitlines()]
    code, out, _ = command("compare", *ids, "--format", "json")
    assert code == 0
    report = json.loads(out)
    assert {one["verdict"] for one in report["comparisons"]} == {"refused"}
    assert report["comparisons"][0]["ratio"] == pytest.approx(1.1, rel=0.001)
    assert [one["file"] for one in (*report["archive"]["earlier"], *report["archive"]["new"])] == ids


@either_database
def test_one_folder_of_files_has_one_index(archive, archive_url, tmp_path):
    """A database is not used with another folder than its own; two files that are linked stay one."""
    path = a_run(tmp_path / "0.stats.gz", 0)
    archive.add(path, link=True)
    assert archive.objects.path(archive.runs()[0].sha256).samefile(path)
    if archive.database.is_sqlite:
        return
    other = archive_url.replace(f"objects={archive.address.folder}", f"objects={tmp_path / 'elsewhere'}")
    with pytest.raises(UsageError, match="of another folder of stats files"):
        Archive.open(other, create=True)


def test_a_server_that_refuses_says_what_is_missing(postgresql, tmp_path, capsys):
    """Database, user, rights to make or to read the tables: one line, exit code 3, no password."""
    url, path = postgresql.url(tmp_path / "files"), a_run(tmp_path / "0.stats.gz")
    with psycopg.connect(postgresql.dsn, autocommit=True) as connection:
        connection.execute("CREATE ROLE guest LOGIN")

    def tried(*words, **changes):
        address = url.replace("bench:s3cret@", f"{changes.get('user', 'bench')}:s3cret@")
        address = address.replace("/postgres?", f"/{changes.get('database', 'postgres')}?")
        code = run_command_line(["-q", "archive", *map(str, words), "--archive", address])
        notice, _, err = capsys.readouterr().err.partition("\n")
        assert notice.startswith("a password was given with --archive")
        return code, err

    for words, changes, advice in (
        (("add", path), {"user": "guest"}, "the right to create and change tables"),
        (("add", path), {"user": "nobody_at_all"}, "check user and password"),
        (("add", path), {"database": "none"}, "make the database first, with createdb"),
        (("add", path), {}, None),
        (("list",), {"user": "guest"}, "the user needs USAGE of the schema"),
    ):
        code, err = tried(*words, **changes)
        assert code == (3 if advice else 0), err
        assert (advice or "") in err
        assert len(err.splitlines()) == (1 if advice else 0)
        assert "s3cret" not in err


def test_an_archive_on_a_read_only_medium_is_read(tmp_path, monkeypatch):
    """SQLite would need a file beside it; what cannot be written is refused with a reason."""
    with Archive.open(str(tmp_path), create=True) as made:
        run = made.add(a_run(tmp_path / "0.stats.gz"))
        before = made.runs()
    monkeypatch.setattr(database.os, "access", lambda *_: False)
    names = sorted(path.name for path in tmp_path.iterdir())
    with Archive.open(str(tmp_path)) as fixed:
        assert fixed.runs() == before
        assert faults(fixed) == []
        with pytest.raises(InfrastructureError, match="readonly"):
            fixed.annotate([(run.sha256, "note", "x")])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names, "annotation.jsonl"])
    with pytest.raises(InfrastructureError, match="cannot be written to"):
        Archive.open(str(tmp_path), create=True)


def test_a_rebuild_that_was_interrupted_leaves_the_old_index_alone(archive, archive_url, tmp_path, monkeypatch):
    """And no half of a new one, which could be as large."""
    archive.add(a_run(tmp_path / "0.stats.gz"))
    monkeypatch.setattr(rebuild_module._Rebuild, "_swap", interrupt)
    with pytest.raises(KeyboardInterrupt):
        rebuild(archive_url)
    assert not list(archive.address.folder.glob("*.new*"))
    assert len(archive.runs()) == 1


def test_a_rebuild_that_takes_too_long_is_named(archive, tmp_path, monkeypatch):
    """Whoever waits for the lock in vain learns what holds it."""
    lock = archive.address.folder / archive_module.LOCK_FILE
    refused = pytest.raises(InfrastructureError, match="in use by another command")
    with archive_module.locked_file(lock, "alone"), refused, archive_module.locked_file(lock, "shared", 0.0):
        pass


@either_database
def test_texts_of_runs_steer_nothing(archive, command, tmp_path):
    """Names with NUL, quotes, markup and controls are kept, found and shown as text; a long one has further lines."""
    name = "x'; DROP TABLE run; --\0<script>\x1b[2J\u202e"
    archive.add(a_run(tmp_path / "0.stats.gz", 0, name=name, facts={"kernel": "6\0" + "k" * 3000}))
    code, out, _ = command("list", "--format", "table")
    assert code == 0
    assert not {"\x1b", "\0", "\u202e"} & set(out + command("show", "run000000000")[1])
    assert len(command("list", "--format", "tsv")[1].splitlines()) == 2
    assert archive.series()[0].scenario.startswith("x'; DROP TABLE run; --")
    with archive.database.reading() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(RUN)) == 1
