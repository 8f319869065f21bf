"""Runs on a host of the fleet: a program of the standard library alone, sent and started over SSH.

It reads one JSON object from stdin (one line), then the files that follow, and answers with one JSON object on
stdout. Keys arrive that way, too: never on a command line, never in an environment. A request has ``verb``,
``directory`` and what the verb needs. It writes nothing outside of ``directory``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import importlib.util
import json
import os
import platform
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

STARTUP_WATCH_S = 10.0
"""How long to watch a worker after its start (s), at most: until it says that it has read its arguments and key."""
LOADING_STAGE = "starting its load process and loading modules"
"""What a worker says of itself until then."""
STOP_TIMEOUT_S = 45.0
"""Time for a worker to clean up before it is killed (s)."""
INSTALL_TIMEOUT_S = 600.0
INDEX_TIMEOUT_S = 240.0
"""Time for this host's pip to download and install packages from its index (s)."""
INDEX_OPTIONS = ("--only-binary=:all:", "--no-cache-dir", "--no-input", "--retries=0", "--timeout=8")
"""An index that is out of reach fails soon, and nothing is compiled here or written outside of the directory."""
LOG_TAIL = 2000
MAX_REASON = 600
"""How much of what a failed tool printed is sent (characters), of its beginning and its end."""
LOG_LIMIT = 8 << 20
"""How much of the end of a log is sent (bytes)."""
CHUNK = 1 << 20
START_VARIABLE = "WEIGHBRIDGE_START_ID"
"""The environment variable that marks the processes of one start of a worker, which inherit it."""
KILL_TIMEOUT_S = 5.0
"""Time for killed processes to be gone (s)."""
STARTED_WORKERS: list[subprocess.Popen[bytes]] = []
"""Workers started by this process; they outlive it, so nothing waits for them."""


class RequestError(Exception):
    """The request cannot be met; the message is for the user."""


def probe(request: dict[str, Any], _files: BinaryIO) -> dict[str, Any]:
    """Return facts of this host and its Python, and what is installed here."""
    directory = request_directory(request)
    return {
        "host": socket.gethostname(),
        "soabi": str(sysconfig.get_config_var("SOABI")),
        "version": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "machine": platform.machine(),
        "libc": " ".join(part for part in platform.libc_ver() if part),
        "venv": has_venv(),
        "pip": importlib.util.find_spec("pip") is not None,
        "reached_at": "".join(os.environ.get("SSH_CONNECTION", "").split(" ")[2:3]),
        "installed": sorted(path.parent.name for path in directory.glob("venvs/*/.complete")),
        "stands_for": sorted({path.read_text("ascii") for path in directory.glob("venvs/*/.complete")} - {""}),
        "wheels": sorted(path.parent.name for path in directory.glob("wheels/*/*.whl")),
        "running": sorted(name for name, state in worker_states(directory).items() if is_alive(state)),
        "directory": str(directory),
    }


def install(request: dict[str, Any], files: BinaryIO) -> dict[str, Any]:
    """Receive the wheels and create the virtual environment; return how long it took.

    Requirements in ``pins`` come from this host's own index, by its own pip. ``stands_for`` is the identity of the
    smaller installation of that kind in place of which everything was sent.
    """
    directory = request_directory(request)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    began = time.monotonic()
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        paths = [store_wheel(directory, wheel, files) for wheel in request["wheels"]]
        target = directory / "venvs" / request["identity"]
        if not (target / ".complete").exists():
            create_venv(target, paths, request.get("pins", []))
            (target / ".complete").write_text(request.get("stands_for", ""), "ascii")
        remove_old_versions(directory, request["identity"], {path.parent.name for path in paths})
    return {"seconds": time.monotonic() - began}


