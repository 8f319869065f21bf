"""A host at the other end of an SSH connection: finds a Python there, with which it runs `remote_agent`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import paramiko

from bench_common.safe_text import shorten
from bench_features.fleet import remote_agent
from bench_features.fleet.hosts import FleetHost
from bench_features.fleet.ssh import HostError, run_on
from bench_features.fleet.wheels import PythonPlatform, WheelBundle

PYTHON_CANDIDATES: Final = ("python3", *(f"python3.{minor}" for minor in (14, 13, 12, 11)), "/usr/local/bin/python3")
MIN_PYTHON: Final = (3, 11)
CALL_TIMEOUT_S: Final = 30.0
"""Time limit of a call that only reads or starts something (s)."""
INSTALL_TIMEOUT_S: Final = 900.0
"""Time limit for receiving wheels and installing them (s)."""
CHUNK: Final = 1 << 18
"""How much of a file is read at once (bytes)."""

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
    """One host. Raises `HostError` for everything that fails there."""

    def __init__(self, client: paramiko.SSHClient, host: FleetHost) -> None:
        self._client = client
        self._host = host
        self._program = Path(remote_agent.__file__).read_bytes()
        self.python = self._find_python()
        self.facts = self.call("probe")

    @property
    def python_platform(self) -> PythonPlatform:
        """The platform of its Python."""
        return PythonPlatform(*(str(self.facts[name]) for name in ("soabi", "version", "machine", "libc")))

    def call(
        self,
        verb: str,
        files: Iterable[Path] = (),
        timeout_s: float = CALL_TIMEOUT_S,
        *,
        on_sent: Callable[[int], None] | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Run a command of `remote_agent`, with `files` as further input; return its answer.

        `on_sent` gets how many bytes of the files were sent so far.
        """
        request = {"verb": verb, "directory": self._host.directory, **fields}
        command = [self.python, "-I", "-c", _BOOTSTRAP, str(len(self._program))]
        stdin = _request_parts(self._program, json.dumps(request).encode() + b"\n", files, on_sent)
        result = run_on(self._client, command, stdin=stdin, timeout_s=timeout_s)
        try:
            answer = json.loads(result.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            last_line = result.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["it printed nothing"]
            raise HostError(
                f"{self.python} failed with exit code {result.status}: {shorten(last_line[0], 600)}"
            ) from None
        if "refused" in answer:
            raise HostError(str(answer["refused"]))
        return dict(answer)

    @property
    def has_pip(self) -> bool:
        """Whether its Python has a pip of its own."""
        return bool(self.facts["pip"])

    def has(self, bundle: WheelBundle) -> bool:
        """Return whether the host has exactly this installation."""
        return bundle.identity in self.facts["installed"]

    def has_whole(self, bundle: WheelBundle) -> bool:
        """Return whether everything was sent to the host before, as its index could not supply this bundle's rest."""
        return bundle.identity in self.facts["stands_for"]

    def install(
        self, bundle: WheelBundle, *, stands_for: str = "", on_sent: Callable[[int], None] | None = None
    ) -> None:
        """Send the wheels that the host does not have yet, and install all of them, with what its index has to add.

        `stands_for` is the identity of the bundle that its index could not complete. Where the host refuses a wheel
        that it had, since that is no longer what was sent, it is sent again.
        """
        there = set(self.facts["wheels"])
        try:
            self._install(bundle, there, stands_for, on_sent)
        except HostError:
            self.facts = self.call("probe")
            left = set(self.facts["wheels"])
            if not any(wheel.sha256 in there - left for wheel in bundle.wheels):
                raise
            self._install(bundle, left, stands_for, on_sent)

    def _install(
        self, bundle: WheelBundle, there: set[str], stands_for: str, on_sent: Callable[[int], None] | None
    ) -> None:
        wheels = [
            {"name": wheel.name, "sha256": wheel.sha256, "size": wheel.size_bytes, "sent": wheel.sha256 not in there}
            for wheel in bundle.wheels
        ]
        files = [wheel.path for wheel in bundle.wheels if wheel.sha256 not in there]
        self.call(
            "install",
            files=files,
            timeout_s=INSTALL_TIMEOUT_S,
            on_sent=on_sent,
            identity=bundle.identity,
            wheels=wheels,
            pins=list(bundle.pins),
            stands_for=stands_for,
        )

    def upload_bytes(self, bundle: WheelBundle) -> int:
        """Return how many bytes `install` would send."""
        there = set(self.facts["wheels"])
        return sum(wheel.size_bytes for wheel in bundle.wheels if wheel.sha256 not in there)

    def _find_python(self) -> str:
        named = self._host.python
        candidates = [named] if named is not None else list(PYTHON_CANDIDATES)
        result = run_on(self._client, ["sh", "-c", _FIND_SCRIPT, "sh", *candidates], timeout_s=CALL_TIMEOUT_S)
        rows = [line.split(" ", 2) for line in result.stdout.decode("utf-8", "replace").splitlines()]
        # A login shell may print a greeting on the same stream.
        found = [(row[0], row[1], row[2]) for row in rows if len(row) == 3 and _VERSION.fullmatch(row[0])]  # noqa: PLR2004
        return _select_python(found, named, result.stderr.decode("utf-8", "replace"))


def _select_python(found: Sequence[tuple[str, str, str]], named: str | None, stderr: str) -> str:
    """Return the path of the first suitable Python; raise `HostError`, which lists those found, if there is none."""
    recent = [row for row in found if tuple(map(int, row[0].split("."))) >= MIN_PYTHON]
    for _, venv, path in recent:
        if venv == "venv":
            return path
    if recent:
        raise HostError(
            f"{recent[0][2]} has no module venv; install it (Debian: python3-venv), or set another 'python:'"
        )
    what = f"'python: {named}'" if named is not None else "Python 3.11 or newer"
    seen = ", ".join(sorted({f"{path} ({version})" for version, _, path in found})) or "none"
    reason = f" ({stderr.strip()[-200:]})" if stderr.strip() and not found else ""
    raise HostError(f"{what} not found (available: {seen}){reason}; install Python 3.11 or newer, or set 'python:'")


def _request_parts(
    program: bytes, request: bytes, files: Iterable[Path], on_sent: Callable[[int], None] | None = None
) -> Iterator[bytes]:
    yield program
    yield request
    sent = 0
    for path in files:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                yield chunk
                sent += len(chunk)
                if on_sent is not None:
                    on_sent(sent)
