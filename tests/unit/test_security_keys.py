"""Key files, the allow-list, the policy of addresses, ZAP answers, and the keygen command; no network."""

import os
import stat

import pytest
from zmq.utils import z85

from bench_common.curve import RateLimitedLog, ZapVerdict, authenticate, curve_required, insecure_warning, is_loopback
from bench_common.errors import UsageError
from bench_common.keys import (
    CONTROL_DOMAIN,
    RESULTS_DOMAIN,
    AllowList,
    KeyPair,
    WorkerKey,
    add_worker,
    default_directory,
    lane_domain,
    parse_allow_list,
    read_master_key,
    read_worker_key,
    revoke_worker,
    write_master_key,
    write_worker_key,
)
from bench_master.cli import run_command_line

ONE, TWO = KeyPair.generate(), KeyPair.generate()
BLADE = WorkerKey("blade-1", ONE, TWO.public)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_key_files_come_back_as_written(tmp_path):
    """What is written is read back, by its owner only."""
    write_master_key(tmp_path / "m", TWO)
    write_worker_key(tmp_path / "w", BLADE)
    assert read_master_key(tmp_path / "m") == TWO
    assert read_worker_key(tmp_path / "w") == BLADE
    assert mode_of(tmp_path / "m") == mode_of(tmp_path / "w") == 0o600


def test_key_file_is_private_whatever_the_umask(tmp_path):
    """A generous umask does not make a key readable."""
    before = os.umask(0)
    try:
        write_master_key(tmp_path / "m", TWO)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "m") == 0o600


def test_key_is_never_overwritten(tmp_path):
    """Writing over a key is refused and leaves it as it was."""
    write_master_key(tmp_path / "m", ONE)
    with pytest.raises(UsageError, match="never overwritten"):
        write_master_key(tmp_path / "m", TWO)
    assert read_master_key(tmp_path / "m") == ONE


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_key_that_others_can_read_is_refused(tmp_path, mode):
    """A key file open to group or others is not used; the message says what to type."""
    write_master_key(tmp_path / "m", ONE)
    (tmp_path / "m").chmod(mode)
    with pytest.raises(UsageError, match=r"chmod 600 .*/m"):
        read_master_key(tmp_path / "m")


def test_secret_stays_out_of_repr():
    """Neither a pair nor a worker's key shows its secret when printed."""
    assert ONE.secret.decode() not in repr(ONE)
    assert repr(ONE.secret) not in repr(BLADE)


@pytest.mark.parametrize(
    ("line", "replacement", "complaint"),
    [
        ("name", "name: ../etc", r":3:7: name: not a valid worker name"),
        ("public", "public: short", r":4:9: public: a key has 40 characters, not 5"),
        ("public", "public: " + "~" * 40, r":4:9: public: a key is written in Z85"),
        ("secret", "secrte: x", r":5:1: 'secrte': expected one of .* \(did you mean 'secret'\?\)"),
        ("master", "", r"master missing"),
        ("master", "name: twice", r":6:1: name is given twice"),
        pytest.param("public", f"public: {TWO.public.decode()}", r"do not match", id="of-another"),
    ],
)
def test_malformed_key_file_is_named_by_place(tmp_path, line, replacement, complaint):
    """Each thing that can be wrong in a key file is reported with file, line and column."""
    path = tmp_path / "w"
    write_worker_key(path, BLADE)
    lines = [replacement if text.startswith(line) else text for text in path.read_text().splitlines()]
    path.write_text("\n".join(lines))
    with pytest.raises(UsageError, match=complaint):
        read_worker_key(path)


def test_missing_and_binary_files_are_explained(tmp_path):
    """A file that is not there, or is not text, gives a message and no traceback."""
    with pytest.raises(UsageError, match="No such file"):
        read_master_key(tmp_path / "nothing")
    (tmp_path / "noise").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "noise").chmod(0o600)
    with pytest.raises(UsageError, match="not text"):
        read_master_key(tmp_path / "noise")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_CONFIG_HOME": "/x", "HOME": "/home/me"}, "/x/weighbridge/keys"),
        ({"XDG_CONFIG_HOME": "relative", "HOME": "/home/me"}, "/home/me/.config/weighbridge/keys"),
        ({"HOME": "/home/me"}, "/home/me/.config/weighbridge/keys"),
    ],
)
def test_default_directory_follows_xdg(environ, expected):
    """Keys are kept where the XDG specification says."""
    assert str(default_directory(environ)) == expected


def test_generated_public_key_is_never_a_comment(monkeypatch):
    """A pair whose public key begins with '#' is thrown away: its line would be a comment."""
    pairs = iter([(b"#" + b"0" * 39, b"s"), (b"0" * 40, b"s")])
    monkeypatch.setattr("bench_common.keys.zmq.curve_keypair", lambda: next(pairs))
    assert KeyPair.generate().public == b"0" * 40


