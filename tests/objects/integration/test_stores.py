"""Swift and S3 against a real server: every operation, large objects, logins, and what is told of a failure."""

import re
import sys
import tempfile

import gevent
import pytest
from busybox_image import skip_or_fail
from deadlines import LONG_END_S, START_S
from msgspec.structs import replace
from places import ROOT
from workspace import free_ports

from bench_common.secret import Secret
from bench_features.objects.common.access import Access
from bench_features.objects.worker.base import MIB, StoreOptions, StoreUnavailable
from bench_features.objects.worker.registry import open_store
from bench_features.objects.worker.s3 import S3Store
from bench_features.objects.worker.swift import SEGMENTS

sys.path.append(str(ROOT / "benchmarks"))
import stores

STORES = ("swift", "s3")
NAME = "dir/ä b&c+1"
"""A name that has to be quoted."""


def access_to(store, protocol, **changes):
    """Return the access to a real store."""
    if protocol == "s3":
        values = {"endpoints": (store.url,), "user": "test:tester", "region": "us-east-1"}
    else:
        values = {"auth_version": "1", "auth_url": store.auth_url, "user": "test:tester"}
    return Access(protocol, **{"source": "the test", "key": Secret("testing"), **values, **changes})


@pytest.fixture
def built(request):
    """Return the access to a store of `script/store` that is built here, of its name."""
    with tempfile.TemporaryDirectory() as home:
        rows = [line.split("\t") for line in stores.run_script("list", home=home).splitlines()]
    (program,) = (row[-1] for row in rows if row[0] == request.param)
    if program.startswith("not "):
        skip_or_fail(f"script/store: {request.param} is {program}; build it: script/store build {request.param}")
    with stores.running(request.param, *free_ports(1)) as access:
        yield access


class Opened:
    """A store that is open for a test, and one slot of it."""

    def __init__(self, access, **options):
        self.store = open_store(access, StoreOptions(timeout_s=START_S, **options))
        self.slot = self.store.slot(0)

    def __enter__(self):
        return self.slot

    def __exit__(self, *_):
        self.store.close()


def read(slot, container, name, **options):
    """Read an object; return the answer and its content."""
    content = bytearray()
    answer = slot.get(container, name, content.extend, **options)
    return answer, bytes(content)


@pytest.mark.parametrize("protocol", STORES)
def test_every_operation(store, protocol):
    """What is written can be read, listed, replaced and deleted, with names that have to be quoted."""
    container = f"every_{protocol}"
    with Opened(access_to(store, protocol)) as slot:
        made = slot.make_container(container)
        assert (made.kind, made.requests, made.retries) == (None, 1 if protocol == "swift" else 2, 0)
        assert slot.make_container(container).ok, "one that is there already is fine"
        put = slot.put(container, NAME, [b"hello ", memoryview(b"world")])
        assert (put.kind, put.length, put.etag) == (None, 11, "5eb63bbbe01eeed093cb22bb8f5acdc3")
        assert put.start_ns < put.last_ns
        assert put.transaction_id.startswith("tx")
        answer, content = read(slot, container, NAME)
        assert (answer.kind, content, answer.length) == (None, b"hello world", 11)
        assert answer.start_ns < answer.first_ns <= answer.last_ns
        part, content = read(slot, container, NAME, byte_range=(6, 8))
        assert (part.kind, part.status, content) == (None, 206, b"wor")
        assert slot.get(container, NAME).length == 11, "a body that nobody wants is read all the same"
        assert slot.put(container, NAME, [b"new"], update=True).ok
        head = slot.head(container, NAME)
        assert (head.kind, head.length, head.etag) == (None, 3, "22af645d1859cb5ca6da0c484f1f37ea")
        for number in range(5):
            assert slot.put(container, f"x/{number}", [b"a" * number]).ok
        page = slot.list_objects(container, prefix="x/", limit=2)
        assert [(entry.name, entry.length) for entry in page.entries] == [("x/0", 0), ("x/1", 1)]
        rest = slot.list_objects(container, prefix="x/", marker="x/1")
        assert [entry.name for entry in rest.entries] == ["x/2", "x/3", "x/4"]
        assert slot.list_objects(container).entries[0].name == NAME
        found = slot.list_containers(prefix=f"every_{protocol}").entries
        assert [entry.name for entry in found] == [slot._store.container_name(container)]
        assert slot.delete_container(container).kind == "http-409", "it is not empty"
        for entry in slot.list_objects(container).entries:
            assert slot.delete(container, entry.name).ok
        assert slot.delete(container, "gone").kind == ("http-404" if protocol == "swift" else None)
        missing = slot.get(container, "gone")
        assert (missing.kind, missing.status) == ("http-404", 404)
        assert missing.message
        assert slot.delete_container(container).ok
    assert container not in store.containers()


