"""The archive: what goes in, what comes out, and what survives."""

import contextlib
import errno
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from archive_runs import a_run
from deadlines import END_S
from places import ROOT

from bench_common.errors import InfrastructureError, NotAStatsFileError, UsageError
from bench_common.stats.reader import StatsFile
from bench_features.archive import archive as archive_module
from bench_features.archive.archive import Archive
from bench_features.archive.folder import INDEX, ArchiveFolder, hash_of
from bench_features.archive.trends import points_of
from bench_features.archive.types import ArchivedRun, RunFilter
from bench_master.cli import run_command_line


@pytest.fixture
def archive(archive_folder):
    with Archive.open(archive_folder, create=True) as opened:
        yield opened


@pytest.fixture
def command(archive_folder, capfd):
    """Run `bench-master archive ...` on the archive; return exit code, standard output and error."""

    def call(*words):
        try:
            code = run_command_line(["archive", *map(str, words), "--archive", archive_folder])
        except SystemExit as end:
            code = end.code
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


def no_home():
    raise RuntimeError("Could not determine home directory.")


def unread(*_):
    raise AssertionError("the index is up to date, and a file is read")


def answers(url):
    """Return all that an archive says of its runs and series."""
    with Archive.open(url) as archive:
        series = archive.series()
        return [repr(run) for run in archive.runs()], repr(series), repr([points_of(one) for one in series])


def test_runs_are_added_found_and_shown(command, archive_folder, tmp_path):
    """Once, however often they are added; by scenario, host and time; one by its id."""
    names = ("quick", "slow")
    paths = [a_run(tmp_path / f"{number}.stats.gz", number, name=names[number % 2]) for number in range(4)]
    code, out, err = command("add", *paths)
    assert (code, out.count("\tadded\tcomplete\t")) == (0, 4), err
    assert f"{archive_folder}: a new archive\n" in err
    (tmp_path / "text.stats.gz").write_text("no stats file")
    code, _, err = command("add", paths[0], tmp_path / "text.stats.gz", *paths[1:])
    assert code == 2
    assert "text.stats.gz: is not a stats file" in err
    assert "0 runs added, 4 were there already" in err
    assert "a new archive" not in err
    code, out, _ = command("list")
    head, *rows = [line.split("\t") for line in out.splitlines()]
    assert head == ["id", "created", "state", "done", "failed", "value", "trust", "hosts", "scenario"]
    assert [row[2:5] + row[7:] for row in rows] == [
        ["complete", "6", "0", "blade1", name] for name in ("slow", "quick") * 2
    ]
    assert len(command("list", "--scenario", "quick")[1].splitlines()) == 3
    assert len(command("list", "--host", "blade1", "--limit", "3")[1].splitlines()) == 4
    assert len(command("list", "--since", "2026-01-04")[1].splitlines()) == 3
    shown = command("show", rows[-1][0][:6])[1]
    for text in ("quick", "kernel 6.1.0", "job.p50", "100 ms", "blade1"):
        assert text in shown
    with Archive.open(archive_folder) as archive:
        newest, _ = archive.runs(RunFilter("quick"))
        names = archive.find(newest.id).treatments[0].measures().keys()
    assert names >= {"job.p50", "job.max", "start.p95", "remove.mean"}
    assert paths[0].exists(), "it was copied"


def test_a_list_has_the_verdict_and_the_trust_of_each_run(command):
    """Of one comparison with its difference, of several how many found what."""
    recorded = (ROOT / "docs" / "data" / "weigh.stats.gz", *sorted((ROOT / "tests/data/pages").glob("engines.*")))
    assert command("add", *recorded)[0] == 0
    rows = {tuple(line.split("\t")[5:7]) for line in command("list")[1].splitlines()[1:]}
    assert rows == {("slower, 98.5x as slow", "good"), ("3 inconclusive", "fair")}


def test_a_run_has_one_id(command, tmp_path):
    """That of its report; an earlier file of a run that was resumed has its hash, and so has one of a strange id."""
    weighed = ROOT / "docs" / "data" / "weigh.stats.gz"
    found = StatsFile(weighed).header.run_id
    assert command("add", weighed)[1].split("\t")[0] == found
    assert f"true {found}\n" in command("show", found[:6])[1]
    partial = tmp_path / "partial.stats.gz"
    partial.write_bytes(weighed.read_bytes()[:-2000])
    command("add", partial)
    ids = {line.split("\t")[0] for line in command("list")[1].splitlines()[1:]}
    assert ids == {found, hash_of(partial)[:12]}
    strange = ArchivedRun(sha256="ab" * 32, state="complete", bytes=1, run_id="../../etc/passwd")
    assert strange.id == "ab" * 6