def store_wheel(directory: Path, wheel: dict[str, Any], files: BinaryIO) -> Path:
    """Receive a wheel unless it is here already; return its path once its checksum is right."""
    path = directory / "wheels" / str(wheel["sha256"]) / Path(wheel["name"]).name
    if not wheel["sent"]:
        if not path.exists():
            raise RequestError(f"{path} disappeared since it was listed; try again")
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != wheel["sha256"]:
            # The next attempt sends it.
            shutil.rmtree(path.parent, ignore_errors=True)
            raise RequestError(f"{path} is not what was sent (SHA-256 {found[:12]}), so it was removed; try again")
        return path
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    left = int(wheel["size"])
    temporary = path.with_suffix(".part")
    try:
        with temporary.open("wb") as file:
            while left:
                chunk = files.read(min(left, CHUNK))
                if not chunk:
                    raise RequestError("the connection broke during the upload")
                digest.update(chunk)
                file.write(chunk)
                left -= len(chunk)
        if digest.hexdigest() != wheel["sha256"]:
            raise RequestError(f"{wheel['name']}: checksum mismatch after upload")
        temporary.replace(path)
    except BaseException:
        # Part of a wheel is useless, and keeps a full disk full.
        shutil.rmtree(path.parent, ignore_errors=True)
        raise
    return path


def create_venv(target: Path, wheels: list[Path], pins: list[str]) -> None:
    """Create a virtual environment with the wheels and requirements only; leave nothing behind if that fails."""
    if not has_venv():
        raise RequestError(
            f"{sys.executable} has no module venv; install it (Debian: python3-venv), or set another 'python:'"
        )
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(mode=0o700, exist_ok=True)
    try:
        populate_venv(target, wheels, pins)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def populate_venv(target: Path, wheels: list[Path], pins: list[str]) -> None:
    """Install the wheels with pip, which runs from its own wheel and asks no index.

    With `pins` the pip of this host installs them, as it is configured here, beside the wheels.
    """
    run_tool([sys.executable, "-m", "venv", "--without-pip", str(target)])
    python = str(target / "bin" / "python")
    options = ["--no-deps", "--no-compile", "--disable-pip-version-check", "--root-user-action=ignore"]
    if pins:
        command = [sys.executable, "-I", "-m", "pip", "--python", python]
        words = [*options, *INDEX_OPTIONS, *pins, *(str(path) for path in wheels)]
        run_tool([*command, "install", *words], INDEX_TIMEOUT_S, removed=("PYTHON",))
    else:
        pip = next(path for path in wheels if path.name.startswith("pip-"))
        # Isolated: modules in the current directory must not be found.
        command = [python, "-I", str(pip / "pip")]
        run_tool([*command, "install", "--no-index", *options, *(str(path) for path in wheels if path != pip)])
    run_tool([*command, "check"])