def test_requests_agree_with_the_log_of_the_server(store):
    """Each operation is one request, and the store calls it by the same transaction id."""
    with Opened(access_to(store, "swift")) as slot:
        slot.make_container("counted")
        answers = [slot.put("counted", f"o{number}", [b"x"]) for number in range(20)]
        answers += [slot.delete("counted", f"o{number}") for number in range(20)]
        slot.delete_container("counted")
    logged = [one for one in store.requests() if one.path.startswith("/v1/AUTH_test/counted/")]
    assert {one.transaction_id for one in logged} == {answer.transaction_id for answer in answers}
    assert [one.method for one in logged] == ["PUT"] * 20 + ["DELETE"] * 20


@pytest.mark.parametrize("protocol", STORES)
def test_large_objects_are_uploaded_in_parts(store, protocol):
    """They are read whole; an update and a deletion leave no part behind."""
    container, size = f"large-{protocol}", 11 * MIB + 5
    body = [bytes([number % 251]) * MIB for number in range(11)] + [b"tail!"]
    with Opened(access_to(store, protocol), multipart_above_bytes=MIB, part_bytes=5 * MIB) as slot:
        assert slot.make_container(container).ok
        for update in (False, True):
            put = slot.put(container, "big", body, update=update)
            assert (put.kind, put.length, put.message) == (None, size, "")
            assert put.requests == (4 if protocol == "swift" else 5)
            answer, content = read(slot, container, "big")
            assert (answer.length, content == b"".join(body)) == (size, True)
        (entry,) = slot.list_objects(container).entries
        assert (entry.length, entry.in_parts) == (size, protocol == "swift")
        assert slot.put(container, "small", [b"x"]).requests == 1
        assert slot.delete_container(container).kind == "http-409"
        assert read(slot, container, "big")[1] == b"".join(body), (
            "a container that stays keeps the parts of its objects"
        )
        assert slot.delete(container, "small", in_parts=True).ok, "although it has none"
        segments = container + SEGMENTS
        parts = store.objects(segments) if protocol == "swift" else {}
        assert len(parts) == (3 if protocol == "swift" else 0), "those of the object that was replaced are gone"
        assert slot.delete(container, "big", in_parts=True).ok
        assert slot.delete(container, "big", in_parts=True).kind == ("http-404" if protocol == "swift" else None)
        for name in ("left", "abandoned"):
            if protocol == "swift":
                store.open("PUT", f"AUTH_test/{segments}/{name}/1/00000000", b"over").close()
            else:
                slot._ask("POST", f"/{container}/{name}", "uploads=")
        assert slot.delete_rest(container, "left").ok
        if protocol == "swift":
            assert list(store.objects(segments)) == ["abandoned/1/00000000"]
        else:
            assert re.findall(b"<Key>(.*?)</Key>", slot._page(f"/{container}", "uploads=")[1]) == [b"abandoned"]
        assert slot.delete_container(container).ok
    assert not [name for name in store.containers() if name.startswith(container)]


def test_what_a_container_and_an_object_are_made_with(store):
    """The storage policy, and the time after which the store deletes an object."""
    access = access_to(store, "swift")
    opened = Opened(access, policy="silver", delete_after_s=1000)
    with opened as slot:
        assert opened.store.check() == []
        assert slot.make_container("silver").ok
        assert slot.put("silver", "o", [b"x"]).ok
        with store.open("HEAD", "AUTH_test/silver/o") as answer:
            assert answer.headers["X-Delete-At"]
        with store.open("HEAD", "AUTH_test/silver") as answer:
            assert answer.headers["X-Storage-Policy"] == "silver"
        with Opened(access, policy="gold") as other:
            refused = other.make_container("silver")
            assert (refused.kind, "another storage policy than gold" in refused.message) == ("http-409", True)
        slot.delete("silver", "o")
        slot.delete_container("silver")
    with Opened(access, policy="sliver") as slot:
        (problem,) = slot._store.check()
    assert "no storage policy 'sliver' (did you mean 'silver'?); it has: gold, silver" in problem
    with pytest.raises(StoreUnavailable, match="S3 deletes no single object after a time"):
        Opened(access_to(store, "s3"), delete_after_s=5)


