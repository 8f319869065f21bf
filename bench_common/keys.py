"""Key files: who the master is and who a worker is, kept so that nobody else on the machine can read them.

A key file is lines of ``field: value``; blank lines and lines that begin with ``#`` are remarks. A master's file
holds ``public`` and ``secret``; a worker's also its ``name`` and the public key of the one ``master`` it talks to.
Keys are Curve25519 keys in Z85 (40 characters), as ZeroMQ writes them (https://rfc.zeromq.org/spec/32/).
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import zmq
from zmq.utils import z85

from bench_common.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

MASTER_FILE: Final = "master.key"
ALLOW_LIST_FILE: Final = "authorized_workers"
KEY_LENGTH: Final = 40
"""Characters of a key in Z85."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What a worker may be called: a name goes into file names, ZAP domains and reports."""

MASTER_FIELDS: Final = ("public", "secret")
WORKER_FIELDS: Final = ("name", "public", "secret", "master")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair in Z85; the secret half stays out of every repr, so out of logs and tracebacks."""

    public: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> KeyPair:
        """Return a new pair whose public key does not begin with ``#``: the allow-list would read a remark."""
        while True:
            public, secret = zmq.curve_keypair()
            if not public.startswith(b"#"):
                return cls(public, secret)


@dataclass(frozen=True, slots=True)
class WorkerKey:
    """A worker's key file: its name, its pair, and the public key of its master."""

    name: str
    keys: KeyPair
    master_public: bytes


def default_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where keys are kept: ``$XDG_CONFIG_HOME/weighbridge/keys``, by default below ``~/.config``."""
    base = environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification says that a relative value is to be ignored.
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home()) / ".config"
    return root / "weighbridge" / "keys"


def worker_file(directory: Path, name: str) -> Path:
    """Return the place of a worker's key file."""
    return directory / f"worker-{checked_name(name)}.key"


def checked_name(name: str) -> str:
    """Return `name` when a worker may be called so; raise `UsageError` otherwise."""
    if not NAME.fullmatch(name):
        raise UsageError(f"worker name {name!r}: expected 1 to 64 of A-Z a-z 0-9 . _ -, a letter or digit first")
    return name


def public_from_secret(secret: bytes) -> bytes:
    """Return the public key that belongs to a secret key, both in Z85."""
    return zmq.curve_public(secret)


def key_problem(text: str) -> str:
    """Say why `text` is not a key in Z85, or return an empty string."""
    if len(text) != KEY_LENGTH:
        return f"a key has {KEY_LENGTH} characters, not {len(text)}"
    try:
        z85.decode(text.encode("ascii"))
    except (ValueError, KeyError, UnicodeEncodeError):
        return "a key is written in Z85 (letters, digits and . - : + = ^ ! / * ? & < > ( ) [ ] { } @ % $ #)"
    return ""


def write_master_key(path: Path, keys: KeyPair) -> None:
    """Write a master's key file, mode 0600; raise `UsageError` when there is one already."""
    _write(path, "This is the master's key. It never leaves this machine.", {
        "public": keys.public.decode(),
        "secret": keys.secret.decode(),
    })  # fmt: skip


def write_worker_key(path: Path, key: WorkerKey) -> None:
    """Write a worker's key file, mode 0600; raise `UsageError` when there is one already."""
    _write(path, f"This is the key of worker {key.name}. Move it to that host; whoever reads it is that worker.", {
        "name": key.name,
        "public": key.keys.public.decode(),
        "secret": key.keys.secret.decode(),
        "master": key.master_public.decode(),
    })  # fmt: skip


def read_master_key(path: Path) -> KeyPair:
    """Read a master's key file; raise `UsageError` with the place of what is wrong."""
    fields = _read(path, MASTER_FIELDS)
    return KeyPair(fields["public"].encode(), fields["secret"].encode())


def read_worker_key(path: Path) -> WorkerKey:
    """Read a worker's key file; raise `UsageError` with the place of what is wrong."""
    fields = _read(path, WORKER_FIELDS)
    keys = KeyPair(fields["public"].encode(), fields["secret"].encode())
    return WorkerKey(fields["name"], keys, fields["master"].encode())


def read_private(path: Path) -> str:
    """Return the text of a file that nobody but its owner can read; raise `UsageError` when others can."""
    return _read_checked(path, forbidden=stat.S_IRWXG | stat.S_IRWXO, why="others can read it", mode="600")


def read_trusted(path: Path) -> str:
    """Return the text of a file that nobody but its owner can write; raise `UsageError` when others can."""
    return _read_checked(path, forbidden=stat.S_IWGRP | stat.S_IWOTH, why="others can write to it", mode="644")


def make_private_directory(directory: Path) -> None:
    """Make a directory that only its owner can enter (0700); one that is there is left as it is."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)


def _read_checked(path: Path, *, forbidden: int, why: str, mode: str) -> str:
    try:
        # The descriptor is checked, not the path: nobody can swap the file between the look and the read.
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_IMODE(status.st_mode) & forbidden:
                raise UsageError(f"{path}: {why} (mode {stat.S_IMODE(status.st_mode):04o}); chmod {mode} {path}")
            if status.st_uid not in (0, os.geteuid()):
                raise UsageError(f"{path}: belongs to user id {status.st_uid}; it must be yours or root's")
            content = file.read()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror} (`bench-master keygen` makes keys)") from error
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not text; is this really a key file?") from error


def _read(path: Path, names: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(read_private(path).splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, separator, value = line.partition(":")
        name, value = name.strip(), value.strip()
        place = f"{path}:{number}"
        if not separator or name not in names:
            expected = ", ".join(names)
            raise UsageError(f"{place}:1: {name[:40]!r}: expected one of {expected}{did_you_mean(name, names)}")
        if name in found:
            raise UsageError(f"{place}:1: {name} is given twice")
        problem = "" if name == "name" else key_problem(value)
        if name == "name" and not NAME.fullmatch(value):
            problem = "not a worker's name"
        if problem:
            raise UsageError(f"{place}:{line.find(':') + 3}: {name}: {problem}")
        found[name] = value
    missing = [name for name in names if name not in found]
    if missing:
        raise UsageError(f"{path}: {', '.join(missing)} missing; is this the right kind of key file?")
    if public_from_secret(found["secret"].encode()) != found["public"].encode():
        raise UsageError(f"{path}: public and secret do not belong together; make the key anew")
    return found


def _write(path: Path, remark: str, fields: dict[str, str]) -> None:
    lines = ["# Weighbridge secret key.", f"# {remark}", *(f"{name}: {value}" for name, value in fields.items())]
    try:
        # O_EXCL: a key is never overwritten; the mode holds from the first byte on.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise UsageError(f"{path}: is there already; keys are never overwritten (remove it first)") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")