def run_tool(
    command: list[str], timeout_s: float = INSTALL_TIMEOUT_S, removed: tuple[str, ...] = ("PIP_", "PYTHON")
) -> None:
    """Run a program without variables that begin with `removed`; raise `RequestError` with the end of its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(removed)}
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        raise RequestError(f"{Path(command[0]).name} did not finish within {timeout_s:g} s") from None
    if done.returncode:
        words = " ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
        words = words if len(words) <= MAX_REASON else f"{words[: MAX_REASON // 2]} [...] {words[-MAX_REASON // 2 :]}"
        raise RequestError(f"{' '.join(Path(word).name for word in command[:4])} failed: {words}")


def remove_old_versions(directory: Path, identity: str, wheels: set[str]) -> None:
    """Remove environments and wheels of earlier versions that no running worker uses."""
    used = {identity} | {state["identity"] for state in worker_states(directory).values() if is_alive(state)}
    for path in (directory / "venvs").iterdir():
        if path.name not in used:
            shutil.rmtree(path, ignore_errors=True)
    for path in (directory / "wheels").iterdir():
        if path.name not in wheels:
            shutil.rmtree(path, ignore_errors=True)


def start(request: dict[str, Any], _files: BinaryIO) -> dict[str, Any]:
    """Start a worker that outlives this session, unless the same one runs already; return its state and pid.

    A worker that was started for one run does not serve the next: it ends with its run. One that serves another run,
    or was started for one, is not touched: the state is then ``in use``, with whose it is. ``ended_owner`` is the id
    of a master that is known to have ended: what it started for its run is replaced.
    """
    directory = request_directory(request)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Of two masters at once, one starts its worker, and the other sees it.
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return start_worker(request, directory)


def start_worker(request: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Do what `start` says, with the directory locked."""
    name, owner, names = request["name"], request.pop("owner"), request.pop("names")
    ended_owner = request.pop("ended_owner", None)
    python = request.get("python") or directory / "venvs" / request["identity"] / "bin" / "python"
    key = directory / "keys" / f"{name}.key"
    lifetime = request.pop("lifetime")
    mark = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    once = "--once" in lifetime
    before = worker_states(directory).get(name)
    if before is not None and is_alive(before) and before["mark"] == mark and not (once and before.get("once")):
        return {"state": "running", "pid": before["pid"]}
    # All workers of a host belong to one master: of two that start at once none gets a part of them.
    states = worker_states(directory)
    for other in (name, *names):
        state = states.get(other)
        if state is None or not is_alive(state) or (state.get("once") and state.get("owner") == ended_owner):
            continue
        user = user_of(directory, other, state)
        if user is not None and (other == name or state.get("owner") != owner["id"]):
            whose = state.get("owner_process") if state.get("once") else None
            return {"state": "in use", "pid": state["pid"], "detail": user, "owner": whose}
    if before is not None and is_alive(before):
        stop_worker(directory, name, before, time.monotonic() + STOP_TIMEOUT_S)
    for folder in ("keys", "logs", "workers", "work"):
        (directory / folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private(key, request["key"])
    log = directory / "logs" / f"{name}.log"
    if log.exists():
        log.replace(log.with_suffix(".log.1"))
    start_id = secrets.token_hex(16)
    environment = {**os.environ, **request["env"], START_VARIABLE: start_id}
    environment.pop("SSH_AUTH_SOCK", None)
    run_file = directory / "workers" / f"{name}.run"
    run_file.unlink(missing_ok=True)
    stage_file = directory / "workers" / f"{name}.stage"
    stage_file.unlink(missing_ok=True)
    own = ["--run-file", str(run_file), "--stage-file", str(stage_file), "--key", str(key)]
    words = [*request["argv"], *lifetime, *own, name]
    with log.open("ab") as output:
        process = subprocess.Popen(  # noqa: S603  our own program
            [str(python), "-m", "bench_worker", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory / "work",
            env=environment,
            start_new_session=True,
        )
    STARTED_WORKERS.append(process)
    state = {
        "pid": process.pid,
        "born": start_ticks(process.pid),
        "boot": boot_id(),
        "start_id": start_id,
        "mark": mark,
        "identity": request["identity"],
        "once": once,
        "owner": owner["id"],
        "owner_name": owner["name"],
        "owner_process": owner,
        "since": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    }
    write_private(directory / "workers" / f"{name}.json", json.dumps(state))
    deadline = time.monotonic() + STARTUP_WATCH_S
    while time.monotonic() < deadline and not is_loaded(stage_file):
        if process.poll() is not None:
            (directory / "workers" / f"{name}.json").unlink(missing_ok=True)
            raise RequestError(f"the worker exited at once with code {process.returncode}: {tail(log)}")
        time.sleep(0.05)
    return {"state": "started", "pid": process.pid}


def is_loaded(stage_file: Path) -> bool:
    """Return whether a worker says that it has got over what fails at once: arguments, key, modules."""
    with contextlib.suppress(OSError):
        return stage_file.read_text("utf-8", "replace") not in {"", LOADING_STAGE}
    return False


def user_of(directory: Path, name: str, state: dict[str, Any]) -> str | None:
    """Return for whom a running worker works, and since when; None for one that waits for any run."""
    advice = "wait for its end, or end it with fleet stop"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        served = json.loads((directory / "workers" / f"{name}.run").read_text("utf-8"))
        return f"worker {name} serves run {served['run']} of {served['master']} since {served['since']}: {advice}"
    if state.get("once"):
        whose, since = state.get("owner_name", "another master"), state.get("since", "a while ago")
        return f"worker {name} was started for a run of {whose} at {since}: {advice}"
    return None


def stop(request: dict[str, Any], _files: BinaryIO) -> dict[str, Any]:
    """Stop workers and remove their keys; with ``purge`` remove the whole directory. Return how each ended.

    With an ``owner`` only the workers that were started under this id: others belong to somebody else.
    """
    directory = request_directory(request)
    known = worker_states(directory)
    names = request["names"] or sorted(known)
    owner = request.get("owner")
    foreign = [name for name in names if owner and is_alive_foreign(known.get(name), owner)]
    names = [name for name in names if name not in foreign]
    for name in names:
        # All at once: each may take a while to clean up.
        request_stop(known.get(name))
    deadline = time.monotonic() + STOP_TIMEOUT_S
    ended = {name: stop_worker(directory, name, known.get(name), deadline) for name in names}
    ended |= dict.fromkeys(foreign, "left to its master")
    others = [name for name, state in worker_states(directory).items() if is_alive(state)]
    if request.get("purge") and not others and directory.exists():
        shutil.rmtree(directory)
    return {"ended": ended, "others": others}


def is_alive_foreign(state: dict[str, Any] | None, owner: str) -> bool:
    """Return whether a worker runs that was started under another id."""
    return state is not None and state.get("owner") != owner and is_alive(state)


def request_stop(state: dict[str, Any] | None) -> None:
    """Ask a worker to clean up and exit."""
    if state is not None and not state.get("stop_requested"):
        state["stop_requested"] = send_signal(state["pid"], signal.SIGTERM, lambda: is_alive(state))


def stop_worker(directory: Path, name: str, state: dict[str, Any] | None, deadline: float) -> str:
    """Stop a worker and every process that it started; return ``ended``, ``killed`` or ``was not running``."""
    how = "was not running"
    if state is not None and (is_alive(state) or state.get("stop_requested")):
        how = "ended"
        request_stop(state)
        while is_alive(state) and time.monotonic() < deadline:
            time.sleep(0.05)
        if is_alive(state):
            how = "killed"
    if state is not None:
        kill_session(state)
    files = [directory / "workers" / f"{name}{suffix}" for suffix in (".json", ".run", ".stage")]
    for path in (directory / "keys" / f"{name}.key", *files):
        path.unlink(missing_ok=True)
    return how


def logs(request: dict[str, Any], _files: BinaryIO) -> dict[str, Any]:
    """Return the end of the logs of workers, by name."""
    directory = request_directory(request)
    found = {}
    for path in sorted((directory / "logs").glob("*.log")) if (directory / "logs").is_dir() else ():
        if path.stem in request["names"]:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - LOG_LIMIT))
                found[path.stem] = file.read().decode("utf-8", "replace")
    return {"logs": found}


