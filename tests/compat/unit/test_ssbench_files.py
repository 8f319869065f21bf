"""ssbench's stat files: read in every spelling, cut or damaged, and never with the credentials that they hold."""

import gzip

import msgpack
import pytest
from ssbench_results import DONE, FAILED, SCENARIO, SECRETS

from bench_common.errors import UsageError
from bench_common.safe_text import mask_credentials
from bench_features.compat.ssbench_file import StatFile, StatResult, describe_failure


def read(path):
    file = StatFile(str(path))
    return file, list(file.results())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.stat"


def packed(*records, raw=True):  # raw: as Python 2
    return b"".join(msgpack.packb(record, use_bin_type=not raw) for record in records)


def as_bytes(value):
    """Return a value with bytes in the place of every text, as Python 3 may pack it."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        return {as_bytes(key): as_bytes(one) for key, one in value.items()}
    return [as_bytes(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("spelling", ["raw", "text", "bytes"])
@pytest.mark.parametrize("layers", [0, 1, 2])
def test_a_file_is_read_in_every_spelling_of_both_pythons_and_however_often_compressed(path, spelling, layers):
    records = [SCENARIO, [DONE], [DONE, FAILED]]
    data = packed(*(as_bytes(records) if spelling == "bytes" else records), raw=spelling == "raw")
    for _ in range(layers):
        data = gzip.compress(data)
    path.write_bytes(data)
    file, results = read(path)
    done = StatResult("read", "tiny", "0", 1000.5, 0.25, 0.5, 1, None, "tx1")
    assert (file.scenario, file.damage, file.skipped, file.size_bytes) == (SCENARIO, "", 0, len(data))
    assert results[:2] == [done, done]
    assert (results[2].operation, results[2].size, results[2].last_s, results[2].worker) == ("create", 7, None, "a")
    assert results[2].failure is not None
    assert results[2].failure[0] == "http-503"


def test_no_credential_of_a_failed_result_is_read(path):
    path.write_bytes(packed(SCENARIO, [FAILED, {**FAILED, "exception": f"Boom({SECRETS!r})", "traceback": ""}]))
    _, results = read(path)
    assert len(results) == 2
    assert not any(secret in repr(results[0]) for secret in SECRETS)
    assert SECRETS[1] not in repr(results[1])


def test_the_real_files_are_read_whole():
    for name in ("small", "medium"):
        file, results = read(f"tests/data/ssbench/{name}_test.stat.gz")
        assert (len(results), file.damage, file.skipped, file.scenario["version"]) == (300, "", 0, "0.3.9")


def test_a_truncated_file_gives_what_is_whole_and_says_so(path):
    data = packed(SCENARIO, [DONE], [DONE])
    for data_cut, count, damaged in ((len(data) - 3, 1, True), (len(data) - len(packed([DONE])), 1, False)):
        path.write_bytes(data[:data_cut])
        file, results = read(path)
        assert (len(results), bool(file.damage)) == (count, damaged)
    path.write_bytes(gzip.compress(data)[:-12])
    assert "compressed data" in read(path)[0].damage
    path.write_bytes(data + b"\xc1\xc1")
    assert "malformed" in read(path)[0].damage


def test_results_without_what_each_has_are_counted(path):
    path.write_bytes(packed(SCENARIO, [{"job_datum": None}, DONE, {**DONE, "last_byte_latency": float("nan")}]))
    file, results = read(path)
    assert (len(results), file.skipped) == (1, 2)


@pytest.mark.parametrize(
    "content", [b"", b"\x80", b"name: x\n", gzip.compress(b"", mtime=0), packed([DONE]), b"\x1f\x8bxx"]
)
def test_another_file_is_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(UsageError, match="not a stat file of ssbench"):
        StatFile(str(path))


def test_a_missing_file_is_refused(path):
    with pytest.raises(UsageError, match="No such file"):
        StatFile(str(path))


@pytest.mark.parametrize(
    ("exception", "kind"),
    [
        ("timeout('timed out',)", "timeout"),
        ("error(111, 'Connection refused')", "refused"),
        ("error(104, 'Connection reset by peer')", "reset"),
        ("HTTPConnectionClosed('connection closed.')", "closed"),
        ("Exception('No fn_results for <function get_object> after 10 retries',)", "gave-up"),
        ("ValueError('x',)", "failed"),
        ("ClientException: Object GET failed: http://h:8080/v1/AUTH_a/c/o 404 Not Found", "http-404"),
    ],
)
def test_a_failure_has_a_kind(exception, kind):
    assert describe_failure(exception)[0] == kind


def test_what_could_be_a_credential_is_masked():
    text = (
        f"{{'key': '{SECRETS[0]}', u'auth_token': u'{SECRETS[1]}', \"os_password\": \"{SECRETS[2]}\"}} "
        f"X-Auth-Token: {SECRETS[1]} Authorization: Bearer {SECRETS[0]} "
        f"http://me:{SECRETS[2]}@h/v1 api_key={SECRETS[0]}"
    )
    masked = mask_credentials(text)
    assert not any(secret in masked for secret in SECRETS), masked
    assert "http://***@h/v1" in masked
