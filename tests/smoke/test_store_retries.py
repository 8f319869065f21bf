"""What Swift's slots do about failures: retries that are told and timed, and none of their own accord."""

import gevent
import pytest
from deadlines import ANSWER_S
from msgspec.structs import replace
from stub_stores import TOKEN, start_stub
from test_wire_tls import certificate, encrypted

from bench_common.secret import Secret
from bench_features.objects.common.access import Access
from bench_features.objects.worker.base import StoreOptions, StoreUnavailable
from bench_features.objects.worker.registry import open_store

__all__ = ["certificate"]

CONTENT = b"0123456789" * 1000


@pytest.fixture
def stub():
    with start_stub() as started:
        yield started


class Opened:
    """A store that is open for a test, and one slot of it, with one object."""

    def __init__(self, stub, *, endpoints=(), **options):
        access = Access(
            "swift", "the test", endpoints, auth_version="1", auth_url=stub.auth_url, user="u", key=Secret("k")
        )
        self.store = open_store(access, StoreOptions(timeout_s=ANSWER_S, retry_pause_s=0.01, **options))
        self.slot = self.store.slot(0)

    def __enter__(self):
        assert self.slot.make_container("c").ok
        assert self.slot.put("c", "o", [CONTENT]).ok
        return self.slot

    def __exit__(self, *_):
        self.store.close()


def outcome(answer):
    """Return what counts of an answer."""
    return answer.kind, answer.retries, answer.requests


def test_a_failure_is_told_and_not_tried_again_unless_asked(stub):
    """One of each kind: it is the server's word or the connection's end, with no second request."""
    with Opened(stub) as slot:
        for fault, kind in (("503", "http-503"), ("reset", "reset"), ("close", "closed"), ("half", "truncated")):
            stub.fault(fault, count=1, method="GET", match="/c/o")
            failed = slot.get("c", "o")
            assert outcome(failed) == (kind, 0, 1), fault
            assert failed.message
            assert failed.start_ns < failed.last_ns
            assert slot.get("c", "o").ok, "the connection is there again"
        assert slot.get("c", "missing").kind == "http-404"


def test_retries_are_counted_and_timed_from_the_first_try(stub):
    """A failure that may pass is tried again as often as asked; one that does not pass is told in the end."""
    with Opened(stub, retries=2) as slot:
        assert outcome(slot.head("c", "missing")) == ("http-404", 0, 1), "it asks whether an object is there"
        for fault in ("503", "reset", "close"):
            stub.fault(fault, count=2, method="GET", match="/c/o")
            answer = slot.get("c", "o")
            assert outcome(answer) == (None, 2, 3), fault
            assert answer.try_start_ns - answer.start_ns > 30_000_000, "with the pauses of 10 and 20 ms"
        stub.fault("503", method="GET", match="/c/o")
        failed = slot.get("c", "o")
        assert outcome(failed) == ("http-503", 2, 3)
        assert failed.try_start_ns > failed.start_ns
        stub.heal()
        assert outcome(slot.put("c", "o", [b"x"], update=True)) == (None, 0, 1)
        stub.fault("507", count=1, method="PUT", match="/c/o")
        assert outcome(slot.put("c", "o", [b"x"], update=True)) == ("http-507", 0, 1), "a full store does not pass"


def test_a_read_that_broke_off_is_read_anew_where_its_sink_can(stub):
    """What came before is not there twice; a sink that cannot begin anew gets no second read."""
    with Opened(stub, retries=3) as slot:
        content = bytearray()
        stub.fault("half", count=2, method="GET", match="/c/o")
        answer = slot.get("c", "o", content.extend, restart=content.clear)
        assert (outcome(answer), bytes(content)) == ((None, 2, 3), CONTENT)
        stub.fault("half", count=1, method="GET", match="/c/o")
        answer = slot.get("c", "o", content.extend)
        assert outcome(answer) == ("truncated", 0, 1)


