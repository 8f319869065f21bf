"""A native job's directory: deleted at once where it is small, by a thread where it is not, and always as a whole."""

import shutil
from pathlib import Path

import gevent
import pytest

from bench_worker.engines import results


class Pool:
    """Stands for the hub's threads; `asked` tells whether there was need of one."""

    def __init__(self):
        self.threadpool = self
        self.asked = 0

    def apply(self, work, arguments):
        self.asked += 1
        return work(*arguments)


@pytest.fixture
def pool(monkeypatch):
    made = Pool()
    monkeypatch.setattr(gevent, "get_hub", lambda: made)
    return made


@pytest.fixture
def directory(tmp_path):
    """Return a directory as a job leaves it that wrote nothing of its own."""
    made = tmp_path / "job"
    (made / "work").mkdir(parents=True)
    for name in ("labels", "stdout", "stderr"):
        (made / name).write_text("a few words")
    return made


def test_a_few_small_files_are_deleted_without_a_thread(pool, directory, tmp_path):
    """As most jobs leave it; what a link points to stays."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("")
    (directory / "link").symlink_to(kept)
    results.delete_directory(directory)
    assert not directory.exists()
    assert (kept / "file").exists()
    assert pool.asked == 0


@pytest.mark.parametrize("left", ["work/file", "work/sub/file", "large", "many"])
def test_more_is_a_thread_s_work(pool, directory, left):
    """Files of the job's own, one that is large, or many of them: all goes, and the loop turns meanwhile."""
    names = [f"many-{number}" for number in range(20)] if left == "many" else [left]
    for name in names:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(bytes(100_000 if left == "large" else 1))
    results.delete_directory(directory)
    assert not directory.exists()
    assert pool.asked == 1


def test_a_directory_that_is_gone_is_no_error(pool, tmp_path):
    """Somebody else may have tidied up."""
    results.delete_directory(tmp_path / "none")
    assert pool.asked == 0


@pytest.mark.parametrize("large", [False, True])
def test_the_labels_go_last(pool, directory, monkeypatch, large):
    """A worker that is killed meanwhile leaves a directory that a clean-up recognises."""
    (directory / "work" / "file").write_bytes(b"1")
    if large:
        (directory / "large").write_bytes(bytes(100_000))
    unlinked = []
    unlink, rmtree = Path.unlink, shutil.rmtree
    monkeypatch.setattr(Path, "unlink", lambda path: unlinked.append(path.name) or unlink(path))
    monkeypatch.setattr(
        shutil, "rmtree", lambda path: unlinked.append([one.name for one in path.iterdir()]) or rmtree(path)
    )
    results.delete_directory(directory, last="labels")
    assert unlinked[-1] == ["labels"]
    assert not directory.exists()
