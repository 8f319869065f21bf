"""The processes of a store that `script/store` started: found again by number and start time, and ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

HOST = "127.0.0.1"
STOP_TIMEOUT_S = 10.0


def fail(reason: str) -> NoReturn:
    """End with exit code 3."""
    print(f"store: {reason}", file=sys.stderr)
    sys.exit(3)


def check_port(port: int, name: str) -> None:
    """End where a port is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            fail(f"port {port} (for the {name} server) cannot be used: {error.strerror}; take others with --port N")


def stop(home: Path) -> None:
    """End the store's processes, and no other that got one of their numbers."""
    state = read_state(home)
    processes = [process for process in (state or {}).get("processes", {}).values() if is_alive(process)]
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for pid, _ in processes:
            with suppress(ProcessLookupError):
                os.killpg(pid, sign)
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while time.monotonic() < deadline and any(is_alive(process) for process in processes):
            time.sleep(0.02)
    (home / "state.json").unlink(missing_ok=True)


def identity(pid: int) -> list[int]:
    """Return a process's number and its start time, which tell it from every other."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [pid, int(fields[19])]


def is_alive(process: list[int] | None) -> bool:
    """Return whether a process lives; one that has ended and was not collected yet does not."""
    try:
        return (
            process is not None
            and identity(process[0]) == process
            and Path(f"/proc/{process[0]}/stat").read_text().rpartition(")")[2].split()[0] not in "XZ"
        )
    except OSError:
        return False


def read_state(home: Path) -> dict | None:
    """Return what the last start wrote; None where nothing was started."""
    try:
        return json.loads((home / "state.json").read_text())
    except (OSError, ValueError):
        return None


def write_state(home: Path, port: int, processes: dict[str, list[int]]) -> None:
    """Write which processes there are, so that `stop` finds them whatever fails next."""
    (home / "state.json").write_text(json.dumps({"port": port, "processes": processes}))


def running_port(home: Path, main: str, advice: str) -> int:
    """Return the port of the store whose process `main` runs; end with the advice where it does not."""
    state = read_state(home)
    if not state or not is_alive(state["processes"].get(main)):
        fail(f"the store does not run; start it: {advice}")
    return int(state["port"])


def last_words(log: Path, count: int = 5) -> str:
    """Return the end of a log in one line."""
    tail = log.read_text("utf-8", "replace").strip().splitlines()[-count:]
    return " | ".join(tail) or "it wrote nothing"


def print_variables(variables: dict[str, str]) -> None:
    """Print them as a shell reads them."""
    for name, value in variables.items():
        print(f"export {name}={value}")


def remove_files(home: Path, names: tuple[str, ...]) -> None:
    """Remove files and folders of a store, and nothing else of its folder."""
    for name in names:
        path = home / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
