"""Host keys: a host is who ``known_hosts`` says. A new key is accepted on request only, a changed one is refused."""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bench_common.errors import InfrastructureError

if TYPE_CHECKING:
    import paramiko

REVOKED = "@revoked"


def default_known_hosts() -> Path:
    """Return the user's own file."""
    return Path("~/.ssh/known_hosts").expanduser()


def fingerprint_of(key: paramiko.PKey) -> str:
    """Return a key's fingerprint as ``ssh-keygen -l`` shows it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")


class KnownHosts:
    """One ``known_hosts`` file. With `accept_new` a host that is not in it is added; threads may use it together."""

    def __init__(self, path: Path, *, accept_new: bool = False) -> None:
        self.path = path
        self.accept_new = accept_new
        self.added_hosts: list[str] = []
        self._lock = threading.Lock()

    def client(self) -> paramiko.SSHClient:
        """Return a client that lets in nobody else; to be connected."""
        import paramiko  # where a fleet is reached: it takes 16 MB, which a run on this host alone need not have

        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(cast("paramiko.MissingHostKeyPolicy", _MissingHostKeyPolicy(self)))
        with self._lock:
            try:
                lines = self.path.read_text("utf-8", "replace").splitlines()
            except FileNotFoundError:
                lines = []
            except OSError as error:
                raise InfrastructureError(f"{self.path}: {error.strerror}") from error
        revoked = self._revoked(lines)
        keys = client.get_host_keys()
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith(("#", "@")):
                continue
            try:
                entry = paramiko.hostkeys.HostKeyEntry.from_line(line, number)
            except (paramiko.SSHException, paramiko.hostkeys.InvalidHostKey, ValueError):
                continue  # a kind of key that this library does not know: the host counts as unknown
            if entry is None or entry.key.asbytes() in revoked:
                continue
            for name in entry.hostnames:
                keys.add(name, entry.key.get_name(), entry.key)
        return client

    def check_unknown_host(self, name: str, key: paramiko.PKey) -> None:
        """Judge a host that is not in the file: learn its key, or raise `InfrastructureError`."""
        text = f"{key.get_name()} {fingerprint_of(key)}"
        with self._lock:
            lines = self.path.read_text("utf-8", "replace").splitlines() if self.path.exists() else []
            if key.asbytes() in self._revoked(lines):
                raise InfrastructureError(f"its host key {text} is marked {REVOKED} in {self.path}: not talked to")
            if not self.accept_new:
                raise InfrastructureError(
                    f"its host key is not in {self.path}: {text}; compare it with "
                    "`ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` on the host, then give --accept-new once"
                )
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(f"{name} {key.get_name()} {key.get_base64()}\n")
            self.added_hosts.append(f"{name}: learned its host key {text}")

    def changed_key_error(self, error: paramiko.BadHostKeyException) -> str:
        """Say that a host has another key than it had."""
        return (
            f"its host key has CHANGED: {self.path} has {error.expected_key.get_name()} "
            f"{fingerprint_of(error.expected_key)}, it showed {error.key.get_name()} {fingerprint_of(error.key)}. "
            "Somebody may be in between; this is never accepted. If the host was really installed anew: "
            f"ssh-keygen -f {self.path} -R '{error.hostname}'"
        )

    @staticmethod
    def _revoked(lines: list[str]) -> set[bytes]:
        found = set()
        for line in lines:
            words = line.split()
            if len(words) > 3 and words[0] == REVOKED:  # noqa: PLR2004  marker, names, type, key
                try:
                    found.add(base64.b64decode(words[3]))
                except ValueError:
                    continue
        return found


class _MissingHostKeyPolicy:
    """What paramiko asks about a host that is not in the file: a policy of its for missing host keys."""

    def __init__(self, known: KnownHosts) -> None:
        self._known = known

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Learn the key, or raise."""
        del client
        self._known.check_unknown_host(hostname, key)
