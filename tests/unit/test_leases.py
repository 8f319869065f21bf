"""What runs record on this host: that they are alive (leases), and which engines they use."""

import os

import pytest

from bench_common.errors import InfrastructureError
from bench_worker import leases
from bench_worker.leases import RunLease, delete_records, live_runs, record_engine_use, recorded_uses


@pytest.fixture(autouse=True)
def _directories(tmp_path, monkeypatch):
    monkeypatch.setattr(leases, "ROOT_LEASES_DIRECTORY", tmp_path / "root")
    monkeypatch.setattr(leases, "SHARED_LEASES_DIRECTORY", tmp_path / "shared")
    monkeypatch.setattr(leases, "ROOT_USES_DIRECTORY", tmp_path / "root-uses")
    monkeypatch.setattr(leases, "SHARED_USES_DIRECTORY", tmp_path / "shared-uses")


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
    monkeypatch.setattr(leases, "SHARED_LEASES_DIRECTORY", tmp_path / "missing" / "deep")
    with pytest.raises(InfrastructureError, match="missing/deep"):
        RunLease("r1").acquire()


def recorded(run_id=None):
    return [(use.run_id, use.engine) for use in recorded_uses(run_id)]


def test_each_run_and_engine_is_recorded_once():
    """Every worker of a run records it."""
    for engine in ("docker", "podman", "docker"):
        record_engine_use("r1", engine)
    record_engine_use("r2", "docker")
    assert recorded() == [("r1", "docker"), ("r1", "podman"), ("r2", "docker")]
    assert recorded("r2") == [("r2", "docker")]


def test_names_survive_being_file_names():
    """Whatever a third party calls its engine, the record stays a file of its directory."""
    record_engine_use("kept-1", "../their:engine")
    assert recorded() == [("kept-1", "../their:engine")]


def test_a_record_can_be_deleted_more_than_once():
    """Two workers may clean up at the same time."""
    record_engine_use("r1", "docker")
    found = recorded_uses()
    delete_records(found)
    delete_records(found)
    assert recorded() == []


@pytest.mark.parametrize("root", [True, False])
def test_the_shared_directory_serves_where_the_first_is_not_writable(tmp_path, monkeypatch, root):
    """A system may be read-only; where no directory takes a record, the run does not use the engine."""
    monkeypatch.setattr(leases.os, "geteuid", lambda: 0 if root else 1000)
    (tmp_path / "root-uses").write_text("not a directory")
    record_engine_use("r1", "docker")
    assert [use.path.parent.name for use in recorded_uses()] == ["shared-uses"]
    delete_records(recorded_uses())
    (tmp_path / "shared-uses").rmdir()
    (tmp_path / "shared-uses").write_text("not a directory")
    with pytest.raises(InfrastructureError, match="cannot record"):
        record_engine_use("r1", "docker")
    assert recorded() == []