def test_what_is_typed_wrong_is_answered_with_the_nearest_right(command, tmp_path):
    """Ids, scenarios, columns and files; and of an ambiguous id those that it may mean."""
    paths = [a_run(tmp_path / f"{number}.stats.gz", number) for number in range(2)]
    ids = [line.split("\t")[0] for line in command("add", *paths)[1].splitlines()]
    wrong = ids[0].replace("r", "x")
    for words, text in (
        (("show", wrong), f"did you mean '{ids[0]}'?"),
        (("show", "x"), "an id has 4 characters or more"),
        (("show", "0000"), "names several runs"),
        (("list", "--scenario", "quikstart"), "did you mean 'quickstart'?"),
        (("list", "--host", "blade"), "did you mean 'blade1'?"),
        (("list", "--since", "yesterday"), "expected a date such as 2026-11-22"),
        (("add", tmp_path), f"expected stats files, such as {tmp_path}/*.stats.gz"),
        (("add", tmp_path / "2.stats.gz"), "No such file or directory"),
        (("add", paths[0], "-"), "-: No such file or directory; nothing was added"),
        (("trend", "--scenario", "quikstart"), "did you mean 'quickstart'?"),
        (("trend", "quickstart"), "it is a scenario: archive trend --scenario quickstart"),
        (("trend", "--chart", "life.png"), "name it so: life.svg"),
        (("trend", "--chart", "life.svg"), "2 series were found"),
        (("compare", ids[0]), "name two runs or more"),
        (("html", paths[0]), "name another folder"),
        (("lsit",), "did you mean 'list'?"),
    ):
        code, out, err = command(*words)
        assert (code, out) == (2, ""), words
        assert text in " ".join(err.split()), err
        assert len(err.splitlines()) == 1, err


