"""Signatures, secrets and the parts of a store's protocol that need no server."""

import copy
import json
import pickle
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import EntryPoint
from unittest import mock

import botocore.auth
import msgspec
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from deadlines import END_S
from hypothesis import given
from hypothesis import strategies as st

from bench_common.cli import CommandParser, read_options
from bench_common.errors import UsageError
from bench_common.options import add_options
from bench_common.secret import Secret, secret_arguments
from bench_features.objects.common.access import Access, bucket_name, find_access
from bench_features.objects.common.store_names import STORES_GROUP, store_names
from bench_features.objects.master.store_options import StoreFlags
from bench_features.objects.worker import registry
from bench_features.objects.worker.base import StoreOptions, StoreUnavailable
from bench_features.objects.worker.http_store import parts_of, quick_check
from bench_features.objects.worker.registry import open_store
from bench_features.objects.worker.s3 import S3Store, _element, _elements, _entries_of
from bench_features.objects.worker.sigv4 import EMPTY_PAYLOAD, UNSIGNED_PAYLOAD, Signer, query_of, quoted

KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


def signed_by_botocore(method, host, path, query, now_s, payload, headers, token):
    """Return the headers that AWS's own library adds to the same request."""
    request = AWSRequest(method, f"http://{host}{path}" + (f"?{query}" if query else ""), headers=headers)
    request.headers["X-Amz-Content-SHA256"] = payload
    request.context["client_config"] = mock.Mock(s3={"payload_signing_enabled": True})
    request.context["payload_signing_enabled"] = False
    moment = datetime.fromtimestamp(now_s, UTC).replace(tzinfo=None)
    with mock.patch.object(botocore.auth, "get_current_datetime", return_value=moment):
        auth = botocore.auth.S3SigV4Auth(Credentials("AKID", KEY, token), "s3", "eu-central-1")
        auth.payload = lambda _: payload
        auth.add_auth(request)
    return {name.lower(): value for name, value in request.headers.items()}


@given(
    name=st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20).filter(
        lambda name: not {"", ".", ".."} & set(name.split("/"))
    ),
    prefix=st.text(max_size=10),
    token=st.sampled_from([None, "a+temporary/token="]),
    method=st.sampled_from(["GET", "PUT", "DELETE", "HEAD", "POST"]),
    now_s=st.integers(1_000_000_000, 4_000_000_000),
)
def test_signatures_equal_those_of_botocore(name, prefix, token, method, now_s):
    """For any name, query, time and session token."""
    path = f"/bucket/{quoted(name)}"
    query = query_of({"prefix": prefix, "list-type": "2", "uploads": ""}) if method == "GET" else ""
    payload = UNSIGNED_PAYLOAD if method in ("PUT", "POST") else EMPTY_PAYLOAD
    extra = {"x-amz-storage-class": "STANDARD_IA"} if method == "PUT" else {}
    signer = Signer("AKID", Secret(KEY), "eu-central-1", token=Secret(token or ""))
    for _ in range(2):  # the second time the day's key is there
        lines = signer.sign(method, "store:9000", path, query, now_s, payload=payload, headers=extra).decode()
    mine = dict(line.split(": ", 1) for line in lines.splitlines())
    theirs = signed_by_botocore(method, "store:9000", path, query, now_s, payload, dict(extra), token)
    assert mine == {each: theirs[each] for each in mine}


def test_a_signature_has_the_date_of_its_request():
    """The kept date and key are those of another second and day no longer."""
    signer, other = (Signer("AKID", Secret(KEY), "eu-central-1") for _ in range(2))
    for now_s in (0, 86_399, 86_400, 86_401, 0):
        fresh = Signer("AKID", Secret(KEY), "eu-central-1").sign("GET", "h", "/", "", now_s)
        assert signer.sign("GET", "h", "/", "", now_s) == fresh
    assert other.sign("GET", "h", "/", "", 5) != signer.sign("GET", "h", "/", "", 86_400)


def test_a_secret_shows_itself_to_nobody():
    """Not when it is printed, formatted, logged, pickled, copied into JSON or MessagePack, or in a traceback."""
    secret = Secret("hunter2")
    access = Access("swift", key=secret, token=Secret("token-7"))
    shown = f"{secret} {secret!r} {secret!s:>20} {[secret]} {access} {access!r} %s" % secret
    assert "hunter2" not in shown
    assert "token-7" not in shown
    for write in (pickle.dumps, json.dumps, msgspec.json.encode, msgspec.msgpack.encode, copy.copy):
        with pytest.raises(TypeError) as caught:
            write(secret)
        assert "hunter2" not in str(caught.value)
    assert (bool(secret), bool(Secret()), secret == Secret("hunter2"), secret == "hunter2") == (
        True,
        False,
        True,
        False,
    )
    assert access.secrets() == (secret, Secret("token-7"))


