"""Folders for the sockets of Podman's private services: those in use stay, whoever looks."""

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
    folder, lock = podman._make_folder()
    elsewhere = folder.rename(sockets / f"{podman._PREFIX}4194305-x")
    other, other_lock = podman._make_folder()
    assert elsewhere.exists()
    os.close(lock)
    podman._make_folder()
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
    podman._make_folder()
    assert not old.exists()
    assert new.exists()