def test_addresses_that_are_wrong_say_how_they_should_be(tmp_path, monkeypatch):
    """Nothing is made, and no password is printed."""
    monkeypatch.delenv("WEIGHBRIDGE_ARCHIVE", raising=False)
    file = tmp_path / "file"
    file.write_text("")
    for address, text in (
        ("postgresql://u:s3cret@h/d?objects=/x", "is a URL; expected a folder"),
        (str(file), "is no folder; expected the folder of an archive"),
        (str(tmp_path / "none"), "archive add FILE makes one"),
        ("  ", "empty; expected a folder"),
        ("~nobody-has-this-name/x", "name the whole path"),
    ):
        with pytest.raises(UsageError) as error:
            Archive.open(address)
        assert text in str(error.value), address
        assert "s3cret" not in str(error.value)
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(UsageError, match="has no home folder for one; name it with --archive"):
        Archive.open(None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    Archive.open(None, create=True).close()
    monkeypatch.setenv("WEIGHBRIDGE_ARCHIVE", f"{tmp_path}/xdg/weighbridge")
    assert Archive.open(None).runs() == []


def test_files_that_are_not_whole_go_in_as_such_and_enter_no_series(archive, archive_folder, tmp_path):
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
        assert (added.new, added.run.state) == (True, "damaged"), name
        assert added.run.problem
    assert archive.add(a_run(tmp_path / "killed.stats.gz", 1, whole=False)).run.state == "incomplete"
    assert archive.add(a_run(tmp_path / "noop.stats.gz", 2, noop=True)).run.problem.startswith("a no-op run")
    assert archive.series() == []
    (tmp_path / "text.stats.gz").write_text("hello")
    with pytest.raises(NotAStatsFileError):
        archive.add(tmp_path / "text.stats.gz")
    assert archive.add(whole).run.problem == ""
    assert [len(series.members) for series in archive.series()] == [1, 1]
    assert sorted(run.state for run in archive.runs()) == ["complete"] * 2 + ["damaged"] * 3 + ["incomplete"]
    before = answers(archive_folder)
    (Path(archive_folder) / INDEX).unlink()
    assert answers(archive_folder) == before


def test_a_series_is_the_same_treatment_on_the_same_machine(archive, tmp_path):
    """Repeats, seeds and boots split nothing; parameters, hosts and figures do; facts of the machine break it."""
    archive.add(a_run(tmp_path / "0.gz", 0, engines=["native"]))
    archive.add(a_run(tmp_path / "1.gz", 1, engines=["native"], times=(90, 110, 100, 120), seed=99))
    archive.add(a_run(tmp_path / "2.gz", 2, engines=["native"], facts={"memory": 2**33 + 2**24, "bogomips": 4000}))
    archive.add(a_run(tmp_path / "3.gz", 3, engines=["native"], facts={"kernel": "6.2.0"}))
    archive.add(a_run(tmp_path / "4.gz", 4, engines=["native"], wire={"concurrency": 4}))
    archive.add(a_run(tmp_path / "5.gz", 5, engines=["native"], name="other"))
    series = archive.series()
    assert sorted((len(one.members), one.scenario, one.measure.name, one.measure.unit) for one in series) == [
        (1, "other", "job.p50", "s"),
        (1, "quickstart", "job.p50", "s"),
        (4, "quickstart", "job.p50", "s"),
    ]
    (longest,) = [one for one in series if len(one.members) == 4]
    _, points = points_of(longest)
    assert [round(point.value, 4) for point in points] == [0.1, 0.105, 0.1, 0.1]
    assert points[1].trials == pytest.approx((0.09, 0.11, 0.1, 0.12))
    assert points[0].machine == points[1].machine == points[2].machine != points[3].machine
    assert points[3].machine["kernel"] == "6.2.0"
    assert not {"boot_id", "hostname", "bogomips"} & points[0].machine.keys()
    assert points[0].version == "1"
    assert points_of(longest, "start.p95")[1][0].value == pytest.approx(0.02525)
    with pytest.raises(UsageError, match=r"did you mean 'start.p95'"):
        points_of(longest, "start.p59")


def test_a_series_is_called_as_in_its_newest_run(archive, tmp_path):
    """In whatever order they are added, so also in an index that was made again."""
    for number in (2, 3, 1):
        archive.add(a_run(tmp_path / f"{number}.gz", number, engines=["native"], wire={"title": f"run {number}"}))
    (series,) = archive.series()
    assert (series.title, len(series.members)) == ("run 3", 3)


def test_a_resumed_run_counts_once(archive, tmp_path):
    """Its file grew; the later one counts, in whatever order they are added."""
    later = a_run(tmp_path / "later.gz", 7, times=(100, 100, 100, 100, 100))
    archive.add(later)
    archive.add(a_run(tmp_path / "earlier.gz", 7, times=(50,)))
    assert sorted((run.superseded, run.done) for run in archive.runs()) == [(False, 10), (True, 2)]
    assert [len(one.members) for one in archive.series()] == [1, 1]
    assert archive.find("00007run").done == 10


def in_the_index(statement, path):
    with contextlib.closing(sqlite3.connect(path)) as index:
        index.execute(statement)
        index.commit()


OTHER_INDEXES = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "no index": lambda path: path.write_bytes(b"\xc1" + b"x" * 5000),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "of another version": partial(in_the_index, "PRAGMA user_version = 99"),
    "without rows": partial(in_the_index, "UPDATE run SET run = NULL"),
}


@pytest.mark.parametrize("what", OTHER_INDEXES)
def test_an_index_that_cannot_be_used_is_made_again(archive_folder, command, tmp_path, monkeypatch, what):
    """By the next command, whatever that is, from the files alone. Then it is kept, and no file is read."""
    with Archive.open(archive_folder, create=True) as archive:
        for number in range(4):
            archive.add(a_run(tmp_path / f"{number}.stats.gz", number))
    before, series = answers(archive_folder), acknowledge_the_newest(archive_folder, command)
    OTHER_INDEXES[what](Path(archive_folder) / INDEX)
    code, out, err = command("list")
    assert (code, len(out.splitlines()), err) == (0, 5, "")
    monkeypatch.setattr(archive_module, "contents_of", unread)
    assert answers(archive_folder) == before
    with Archive.open(archive_folder) as archive:
        assert archive.acknowledged(series) == {archive.runs()[0].id}


def acknowledge_the_newest(url, command):
    """Acknowledge that the newest run changes the first series; return its key."""
    with Archive.open(url) as archive:
        key, run = archive.series()[0].key, archive.runs()[0].id
    assert command("acknowledge", key, run)[0] == 0
    return key