def test_a_url_with_a_password_is_refused_and_not_repeated():
    """Neither is one that is none."""
    for url in (
        "http://me:hunter2@store:8080",
        "https://me@store",
        "store:8080",
        "ftp://store",
        "http://",
        "http://[::1",
    ):
        with pytest.raises(StoreUnavailable) as caught:
            quick_check(url, "the endpoint")
        assert "hunter2" not in str(caught.value)
    quick_check("https://store.example:8080/v1/AUTH_x", "the endpoint")
    quick_check("http://[::1]:8080", "the endpoint")


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_parts_are_of_one_size_and_hold_everything(pieces, size):
    """But for the last, which may be smaller; none is empty."""
    parts = [b"".join(part) for part in parts_of(pieces, size)]
    assert b"".join(parts) == b"".join(pieces)
    assert all(len(part) == size for part in parts[:-1])
    assert all(0 < len(part) <= size for part in parts)


def test_the_answers_of_s3_are_read_whatever_they_look_like():
    """With a name space, attributes and escapes; text that is no XML holds nothing."""
    text = (
        b'<?xml version="1.0"?><R xmlns="http://s3"><Contents a="b"><Key>a&amp;b</Key><Size>5</Size></Contents></R>'
    )
    (entry,) = _elements(text, "Contents")
    assert (_element(entry, "Key"), _element(entry, "Size"), _element(entry, "ETag")) == ("a&b", "5", "")
    assert _elements(b"\xff<Contents>", "Contents") == []
    assert _element(b"<Key", "Key") == ""
    padded = b"<ListBucketResult><Contents><Key>tiny_000001 </Key></Contents></ListBucketResult>"
    assert [one.name for one in _entries_of(padded)] == ["tiny_000001 "], "another object than one without the blank"
    assert bucket_name("ssbench_000001_Default_Policy") == "ssbench-000001-default-policy"


def test_a_store_is_found_by_its_name(monkeypatch):
    """Also one of somebody else's; a broken one says why."""
    assert {"s3", "swift"} <= set(store_names())
    options = StoreOptions()
    with pytest.raises(UsageError, match="did you mean 'swift'"):
        open_store(Access("swfit"), options)
    broken = {
        "absent": ("no_such_module:Store", "No module named"),
        "number": (
            "bench_features.objects.worker.s3:MAX_PARTS",
            "is not a subclass of bench_features.objects.worker.base.Store",
        ),
        "unfinished": ("bench_features.objects.worker.base:Store", "does not define close, endpoints, open, slot"),
        "misnamed": ("bench_features.objects.worker.s3:S3Store", "has the name 's3'"),
    }
    points = [EntryPoint(name, value, STORES_GROUP) for name, (value, _) in broken.items()]
    monkeypatch.setattr(registry, "registered", lambda _: points)
    monkeypatch.setattr(registry, "store_names", lambda: tuple(broken))
    for name, (_, reason) in broken.items():
        with pytest.raises(StoreUnavailable, match=reason):
            open_store(Access(name), options)


def test_a_store_that_does_not_open_is_closed(monkeypatch):
    """A login may have left what renews its token."""
    made = []

    class Lost(S3Store):
        def __init__(self, access, options):
            super().__init__(access, options)
            made.append("made")

        def open(self):
            raise StoreUnavailable("there is a token, and no storage URL")

        def close(self):
            made.append("closed")

    monkeypatch.setattr(registry, "store_class", lambda _: Lost)
    with pytest.raises(StoreUnavailable, match="no storage URL"):
        open_store(Access("lost"), StoreOptions())
    assert made == ["made", "closed"]


def test_a_store_without_an_endpoint_is_that_of_aws():
    """In the region that is named."""
    store = S3Store(Access("s3", user="AKID", key=Secret(KEY), region="eu-central-1"), StoreOptions())
    store.open()
    assert store.endpoints == ("https://s3.eu-central-1.amazonaws.com",)
    store.close()