def query(request: dict[str, Any], _files: BinaryIO) -> dict[str, Any]:
    """Return what ``bench-worker`` prints for the flags of a query, one JSON object per line."""
    directory = request_directory(request)
    python = directory / "venvs" / request["identity"] / "bin" / "python"
    done = subprocess.run(  # noqa: S603  our own program
        [str(python), "-m", "bench_worker", *request["flags"]],
        capture_output=True,
        text=True,
        timeout=request["limit_s"],
        check=False,
        cwd=directory,
        env={**os.environ, **request["env"]},
    )
    if done.returncode:
        raise RequestError(f"bench-worker {' '.join(request['flags'])} failed: {done.stderr.strip()[-600:]}")
    return {"rows": [json.loads(line) for line in done.stdout.splitlines() if line.strip()]}


def request_directory(request: dict[str, Any]) -> Path:
    """Return the directory of a request; a relative one starts at the home directory."""
    return Path.home() / Path(request["directory"]).expanduser()


def has_venv() -> bool:
    """Return whether this Python can create virtual environments."""
    try:
        import venv
    except ImportError:
        return False
    return venv is not None


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from the first byte on."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


def worker_states(directory: Path) -> dict[str, dict[str, Any]]:
    """Return the recorded state of each worker that was started here, by name; a damaged one is no state."""
    found = {}
    for path in directory.glob("workers/*.json"):
        with contextlib.suppress(OSError, ValueError):
            state = json.loads(path.read_text("utf-8"))
            if is_state(state):
                found[path.stem] = state
    return found


