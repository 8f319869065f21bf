"""Commands of the remote agent in a directory of a host: keys, states, refusals, leftovers."""

import contextlib
import errno
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from deadlines import ANSWER_S

from bench_common.startup import STAGE_ENGINES, STAGE_LOADING
from bench_features.fleet import remote_agent
from bench_features.fleet.remote_agent import RequestError

START_ID = "the id of a start"


@pytest.fixture
def there(tmp_path, monkeypatch):
    """A home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def call(verb, files=b"", **fields):
    """Run a command in the directory ``wb`` of the home."""
    return remote_agent.COMMANDS[verb]({"verb": verb, "directory": "wb", **fields}, io.BytesIO(files))


def wheel(content, *, sent=True, name="a-1-py3-none-any.whl"):
    """Describe a wheel of some content."""
    digest = hashlib.sha256(content).hexdigest()
    return {"name": name, "sha256": digest, "size": len(content), "sent": sent}


def test_a_probe_of_a_fresh_host(there):
    """It reports its Python and that nothing is installed, and creates nothing."""
    found = call("probe")
    assert (found["installed"], found["wheels"], found["venv"]) == ([], [], True)
    assert found["version"] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert found["directory"] == str(there / "wb")
    assert list(there.iterdir()) == []


def test_a_wheel_is_what_was_sent(there):
    """It is kept by its content, and need not be sent again."""
    path = remote_agent.store_wheel(there / "wb", wheel(b"one"), io.BytesIO(b"one and more"))
    assert path.read_bytes() == b"one"
    assert remote_agent.store_wheel(there / "wb", wheel(b"one", sent=False), io.BytesIO()) == path


@pytest.mark.parametrize(
    ("described", "sent", "why"),
    [
        (wheel(b"one"), b"two", "checksum mismatch after upload"),
        (wheel(b"one"), b"on", "the connection broke during the upload"),
        (wheel(b"one", sent=False), b"", "disappeared since it was listed"),
    ],
)
def test_a_wheel_that_is_not_is_refused(there, described, sent, why):
    """Nothing of it is ever installed."""
    with pytest.raises(RequestError, match=why):
        remote_agent.store_wheel(there / "wb", described, io.BytesIO(sent))
    assert [path for path in there.rglob("*") if path.is_file()] == []


def test_a_wheel_that_was_altered_on_the_host_is_refused_and_sent_again(there):
    """What was sent before is installed only if it is still that; the next attempt finds nothing, and sends it."""
    path = remote_agent.store_wheel(there / "wb", wheel(b"one"), io.BytesIO(b"one"))
    path.write_bytes(b"two")
    with pytest.raises(RequestError, match=r"is not what was sent .* so it was removed; try again"):
        remote_agent.store_wheel(there / "wb", wheel(b"one", sent=False), io.BytesIO())
    assert call("probe")["wheels"] == []
    assert remote_agent.store_wheel(there / "wb", wheel(b"one"), io.BytesIO(b"one")).read_bytes() == b"one"


def test_the_hosts_own_pip_installs_what_is_not_sent(there, monkeypatch):
    """As it is configured there, in exact versions, without compiling or a cache; without an index it fails soon."""
    ran, made = [], []

    def create(target, *more):
        target.mkdir(parents=True)
        made.extend(more)

    monkeypatch.setattr(remote_agent, "run_tool", lambda command, *rest, **named: ran.append((command, rest, named)))
    monkeypatch.setattr(remote_agent, "create_venv", create)
    body = b"one"
    request = {"identity": "i", "wheels": [wheel(body)], "pins": ["b==2"], "stands_for": ""}
    call("install", body, **request)
    call("install", body, **request | {"identity": "j", "pins": [], "stands_for": "i"})
    assert made[1::2] == [["b==2"], []]
    found = call("probe")
    assert (found["pip"], found["installed"], found["stands_for"]) == (True, ["j"], ["i"])
    remote_agent.populate_venv(there / "x", [Path("a.whl")], ["b==2"])
    (_, (command, (limit_s,), named), check) = ran
    assert command[1:6] == ["-I", "-m", "pip", "--python", str(there / "x/bin/python")]
    assert command[-2:] == ["b==2", "a.whl"]
    assert {"--no-deps", "--only-binary=:all:", "--no-cache-dir", "--retries=0", "--timeout=8"} <= set(command)
    assert limit_s <= 300
    assert named == {"removed": ("PYTHON",)}
    assert check[0][-1] == "check"


def test_half_an_environment_does_not_stay(there, monkeypatch):
    """A full disk does not become fuller."""

    def fill(target, _wheels, _pins):
        (target / "lib").mkdir(parents=True)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(remote_agent, "populate_venv", fill)
    with pytest.raises(OSError, match="No space left"):
        remote_agent.create_venv(there / "venvs" / "x", [], [])
    assert list((there / "venvs").iterdir()) == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "/d: No space left on device; make room there, or set"),
        (OSError(errno.EROFS, "Read-only file system", "/d/x"), "/d/x: Read-only file system; make room there, or"),
        (OSError(errno.ENOENT, "No such file or directory", "/proc/d"), "/proc/d: No such file or directory"),
    ],
)
def test_an_error_on_a_host_names_the_path(error, said):
    """And what to do, if the directory is the problem."""
    assert remote_agent.explain_error(error, Path("/d")).startswith(said)


def test_a_wheels_name_cannot_leave_the_directory(there):
    """A path in it is cut off."""
    path = remote_agent.store_wheel(there / "wb", wheel(b"x", name="../../../evil.whl"), io.BytesIO(b"x"))
    assert path.is_relative_to(there / "wb" / "wheels")


def test_a_private_file_is_private_from_the_first(there):
    """Whatever the umask, and also when it replaces one that was not."""
    path = there / "key"
    path.write_text("old")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        remote_agent.write_private(path, "new")
    finally:
        os.umask(before)
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)
    assert [each.name for each in there.iterdir()] == ["key"]


def state_of(process, **other):
    """Describe a process as `start` does after it has started a worker."""
    known = {"born": remote_agent.start_ticks(process), "boot": remote_agent.boot_id(), "start_id": START_ID}
    return {"pid": process, **known, "mark": "", "identity": "x", "once": False, **other}


def test_a_reused_pid_is_not_the_worker():
    """Only a process with the same start time, since the same start of the host, is."""
    own = state_of(os.getpid())
    assert remote_agent.is_alive(own)
    assert not remote_agent.is_alive({**own, "born": own["born"] - 1})
    assert not remote_agent.is_alive({**own, "born": None})
    assert not remote_agent.is_alive({**own, "boot": "another"})


@pytest.mark.parametrize("fails", [True, False])
def test_a_start_is_watched_until_the_worker_is_loaded(there, monkeypatch, fails):
    """However long its interpreter takes: it says so in its stage file, or it has ended and its log says why."""
    monkeypatch.setattr(remote_agent, "STARTUP_WATCH_S", ANSWER_S)
    monkeypatch.setattr(remote_agent, "STARTED_WORKERS", [])
    assert remote_agent.LOADING_STAGE == STAGE_LOADING
    last = "echo this zmq is broken >&2; exit 1" if fails else f"printf %s '{STAGE_ENGINES}' > $2; exec sleep 60"
    program = there / "python"
    # The fake interpreter is loading until the file is there that the test makes once it was asked about it.
    program.write_text(
        '#!/bin/sh\nwhile [ "$1" != --stage-file ]; do shift; done\n'
        f"printf %s '{STAGE_LOADING}' > $2; until [ -e {there}/go ]; do sleep 0.01; done; {last}\n"
    )
    program.chmod(0o700)
    looks = []

    def look(stage_file, really=remote_agent.is_loaded):
        looks.append(found := really(stage_file))
        if len(looks) == 3:
            (there / "go").touch()
        return found

    monkeypatch.setattr(remote_agent, "is_loaded", look)
    whose = {"id": "alice", "name": "alice@master (process 7)"}
    words = {"name": "w", "identity": "i", "key": "k", "argv": [], "env": {}, "python": str(program), "names": ["w"]}
    try:
        if fails:
            with pytest.raises(RequestError, match="exited at once with code 1: this zmq is broken"):
                call("start", lifetime=[], owner=whose, **words)
        else:
            assert call("start", lifetime=[], owner=whose, **words)["state"] == "started"
            assert looks[-1]
        assert len(looks) > 3
    finally:
        call("stop", names=["w"])
        for child in remote_agent.STARTED_WORKERS:
            child.wait(ANSWER_S)
    assert not (there / "wb/workers/w.stage").exists()


@pytest.mark.parametrize(
    ("first", "second", "changed", "served", "state"),
    [
        (True, True, False, False, "in use"),
        (False, True, False, False, "running"),
        (True, False, False, False, "running"),
        (False, False, True, False, "started"),
        (False, False, True, True, "in use"),
        (True, False, True, True, "in use"),
    ],
)
def test_a_worker_that_works_for_somebody_is_not_taken(there, monkeypatch, first, second, changed, served, state):
    """A run uses a worker that waits for any run; one of another run, or that serves one, is left, and said whose."""
    monkeypatch.setattr(remote_agent, "STARTUP_WATCH_S", 0.0)
    monkeypatch.setattr(remote_agent, "STARTED_WORKERS", [])
    program = there / "python"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o700)
    words = {
        "name": "w",
        "identity": "i",
        "key": "k",
        "argv": [],
        "env": {},
        "python": str(program),
        "names": ["w", "x"],
    }

    def start(owner, *, once, **given):
        whose = {"id": owner, "name": f"{owner}@master (process 7)"}
        return call("start", lifetime=["--once"] if once else [], owner=whose, **{**words, **given})

    before = start("alice", once=first)
    run_file = there / "wb/workers/w.run"
    if served:
        run_file.write_text(json.dumps({"run": "r1", "master": "carol@far (process 9)", "since": "2026-01-01"}))
    try:
        after = start("bob", once=second, argv=["-v"] if changed else [])
        assert before["state"] == "started"
        assert (after["state"], after["pid"] == before["pid"]) == (state, state != "started")
        if state == "in use":
            whose = (
                "serves run r1 of carol@far (process 9) since 2026-01-01" if served else "alice@master (process 7) at"
            )
            assert whose in after["detail"]
            other = start("bob", once=second, name="x")
            assert (other["state"], other["detail"]) == (state, after["detail"]), "a host has one master"
            assert call("stop", names=["w"], owner="bob")["ended"] == {"w": "left to its master"}
            assert remote_agent.is_alive(remote_agent.worker_states(there / "wb")["w"])
        assert call("stop", names=["w"], owner="bob" if state == "started" else "alice")["ended"]["w"] == "ended"
        assert not run_file.exists()
    finally:
        call("stop", names=["w"])
        for child in remote_agent.STARTED_WORKERS:
            child.wait(ANSWER_S)


def test_stop_spares_what_is_not_the_worker(there):
    """A state whose pid is another process's ends nobody; key and state are removed."""
    for folder in ("keys", "workers"):
        (there / "wb" / folder).mkdir(parents=True)
    (there / "wb/keys/w.key").write_text("secret")
    state = state_of(os.getppid(), born=1)
    (there / "wb/workers/w.json").write_text(json.dumps(state))
    assert call("stop", names=["w"]) == {"ended": {"w": "was not running"}, "others": []}
    assert [path for path in (there / "wb").rglob("*") if path.is_file()] == []


