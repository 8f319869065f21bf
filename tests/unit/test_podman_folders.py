"""Folders of Podman's private services: those in use stay, whoever looks; and when none may start."""

import os
import time

import pytest

from bench_worker.engines.docker import podman


@pytest.fixture(autouse=True)
def sockets(tmp_path, monkeypatch):
    monkeypatch.setattr(podman, "runtime_directory", lambda _name: tmp_path)
    monkeypatch.setattr(podman, "runtime_directories", lambda _name: [(tmp_path, os.geteuid())])
    return tmp_path


def test_a_folder_in_use_stays_although_its_process_cannot_be_seen(sockets):
    """Its process may be in another PID namespace with the same /run."""
    folder, lock = podman._make_folder(podman._PREFIX)
    elsewhere = folder.rename(sockets / f"{podman._PREFIX}4194305-x")
    other, other_lock = podman._make_folder(podman._PREFIX)
    assert elsewhere.exists()
    os.close(lock)
    podman._make_folder(podman._PREFIX)
    assert not elsewhere.exists(), "its process has ended"
    assert other.exists()
    os.close(other_lock)


def test_a_folder_without_a_lock_goes_when_it_is_old(sockets):
    """One that is being made has none yet."""
    old, new = sockets / f"{podman._PREFIX}1-old", sockets / f"{podman._PREFIX}1-new"
    old.mkdir()
    new.mkdir()
    past = time.time() - 2 * podman._NEW_S
    os.utime(old, (past, past))
    podman._make_folder(podman._PREFIX)
    assert not old.exists()
    assert new.exists()


def test_a_process_of_our_number_in_another_pid_namespace_is_another(sockets, monkeypatch):
    """Its service is not ours: it ends with its own run, in the middle of our jobs."""
    monkeypatch.delenv("CONTAINER_HOST", raising=False)
    monkeypatch.setattr(podman, "is_listening", lambda address: str(sockets) in address)
    made, lock = podman._make_folder(podman._PREFIX)
    (made / "podman.sock").touch()
    assert podman.running_address() == f"unix://{made}/podman.sock"
    number, _, namespace = podman._process_mark(os.getpid()).partition(".")
    theirs = made.rename(made.with_name(made.name.replace(f".{namespace}-", ".7-")))
    assert number in theirs.name
    assert podman.running_address() is None
    os.close(lock)


@pytest.mark.parametrize(
    ("own_alive", "host_alive", "same_store", "forgets"),
    [
        (True, True, True, False),
        (False, True, True, True),
        (False, True, False, False),
        (False, False, True, False),
        (True, False, True, False),
    ],
    ids=["the host's /run", "a /run of its own", "with a store of its own", "after a boot", "the host never had one"],
)
def test_no_podman_starts_where_it_would_forget_the_hosts_containers(
    tmp_path, own_alive, host_alive, same_store, forgets
):
    """Only where the host's file is hidden, and the store is the host's."""
    own, host = tmp_path / "own", tmp_path / "host"
    for root, alive in ((own, own_alive), (host, host_alive)):
        (root / "run" / "libpod").mkdir(parents=True)
        if alive:
            (root / "run" / "libpod" / "alive").touch()
    store = host / "var" / "lib" / "containers" / "storage"
    store.mkdir(parents=True)
    (own / "var" / "lib" / "containers").mkdir(parents=True)
    if same_store:
        (own / "var" / "lib" / "containers" / "storage").symlink_to(store)
    else:
        (own / "var" / "lib" / "containers" / "storage").mkdir()
    assert podman.forgets_containers(own, [tmp_path / "nowhere", host]) is forgets
    assert not podman.forgets_containers(own, [])
