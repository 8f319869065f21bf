"""The process of the live page, with a test in the place of its master: who gets in, what strangers cost, its end."""

import os
import socket
import subprocess
import sys
import time

import pytest
from deadlines import START_S, wait_until
from live_reader import Reader

from bench_features.live.messages import (
    MAX_MESSAGE,
    NICENESS,
    Ask,
    Ended,
    Plan,
    State,
    StopRun,
    ViewerCount,
    Welcome,
    encode,
    to_master,
)
from bench_features.live.snapshot import plan_message, snapshot_message
from bench_master.progress.view import Snapshot
from bench_master.web.http_server import MAX_CONNECTIONS, MAX_REQUEST_BYTES

TOKEN = "T" * 22
IMPATIENT = """
from bench_features.live import live_process
from bench_master.web import http_server
http_server.REQUEST_TIMEOUT_S, http_server.SEND_TIMEOUT_S = 3.0, 4.0
live_process.main()
"""


class Master:
    """The master's end; its page is of little patience, which spares these tests the time."""

    def __init__(self, *, control=True):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            numbers = (listener.fileno(), theirs.fileno())
            command = [sys.executable, "-c", IMPATIENT, *map(str, numbers)]
            self.process = subprocess.Popen(command, pass_fds=numbers, stderr=subprocess.PIPE)
            theirs.close()
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}/#t={TOKEN}"
        self.socket.settimeout(START_S)
        self.socket.send(
            encode(Welcome(TOKEN, "weighbridge-1", "127.0.0.1", control, "0", "--ink:#000;", "--ink:#fff;"))
        )

    def next(self, kind):
        """Return the next message of a kind."""
        while True:
            message = to_master(self.socket.recv(MAX_MESSAGE))
            if isinstance(message, kind):
                return message

    def has_asked(self, seconds):
        """Return whether anything comes within so many seconds."""
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(MAX_MESSAGE)
        except TimeoutError:
            return False
        finally:
            self.socket.settimeout(START_S)
        return True

    def send_state(self, elapsed_s, done):
        snapshot = Snapshot("s", elapsed_s=elapsed_s, planned=10, done=done)
        self.socket.send(encode(State(snapshot_message(snapshot, [[0, [[0.5, 1]]]]))))

    def close(self):
        self.socket.close()
        assert self.process.wait(START_S) == 0
        assert self.process.stderr.read() == b""
        self.process.stderr.close()


@pytest.fixture
def master():
    made = Master()
    yield made
    made.close()


@pytest.fixture
def reader(master):
    made = Reader(master.url)
    yield made
    made.close()


def test_strangers_get_a_page_without_data_and_nothing_else(master, reader):
    for path in ("/", "/live.js", "/chart.js", "/live.css"):
        status, headers, text = reader.ask("GET", path)
        assert (status, headers["Cache-Control"]) == (200, "no-store")
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
        assert not {"LIGHT", "DARK"} & set(text.replace("{", " ").replace(";", " ").replace("}", " ").split())
    for path in ("/events", "/status", "/nothing", "/../live_app.py", "/live.html"):
        assert reader.ask("GET", path)[0] == 401
    assert reader.ask("POST", "/stop", {}, Origin=reader.own["Origin"])[0] == 401
    assert reader.ask("GET", "/", Host="evil.example")[0] == 421
    assert reader.log_in("U" * 22) == 403
    assert reader.log_in(Origin="http://evil.example") == 403
    assert reader.log_in(**{"Sec-Fetch-Site": "cross-site"}) == 403
    assert not master.has_asked(0.2)
    assert reader.log_in() == 204
    assert reader.ask("GET", "/nothing")[0] == 404
    assert reader.ask("GET", "/stop")[0] == 404  # no GET changes anything
    assert reader.ask("HEAD", "/")[2] == ""
    assert not master.has_asked(1.2)  # a session alone is nobody who looks
    assert os.getpriority(os.PRIO_PROCESS, master.process.pid) == NICENESS


