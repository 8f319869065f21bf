"""The socket where programs of one user meet: a worker connects to no stranger's, and one master at a time has it."""

import os
import socket
from contextlib import closing

import pytest

from bench_common import directories
from bench_common.errors import InfrastructureError
from bench_common.rendezvous import Claim, check_socket, control_socket


@pytest.fixture
def stranger(monkeypatch, tmp_path):
    """Give a function that makes another user of whoever runs the tests."""
    (tmp_path / "run").mkdir()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(directories, "RUNTIME", (tmp_path / "run", tmp_path / "tmp"))
    user = os.geteuid()
    return lambda: monkeypatch.setattr(os, "geteuid", lambda: user + 1)


def test_a_worker_connects_to_no_socket_of_a_stranger(stranger, tmp_path):
    """Neither in a directory of theirs, nor in one that others may enter; a socket to come is waited for."""
    path = control_socket(13577)
    assert path.name == "control-13577"
    assert path.parent.stat().st_mode & 0o7777 == 0o700
    check_socket(path)
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        folder = os.open(path.parent, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)
    check_socket(path)
    path.unlink()
    path.write_text("")
    with pytest.raises(InfrastructureError, match="is no socket"):
        check_socket(path)
    path.unlink()
    path.parent.chmod(0o750)
    with pytest.raises(InfrastructureError, match="has mode 0750: others may enter it"):
        check_socket(path)
    path.parent.chmod(0o700)
    (tmp_path / "link").symlink_to(path.parent)
    with pytest.raises(InfrastructureError, match="is no directory"):
        check_socket(tmp_path / "link" / path.name)
    stranger()
    with pytest.raises(InfrastructureError, match=r"belongs to user \d+, and this program.*over TCP with keys"):
        check_socket(path)


def test_one_master_at_a_time_claims_a_socket(tmp_path):
    """The second is told whose it is, the next gets it; nothing is left behind."""
    path = tmp_path / "control-1"
    first = Claim(path, "waits here").acquire()
    with pytest.raises(InfrastructureError, match=rf"\(process {os.getpid()}\) waits here"):
        Claim(path, "waits here").acquire()
    path.touch()
    first.release()
    first.release()
    assert list(tmp_path.iterdir()) == []
    Claim(path, "waits here").acquire().release()