def access_by(store="swift", profile="", home=None, **variables):
    """Return the access that a process with these variables finds."""
    return find_access(store, profile, {"HOME": str(home or "/nonexistent"), **variables})


V1 = {"ST_AUTH": "http://a/auth/v1.0", "ST_USER": "test:tester", "ST_KEY": "k"}
V3 = {"OS_AUTH_URL": "http://k:5000/v3", "OS_USERNAME": "u", "OS_PASSWORD": "k", "OS_PROJECT_NAME": "p"}


def test_the_variables_of_python_swiftclient_are_understood():
    """For every version of the login; a version that is not named follows from what is there."""
    one = access_by(**V1)
    assert (one.auth_version, one.auth_url, one.user, one.key.reveal()) == ("1", V1["ST_AUTH"], "test:tester", "k")
    assert one.source == "the environment (ST_AUTH, ST_KEY, ST_USER)"
    three = access_by(**V3, OS_REGION_NAME="R", OS_ENDPOINT_TYPE="internal", OS_CACERT="/ca", OS_USER_DOMAIN_ID="d")
    assert (three.auth_version, three.user, three.project, three.region) == ("3", "u", "p", "R")
    assert (three.interface, three.ca_file, three.user_domain_id, three.insecure) == ("internal", "/ca", "d", False)
    assert access_by(**{**V3, "OS_AUTH_URL": "http://k:5000/v2.0/"}).auth_version == "2"
    assert access_by(**V3, OS_IDENTITY_API_VERSION="2.0").auth_version == "2"
    assert access_by(**V3, OS_AUTH_VERSION="3", SWIFTCLIENT_INSECURE="true").insecure
    two = access_by(**V1, ST_AUTH_VERSION="2.0")
    assert (two.auth_version, two.project, two.user, two.auth_url) == ("2", "test", "tester", V1["ST_AUTH"])
    tenant = access_by(**{**V3, "OS_PROJECT_NAME": ""}, OS_TENANT_NAME="t", OS_TENANT_ID="i")
    assert (tenant.project, tenant.project_id) == ("t", "i")
    token = access_by(OS_AUTH_TOKEN="t", OS_STORAGE_URL="http://a/v1/A http://b/v1/A", **V3)
    assert (token.auth_version, token.token.reveal()) == ("", "t")
    assert token.endpoints == ("http://a/v1/A", "http://b/v1/A")
    secret = access_by(OS_AUTH_URL="http://k", OS_APPLICATION_CREDENTIAL_ID="i", OS_APPLICATION_CREDENTIAL_SECRET="s")
    assert (secret.auth_version, secret.application_credential_id, secret.key.reveal()) == ("3", "i", "s")
    assert access_by() == Access("swift", auth_version="1")
    with pytest.raises(UsageError, match="OS_CERT: certificates of the client are not supported"):
        access_by(**V3, OS_CERT="/c")
    with pytest.raises(UsageError, match=r"OS_AUTH_TYPE=v3pasword: not supported \(did you mean 'v3password'"):
        access_by(**V3, OS_AUTH_TYPE="v3pasword")
    with pytest.raises(UsageError, match="holds a user or password") as caught:
        access_by(**{**V1, "ST_AUTH": "http://u:hunter2@a/auth"})
    assert "hunter2" not in str(caught.value)