@pytest.fixture
def sessions():
    """Start sessions of two processes, as the owner of a start id or as a stranger; end what is left of them."""
    begun = []

    def begin(*, start_id=None, setup=":", first="exec sleep 600", child="sleep 600"):
        environment = {**os.environ, **({} if start_id is None else {remote_agent.START_VARIABLE: start_id})}
        script = f"{setup}; {child} & echo $!; {first}"
        process = subprocess.Popen(
            ["sh", "-c", script], stdout=subprocess.PIPE, env=environment, start_new_session=True, text=True
        )
        begun.append((process, int(process.stdout.readline())))
        return begun[-1]

    yield begin
    for process, child in begun:
        process.stdout.close()
        for pid in (process.pid, child):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait(ANSWER_S)


def stop_with(there, monkeypatch, state):
    """Write a state file as it may be found, and stop its worker."""
    monkeypatch.setattr(remote_agent, "STOP_TIMEOUT_S", 0.3)
    (there / "wb/workers").mkdir(parents=True, exist_ok=True)
    (there / "wb/workers/w.json").write_text(json.dumps(state))
    return call("stop", names=["w"])["ended"]["w"]


def is_running(pid):
    return remote_agent.start_ticks(pid) is not None


@pytest.mark.parametrize(
    "found",
    [
        {"born": 1},
        {"boot": "before"},
        {"born": 1, "boot": "before"},
        {"start_id": ""},
        {"start_id": None},
        {"pid": 0},
        {"pid": -1},
        {"pid": "1"},
        {"pid": 1 << 80},
        {"pid": True},
        {"boot": None},
    ],
    ids=str,
)
def test_a_strangers_session_survives_a_state_that_names_it(there, monkeypatch, sessions, found):
    """After a reboot the pid of a worker may be that of anybody's session; nor does a damaged state end anybody."""
    stranger, child = sessions()
    assert stop_with(there, monkeypatch, state_of(stranger.pid, **found)) == "was not running"
    assert is_running(stranger.pid)
    assert is_running(child)
    assert list((there / "wb/workers").iterdir()) == []