def test_a_token_is_renewed_ahead(store, keystone):
    """One that says that it ends soon is replaced before, while operations go on with it."""
    access = Access(
        "swift", auth_version="3", auth_url=keystone.url, user="hasty", key=Secret("testing"), project="test"
    )
    opened = Opened(access)
    with opened as slot, gevent.Timeout(LONG_END_S):
        answers = []
        while opened.store.session.logins < 3:
            answers.append(slot.list_containers())
            gevent.sleep(0.1)
    assert {(answer.kind, answer.retries) for answer in answers} == {(None, 0)}


def test_one_login_for_all_after_a_token_is_refused(store):
    """Many slots are refused at once, one logs in, and every operation succeeds, with a retry that is told."""
    opened = Opened(access_to(store, "swift"), slots=8)
    with opened:
        opened.store.session.header = b"X-Auth-Token: AUTH_tkgone\r\n"
        slots = [opened.store.slot(number) for number in range(8)]
        answers = [one.get() for one in [gevent.spawn(slot.list_containers) for slot in slots]]
        assert [(answer.kind, answer.retries) for answer in answers] == [(None, 1)] * 8
        assert opened.store.session.logins == 2


def test_a_store_that_refuses_every_token_is_not_flooded_with_logins(store, keystone):
    """Each operation fails with the reason, and logins become rare."""
    access = Access(
        "swift",
        auth_version="3",
        auth_url=keystone.url,
        user="invalid",
        key=Secret("testing"),
        project="test",
        source="the test",
    )
    before = keystone.logins
    with Opened(access) as slot:
        answers = [slot.list_containers() for _ in range(20)]
    assert {answer.kind for answer in answers} == {"http-401"}
    assert "the store refuses the tokens that" in answers[-1].message
    assert keystone.logins - before <= 3


@pytest.mark.parametrize("version", ["2", "3"])
def test_keystone_logs_in_and_says_where_the_store_is(store, keystone, version):
    """By name or id, with or without domains, in a region and by an interface; the store's answer is real."""
    access = Access(
        "swift", auth_version=version, auth_url=f"{keystone.url}/v{version}", user="tester", project="test",
        key=Secret("testing"), source="the test",
    )  # fmt: skip
    for changes in (
        {},
        {"auth_url": keystone.url},
        {"auth_url": keystone.url + "/v2.0/"},
        {"project": "", "project_id": "test"},
        {"user_domain": "Default", "project_domain_id": "default"},
        {"region": "RegionTwo", "interface": "adminURL"},
        {"user": "hasty"},
    ):
        with Opened(replace(access, **changes)) as slot:
            assert slot._store.endpoints == (f"{store.url}/v1/AUTH_test",)
            assert slot.list_containers().ok
    with Opened(replace(access, endpoints=(store.url, store.url + "/v1/AUTH_test"))) as slot:
        assert slot._store.endpoints == (f"{store.url}/v1/AUTH_test",) * 2
        slot.endpoint = 1
        assert (slot.list_containers().kind, slot.list_containers().endpoint) == (None, 1)
    for changes, reason in (
        (
            {"key": Secret("wrong")},
            r"refuses user 'tester' of project 'test' or the key \(401\); they come from the test",
        ),
        ({"region": "RegionTow"}, r"has no region 'RegionTow' \(did you mean 'RegionTwo'\?\); it has: RegionOne, "),
        ({"interface": "pubic"}, r"no 'pubic' endpoint \(did you mean 'public'\?\)"),
        ({"service_type": "object"}, r"no service 'object'.*it has: object-store"),
        ({"user": "nocatalog"}, "is empty: name the project"),
        ({"user": "gone"}, "HTTP status 503 The database is away"),
        ({"user": "odd"}, "answers, but not as Keystone does"),
        ({"auth_url": "http://127.0.0.1:9/v3"}, "cannot log in at http://127.0.0.1:9/v"),
        ({"auth_url": "http://tester:testing@127.0.0.1:9/v3"}, "holds a user or password"),
        ({"auth_url": "127.0.0.1:9"}, "expected a URL such as"),
        ({"key": Secret()}, "no credentials for the object store"),
    ):
        with pytest.raises(StoreUnavailable, match=reason) as caught:
            Opened(replace(access, **changes))
        assert "testing" not in str(caught.value)


