"""What runs record on this host: that they are alive (leases), and which engines they use."""

import fcntl
import json
import os

import pytest

from bench_common import directories
from bench_common.errors import InfrastructureError
from bench_worker.leases import RunLease, delete_records, live_runs, record_engine_use, recorded_uses

ME = os.geteuid()
# In continuous integration it runs as whoever it is, and fails: a test that silently did not run proves nothing.
needs_root = pytest.mark.skipif(
    ME != 0 and os.environ.get("CI") != "true", reason="only root can make what belongs to another user"
)


@pytest.fixture(autouse=True)
def shared(tmp_path, monkeypatch):
    """A directory like /tmp and /var/tmp, in which everybody's leases and records are; root has no other."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setattr(directories, "RUNTIME", (tmp_path / "none" / "run", shared))
    monkeypatch.setattr(directories, "STATE", (tmp_path / "none" / "lib", shared))
    return shared


def files(tmp_path):
    return sorted(path.name for path in tmp_path.rglob("*") if not path.is_dir())


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


def test_nonsense_in_the_directory_is_nobodys_run(shared):
    """Files that are no leases, and leases that hold nonsense, are passed over."""
    with RunLease("r1"):
        (folder,) = shared.iterdir()
        (folder / "a.lease").write_text("not json")
        (folder / "b.lease").mkdir()
        (folder / "c.lease").symlink_to("/etc/passwd")
        (folder / "d.other").write_text("{}")
        os.mkfifo(folder / "e.lease")
        assert live_runs() == {"r1"}


def lease_of(shared, owner, run_id, *, folder_owner=None):
    """Make a lease as another user has it, and hold it; return the file."""
    home = shared / f"weighbridge-{owner}"
    home.mkdir(mode=0o755)
    os.chown(home, folder_owner or owner, -1)
    file = (home / "x.lease").open("w+")
    os.fchown(file.fileno(), owner, -1)
    file.write(json.dumps({"run": run_id}))
    file.flush()
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


@needs_root
def test_users_see_each_others_leases_and_cannot_touch_them(shared):
    """A clean-up must know the others' runs; a directory that its user does not own holds nobody's leases."""
    with RunLease("r1"), lease_of(shared, 1234, "r2"), lease_of(shared, 1235, "r3", folder_owner=1236):
        assert live_runs() == {"r1", "r2"}
        (mine,) = shared.glob("weighbridge-0/*")
        assert [path.lstat().st_mode & 0o777 for path in (mine, mine.parent)] == [0o644, 0o755]


@needs_root
def test_a_lease_below_a_link_that_a_stranger_made_is_nobodys(shared, tmp_path):
    """What is deleted as stale is in the stranger's own directory, never where a link leads."""
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "a.lease").touch()
    (shared / "weighbridge-1235").symlink_to(victim)
    home = shared / "weighbridge-1234"
    home.mkdir()
    os.chown(home, 1234, 1234)
    (home / "a.lease").symlink_to(victim / "a.lease")
    (home / "used-engines").symlink_to(victim)
    (victim / "r1:docker").touch()
    assert live_runs() == frozenset()
    assert recorded() == []
    assert sorted(path.name for path in victim.iterdir()) == ["a.lease", "r1:docker"]


@pytest.mark.parametrize("kind", ["lease", "record"])
def test_a_link_that_waits_at_the_usual_name_changes_nothing_where_it_leads(shared, tmp_path, kind, caplog):
    """A stranger's link in /tmp never gives others access to the directory of its victim; it is named and avoided."""
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (shared / f"weighbridge-{ME}").symlink_to(victim)
    directories._warned.clear()
    if kind == "lease":
        with RunLease("r1"):
            assert live_runs() == {"r1"}
    else:
        record_engine_use("r1", "docker")
        assert recorded() == [("r1", "docker")]
    assert (victim.stat().st_mode & 0o7777, [*victim.iterdir()]) == (0o700, [])
    assert f"weighbridge-{ME} is a symbolic link" in caplog.text


def test_no_place_for_leases_is_an_error_that_says_where(shared):
    """A worker that cannot show that it lives must not start."""
    shared.rmdir()
    for needs_place in (lambda: RunLease("r1").acquire(), lambda: record_engine_use("r1", "docker")):
        with pytest.raises(InfrastructureError, match=f"{shared}/weighbridge-{ME}: No such file"):
            needs_place()
    assert recorded() == []


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


@needs_root
def test_whose_records_count(shared, monkeypatch):
    """A user's clean-up believes its own and root's, which it cannot delete; root's believes and deletes all."""
    record_engine_use("r1", "docker")
    (home := shared / "weighbridge-1234" / "used-engines").mkdir(parents=True)
    (home / "r2:podman:").touch()
    for path in (home.parent, home, home / "r2:podman:"):
        os.chown(path, 1234, 1234)
    assert recorded() == [("r1", "docker"), ("r2", "podman")]
    for user, seen in ((1234, [("r1", "docker"), ("r2", "podman")]), (1235, [("r1", "docker")])):
        with monkeypatch.context() as as_user:
            as_user.setattr(os, "geteuid", lambda user=user: user)
            assert recorded() == seen
    delete_records(recorded_uses())
    assert recorded() == []


def test_a_user_leaves_no_more_than_can_be_read(shared, monkeypatch):
    """Somebody who makes a million files does not keep others waiting."""
    monkeypatch.setattr("bench_worker.leases.MAX_FILES", 3)
    for number in range(5):
        record_engine_use(f"r{number}", "docker")
    assert len(recorded()) == 3
