"""Leases: which runs are alive on this host."""

import os

import pytest

from bench_common.errors import InfrastructureError
from bench_worker import leases
from bench_worker.leases import RunLease, live_runs


@pytest.fixture(autouse=True)
def _directories(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "ROOTS_DIRECTORY", tmp_path / "root")
    monkeypatch.setattr(leases, "SHARED_DIRECTORY", tmp_path / "shared")


def files(tmp_path):
    return sorted(path.name for path in tmp_path.glob("*/*"))


def test_a_run_is_alive_while_its_lease_is_held(tmp_path):
    """From the acquisition to the release, and no file stays."""
    assert live_runs() == frozenset()
    with RunLease("r1"), RunLease("r2"):
        assert live_runs() == {"r1", "r2"}
    assert live_runs() == frozenset()
    assert files(tmp_path) == []


def test_a_run_lives_until_its_last_worker_lets_go():
    """Each worker has a lease of its own: the first to end does not end the run."""
    first, second = RunLease("r1"), RunLease("r1")
    first.acquire()
    second.acquire()
    first.release()
    assert live_runs() == {"r1"}
    second.release()
    assert live_runs() == frozenset()


def test_a_lease_whose_holder_died_is_cleared_away(tmp_path):
    """The kernel drops the lock of a dead process: its file says nothing any more, and goes."""
    held = RunLease("r1")
    held.acquire()
    os.close(held._fd)  # what the kernel does at the end of a process
    assert len(files(tmp_path)) == 1
    assert live_runs() == frozenset()
    assert files(tmp_path) == []


def test_acquire_and_release_may_be_repeated():
    """The owner need not remember what it did."""
    held = RunLease("r1")
    held.release()
    held.acquire()
    held.acquire()
    assert live_runs() == {"r1"}
    held.release()
    held.release()
    assert live_runs() == frozenset()


def test_any_run_id_is_kept_as_it_is():
    """The id is in the file and not in its name, so no character of it can lead elsewhere."""
    with RunLease("../../x/ü y"):
        assert live_runs() == {"../../x/ü y"}


def test_nonsense_in_the_directory_is_nobodys_run(tmp_path):
    """Files that are no leases, and leases that hold nonsense, are passed over."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "a.lease").write_text("not json")
    (tmp_path / "shared" / "b.lease").mkdir()
    (tmp_path / "shared" / "c.lease").symlink_to("/etc/passwd")
    (tmp_path / "shared" / "d.other").write_text("{}")
    assert live_runs() == frozenset()


def test_other_users_share_a_sticky_directory(tmp_path, monkeypatch):
    """Who is not root has his leases where everybody can read them and nobody else can delete them."""
    monkeypatch.setattr(leases.os, "geteuid", lambda: 12345)
    with RunLease("r1"):
        assert live_runs() == {"r1"}
        (file,) = (tmp_path / "shared").iterdir()
        assert file.stat().st_mode & 0o777 == 0o644


def test_no_place_for_leases_is_an_error_that_says_where(tmp_path, monkeypatch):
    """A worker that cannot show that it lives must not start."""
    monkeypatch.setattr(leases.os, "geteuid", lambda: 12345)
    monkeypatch.setattr(leases, "SHARED_DIRECTORY", tmp_path / "missing" / "deep")
    with pytest.raises(InfrastructureError, match="missing/deep"):
        RunLease("r1").acquire()
