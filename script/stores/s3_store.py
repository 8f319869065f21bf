"""Runs an S3 store on loopback, for `script/store`: one program, with settings, logs and objects in one folder.

`script/store` has built the program. Each store gets the same keys, so that one scenario can load two of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from processes import (
    HOST,
    check_port,
    fail,
    identity,
    is_alive,
    last_words,
    print_variables,
    read_state,
    remove_files,
    running_port,
    stop,
    write_state,
)

ACCESS_KEY, SECRET_KEY = "weighbridge", "weighbridge-testing"
REGION = "us-east-1"
READY_TIMEOUT_S = 120.0
ANSWER_S = 5.0
OWN = ("data", "meta", "log", "state.json", ".minio")
"""What a store leaves in its folder, in which there may be more."""


@dataclass(frozen=True)
class Store:
    """A program that is an S3 store.

    `command` gives its arguments for a folder and a port.
    """

    title: str
    command: Callable[[Path, int], list[str]]
    environment: Mapping[str, str] = field(default_factory=dict)


STORES = {
    "versitygw": Store(
        "Versity S3 Gateway",
        lambda home, port: ["--port", f"{HOST}:{port}", "--region", REGION, "--quiet", "posix",
                            "--sidecar", f"{home}/meta", f"{home}/data"],
        {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
    ),
    "minio": Store(
        "MinIO",
        lambda home, port: ["server", "--quiet", "--address", f"{HOST}:{port}", f"{home}/data"],
        {"MINIO_ROOT_USER": ACCESS_KEY, "MINIO_ROOT_PASSWORD": SECRET_KEY, "MINIO_BROWSER": "off",
         "MINIO_REGION": REGION, "MINIO_UPDATE": "off"},
    ),
}  # fmt: skip


def main(argv: list[str]) -> None:
    """Do what `script/store` was asked for."""
    match argv:
        case ["start", name, home, port, program, version]:
            start(name, Path(home), int(port), program, version)
        case ["stop", _, home]:
            stop(Path(home))
        case ["wipe", _, home]:
            stop(Path(home))
            remove_files(Path(home), OWN)
        case ["status", name, home]:
            port = running_port(Path(home), name, f"script/store start {name}")
            if reason := unready(port):
                fail(f"{STORES[name].title} does not answer at http://{HOST}:{port}: {reason}; its log is {home}/log")
            pid, _ = read_state(Path(home))["processes"][name]
            print(f"{STORES[name].title} answers at http://{HOST}:{port}; its files are in {home}")
            print(f"  process {pid}")
        case ["env", name, home]:
            print_variables(variables(running_port(Path(home), name, f"script/store start {name}")))
        case _:
            sys.exit(__doc__)


def start(name: str, home: Path, port: int, program: str, version: str) -> None:
    """Start the store, unless it runs; print what to type next."""
    store, state = STORES[name], read_state(home)
    if state and is_alive(state["processes"].get(name)):
        print_next(name, version, state["port"], "runs already")
        return
    for folder in ("data", "meta"):
        (home / folder).mkdir(parents=True, exist_ok=True)
    check_port(port, name)
    began = time.monotonic()
    with (home / "log").open("w") as log:
        started = subprocess.Popen(  # noqa: S603
            [program, *store.command(home, port)],
            cwd=home,
            env={"HOME": str(home), "PATH": os.environ["PATH"], **store.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    write_state(home, port, {name: identity(started.pid)})
    wait_ready(name, home, port)
    print_next(name, version, port, f"is ready after {time.monotonic() - began:.1f} s")


def wait_ready(name: str, home: Path, port: int) -> None:
    """Wait until the store answers; end it, and tell the reason, where it does not."""
    deadline, reason = time.monotonic() + READY_TIMEOUT_S, "no time for a request"
    while time.monotonic() < deadline:
        state = read_state(home)
        if not state or not is_alive(state["processes"][name]):
            stop(home)
            fail(f"{name} ended at once: {last_words(home / 'log')}")
        reason = unready(port)
        if not reason:
            return
        time.sleep(0.05)
    stop(home)
    fail(f"not ready after {READY_TIMEOUT_S:.0f} s: {reason}; its log is {home}/log")


def unready(port: int) -> str:
    """Return why a request that nobody signed has no answer; "" where it has one, a refusal or not."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(f"http://{HOST}:{port}/", timeout=ANSWER_S).close()
    except urllib.error.HTTPError as error:
        return str(error) if error.code >= HTTPStatus.INTERNAL_SERVER_ERROR else ""
    except OSError as error:
        return str(error)
    return ""


def variables(port: int) -> dict[str, str]:
    """Return the variables with which Weighbridge and aws find the store."""
    return {
        "AWS_ENDPOINT_URL_S3": f"http://{HOST}:{port}",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": REGION,
    }


def print_next(name: str, version: str, port: int, how: str) -> None:
    """Print what to type next."""
    print(f"{STORES[name].title} {version} {how}: http://{HOST}:{port}. Now type:\n")
    print(f'  eval "$(script/store env {name})"')
    print("  bench-master doctor --store s3\n")
    print(f"script/store stop {name} ends it")


main(sys.argv[1:])
