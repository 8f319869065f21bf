"""The guard of served pages: who is let in, who is not, and what each answer carries."""

import io
import json
from wsgiref.util import setup_testing_defaults

import pytest

from bench_master.web import guard
from bench_master.web.guard import Guard, Refused, Rules, Session, check_csrf, host_of, hosts_of

TOKEN = "k" * 22
RULES = Rules(
    frozenset({"localhost", "127.0.0.1"}), token=TOKEN, cookie="weighbridge-8089", open_paths=frozenset({"/"})
)
OWN = {"HTTP_ORIGIN": "http://localhost:8089", "HTTP_SEC_FETCH_SITE": "same-origin"}


class Client:
    """A browser of few means."""

    def __init__(self, rules=RULES):
        self.seen = []
        self.guard = Guard(self.application, rules)
        self.cookie = None

    def application(self, environ, start_response):
        self.seen.append((environ["REQUEST_METHOD"], environ["PATH_INFO"], environ[guard.SESSION]))
        start_response("200 OK", [("Content-Type", "text/plain")])
        return [b"the run"]

    def ask(self, method="GET", path="/events", body=b"", host="localhost:8089", **environ):
        environ = {"CONTENT_TYPE": "application/json", "CONTENT_LENGTH": str(len(body)), **environ}
        environ |= {"REQUEST_METHOD": method, "PATH_INFO": path, "HTTP_HOST": host, "wsgi.input": io.BytesIO(body)}
        if self.cookie:
            environ["HTTP_COOKIE"] = self.cookie
        setup_testing_defaults(environ)
        answer = {}

        def start(status, headers, exc_info=None):
            answer.update(status=int(status[:3]), headers=dict(headers))

        answer["body"] = b"".join(self.guard(environ, start)).decode()
        return answer

    def log_in(self, token=TOKEN, **environ):
        answer = self.ask("POST", guard.SESSION_PATH, json.dumps({"token": token}).encode(), **{**OWN, **environ})
        if answer["status"] == 204:
            self.cookie = answer["headers"]["Set-Cookie"].partition(";")[0]
        return answer


def test_the_token_is_exchanged_for_a_cookie_that_scripts_and_other_sites_do_not_get():
    client = Client()
    assert client.ask()["status"] == 401
    answer = client.log_in()
    assert answer["status"] == 204
    name, *flags = answer["headers"]["Set-Cookie"].split("; ")
    assert name.startswith("weighbridge-8089=")
    assert TOKEN not in name
    assert flags == ["Path=/", "HttpOnly", "SameSite=Strict"]
    assert client.ask()["body"] == "the run"
    ((_, _, session),) = client.seen
    assert (session.number, len(session.csrf)) == (1, 22)
    assert client.log_in(**{"wsgi.url_scheme": "https", "HTTP_ORIGIN": "https://localhost:8089"})["headers"][
        "Set-Cookie"
    ].endswith("; Secure")


@pytest.mark.parametrize(
    "body", [b"{}", b'{"token": "k"}', b'{"token": 5}', b'{"token": "\xc3\xa4"}', rb'{"token": "\ud800"}']
)
def test_a_wrong_token_gives_no_session(body):
    client = Client()
    answer = client.ask("POST", guard.SESSION_PATH, body, **OWN)
    assert answer["status"] == 403
    assert "Set-Cookie" not in answer["headers"]


@pytest.mark.parametrize("cookie", ["weighbridge-8089=nonsense", "weighbridge=x", "\x00;;;=", "weighbridge-8089=ä"])
def test_a_cookie_of_no_session_is_none(cookie):
    client = Client()
    client.cookie = cookie
    assert client.ask()["status"] == 401
    assert client.ask(path="/")["status"] == 200  # the page itself shows nothing of the run


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example:8089",
        "127.0.0.1.nip.io",
        "10.0.0.5",
        "localhost:8089,x",
        "[",
        "a b",
    ],
)
def test_a_host_that_is_not_ours_is_misdirected(host):
    client = Client()
    client.log_in()
    assert client.ask(host=host)["status"] == 421
    assert not client.seen