def test_allow_list_is_lines_of_key_and_name():
    """Comments and blank lines are skipped, the rest is key and name."""
    text = f"# comment\n\n{ONE.public.decode()} one\n  {TWO.public.decode()}   two  \n"
    assert parse_allow_list(text, "f") == {ONE.public: "one", TWO.public: "two"}


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        ("short two", r"^f:2:1: a key has 40"),
        (TWO.public.decode(), r"^f:2:41: missing name"),
        (f"{TWO.public.decode()} a b", r"^f:2:42: worker name 'a b'"),
        (f"{TWO.public.decode()} one", r"^f:2:42: one already has a key on line 1"),
        (f"{ONE.public.decode()} two", r"^f:2:1: duplicate of the key of one"),
    ],
    ids=["short", "nameless", "no-name", "name-twice", "key-twice"],  # keys are others each time
)
def test_malformed_allow_list_is_named_by_place(second, complaint):
    """Each thing that can be wrong in an allow-list is reported with file, line and column."""
    with pytest.raises(UsageError, match=complaint):
        parse_allow_list(f"{ONE.public.decode()} one\n{second}\n", "f")


def test_admission_is_by_key_and_domain(tmp_path):
    """A listed key enters control, results and its own lane; nothing else, and no other key anything."""
    add_worker(tmp_path / "a", ONE.public, "one")
    add_worker(tmp_path / "a", TWO.public, "two")
    admit = AllowList(tmp_path / "a").admit
    assert admit(CONTROL_DOMAIN, ONE.public) == admit(RESULTS_DOMAIN, ONE.public) == "one"
    assert admit(lane_domain("one"), ONE.public) == "one"
    assert admit(lane_domain("two"), ONE.public) is None
    assert admit("", ONE.public) is None
    assert admit("weighbridge.lane.", ONE.public) is None
    assert admit(CONTROL_DOMAIN, KeyPair.generate().public) is None


def test_revocation_counts_at_once(tmp_path):
    """A deleted line counts at the next question; remarks and the other workers stay."""
    path = tmp_path / "a"
    add_worker(path, ONE.public, "one")
    add_worker(path, TWO.public, "two")
    allow = AllowList(path)
    assert allow.has_name("one")
    revoke_worker(path, "one")
    assert allow.admit(CONTROL_DOMAIN, ONE.public) is None
    assert not allow.has_name("one")
    assert allow.admit(CONTROL_DOMAIN, TWO.public) == "two"
    assert path.read_text().startswith("#")


@pytest.mark.parametrize("damage", ["broken", "gone", "writable"])
def test_unusable_list_admits_nobody_until_repaired(tmp_path, damage, caplog):
    """A list that turns malformed, vanishes or is open to other writers shuts the door, loudly, until repaired."""
    path = tmp_path / "a"
    add_worker(path, ONE.public, "one")
    good = path.read_text()
    allow = AllowList(path)
    if damage == "broken":
        path.write_text(good + "half a li")
    elif damage == "gone":
        path.unlink()
    else:
        path.chmod(0o666)
    assert allow.admit(CONTROL_DOMAIN, ONE.public) is None
    assert "all workers are refused" in caplog.text
    path.write_text(good + "# repaired\n")
    path.chmod(0o600)
    assert allow.admit(CONTROL_DOMAIN, ONE.public) == "one"


def test_revoking_a_stranger_names_the_nearest(tmp_path):
    """A misspelt name is answered with the one that was probably meant."""
    add_worker(tmp_path / "a", ONE.public, "blade-1")
    with pytest.raises(UsageError, match="did you mean 'blade-1'"):
        revoke_worker(tmp_path / "a", "blade1")