def test_other_ways_to_log_in(store, keystone):
    """An application credential; a token and a storage URL, which nobody can renew."""
    access = Access(
        "swift", auth_version="3", auth_url=keystone.url, application_credential_id="app-id", key=Secret("app-secret")
    )
    opened = Opened(access)
    with opened as slot:
        assert slot.list_containers().ok
        token = opened.store.session.header.split()[1].decode()
    url = f"{store.url}/v1/AUTH_test"
    with Opened(Access("swift", token=Secret(token), endpoints=(url,))) as slot:
        assert slot.list_containers().ok
    with Opened(Access("swift", token=Secret("gone"), endpoints=(url,))) as slot:
        refused = slot.list_containers()
    assert (refused.kind, refused.retries) == ("http-401", 0)
    assert "refuses the given token, and without a user and a key nobody can log in again" in refused.message
    with pytest.raises(StoreUnavailable, match="no storage URL to use it with"):
        Opened(Access("swift", token=Secret(token)))


def test_a_wrong_login_is_told_in_plain_words(store):
    """The URL, the user, the key, or the server is wrong."""
    for changes, reason in (
        ({"key": Secret("nonsense")}, r"refuses user 'test:tester' or the key \(401\); they come from the test"),
        ({"auth_url": f"{store.url}/healthcheck"}, "answers without X-Auth-Token: a login's URL is like"),
        ({"auth_url": "http://127.0.0.1:9/auth/v1.0"}, "cannot log in at http://127.0.0.1:9/auth/v1.0"),
        ({"auth_url": "http://no-such-host.invalid/auth/v1.0"}, "no-such-host.invalid"),
        ({"auth_version": "4"}, "no authentication version '4'"),
    ):
        with pytest.raises(StoreUnavailable, match=reason):
            Opened(access_to(store, "swift", **changes))


def test_s3_tells_a_wrong_clock_region_or_key_in_plain_words(store):
    """Those are the usual reasons for which a signature is refused, and the server's words are no help."""
    access = access_to(store, "s3")
    for changes, reason in (
        (
            {"region": "eu-north-1"},
            "signed for region eu-north-1; the store is in us-east-1: set AWS_REGION=us-east-1",
        ),
        ({"key": Secret("nonsense")}, "the secret key of the test is not that of its access key, or the store knows"),
        ({"user": "nobody:else"}, "SignatureDoesNotMatch"),
        ({"endpoints": ("http://127.0.0.1:9",)}, "refused"),
    ):
        opened = Opened(replace(access, **changes))
        with opened:
            (problem,) = opened.store.check()
        assert reason in problem
    opened = Opened(access)
    assert isinstance(opened.store, S3Store)
    real = opened.store.clock
    with opened as slot:
        assert opened.store.check() == []
        opened.store.clock = lambda: real() + 1200
        late = slot.list_containers()
        assert late.kind == "http-403"
        assert re.search(r"this host's clock is 1[12]\d\d s ahead of the store's: set the clock", late.message)
    with pytest.raises(StoreUnavailable, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        Opened(replace(access, user=""))


@pytest.mark.parametrize("built", ["versitygw", pytest.param("minio", marks=pytest.mark.slow)], indirect=True)
def test_another_server_of_s3(built):
    """Each check of benchmarks/stores.py, but names that not every store takes; and who is refused."""
    found = stores.check(built)
    found.pop("odd names")
    assert found == dict.fromkeys(found, "")
    for changes, reason in (
        (
            {"region": "eu-north-1"},
            "signed for region eu-north-1; the store is in us-east-1: set AWS_REGION=us-east-1",
        ),
        ({"key": Secret("nonsense")}, "the secret key of script/store is not that of its access key"),
    ):
        opened = Opened(replace(built, **changes))
        with opened:
            (problem,) = opened.store.check()
        assert reason in problem