def test_an_object_that_an_earlier_try_deleted_is_deleted(stub):
    """The answer was lost after the store had done it: that is no failure of ours."""
    with Opened(stub, retries=1) as slot:
        deleted = slot.delete("c", "o")
        assert outcome(deleted) == (None, 0, 1)
        assert outcome(slot.delete("c", "o")) == ("http-404", 0, 1)
        stub.fault("503", count=1, method="DELETE", match="/c/o")
        assert outcome(slot.delete("c", "o")) == (None, 1, 2)


def test_tokens_that_expire_in_the_middle_cost_one_login_for_all(stub):
    """Every user goes on, with one more request each, and no failure."""
    opened = Opened(stub, slots=16)
    with opened:
        slots = [opened.store.slot(number) for number in range(16)]
        for slot in slots:
            assert slot.head("c", "o").ok
        stub.expire()
        answers = [one.get() for one in [gevent.spawn(slot.head, "c", "o") for slot in slots]]
    assert {outcome(answer) for answer in answers} == {(None, 1, 2)}
    assert opened.store.session.logins == 2


def test_a_store_that_always_answers_401_fails_every_operation_soon(stub):
    """With the reason, and with few logins: the run ends, and the store is not flooded."""
    opened = Opened(stub)
    with opened as slot:
        stub.fault("401", match="/v1/")
        answers = [slot.head("c", "o") for _ in range(200)]
    assert {answer.kind for answer in answers} == {"http-401"}
    assert opened.store.session.logins <= 4
    assert "in a row): do the two belong together?" in answers[-1].message


def test_one_endpoint_of_three_is_dead(stub):
    """Operations on it fail as refused; the others go on, and answers say which endpoint they are of."""
    account = stub.storage_url
    opened = Opened(stub, endpoints=(account, "http://127.0.0.1:9/v1/AUTH_stub", account))
    with opened as slot:
        found = []
        for endpoint in (0, 1, 2):
            slot.endpoint = endpoint
            answer = slot.get("c", "o")
            found.append((answer.endpoint, answer.kind))
    assert found == [(0, None), (1, "refused"), (2, None)]


def test_a_retry_takes_the_next_endpoint(stub):
    """One that is dead costs a try and fails nothing; the answer is of the endpoint that gave it."""
    dead = "http://127.0.0.1:9/v1/AUTH_stub"
    opened = Opened(stub, endpoints=(stub.storage_url, dead, stub.storage_url), retries=1, new_connections=True)
    with opened as slot:
        slot.endpoint = 1
        answer = slot.get("c", "o")
        assert (answer.endpoint, outcome(answer)) == (2, (None, 1, 2))
        stub.fault("503", count=1, method="PUT", match="/c/o")
        slot.endpoint = 2
        answer = slot.put("c", "o", [b"x"], update=True)
        assert (answer.endpoint, outcome(answer)) == (0, (None, 1, 2)), "after the last one comes the first"


def test_a_read_of_what_is_not_there_is_tried_again_twice(stub):
    """However many retries there are: it may be a copy that is late, and else none will come."""
    with Opened(stub, retries=10) as slot:
        assert outcome(slot.get("c", "missing")) == ("http-404", 2, 3)
        stub.fault("503", count=4, method="GET", match="/c/o")
        assert outcome(slot.get("c", "o")) == (None, 4, 5)


def test_certificates_of_the_login_and_of_the_store_are_verified(stub, certificate):
    """Against a file of one's own, or not at all if so asked; what is wrong is told before anything runs."""
    with encrypted(certificate, stub) as port:
        url = f"https://127.0.0.1:{port}"
        access = Access(
            "swift", "the test", (f"{url}/v1/AUTH_stub",), auth_version="1", auth_url=f"{url}/auth/v1.0", user="u",
            key=Secret("k"),
        )  # fmt: skip
        for trusted in ({"ca_file": certificate[0]}, {"insecure": True}):
            store = open_store(replace(access, **trusted), StoreOptions())
            assert store.check() == []
            store.close()
        with pytest.raises(StoreUnavailable, match=r"cannot log in at https:.*certificate"):
            open_store(access, StoreOptions())
        token = Access("swift", "the test", access.endpoints, token=Secret(TOKEN))
        store = open_store(token, StoreOptions())
        (problem,) = store.check()
        store.close()
    assert problem.endswith("(tls)")