def test_a_worker_that_does_not_end_is_killed_with_its_session(there, monkeypatch, sessions):
    """Including a process that cleared its environment: it is in the session of a process that is the worker's."""
    worker, child = sessions(
        start_id=START_ID, setup="trap '' TERM", first="while :; do sleep 0.1; done", child="env -i sleep 600"
    )
    assert stop_with(there, monkeypatch, state_of(worker.pid)) == "killed"
    assert worker.wait(ANSWER_S) == -signal.SIGKILL
    assert not is_running(child)


def test_what_a_dead_worker_left_is_killed_by_its_start_id(there, monkeypatch, sessions):
    """A process with another start's id stays."""
    worker, child = sessions(start_id=START_ID, first="exit 0")
    before = state_of(worker.pid)
    worker.wait(ANSWER_S)
    assert stop_with(there, monkeypatch, {**before, "start_id": "another"}) == "was not running"
    assert is_running(child)
    assert stop_with(there, monkeypatch, before) == "was not running"
    assert not is_running(child)


def test_purge_spares_what_others_run(there):
    """While a worker of another inventory is alive there, nothing of the installation goes."""
    (there / "wb/workers").mkdir(parents=True)
    state = state_of(os.getpid())
    (there / "wb/workers/other.json").write_text(json.dumps(state))
    assert call("stop", names=["w"], purge=True)["others"] == ["other"]
    assert (there / "wb").exists()
    (there / "wb/workers/other.json").unlink()
    call("stop", names=["w"], purge=True)
    assert not (there / "wb").exists()


