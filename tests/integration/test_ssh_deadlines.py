"""An SSH server that is slow, full or none: each is told of by what it did not do, and within which time."""

import contextlib
import socket
import subprocess
import threading

import paramiko
import pytest

from bench_master.fleet import ssh
from bench_master.fleet.hosts import Login
from bench_master.fleet.known_hosts import KnownHosts
from bench_master.fleet.ssh import Connections, HostError

pytestmark = pytest.mark.alone

LIMIT_S = 1.0
VERSION = b"SSH-2.0-slow\r\n"


class Doorman(paramiko.ServerInterface):
    """Lets nobody in: refuses at once, or does not answer until `over`."""

    def __init__(self, over=None):
        self.over = over

    def get_allowed_auths(self, _user):
        return "publickey"

    def check_auth_publickey(self, _user, _key):
        if self.over is not None:
            self.over.wait(30)
        return paramiko.AUTH_FAILED


@pytest.fixture
def login(monkeypatch, tmp_path):
    """Give a login at a server that does with each connection what it is told."""
    monkeypatch.setattr(ssh, "CONNECT_TIMEOUT_S", LIMIT_S)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "id"], check=True, timeout=30)
    listener = socket.create_server(("127.0.0.1", 0))
    taken = []

    def served_by(serve):
        def answer():
            with contextlib.suppress(OSError):
                while True:
                    taken.append(listener.accept()[0])
                    threading.Thread(target=serve, args=(taken[-1],), daemon=True).start()

        threading.Thread(target=answer, daemon=True).start()
        return Login("127.0.0.1", listener.getsockname()[1], "root", (tmp_path / "id",))

    yield served_by
    listener.close()
    for line in taken:
        line.close()


def refusal(login, tmp_path):
    """Return what is told of a host that cannot be logged in to."""
    with pytest.raises(HostError) as caught:
        Connections(KnownHosts(tmp_path / "known_hosts", accept_new=True)).open(login)
    return str(caught.value).replace(f"127.0.0.1:{login.port}", "HOST")


def test_a_server_that_sends_nothing(login, tmp_path):
    """It accepts the connection and sends nothing. Its banner and its keys are due at the same time."""
    result = refusal(login(lambda _line: None), tmp_path)
    missing = ("sent no SSH banner", "completed no key exchange")
    assert result.startswith(
        tuple(f"HOST accepted the connection but {what} within 1 s: it may be" for what in missing)
    )


def test_a_server_that_sends_only_its_version(login, tmp_path):
    """What the library calls no existing session is a deadline that passed."""
    result = refusal(login(lambda line: line.sendall(VERSION)), tmp_path)
    assert result.startswith("HOST accepted the connection but completed no key exchange within 1 s: it may be overl")


def test_a_server_that_hangs_up(login, tmp_path):
    """Like a server with too many logins in progress; the error does not call it slow."""

    def serve(line):
        line.sendall(VERSION)
        line.recv(10)
        line.shutdown(socket.SHUT_RDWR)

    assert refusal(login(serve), tmp_path).startswith(
        "HOST closed the connection before the key exchange was complete: "
    )


@pytest.mark.parametrize("silent", [False, True])
def test_a_server_that_refuses_and_one_that_never_answers(login, tmp_path, silent):
    """The error of a refused login says what to try; a login without an answer is another error."""
    over = threading.Event()

    def serve(line):
        transport = paramiko.Transport(line)
        transport.add_server_key(paramiko.RSAKey.generate(1024))
        with contextlib.suppress(paramiko.SSHException, EOFError):
            transport.start_server(server=Doorman(over if silent else None))
        over.wait(30)
        transport.close()

    try:
        result = refusal(login(serve), tmp_path)
    finally:
        over.set()
    if silent:
        assert result.startswith(
            "HOST neither accepted nor refused the login of root within 1 s: it may be overloaded"
        )
    else:
        assert result.startswith("HOST refused the login of root with the key ")


def test_a_refusal_is_reported_for_every_kind_of_key(login, tmp_path):
    """A key file is tried as one of every kind: that it is none of the others is not what is wrong."""

    def serve(line):
        transport = paramiko.Transport(line)
        transport.add_server_key(paramiko.RSAKey.generate(1024))
        with contextlib.suppress(paramiko.SSHException, EOFError):
            transport.start_server(server=Doorman())

    at = login(serve)
    (tmp_path / "id").unlink()
    paramiko.RSAKey.generate(1024).write_private_key_file(str(tmp_path / "id"))
    assert refusal(at, tmp_path).startswith("HOST refused the login of root with the key ")