def test_the_variables_and_files_of_aws_are_understood(tmp_path):
    """Keys of the environment come before those of a profile; region and endpoint from wherever they are."""
    one = access_by(
        "s3", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="s", AWS_SESSION_TOKEN="t", AWS_DEFAULT_REGION="r",
        AWS_ENDPOINT_URL="http://e", AWS_CA_BUNDLE="/ca",
    )  # fmt: skip
    assert (one.user, one.key.reveal(), one.token.reveal(), one.region) == ("a", "s", "t", "r")
    assert (one.endpoints, one.ca_file) == (("http://e",), "/ca")
    assert access_by("s3", AWS_ENDPOINT_URL="http://e", AWS_ENDPOINT_URL_S3="http://f").endpoints == ("http://f",)
    folder = tmp_path / ".aws"
    folder.mkdir()
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = ds\n[lab]\naws_access_key_id=l\n"
        "aws_secret_access_key=l=s%\n"
    )
    (folder / "config").write_text("[default]\nregion = eu\n[profile lab]\nregion = us\nendpoint_url = http://l\n"
                                   "s3 =\n  addressing_style = path\n[profile sso]\nsso_session = x\n")  # fmt: skip
    default = access_by("s3", home=tmp_path)
    assert (default.user, default.key.reveal(), default.region, default.endpoints) == ("d", "ds", "eu", ())
    lab = access_by("s3", home=tmp_path, AWS_PROFILE="lab")
    assert (lab.user, lab.key.reveal(), lab.region, lab.endpoints) == ("l", "l=s%", "us", ("http://l",))
    assert lab.source == f"profile 'lab' of {folder}/credentials"
    both = access_by("s3", home=tmp_path, AWS_PROFILE="lab", AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="s")
    assert (both.user, both.region) == ("a", "us")
    elsewhere = access_by("s3", AWS_SHARED_CREDENTIALS_FILE=str(folder / "credentials"))
    assert (elsewhere.user, elsewhere.region) == ("d", "")
    with pytest.raises(UsageError, match=r"AWS_PROFILE=nobody: neither .* has this profile"):
        access_by("s3", home=tmp_path, AWS_PROFILE="nobody")
    with pytest.raises(UsageError, match="sso_session is not supported; set AWS_ACCESS_KEY_ID"):
        access_by("s3", home=tmp_path, AWS_PROFILE="sso")
    (folder / "credentials").write_text("[default\nhunter2\n")
    with pytest.raises(UsageError, match=r"credentials:1:1: this is no file of AWS's tools") as caught:
        access_by("s3", home=tmp_path)
    assert "hunter2" not in str(caught.value)


PROFILES = """\
lab:
  swift: {auth_url: "http://a/auth/v1.0", user: "test:tester", key: hunter2}
  s3:
    endpoint: [http://a, http://b]
    access_key: me
    secret_key: hunter2
    region: here
    insecure: yes
cloud:
  swift:
    auth_url: http://k:5000
    user: u
    key: hunter2
    project: p
"""