def test_adding_by_hand_keeps_what_is_there(tmp_path):
    """A last line without its newline is not glued to the added one."""
    path = tmp_path / "a"
    path.write_text(f"# mine\n{ONE.public.decode()} one")
    add_worker(path, TWO.public, "two")
    assert parse_allow_list(path.read_text(), "a") == {ONE.public: "one", TWO.public: "two"}
    with pytest.raises(UsageError, match="begins with '#'"):
        add_worker(path, b"#" + ONE.public[1:], "three")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10:5555", True),
        ("tcp://127.0.0.1:5555", True),
        ("tcp://localhost:5555", True),
        ("LOCALHOST", True),
        ("::1", True),
        ("tcp://[::1]:5555", True),
        ("tcp://[::ffff:127.0.0.1]:1", True),
        ("0.0.0.0", False),
        ("tcp://*:5555", False),
        ("::", False),
        ("tcp://[::]:5555", False),
        ("tcp://eth0:5555", False),
        ("tcp://lo:5555", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
        ("127.1", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_loopback_is_what_certainly_stays_here(address, expected):
    """An address counts as loopback only when that is certain."""
    assert is_loopback(address) is expected


def test_policy_of_addresses():
    """TCP needs CURVE, also on loopback; ipc and inproc do not; --insecure lifts it and says why not."""
    assert curve_required("tcp://0.0.0.0:1")
    assert curve_required("10.1.2.3")
    assert curve_required("tcp://127.0.0.1:1")
    assert not curve_required("ipc:///run/x/control")
    assert not curve_required("inproc://x")
    assert not curve_required("tcp://0.0.0.0:1", insecure=True)
    assert "tcp://0.0.0.0:1" in insecure_warning("tcp://0.0.0.0:1")
    assert "keygen" in insecure_warning("*")
    assert "tcp://127.0.0.1:1" in insecure_warning("tcp://127.0.0.1:1")
    assert insecure_warning("ipc:///run/x/control") == ""


def request(key, domain=b"d", mechanism=b"CURVE"):
    return [b"1.0", b"42", domain, b"10.0.0.9", b"", mechanism, key]


def test_zap_answer_carries_the_name():
    """A known key is answered 200 with its name; the key that is asked about is in Z85, the domain is text."""
    asked = []

    def allow(domain, key):
        asked.append((domain, key))
        return "blade"

    reply = authenticate(request(z85.decode(ONE.public)), allow)
    assert reply.frames == (b"1.0", b"42", b"200", b"OK", b"blade", b"")
    assert reply.verdict is ZapVerdict.ADMITTED
    assert asked == [("d", ONE.public)]


@pytest.mark.parametrize(
    ("frames", "verdict"),
    [
        ([], ZapVerdict.MALFORMED),
        ([b"1.0", b"42"], ZapVerdict.MALFORMED),
        ([b"2.0", *request(bytes(32))[1:]], ZapVerdict.MALFORMED),
        (request(b"31 bytes".ljust(31)), ZapVerdict.MALFORMED),
        ([*request(bytes(32)), b"more"], ZapVerdict.MALFORMED),
        (request(b"x", mechanism=b"PLAIN"), ZapVerdict.REFUSED),
    ],
)
def test_zap_answers_garbage_with_400(frames, verdict):
    """What is no CURVE request is refused with the request's own id and never asks the allow-list."""

    def allow(domain, key):
        raise AssertionError("must not be asked")

    reply = authenticate(frames, allow)
    assert reply.verdict is verdict
    assert reply.frames[2] == b"400"
    assert reply.frames[1] == (frames[1] if len(frames) > 1 else b"")


def test_complaints_are_limited_and_counted():
    """A flood is cut after the burst, and the number held back is told once the window is over."""
    said, now = [], [0.0]
    complaints = RateLimitedLog(said.append, burst=2, window_s=60, clock=lambda: now[0])
    for number in range(5):
        complaints.log(f"no {number}")
    assert said == ["no 0", "no 1"]
    now[0] = 61
    complaints.log("no 5")
    assert said[2:] == ["3 similar lines suppressed", "no 5"]
    complaints.flush()
    assert len(said) == 4


def keygen(tmp_path, *arguments):
    return run_command_line(["keygen", "--key-dir", str(tmp_path / "keys"), *arguments])


def test_keygen_makes_what_master_and_worker_need(tmp_path, capsys):
    """One call makes the directory, both keys and the allow-list, all private, and says what to copy."""
    assert keygen(tmp_path, "--worker", "blade-1") == 0
    directory = tmp_path / "keys"
    master = read_master_key(directory / "master.key")
    worker = read_worker_key(directory / "worker-blade-1.key")
    assert worker.master_public == master.public
    assert AllowList(directory / "authorized_workers").admit(CONTROL_DOMAIN, worker.keys.public) == "blade-1"
    assert mode_of(directory) == 0o700
    assert {mode_of(path) for path in directory.iterdir()} == {0o600}
    printed = capsys.readouterr().out
    assert "scp" in printed
    assert master.secret.decode() not in printed
    assert worker.keys.secret.decode() not in printed


def test_keygen_again_changes_nothing(tmp_path, capsys):
    """A second call keeps the master's key and a listed worker's, and adds only what is new."""
    keygen(tmp_path, "--worker", "one")
    before = {path.name: path.read_bytes() for path in (tmp_path / "keys").glob("*.key")}
    assert keygen(tmp_path, "--worker", "one", "--worker", "two") == 0
    after = {path.name: path.read_bytes() for path in (tmp_path / "keys").glob("*.key")}
    assert after.items() > before.items()
    assert set(after) - set(before) == {"worker-two.key"}
    assert "already" in capsys.readouterr().out


def test_keygen_lists_and_revokes(tmp_path, capsys):
    """--list shows who is admitted; --revoke deletes the line, and the old key is not let in again unasked."""
    keygen(tmp_path, "--worker", "one", "--worker", "two")
    capsys.readouterr()
    assert keygen(tmp_path, "--revoke", "one") == 0
    assert "revoked" in capsys.readouterr().out
    assert keygen(tmp_path, "--list") == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["two"]
    assert keygen(tmp_path, "--worker", "one") == 2
    assert "not on the allow-list" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["../up", "", "-x", "a b", "x" * 65])
def test_keygen_refuses_a_name_that_is_no_name(tmp_path, name, capsys):
    """A name that could leave the directory or break the list is refused before anything is made."""
    assert keygen(tmp_path, f"--worker={name}") == 2
    assert not (tmp_path / "keys").exists()
