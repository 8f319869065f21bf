"""The HTTP client of stores over TLS: versions, certificates, stamps, and what ends a connection."""

import contextlib
import shutil
import subprocess
import sys

import gevent
import pytest
from attention import undisturbed
from busybox_image import skip_or_fail
from deadlines import ANSWER_S, END_S, wait_until
from stub_stores import start_stub
from test_wire import HALF, ask, assert_stamps_hold, connect, failure, hold_loop, waiting_bytes

from bench_common.errors import UsageError

__all__ = ["connect"]

# Passes bytes on to a port, decrypted, and back: a process of its own, so that it goes on while our loop is busy.
PROXY = """
import select, socket, ssl, sys, threading
certificate, key, version, target = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)

def serve(plain):
    with plain, socket.create_connection(("127.0.0.1", int(target))) as inner:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with context.wrap_socket(plain, server_side=True) as outer:
            while True:
                ready = [outer] if outer.pending() else select.select([outer, inner], [], [])[0]
                if outer in ready:
                    data = outer.recv(65536)
                    if not data:
                        return
                    inner.sendall(data)
                if inner in ready:
                    data = inner.recv(65536)
                    if not data:
                        outer.setblocking(False)
                        outer.unwrap()  # fails, since the client does not answer at once
                    outer.sendall(data)

def guarded(plain):
    try:
        serve(plain)
    except OSError:
        pass

def accept():
    while True:
        threading.Thread(target=guarded, args=(listener.accept()[0],), daemon=True).start()

threading.Thread(target=accept, daemon=True).start()
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Return the files of a certificate for 127.0.0.1 and localhost, and of its key."""
    openssl = shutil.which("openssl") or skip_or_fail("it makes the certificate of the test: apt-get install openssl")
    folder = tmp_path_factory.mktemp("tls")
    words = [
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=stub",
    ]
    names = ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    files = ["-out", str(folder / "cert.pem"), "-keyout", str(folder / "key.pem")]
    subprocess.run([openssl, *words, *names, *files], check=True, capture_output=True, timeout=END_S)
    return str(folder / "cert.pem"), str(folder / "key.pem")


@pytest.fixture(scope="module")
def stub():
    with start_stub() as running:
        yield running


@contextlib.contextmanager
def encrypted(certificate, stub, version="TLSv1_3"):
    """Serve the stub over TLS."""
    words = [sys.executable, "-c", PROXY, *certificate, version, str(stub.port)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield int(process.stdout.readline())
        process.stdin.close()
        process.wait(ANSWER_S)


@pytest.fixture(scope="module")
def port(certificate, stub):
    with encrypted(certificate, stub) as number:
        yield number


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_objects_of_any_size_over_tls(certificate, stub, connect, version):
    """The same bytes as without, a large upload as the first request too; the certificate is verified."""
    with encrypted(certificate, stub, version) as port:
        ca_file = certificate[0]
        first = ask(
            connect(f"https://127.0.0.1:{port}", ca_file=ca_file), "/fixed/1", "PUT", body=[bytes(5 << 20)] * 3
        )
        assert first.status == 201
        connection = connect(f"https://localhost:{port}", ca_file=ca_file)
        for size in (0, 1, 4096, 40_000, 5_000_000):
            got = []
            answer = ask(connection, f"/fixed/{size}", sink=lambda piece: got.append(bytes(piece)))  # noqa: B023
            plain = []
            ask(connect(stub.url), f"/fixed/{size}", sink=lambda piece: plain.append(bytes(piece)))  # noqa: B023
            assert (answer.received, b"".join(got)) == (size, b"".join(plain))
            assert answer.start_ns <= answer.first_ns <= answer.last_ns
            assert ask(connection, "/fixed/1", "PUT", body=[bytes(size)]).status == 201
        assert ask(connection, "/fixed/1", "HEAD").connect_ns == 0, "one connection for all of them"


def test_an_unknown_certificate_is_refused(certificate, port, connect, tmp_path):
    """Unless that was asked for; so is one for another name. A bad CA file is an error of the command."""
    error = failure(connect(f"https://127.0.0.1:{port}"), "/fixed/1")
    assert error.kind == "tls"
    assert "self-signed certificate" in error.message
    error = failure(connect(f"https://127.0.0.2:{port}", ca_file=certificate[0]), "/fixed/1")
    assert error.kind in {"tls", "refused"}
    assert ask(connect(f"https://127.0.0.1:{port}", verify=False), "/fixed/1").received == 1
    (tmp_path / "no.pem").write_text("no certificate")
    with pytest.raises(UsageError, match=r"no\.pem"):
        connect("https://127.0.0.1", ca_file=str(tmp_path / "no.pem"))


def test_stamps_over_tls_are_the_kernels(certificate, port, connect):
    """While the loop is busy an answer comes in two parts; both are stamped when they came."""

    def answers_while_busy():
        connection = connect(f"https://127.0.0.1:{port}", ca_file=certificate[0])
        for turn in range(2):  # the first time the server's session tickets come before the answer
            running = gevent.spawn(ask, connection, "/fixed/4096?first_us=100000&last_us=20000", seconds=ANSWER_S)
            gevent.sleep(0)
            if not turn:  # once both sides have greeted each other the request is sent at once
                wait_until(lambda: connection._connect_ns, ANSWER_S, "the connection", sleep=gevent.sleep)
            assert waiting_bytes(connection) < HALF
            seen = hold_loop(connection)
            assert_stamps_hold(running.get(timeout=ANSWER_S), seen)

    undisturbed(answers_while_busy)