def test_the_index_follows_the_files(archive_folder, command, tmp_path):
    """A file that was copied into the folder is in the next answer, and one that was removed is not."""
    with Archive.open(archive_folder, create=True) as archive:
        runs = [archive.add(a_run(tmp_path / f"{number}.stats.gz", number)).run for number in range(2)]
        place = archive.file(runs[0])
    kept = place.read_bytes()
    place.unlink()
    assert [line.split("\t")[0] for line in command("list")[1].splitlines()[1:]] == [runs[1].id]
    place.write_bytes(kept)
    assert len(command("list")[1].splitlines()) == 3


def test_a_file_that_cannot_be_read_is_named(archive_folder, command, tmp_path):
    """A pipe, a device, another content, no stats file: the rest is listed, and the exit code is 3."""
    with Archive.open(archive_folder, create=True) as archive:
        runs = [archive.add(a_run(tmp_path / f"{number}.stats.gz", number)).run for number in range(3)]
        place = archive.file(runs[0])
    kept = place.read_bytes()
    for said, make in (
        ("is a pipe (FIFO), not a regular file", os.mkfifo),
        ("is a device, not a regular file", lambda path: path.symlink_to("/dev/zero")),
        ("its content is not what was added", lambda path: path.write_bytes(kept[:-1] + b"x")),
    ):
        place.unlink()
        make(place)
        for words in (("list",), ("trend",), ("html", tmp_path / "pages")):
            code, _, err = command(*words)
            assert code == 3, words
            assert f"{place}: not in the archive" in err
            assert said in err
        assert runs[0].id not in command("list")[1]
        assert runs[1].id in command("list")[1]
    place.unlink()
    stranger = place.with_name("notes.stats.gz")
    stranger.write_text("hello")
    assert (command("list")[0], str(stranger) in command("list")[2]) == (3, True)
    stranger.unlink()
    assert command("add", tmp_path / "0.stats.gz")[0] == command("list")[0] == 0


def test_what_is_no_file_is_refused_at_once(archive_folder, command, tmp_path):
    """In the place of the index, and of what was acknowledged."""
    with Archive.open(archive_folder, create=True) as archive:
        run = archive.add(a_run(tmp_path / "0.stats.gz", engines=["native"])).run
    key = acknowledge_the_newest(archive_folder, command)
    for name, words in (("acknowledged.jsonl", ("trend",)), (INDEX, ("list",))):
        path = Path(archive_folder) / name
        path.unlink()
        os.mkfifo(path)
        code, _, err = command(*words)
        assert (code, str(path) in err, len(err.splitlines())) == (3, True, 1)
        path.unlink()
    path = Path(archive_folder) / "acknowledged.jsonl"
    path.write_text('{"series": 1}')
    code, _, err = command("acknowledge", key, run.id)
    assert code == 3
    assert "expected a line for each change, with series, run and at" in err


def killed(owner, name, work, *, count=1):
    """Do some work in a copy of this process, which is killed as it calls a function for the nth time."""
    pid = os.fork()
    if pid:
        return os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    real, left = getattr(owner, name), [count]

    def crash(*given, **more):
        left[0] -= 1
        return real(*given, **more) if left[0] else os.kill(os.getpid(), signal.SIGKILL)

    try:
        setattr(owner, name, crash)
        work()
    finally:
        os._exit(1)


INSTANTS = {
    "copied": (os, "fsync", {}),
    "named": (Path, "replace", {"count": 2}),
    "read": (archive_module, "contents_of", {}),
    "last read": (archive_module, "contents_of", {"count": 3}),
    "index": (ArchiveFolder, "write", {}),
}


@pytest.mark.parametrize("instant", INSTANTS)
def test_a_killed_process_leaves_an_archive_that_the_next_one_continues(archive_folder, tmp_path, instant):
    """At any instant of adding: what is there is whole, and adding all again gives all of them once."""
    paths = [a_run(tmp_path / f"{number}.stats.gz", number) for number in range(3)]

    def add():
        with Archive.open(archive_folder, create=True) as opened:
            for path in paths:
                opened.add(path)

    owner, name, how = INSTANTS[instant]
    assert killed(owner, name, add, **how)
    with Archive.open(archive_folder, create=True) as archive:
        assert archive.unreadable == {}
        assert all(run.state == "complete" and len(run.treatments) == 2 for run in archive.runs())
    add()
    with Archive.open(archive_folder) as archive:
        assert [len(archive.find(run.id).treatments) for run in archive.runs()] == [2, 2, 2]


FULL = """
import resource, sys
from bench_master.cli import run_command_line
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
sys.exit(run_command_line(["archive", *sys.argv[2:]]))
"""


