"""Host keys: ``known_hosts`` identifies hosts. A new key is accepted on request only, a changed one never."""

from __future__ import annotations

import base64
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, cast

from bench_common.errors import InfrastructureError
from bench_common.files import read_regular

if TYPE_CHECKING:
    import paramiko

REVOKED = "@revoked"


def default_known_hosts() -> Path:
    """Return the path of the user's own file."""
    return Path("~/.ssh/known_hosts").expanduser()


class KnownHosts:
    """One ``known_hosts`` file; threads may share it. With `accept_new` a host that is not in it is added."""

    def __init__(self, path: Path, *, accept_new: bool = False) -> None:
        self.path = path
        self.accept_new = accept_new
        self.added_hosts: list[str] = []
        self._lock = threading.Lock()

    def client(self) -> paramiko.SSHClient:
        """Return a client, not connected yet, that trusts the hosts in the file only."""
        import paramiko  # imported here: it takes 16 MB, which a run on this host alone does not need

        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(cast("paramiko.MissingHostKeyPolicy", _MissingHostKeyPolicy(self)))
        with self._lock:
            try:
                lines = read_regular(self.path).splitlines()
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
                continue  # a key type that paramiko does not know: the host counts as unknown
            if entry is None or entry.key.asbytes() in revoked:
                continue
            for name in entry.hostnames:
                keys.add(name, entry.key.get_name(), entry.key)
        return client

    def check_unknown_host(self, name: str, key: paramiko.PKey) -> None:
        """Add the key of a host that is not in the file, or raise `InfrastructureError`."""
        text = f"{key.get_name()} {key.fingerprint}"
        with self._lock:
            lines = read_regular(self.path).splitlines() if self.path.exists() else []
            if key.asbytes() in self._revoked(lines):
                raise InfrastructureError(f"its host key {text} is marked {REVOKED} in {self.path}: refused")
            if not self.accept_new:
                raise InfrastructureError(
                    f"its host key is not in {self.path}: {text}; compare it with "
                    "`ssh-keygen -lf /etc/ssh/ssh_host_*_key.pub` on the host, then use --accept-new once"
                )
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(f"{name} {key.get_name()} {key.get_base64()}\n")
            self.added_hosts.append(f"{name}: added its host key {text}")

    def changed_key_error(self, error: paramiko.BadHostKeyException) -> str:
        """Return the message for a host whose key is not the one in the file."""
        return (
            f"its host key has CHANGED: {self.path} has {error.expected_key.get_name()} "
            f"{error.expected_key.fingerprint}, the host presented {error.key.get_name()} {error.key.fingerprint}. "
            "This may be a man-in-the-middle attack and is never accepted. If the host was reinstalled: "
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
    """The policy that paramiko applies to a host that is not in the file."""

    def __init__(self, known: KnownHosts) -> None:
        self._known = known

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        """Add the key, or raise `InfrastructureError`."""
        del client
        self._known.check_unknown_host(hostname, key)