def test_a_tunnel_has_another_port_and_an_open_server_any_address():
    client = Client(Rules(hosts_of("0.0.0.0"), any_address=True))
    assert [client.ask(host=host)["status"] for host in ("LocalHost:9000", "10.0.0.5", "[::1]:1")] == [200] * 3
    assert client.ask(host="evil.example")["status"] == 421
    assert host_of("[FE80::1]:80") == "fe80::1"
    assert "127.0.0.1" in hosts_of("::1")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"HTTP_ORIGIN": "null"},
        {"HTTP_ORIGIN": "http://evil.example"},
        {"HTTP_ORIGIN": "http://localhost:9999"},
        {"HTTP_ORIGIN": "https://localhost:8089"},
        {"HTTP_SEC_FETCH_SITE": "same-site"},
        {"HTTP_SEC_FETCH_SITE": "cross-site"},
        {"HTTP_SEC_FETCH_SITE": "none"},
        {"HTTP_SEC_FETCH_SITE": "cross-site", "HTTP_ORIGIN": "http://localhost:8089"},
        {"HTTP_SEC_FETCH_SITE": "same-origin", "HTTP_ORIGIN": "http://evil.example"},
    ],
)
def test_what_no_page_of_ours_sends_changes_nothing(headers):
    client = Client()
    client.log_in()
    body = json.dumps({"token": TOKEN}).encode()
    for path in ("/stop", guard.SESSION_PATH):
        assert client.ask("POST", path, body, **headers)["status"] == 403
    assert not client.seen


def test_other_sites_may_link_here_and_load_nothing():
    client = Client()
    client.log_in()
    cross = {"HTTP_SEC_FETCH_SITE": "cross-site"}
    assert client.ask(**cross, HTTP_SEC_FETCH_MODE="no-cors")["status"] == 403
    assert client.ask(**cross, HTTP_SEC_FETCH_MODE="navigate")["status"] == 200
    assert client.ask(HTTP_SEC_FETCH_SITE="none", HTTP_SEC_FETCH_MODE="navigate")["status"] == 200


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT", "GETX"])
def test_other_methods_are_not_allowed(method):
    answer = Client().ask(method, **OWN)
    assert (answer["status"], answer["headers"]["Allow"]) == (405, "GET, HEAD, POST")


@pytest.mark.parametrize(
    ("length", "status"), [("4097", 413), ("9" * 400, 413), ("-1", 411), ("x", 411), ("²", 411), ("4096", 204)]
)
def test_a_body_has_a_length_and_is_short(length, status):
    client = Client()
    body = json.dumps({"token": TOKEN}).encode()
    answer = client.ask("POST", guard.SESSION_PATH, body, **OWN, CONTENT_LENGTH=length)
    assert answer["status"] == status
    chunked = client.ask("POST", "/stop", b"", **OWN, CONTENT_LENGTH="", HTTP_TRANSFER_ENCODING="chunked")
    assert chunked["status"] == 411


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"[" * 4000])
def test_a_body_that_is_no_object_is_refused(body):
    assert Client().ask("POST", guard.SESSION_PATH, body, **OWN)["status"] in (400, 403)
    assert Client().ask("POST", guard.SESSION_PATH, b"{}", **OWN, CONTENT_TYPE="text/plain")["status"] == 415


def test_every_answer_forbids_what_no_page_needs():
    client = Client()
    for answer in (client.ask(), client.ask(path="/"), client.ask(host="evil.example"), client.log_in()):
        headers = answer["headers"]
        assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert not {"Access-Control-Allow-Origin", "Server"} & headers.keys()
    own = guard.with_headers([("content-security-policy", "default-src 'self'")])
    assert [value for name, value in own if name.lower() == "content-security-policy"] == ["default-src 'self'"]


def test_sessions_are_few_and_the_oldest_ends_first():
    first, client = Client(), Client()
    first.guard = client.guard
    first.log_in()
    for _ in range(guard.MAX_SESSIONS):
        client.log_in()
    assert (first.ask()["status"], client.ask()["status"]) == (401, 200)


def test_a_change_needs_the_secret_of_its_own_session():
    environ = {guard.SESSION: Session(3, "secret"), "HTTP_X_WEIGHBRIDGE": "secret"}
    assert check_csrf(environ).number == 3
    for wrong in ({}, {"HTTP_X_WEIGHBRIDGE": "secre"}, {"HTTP_X_WEIGHBRIDGE": "ä"}, {guard.SESSION: None}):
        with pytest.raises(Refused, match="reload the page"):
            check_csrf({guard.SESSION: environ[guard.SESSION]} | wrong)


def test_without_a_token_every_reader_is_welcome_and_posts_still_come_from_our_pages():
    client = Client(Rules(frozenset({"localhost"})))
    assert client.ask()["status"] == 200
    assert client.ask("POST", "/notes", b"{}", **OWN)["status"] == 200
    assert client.ask("POST", "/notes", b"{}")["status"] == 403