def test_a_full_disk_loses_nothing(archive_folder, tmp_path):
    """Wherever it is full, the file or the index: nothing half is left, and with room it goes on."""
    with Archive.open(archive_folder, create=True) as archive:
        archive.add(a_run(tmp_path / "0.stats.gz", 0))
    more = a_run(tmp_path / "1.stats.gz", 1)

    def add(limit):
        return subprocess.run(
            [sys.executable, "-c", FULL, str(limit), "add", str(more), "--archive", archive_folder],
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # what a limit cuts short others would read
            capture_output=True, text=True, timeout=END_S, check=False,
        )  # fmt: skip

    done = add(1000)
    assert (done.returncode, "make room" in done.stderr) == (3, True), done.stderr
    assert len(answers(archive_folder)[0]) == 1
    done = add(more.stat().st_size)
    assert "Traceback" not in done.stderr
    assert len(answers(archive_folder)[0]) == 2, (
        "the file is in the archive, and the next command has it in the index"
    )


def test_several_add_at_the_same_time(archive_folder, tmp_path):
    """Three processes with files in common: each run is there once, whoever was first, and nobody fails."""
    folders = {number: tmp_path / str(number) for number in range(3)}
    for number in range(18):
        for place in {number % 3, number % 2}:
            folders[place].mkdir(exist_ok=True)
            a_run(folders[place] / f"{number}.stats.gz", number)
    command = [sys.executable, "-m", "bench_master", "archive", "add", "--archive", archive_folder]
    adding = [
        subprocess.Popen([*command, *sorted(folder.iterdir())], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
        for folder in folders.values()
    ]
    for process in adding:
        _, err = process.communicate(timeout=END_S)
        assert process.returncode == 0, err
    with Archive.open(archive_folder) as archive:
        assert len({run.run_id for run in archive.runs()}) == len(archive.runs()) == 18
        assert [len(series.members) for series in archive.series()] == [18, 18]


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


def test_the_archive_as_pages(command, tmp_path):
    """An index of trends and runs, and the report of each run: no script of a run, no link that leads away."""
    name = "<script>alert(1)</script>"
    paths = [a_run(tmp_path / f"{number}.stats.gz", number, name=name) for number in range(3)]
    damaged = tmp_path / "3.stats.gz"
    damaged.write_bytes(paths[0].read_bytes()[:30])
    command("add", *paths, damaged)
    code, _, err = command("html", tmp_path / "pages")
    assert code == 0, err
    assert "3 runs" not in err
    page = (tmp_path / "pages" / "index.html").read_text()
    links = set(re.findall(r'href="(run-[^"]+)"', page))
    assert links == {path.name for path in (tmp_path / "pages").iterdir()} - {"index.html"}
    assert len(links) == 3
    assert page.count("<svg ") == 2
    assert "no change of" in page
    assert "damaged" in page
    assert name not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    ids = re.findall(r'id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_an_archive_on_a_read_only_medium_is_read(archive_folder, tmp_path, monkeypatch, capfd):
    """With an index that is there; without one each command makes its own. What cannot be written is refused."""
    with Archive.open(archive_folder, create=True) as made:
        made.add(a_run(tmp_path / "0.stats.gz"))
    before = answers(archive_folder)
    assert answers(archive_folder) == before
    (Path(archive_folder) / INDEX).unlink()
    real = Path.open

    def read_only(path, mode="r", *words, **more):
        if mode == "xb":
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return real(path, mode, *words, **more)

    monkeypatch.setattr(Path, "open", read_only)
    assert answers(archive_folder) == before
    assert "Read-only file system: the index is made for this command alone" in capfd.readouterr().err
    assert not (Path(archive_folder) / INDEX).exists()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InfrastructureError, match="cannot be written to"):
        Archive.open(archive_folder, create=True)


def test_texts_of_runs_steer_nothing(archive, command, tmp_path):
    """Names with NUL, quotes, markup and controls are kept, found and shown as text; a long one has further lines."""
    name = "x'; DROP TABLE run; --\0<script>\x1b[2J\u202e"
    archive.add(a_run(tmp_path / "0.stats.gz", 0, name=name, facts={"kernel": "6\0" + "k" * 3000}))
    code, out, _ = command("list", "--format", "table")
    assert code == 0
    assert not {"\x1b", "\0", "\u202e"} & set(out + command("show", "00000run")[1])
    assert len(command("list", "--format", "tsv")[1].splitlines()) == 2
    assert archive.series()[0].scenario == name
