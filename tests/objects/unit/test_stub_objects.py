"""The store in memory by which the harness's own ceiling is measured: its answers, and requests in pieces."""

import pytest

from bench_features.objects.master.stub_store import ACCOUNT, StubObjects, take_request


@pytest.fixture
def store():
    return StubObjects("http://127.0.0.1:1")


@pytest.mark.parametrize("root", ["", ACCOUNT])
def test_objects_are_kept_until_they_are_deleted(store, root):
    """By S3's paths, and by Swift's below the account."""
    assert store.answer("HEAD", f"{root}/c", b"").startswith(b"HTTP/1.1 404 ")
    assert store.answer("PUT", f"{root}/c", b"").split()[1] in (b"200", b"201")
    assert store.answer("PUT", f"{root}/c/a%20b?x=1", b"body").split()[1] in (b"200", b"201")
    assert store.answer("GET", f"{root}/c/a%20b", b"").endswith(b"Content-Length: 4\r\n\r\nbody")
    assert store.answer("HEAD", f"{root}/c/a%20b", b"").endswith(b"Content-Length: 4\r\n\r\n")
    assert b"Content-Length" not in store.answer("DELETE", f"{root}/c/a%20b", b"")
    assert store.answer("DELETE", f"{root}/c/a%20b", b"").startswith(b"HTTP/1.1 404 ")
    assert store.answer("GET", f"{root}/c/a%20b", b"").startswith(b"HTTP/1.1 404 ")
    assert store.answer("DELETE", f"{root}/c", b"").startswith(b"HTTP/1.1 204 ")
    assert store.answer("HEAD", f"{root}/c", b"").startswith(b"HTTP/1.1 404 ")


def test_a_login_leads_to_the_account(store):
    """Swift's auth v1, for everybody."""
    found = store.answer("GET", "/auth/v1.0", b"")
    assert f"X-Storage-Url: http://127.0.0.1:1{ACCOUNT}\r\n".encode() in found


def test_requests_are_taken_whole_and_one_by_one():
    """However they come in."""
    sent = b"PUT /c/a HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: 4\r\n\r\nbodyGET /c/a HTTP/1.1\r\n\r\nHEAD"
    received, found = bytearray(), []
    for place in range(len(sent)):
        received += sent[place : place + 1]
        if request := take_request(received):
            found.append(request)
    assert found == [("PUT", "/c/a", b"body"), ("GET", "/c/a", b"")]
    assert received == b"HEAD"