def is_state(state: object) -> bool:
    """Return whether an object is what `start` records."""
    if not isinstance(state, dict) or not all(isinstance(state.get(name), str) for name in STATE_TEXTS):
        return False
    pid, born = state.get("pid"), state.get("born")
    # Of the pids below 2 none is a worker's, and each means many processes to some system call.
    return type(pid) is int and 1 < pid < 1 << 31 and (born is None or type(born) is int) and bool(state["start_id"])


STATE_TEXTS = ("boot", "start_id", "mark", "identity")


def is_alive(state: dict[str, Any]) -> bool:
    """Return whether a worker's process is running; another process that has its pid by now does not count."""
    return state["born"] is not None and state["boot"] == boot_id() and start_ticks(state["pid"]) == state["born"]


def boot_id() -> str:
    """Return what tells this start of the host from all others: pids and start times begin anew with each."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


def kill_session(state: dict[str, Any]) -> None:
    """Kill the processes in the session of a worker that are proved to be its own, and wait until they are gone.

    The pid of a worker, which is the number of its session, may be that of a stranger's session by now. A process is
    the worker's if it has the start id in its environment; one that has none (it cleared its environment, or runs
    as another user) if one with the id is in the same session, since a session grows by forks alone.
    """
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while time.monotonic() < deadline:
        ours = [pid for pid in session_processes(state["pid"]) if is_of_worker(pid, state)]
        if not ours:
            return
        # The worker itself last: as long as it is there, it proves that the session is its own.
        for pid in sorted(ours, key=lambda pid: (pid == state["pid"], has_start_id(pid, state["start_id"]))):
            send_signal(pid, signal.SIGKILL, functools.partial(is_of_worker, pid, state))
        time.sleep(0.02)


def is_of_worker(pid: int, state: dict[str, Any]) -> bool:
    """Return whether a process is in a worker's session and proved to be its own; see `kill_session`."""
    if state["boot"] != boot_id() or session_of(pid) != state["pid"]:
        return False
    return has_start_id(pid, state["start_id"]) or any(
        has_start_id(other, state["start_id"]) for other in session_processes(state["pid"])
    )


def has_start_id(pid: int, start_id: str) -> bool:
    """Return whether a process was started with a start id in its environment."""
    try:
        return f"{START_VARIABLE}={start_id}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False


def send_signal(pid: int, number: int, is_right: Callable[[], bool]) -> bool:
    """Send a signal to a process if it is the right one; return whether it was sent.

    The check comes after the process is held (pidfd), so that no other can take its pid between the two.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_right():
            return False
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since the boot; None if it has ended."""
    fields = stat_fields(pid)
    return int(fields[19]) if fields else None


def session_of(pid: int) -> int | None:
    """Return the session of a process; None if it has ended."""
    fields = stat_fields(pid)
    return int(fields[3]) if fields else None


def session_processes(leader: int) -> list[int]:
    """Return the processes of a session that are running."""
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return [pid for pid in pids if session_of(pid) == leader]


def stat_fields(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the state (the third of proc(5)) on; none if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []
    return [] if not fields or fields[0] in "XZ" else fields


def tail(path: Path) -> str:
    """Return the end of a log, on one line."""
    with contextlib.suppress(OSError):
        return " ".join(path.read_text("utf-8", "replace")[-LOG_TAIL:].split())
    return ""


def explain_error(error: OSError, directory: Path) -> str:
    """Return what failed where on this host, and what to do."""
    storage_errors = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)
    advice = "; make room there, or set 'directory:' to another directory" if error.errno in storage_errors else ""
    return f"{error.filename or directory}: {error.strerror or error}{advice}"


COMMANDS = {verb.__name__: verb for verb in (probe, install, start, stop, logs, query)}


def main() -> None:
    """Answer the request on stdin."""
    files = sys.stdin.buffer
    request = json.loads(files.readline())
    try:
        answer = COMMANDS[request["verb"]](request, files)
    except RequestError as error:
        answer = {"refused": str(error)}
    except OSError as error:
        answer = {"refused": explain_error(error, request_directory(request))}
    except subprocess.SubprocessError as error:
        answer = {"refused": f"{type(error).__name__}: {error}"}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