def test_a_profile_has_what_each_store_needs(tmp_path):
    """The file is read only where nobody else can read it, and errors name the place and the nearest right word."""
    path = tmp_path / ".config" / "weighbridge" / "stores.yaml"
    with pytest.raises(UsageError, match=r"stores.yaml: not found; profile 'lab' is expected there"):
        access_by(profile="lab", home=tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(PROFILES)
    path.chmod(0o640)
    with pytest.raises(UsageError, match=r"others can read it \(mode 0640\); chmod 600"):
        access_by(profile="lab", home=tmp_path)
    path.chmod(0o600)
    swift = access_by(profile="lab", home=tmp_path, **V3)
    assert (swift.auth_version, swift.user, swift.key.reveal()) == ("1", "test:tester", "hunter2")
    assert swift.source == f"profile 'lab' of {path}"
    s3 = access_by("s3", profile="lab", home=tmp_path)
    assert (s3.endpoints, s3.user, s3.key.reveal(), s3.region) == (("http://a", "http://b"), "me", "hunter2", "here")
    assert s3.insecure
    assert access_by(profile="cloud", home=tmp_path).auth_version == "3"
    for text, reason in (
        (
            PROFILES.replace("secret_key", "secret_kei"),
            r":6:5: key 'secret_kei' is not known \(did you mean 'secret_key'",
        ),
        (PROFILES.replace("lab:", "lap:"), "there is no profile 'lab' .did you mean 'lap'.*it has: lap, cloud"),
        (PROFILES.replace("  s3:", "  s4:"), "there is no store 's3'; it has: swift, s4"),
        (PROFILES.replace("secret_key: hunter2", "secret_key: [hunter2]"), r":6:17: secret_key: expected a text"),
        (PROFILES.replace("    region", "  region"), r":\d+:\d+: not YAML"),
        ("- hunter2", r":1:1: expected profiles by name"),
        ("", "expected profiles by name"),
        ("lab: hunter2", r":1:6: expected stores of profile 'lab'"),
    ):
        path.write_text(text)
        with pytest.raises(UsageError, match=reason) as caught:
            access_by("s3", profile="lab", home=tmp_path)
        assert "hunter2" not in str(caught.value)


def flags_of(*words):
    """Return the options of a command line."""
    parser = CommandParser()
    add_options(parser, StoreFlags)
    return read_options(StoreFlags, parser.parse_args(list(words)))


def applied(*words, **environ):
    """Return the environment after options were applied to it."""
    flags_of(*words).apply(environ, [], quiet=True)
    return environ


def test_the_options_take_the_place_of_variables():
    """Also of those that mean the same under another name, so that a user's own settings do not get in between."""
    one = applied("-A", "http://x", "-U", "a:b", "-K", "k", **V3, OS_AUTH_TOKEN="old")
    assert one == {"ST_AUTH": "http://x", "ST_USER": "a:b", "ST_KEY": "k", "OS_PROJECT_NAME": "p"}
    assert find_access("swift", "", one).auth_version == "1"
    three = applied(
        "--os-auth-url=http://k/v3", "--os_username", "u", "--os-password", "k", "--os-project-name", "p", **V1
    )
    assert find_access("swift", "", three).auth_version == "3"
    assert applied("-V", "2.0", OS_IDENTITY_API_VERSION="3") == {"ST_AUTH_VERSION": "2.0"}
    assert applied("-T", "t", "-S", "http://a/v1/A", "-S", "http://b/v1/A") == {
        "OS_AUTH_TOKEN": "t",
        "OS_STORAGE_URL": "http://a/v1/A http://b/v1/A",
    }
    assert applied("--store-insecure")["SWIFTCLIENT_INSECURE"] == "true"
    assert applied(**V1) == V1
    with pytest.raises(UsageError, match="-T: a token is of use with a storage URL only: add -S URL"):
        applied("-T", "t")
    with pytest.raises(UsageError, match="the command line: a URL holds a user or password"):
        applied("-A", "http://u:p@x")
    assert "hunter2" not in repr(flags_of("-K", "hunter2"))


def test_secrets_leave_the_arguments_of_this_process(capsys):
    """What a stats file keeps of the command line is masked, and the user is told of a better way."""
    words = ["bench-master", "-K", "hunter2", "-Khunter2", "--os-password=hunter2", "-U", "me", "hunter22"]
    flags_of("-K", "hunter2", "-U", "me").apply({}, words)
    assert words == ["bench-master", "-K", "***", "-K***", "--os-password=***", "-U", "me", "hunter22"]
    assert "set ST_KEY, OS_PASSWORD or OS_AUTH_TOKEN instead" in capsys.readouterr().err
    words = ["-Kabcdef", "--os-password=def"]
    flags_of("--os-password", "def", "-K", "abcdef").apply({}, words)
    assert words == ["-K***", "--os-password=***"]


def test_secrets_leave_the_list_of_processes():
    """The system shows other users what is in the memory of the arguments, which is overwritten."""
    text = (
        "import sys; from pathlib import Path; from bench_common.secret import hide_from_system\n"
        "hide_from_system(['hunter2'])\n"
        "print(Path('/proc/self/cmdline').read_bytes().split(b'\\0')[3:], sys.argv[1:])"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, "-K", "hunter2", "after"],
        capture_output=True,
        text=True,
        check=True,
        timeout=END_S,
    )
    assert done.stdout.strip() == "[b'-K', b'*******', b'after', b''] ['-K', 'hunter2', 'after']"


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["run-scenario", "-K", "hunter2", "-f", "x"], ["hunter2"]),
        (
            ["-Khunter2", "--key=two", "--os-password", "three", "--os_auth_token=four"],
            ["hunter2", "two", "three", "four"],
        ),
        (["--os-application-credential-secret", "five", "-T", "six", "--keep", "-k"], ["five", "six"]),
        (["--key-dir", "keys", "--os-username", "me", "-K"], []),
    ],
)
def test_secrets_are_known_by_their_options(arguments, found):
    """Before anybody has read the command line."""
    assert list(secret_arguments(arguments)) == found


def test_secrets_leave_the_list_of_processes_before_modules_are_loaded():
    """Loading takes most of a second."""
    text = (
        "import sys; from pathlib import Path; sys.modules['gevent'] = None\n"
        "try:\n    import bench_master.__main__\n"
        "except ImportError:\n    print(Path('/proc/self/cmdline').read_bytes().split(b'\\0')[3:])"
    )
    command = [sys.executable, "-c", text, "run-scenario", "-K", "hunter2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=END_S)
    assert done.stdout.strip() == "[b'run-scenario', b'-K', b'*******', b'']"


def test_the_servers_of_a_store_are_part_of_what_is_measured():
    """By the names that the system has for their processes, which are cut."""
    names = registry.server_processes(["s3", "noop", "nobody"])
    assert {"swift-proxy-ser", "swift-object-se", "memcached", "versitygw"} <= names
    assert max(map(len, names)) <= 15
    assert registry.server_processes([]) == frozenset()
