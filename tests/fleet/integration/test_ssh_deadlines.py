"""An SSH server that is slow, full or none: each is told of by what it did not do, and within which time."""

import contextlib
import socket
import subprocess
import threading

import paramiko
import pytest
from attention import undisturbed
from deadlines import ANSWER_S, END_S

from bench_features.fleet import ssh
from bench_features.fleet.hosts import Login
from bench_features.fleet.known_hosts import KnownHosts
from bench_features.fleet.ssh import Connections, HostError

LIMIT_S = 1.0
"""The deadline of a server that does not answer, and of one that does, however slow its machine is."""
VERSION = b"SSH-2.0-slow\r\n"


class Doorman(paramiko.ServerInterface):
    """Lets nobody in: refuses at once, or does not answer until `over`."""

    def __init__(self, over=None):
        self.over = over

    def get_allowed_auths(self, _user):
        return "publickey"

    def check_auth_publickey(self, _user, _key):
        if self.over is not None:
            self.over.wait(ANSWER_S)
        return paramiko.AUTH_FAILED


@pytest.fixture
def login(tmp_path):
    """Give a login at a server that does with each connection what it is told."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "id"], check=True, timeout=END_S)
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


@pytest.fixture
def refusal(tmp_path, monkeypatch):
    """Tell what is said of a host that cannot be logged in to, within so many seconds for each step."""

    def told(login, limit_s=ANSWER_S):
        monkeypatch.setattr(ssh, "CONNECT_TIMEOUT_S", limit_s)
        with pytest.raises(HostError) as caught:
            Connections(KnownHosts(tmp_path / "known_hosts", accept_new=True)).open(login)
        return str(caught.value).replace(f"127.0.0.1:{login.port}", "HOST")

    return told


def assert_silence_is_told(refusal, at, *beginnings):
    """The server takes every step but one, and the machine has to leave it the time for them."""

    def check():
        assert refusal(at, LIMIT_S).startswith(
            tuple(f"HOST {beginning} within 1 s: it may be" for beginning in beginnings)
        )

    undisturbed(check, limit_s=LIMIT_S / 10)


def test_a_server_that_sends_nothing(login, refusal):
    """It accepts the connection and sends nothing. Its banner and its keys are due at the same time."""
    missing = ("sent no SSH banner", "completed no key exchange")
    assert_silence_is_told(
        refusal, login(lambda _line: None), *(f"accepted the connection but {what}" for what in missing)
    )


def test_a_server_that_sends_only_its_version(login, refusal):
    """What the library calls no existing session is a deadline that passed."""
    at = login(lambda line: line.sendall(VERSION))
    assert_silence_is_told(refusal, at, "accepted the connection but completed no key exchange")


@pytest.mark.parametrize("unread", [False, True])
def test_a_server_that_hangs_up(login, refusal, unread):
    """Like a server with too many logins in progress; the error does not call it slow, nor tell a number.

    With something of ours unread the kernel resets the connection, and does not only end it.
    """

    def serve(line):
        line.sendall(VERSION)
        line.recv(10)
        if unread:
            line.recv(1, socket.MSG_PEEK)
            line.close()
        else:
            line.shutdown(socket.SHUT_RDWR)

    told = refusal(login(serve))
    assert told.startswith("HOST closed the connection before the ")
    assert "Errno" not in told


@pytest.fixture
def served(login):
    """Give a login at a server that goes as far as the question whom it lets in, which a doorman answers."""
    over = threading.Event()
    key = paramiko.RSAKey.generate(1024)

    def by(doorman):
        def serve(line):
            transport = paramiko.Transport(line)
            transport.add_server_key(key)
            with contextlib.suppress(paramiko.SSHException, EOFError):
                transport.start_server(server=doorman(over))
            over.wait(ANSWER_S)
            transport.close()

        return login(serve)

    yield by
    over.set()


def test_a_login_that_is_refused(served, refusal):
    """The error says what to try."""
    assert refusal(served(lambda _over: Doorman())).startswith("HOST refused the login of root with the key ")


def test_a_login_without_an_answer(served, refusal):
    """It is another error than a refusal."""
    assert_silence_is_told(refusal, served(Doorman), "neither accepted nor refused the login of root")


def test_a_refusal_is_reported_for_every_kind_of_key(served, refusal, tmp_path):
    """A key file is tried as one of every kind: that it is none of the others is not what is wrong."""
    at = served(lambda _over: Doorman())
    (tmp_path / "id").unlink()
    paramiko.RSAKey.generate(1024).write_private_key_file(str(tmp_path / "id"))
    assert refusal(at).startswith("HOST refused the login of root with the key ")