def test_the_end_of_a_long_log(there, monkeypatch):
    """Of the workers that were asked for alone."""
    (there / "wb/logs").mkdir(parents=True)
    monkeypatch.setattr(remote_agent, "LOG_LIMIT", 4)
    (there / "wb/logs/a.log").write_text("12345678")
    (there / "wb/logs/b.log").write_text("x")
    assert call("logs", names=["a", "c"]) == {"logs": {"a": "5678"}}


def test_old_versions_are_removed_unless_they_run(there):
    """The one that a live worker was started from stays."""
    for name in ("old", "used", "new"):
        (there / "wb/venvs" / name).mkdir(parents=True)
        (there / "wb/wheels" / name).mkdir(parents=True)
    (there / "wb/workers").mkdir()
    state = state_of(os.getpid(), identity="used")
    (there / "wb/workers/w.json").write_text(json.dumps(state))
    remote_agent.remove_old_versions(there / "wb", "new", {"new"})
    assert {path.name for path in (there / "wb/venvs").iterdir()} == {"new", "used"}
    assert {path.name for path in (there / "wb/wheels").iterdir()} == {"new"}


def test_it_runs_as_it_is_sent(there):
    """Through the stdin of a bare interpreter, the request after it; the answer is JSON, also if it is an error."""
    program = Path(remote_agent.__file__).read_bytes()
    boot = "import sys; exec(compile(sys.stdin.buffer.read(int(sys.argv[1])), 'remote_agent', 'exec'))"

    def send(request):
        said = subprocess.run(
            [sys.executable, "-I", "-c", boot, str(len(program))],
            input=program + json.dumps(request).encode() + b"\n",
            capture_output=True,
            check=True,
            env={"HOME": str(there)},
        )
        return json.loads(said.stdout)

    assert send({"verb": "probe", "directory": "wb"})["installed"] == []
    (there / "file").write_text("")
    answer = send({"verb": "install", "directory": "file", "identity": "i", "wheels": []})
    assert answer["refused"].endswith("/file: File exists")


def test_it_needs_nothing_but_the_standard_library():
    """A host has no more than that."""
    lines = Path(remote_agent.__file__).read_text("utf-8").splitlines()
    imported = [line.split()[1].split(".")[0] for line in lines if line.startswith(("import ", "from "))]
    assert {name for name in imported if name not in sys.stdlib_module_names} == set()
