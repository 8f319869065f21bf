"""A host at the other end of an SSH connection: its Python is found, and is asked to do what `native_argv` can."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import paramiko

from bench_master.fleet import remote_agent
from bench_master.fleet.hosts import FleetHost
from bench_master.fleet.ssh import HostError, run_on
from bench_master.fleet.wheels import PythonPlatform, WheelBundle

PYTHON_CANDIDATES: Final = ("python3", *(f"python3.{minor}" for minor in (14, 13, 12, 11)), "/usr/local/bin/python3")
MIN_PYTHON: Final = (3, 11)
CALL_TIMEOUT_S: Final = 30.0
"""How long a host may take for what is no work."""
INSTALL_TIMEOUT_S: Final = 900.0
"""How long it may take to receive wheels and install them."""
CHUNK: Final = 1 << 18

_FIND_SCRIPT: Final = """\
for each in "$@"; do
    path=$(command -v "$each" 2>/dev/null) || continue
    version=$("$path" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    "$path" -c 'import venv' 2>/dev/null && venv=venv || venv=-
    printf '%s %s %s\\n' "$version" "$venv" "$path"
done
"""
_VERSION: Final = re.compile(r"[0-9]+\.[0-9]+")
_BOOTSTRAP: Final = "import sys; exec(compile(sys.stdin.buffer.read(int(sys.argv[1])), 'remote_agent', 'exec'))"


class RemoteHost:
    """One host. Raises `HostError` for whatever cannot be done there."""

    def __init__(self, client: paramiko.SSHClient, host: FleetHost) -> None:
        self._client = client
        self._host = host
        self._program = Path(remote_agent.__file__).read_bytes()
        self.python = self._find_python()
        self.facts = self.call("probe")

    @property
    def python_platform(self) -> PythonPlatform:
        """The kind of its Python."""
        return PythonPlatform(*(str(self.facts[name]) for name in ("soabi", "version", "machine", "libc")))

    def call(
        self, verb: str, files: Iterable[Path] = (), timeout_s: float = CALL_TIMEOUT_S, **fields: Any
    ) -> dict[str, Any]:
        """Have `native_argv` do something; return its answer."""
        request = {"verb": verb, "directory": self._host.directory, **fields}
        command = [self.python, "-I", "-c", _BOOTSTRAP, str(len(self._program))]
        stdin = _request_parts(self._program, json.dumps(request).encode() + b"\n", files)
        result = run_on(self._client, command, stdin=stdin, timeout_s=timeout_s)
        try:
            answer = json.loads(result.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            words = result.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it result nothing"]
            raise HostError(f"{self.python} failed with exit code {result.status}: {words[0][:300]}") from None
        if "refused" in answer:
            raise HostError(str(answer["refused"]))
        return dict(answer)

    def needs_install(self, bundle: WheelBundle) -> bool:
        """Return whether this installation is not on the host yet, in just this version."""
        return bundle.identity not in self.facts["installed"]

    def install(self, bundle: WheelBundle) -> None:
        """Send the wheels that the host has not, and install them."""
        there = set(self.facts["wheels"])
        wheels = [
            {"name": wheel.name, "sha256": wheel.sha256, "size": wheel.size_bytes, "sent": wheel.sha256 not in there}
            for wheel in bundle.wheels
        ]
        files = [wheel.path for wheel in bundle.wheels if wheel.sha256 not in there]
        self.call("install", files=files, timeout_s=INSTALL_TIMEOUT_S, identity=bundle.identity, wheels=wheels)

    def upload_bytes(self, bundle: WheelBundle) -> int:
        """Return how much `install` would send, in bytes."""
        there = set(self.facts["wheels"])
        return sum(wheel.size_bytes for wheel in bundle.wheels if wheel.sha256 not in there)

    def _find_python(self) -> str:
        named = self._host.python
        candidates = [named] if named is not None else list(PYTHON_CANDIDATES)
        result = run_on(self._client, ["sh", "-c", _FIND_SCRIPT, "sh", *candidates], timeout_s=CALL_TIMEOUT_S)
        rows = [line.split(" ", 2) for line in result.stdout.decode("utf-8", "replace").splitlines()]
        # A login shell may greet us on the same stream.
        found = [(row[0], row[1], row[2]) for row in rows if len(row) == 3 and _VERSION.fullmatch(row[0])]  # noqa: PLR2004
        return _select_python(found, named, result.stderr.decode("utf-8", "replace"))


def _select_python(found: Sequence[tuple[str, str, str]], named: str | None, complaint: str) -> str:
    """Return the first Python that will do; raise `HostError` with what was found instead."""
    recent = [row for row in found if tuple(map(int, row[0].split("."))) >= MIN_PYTHON]
    for _, venv, path in recent:
        if venv == "venv":
            return path
    if recent:
        raise HostError(
            f"{recent[0][2]} lacks the module venv; install it (Debian: python3-venv), or name another with 'python:'"
        )
    what = f"'python: {named}'" if named is not None else "Python 3.11 or newer"
    seen = ", ".join(sorted({f"{path} ({version})" for version, _, path in found})) or "none at all"
    words = f" ({complaint.strip()[-200:]})" if complaint.strip() and not found else ""
    raise HostError(f"{what} is not there: found {seen}{words}; install one, or name one with 'python:'")


def _request_parts(program: bytes, request: bytes, files: Iterable[Path]) -> Iterator[bytes]:
    yield program
    yield request
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk
