"""How native processes and directories are recognised, and how programs and outputs are found."""

import json

import pytest

from bench_common.errors import EngineUnavailable
from bench_worker.engines.base import RUN_LABEL, WORKER_LABEL
from bench_worker.engines.native import labels as native_labels
from bench_worker.engines.native.labels import labelled_directories, matches, private_root, write_labels
from bench_worker.engines.output import read_head
from bench_worker.timing.processes import find_program

LABELS = {RUN_LABEL: "r1", WORKER_LABEL: "w1"}


@pytest.mark.parametrize(
    ("labels", "run", "worker", "ours"),
    [
        (LABELS, None, None, True),
        (LABELS, "r1", "w1", True),
        (LABELS, "r2", None, False),
        (LABELS, None, "w2", False),
        ({WORKER_LABEL: "w1"}, None, "w1", False),
        ({}, None, None, False),
    ],
)
def test_only_what_carries_the_runs_label_matches(labels, run, worker, ours):
    """Any run is still a run: without its label nothing is ours."""
    assert matches(labels, run, worker) is ours


def test_a_directory_without_a_readable_label_is_nobodys(tmp_path, monkeypatch):
    """Neither an empty directory, nor nonsense, nor a label of another shape is taken for ours."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    home = private_root()
    contents = {"good": json.dumps(LABELS), "list": "[]", "broken": "{", "number": json.dumps({RUN_LABEL: 7})}
    for name, text in contents.items():
        (home / name).mkdir()
        (home / name / native_labels.LABEL_FILE).write_text(text)
    (home / "empty").mkdir()
    (home / "file").touch()
    assert [item.path.name for item in labelled_directories()] == ["good"]


def test_labels_are_read_as_they_were_written(tmp_path, monkeypatch):
    """What `create` writes is what clean-up finds."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    directory = private_root() / "x"
    directory.mkdir()
    write_labels(directory, LABELS)
    (found,) = labelled_directories()
    assert (found.path, dict(found.labels)) == (directory, LABELS)


def test_the_home_is_this_users_alone(tmp_path, monkeypatch):
    """A directory that others may write to is avoided; what is in the other one is found; no place is an error."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    refused = private_root()
    refused.chmod(0o777)
    home = private_root()
    assert home != refused
    assert home.stat().st_mode & 0o777 == 0o711
    (home / "x").mkdir()
    write_labels(home / "x", LABELS)
    assert [item.path for item in labelled_directories()] == [home / "x"]
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    assert labelled_directories() == []
    with pytest.raises(EngineUnavailable, match="or set TMPDIR"):
        private_root()


def test_a_process_that_is_gone_has_no_state():
    """Asking for a number that is nobody's is no error."""
    assert native_labels.state_of(2**22 + 1) == "X"


def test_programs_are_looked_up_as_a_shell_does(tmp_path):
    """The first executable file on PATH; a slash means a path; not executable is told from missing."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    (first / "tool").touch(0o644)
    (first / "only").touch(0o644)
    (second / "tool").touch(0o755)
    (first / "folder").mkdir()
    search = f"{first}:{second}"
    assert find_program("tool", search, "/") == str(second / "tool")
    assert find_program("bin/x", search, "/work") == "/work/bin/x"
    assert find_program("/bin/x", search, "/work") == "/bin/x"
    with pytest.raises(PermissionError):
        find_program("only", search, "/")
    for name in ("none", "folder", ""):
        with pytest.raises(FileNotFoundError):
            find_program(name, search, "/")


def test_the_beginning_of_a_file_is_read_and_the_rest_is_said(tmp_path):
    """Up to the limit, and nothing where there is no file."""
    path = tmp_path / "out"
    assert read_head(path, 3) == (b"", False)
    path.write_bytes(b"abcd")
    assert read_head(path, 3) == (b"abc", True)
    assert read_head(path, 4) == (b"abcd", False)
