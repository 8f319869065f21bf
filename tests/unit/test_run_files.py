"""Where a run is saved when nobody says where: a file of its own, whatever the scenario is called."""

from __future__ import annotations

import pytest

from bench_common.errors import UsageError
from bench_master.commands.run_scenario import MAX_NAME_CHARS, check_writable, default_path
from bench_master.options.run import DEFAULT_DIRECTORY
from bench_master.scenario import load_scenario


def scenario(folder, name):
    path = folder / "s.yaml"
    path.write_text(f"name: {name!r}\nengines: [native]\njob: {{operations: [run], container: {{command: date}}}}\n")
    return load_scenario(str(path))


@pytest.mark.parametrize("name", ["n" * 400, "../../x", "a/b c", "/", "..."])
def test_any_name_gives_a_file_in_the_directory(tmp_path, monkeypatch, name):
    """A scenario's name leads neither out of the directory nor to a name that no file system takes."""
    monkeypatch.chdir(tmp_path)
    path = default_path(scenario(tmp_path, name), noop=True)
    path.parent.mkdir()
    path.touch()
    assert [entry.name for entry in (tmp_path / "weighbridge-results").iterdir()] == [path.name]
    assert len(path.name) <= MAX_NAME_CHARS + len(".noop.20260101T000000.000Z.stats.gz")


def test_a_file_that_is_there_is_not_named(tmp_path, monkeypatch):
    """However fast one run follows another, the second has another file."""
    monkeypatch.chdir(tmp_path)
    one = scenario(tmp_path, "same")
    paths = []
    for _ in range(3):
        path = default_path(one, noop=False)
        path.parent.mkdir(exist_ok=True)
        path.touch(exist_ok=False)
        paths.append(path)
    assert len(set(paths)) == 3


def test_a_directory_that_is_not_there_is_refused_and_not_made(tmp_path, monkeypatch):
    """A misspelt path makes no tree of directories; only the default one is made, in the current directory."""
    monkeypatch.chdir(tmp_path)
    wrong = tmp_path / "nosuch" / "deep" / "x.stats.gz"
    with pytest.raises(UsageError, match=f"there is no directory {wrong.parent}; make it, or name another file"):
        check_writable(wrong)
    assert list(tmp_path.iterdir()) == []
    check_writable(default_path(scenario(tmp_path, "quickstart"), noop=True))
    assert DEFAULT_DIRECTORY.is_dir()
    assert list(DEFAULT_DIRECTORY.iterdir()) == []
