"""Builds and runs `stub_store.c`: an object store that knows its own times, and fails on request."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

SOURCE = Path(__file__).with_name("stub_store.c")
TOKEN = "AUTH_tk0"
"""Its first token."""
AUTH_PATH, ACCOUNT = "/auth/v1.0", "/v1/AUTH_stub"
CANNOT_BUILD = "the stub store is a C program: apt-get install gcc libc6-dev"


def build() -> Path | None:
    """Return the program, built where it is not; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    text = SOURCE.read_bytes()
    program = Path(
        tempfile.gettempdir(), f"weighbridge-stub-store-{os.getuid()}-{hashlib.sha256(text).hexdigest()[:16]}"
    )
    if not program.exists():
        made = program.with_name(f"{program.name}.{os.getpid()}")
        subprocess.run([compiler, "-O2", "-pthread", "-o", str(made), str(SOURCE)], check=True)
        made.rename(program)  # others may build it at the same time
    return program


class StubStore:
    """A running stub: use it as a context, or `close` it. It also ends with the process that started it."""

    def __init__(self, program: Path, port: int = 0) -> None:
        self._process = subprocess.Popen(
            [str(program), str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"
        self.storage_url = self.url + ACCOUNT
        """Swift's storage URL, for `TOKEN`."""
        self.auth_url = self.url + AUTH_PATH
        """For Swift's auth v1, with any user and key."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def fault(self, kind: str, **rule: object) -> None:
        """Have requests fail: `count` of them (all without it), of a `method`, whose path has `match` in it."""
        self._call("PUT", f"/_fault?{urlencode({'kind': kind, **rule})}")

    def heal(self) -> None:
        """Have none fail any more."""
        self._call("DELETE", "/_fault")

    def expire(self) -> None:
        """Make every token of before invalid."""
        self._call("PUT", "/_expire")

    def counts(self) -> dict[str, int]:
        """Return how many connections, requests, methods and answers of each status there were."""
        return dict(json.loads(self._call("GET", "/_counts")))

    def names(self, container: str = "") -> list[str]:
        """Return what a container has, or the names of all containers."""
        path = f"{ACCOUNT}/{container}" if container else ACCOUNT
        return [each["name"] for each in json.loads(self._call("GET", path))]

    def _call(self, method: str, target: str) -> Any:
        request = urllib.request.Request(self.url + target, method=method, headers={"X-Auth-Token": "control"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.read()