def test_the_master_is_asked_once_a_second_and_only_while_somebody_looks(master, reader):
    assert reader.log_in() == 204
    began = time.monotonic()
    status, events = reader.look()
    assert status == 200
    assert next(events)[1]["control"] is True
    assert master.next(ViewerCount).viewers == 1
    assert master.next(Ask).plan
    master.socket.send(encode(Plan(plan_message("s", ["t"], ["docker"], {"docker": "blue"}))))
    master.send_state(1.0, 1)
    assert next(events) == (
        "plan",
        {"scenario": "s", "treatments": [{"title": "t", "engine": "docker", "hue": "blue"}]},
    )
    name, state = next(events)
    assert (name, state["done"], state["from"], state["points"]) == ("state", 1, 0, [])
    assert not master.next(Ask).plan
    assert time.monotonic() - began > 0.9
    master.send_state(2.0, 3)
    assert next(events)[1]["points"] == [[1.0, 2.0, 2, 0, [[0, 1, 0.5, 0.5]]]]
    # Another reader gets all of it; with the fifth there are enough.
    others = [Reader(master.url) for _ in range(4)]
    found = []
    for other in others:
        assert other.log_in() == 204
        found.append(other.look())
    assert [status for status, _ in found] == [200, 200, 200, 503]
    other = found[0][1]
    assert [next(other)[0], next(other)[0]] == ["hello", "plan"]
    assert next(other)[1]["points"][0][:2] == [1.0, 2.0]
    for each in (*others, reader):
        each.close()
    # Those who have left are noticed by what is sent to them.
    for second in range(3, 60):
        master.send_state(float(second), 5)
        if master.next((ViewerCount, Ask)) == ViewerCount(0):
            break
        time.sleep(0.05)
    else:
        pytest.fail("readers that left still count")
    while master.has_asked(1.5):
        pass  # what was on its way
    assert not master.has_asked(1.5)


def test_a_stop_takes_a_session_its_secret_and_a_confirmation(master, reader):
    assert reader.log_in() == 204
    _, events = reader.look()
    secret = next(events)[1]["secret"]
    assert reader.change("/stop", {}, "")[0] == 403
    assert reader.ask("POST", "/stop", {}, **{"X-Weighbridge": secret})[0] == 403  # from no page of ours
    assert reader.change("/stop", {"confirm": "made up"}, secret)[0] == 409
    status, text = reader.change("/stop", {}, secret)
    code = text.split('"')[3]
    assert (status, len(code)) == (200, 22)
    assert reader.change("/stop", {"confirm": code}, secret) == (200, '{"stopping":true}')
    assert reader.change("/stop", {"confirm": code}, secret)[0] == 409  # a code counts once
    assert master.next(StopRun).who == "127.0.0.1, session 1"


def test_without_control_nothing_stops_the_run():
    master = Master(control=False)
    reader = Reader(master.url)
    try:
        assert reader.log_in() == 204
        _, events = reader.look()
        hello = next(events)[1]
        assert (hello["control"], hello["secret"]) == (False, "")
        status, text = reader.change("/stop", {}, hello["secret"])
        assert status == 403
        assert "--web-control" in text
    finally:
        reader.close()
        master.close()


def test_hostile_connections_end_and_others_are_still_served(master, reader):
    silent = [reader.raw() for _ in range(MAX_CONNECTIONS)]  # nobody else gets in until these are ended
    began = time.monotonic()
    assert reader.log_in() == 204
    assert time.monotonic() - began < 45
    huge = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * (4 * MAX_REQUEST_BYTES)
    many = b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * MAX_REQUEST_BYTES
    long = b"POST /session HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nContent-Length: 3000\r\n\r\n{"
    for attack in (huge, many, long, b"\x16\x03\x01" * 2000, b"GET /\r\n\r\n", b"\r\n" * 50):
        with reader.raw() as attacker:
            try:
                attacker.sendall(attack)
                while attacker.recv(65536):
                    pass
            except OSError:
                pass  # cut off while it sends
    assert reader.ask("GET", "/status")[0] == 200
    for each in silent:
        assert each.recv(1) == b""
        each.close()


def test_a_reader_that_never_reads_is_cut_off_and_slows_nobody(master, reader):
    assert reader.log_in() == 204
    request = f"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {reader.cookie['Cookie']}\r\n\r\n"
    with reader.raw() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(request.encode())
        assert master.next(ViewerCount).viewers == 1
        status, events = reader.look()
        assert (status, next(events)[0]) == (200, "hello")
        body = snapshot_message(Snapshot("s"), []) | {"hosts": [{"worker": "x" * 60_000}]}
        seen = 0

        def is_gone():
            nonlocal seen
            master.socket.send(encode(State(body)))
            assert next(events)[0] == "state"
            seen += 1
            time.sleep(0.1)
            return reader.ask("GET", "/status")[2].startswith('{"viewers":1,')

        wait_until(is_gone, START_S, "the reader that never reads is cut off")
        assert seen > 2


@pytest.mark.parametrize("farewell", [True, False])
def test_it_ends_with_its_master_and_tells_its_readers(farewell):
    master = Master()
    reader = Reader(master.url)
    reader.log_in()
    _, events = reader.look()
    next(events)
    if farewell:
        master.socket.send(encode(Ended("complete", "12 jobs", ["none"])))
    master.close()
    name, how = next(events)
    assert (name, how["status"]) == ("end", "complete" if farewell else "lost")
    reader.close()
