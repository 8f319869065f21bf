"""Keys of master and workers: key files, the allow-list, and `KeyProvisioner`, which makes what is not there yet.

A key file is lines of ``field: value``; blank lines and lines that begin with ``#`` are comments. A master's file
holds ``public`` and ``secret``; a worker's also its ``name`` and the public key of its ``master``. Keys are
Curve25519 keys in Z85 (40 characters), as ZeroMQ writes them (https://rfc.zeromq.org/spec/32/).

The allow-list has one line for each worker, ``<public key in Z85> <name>``; deleting a line revokes a key. Every
request checks the file for changes, so an edit counts from the next handshake on; a file with errors admits nobody.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import zmq
from msgspec import Struct
from zmq.utils import z85

from bench_common.errors import UsageError, did_you_mean
from bench_common.files import lock_within, open_regular, user_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MASTER_FILE: Final = "master.key"
ALLOW_LIST_FILE: Final = "authorized_workers"
KEY_FILE: Final = "key file"
KEY_LENGTH: Final = 40
MAX_KEY_FILE_BYTES: Final = 16 << 20
"""An allow-list of 100,000 workers has a quarter of that."""
"""Characters of a key in Z85."""
KEY_NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names of workers, which go into file names, ZAP domains and reports."""

MASTER_FIELDS: Final = ("public", "secret")
WORKER_FIELDS: Final = ("name", "public", "secret", "master")


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair in Z85; the secret key is in no repr, so in no log or traceback."""

    public: bytes
    """Public key in Z85."""
    secret: bytes = field(repr=False)
    """Secret key in Z85."""

    @classmethod
    def generate(cls) -> KeyPair:
        """Return a new pair whose public key does not begin with ``#``: that would be a comment in the allow-list."""
        while True:
            public, secret = zmq.curve_keypair()
            if not public.startswith(b"#"):
                return cls(public, secret)


class WorkerKey(Struct, frozen=True):
    """The content of a worker's key file."""

    name: str
    keys: KeyPair
    master_public: bytes
    """Public key of its master, in Z85."""


def default_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where keys are kept: ``$XDG_CONFIG_HOME/weighbridge/keys``, by default below ``~/.config``."""
    return configuration_directory(environ) / "keys"


def configuration_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return where this user's settings are: ``$XDG_CONFIG_HOME/weighbridge``, by default below ``~/.config``."""
    return user_folder("CONFIG", ".config", environ)


def worker_file(directory: Path, name: str) -> Path:
    """Return the path of a worker's key file."""
    return directory / f"worker-{validate_name(name)}.key"


def validate_name(name: str) -> str:
    """Return `name` if it is valid for a worker; raise `UsageError` otherwise."""
    if not KEY_NAME_PATTERN.fullmatch(name):
        raise UsageError(f"worker name {name!r}: expected up to 64 of A-Z a-z 0-9 . _ -, first a letter or digit")
    return name


def public_from_secret(secret: bytes) -> bytes:
    """Return the public key that belongs to a secret key, both in Z85."""
    return zmq.curve_public(secret)


def invalid_key_reason(text: str) -> str:
    """Return why `text` is not a key in Z85; an empty string if it is one."""
    if len(text) != KEY_LENGTH:
        return f"a key has {KEY_LENGTH} characters, not {len(text)}"
    try:
        z85.decode(text.encode("ascii"))
    except (ValueError, KeyError, UnicodeEncodeError):
        return "a key is written in Z85 (letters, digits and . - : + = ^ ! / * ? & < > ( ) [ ] { } @ % $ #)"
    return ""


def write_master_key(path: Path, keys: KeyPair) -> None:
    """Write a master's key file, mode 0600; raise `UsageError` if it exists already."""
    _write(path, "This is the master's key. It never leaves this machine.", {
        "public": keys.public.decode(),
        "secret": keys.secret.decode(),
    })  # fmt: skip


def write_worker_key(path: Path, key: WorkerKey) -> None:
    """Write a worker's key file, mode 0600; raise `UsageError` if it exists already."""
    _write(path, f"This is the key of worker {key.name}. Move it to its host; whoever can read it can pose as it.", {
        "name": key.name,
        "public": key.keys.public.decode(),
        "secret": key.keys.secret.decode(),
        "master": key.master_public.decode(),
    })  # fmt: skip


def read_master_key(path: Path) -> KeyPair:
    """Read a master's key file; raise `UsageError` that names the faulty line."""
    fields = _read(path, MASTER_FIELDS)
    return KeyPair(fields["public"].encode(), fields["secret"].encode())


def read_worker_key(path: Path) -> WorkerKey:
    """Read a worker's key file; raise `UsageError` that names the faulty line."""
    fields = _read(path, WORKER_FIELDS)
    keys = KeyPair(fields["public"].encode(), fields["secret"].encode())
    return WorkerKey(fields["name"], keys, fields["master"].encode())


def read_private(path: Path, *, kind: str = KEY_FILE) -> str:
    """Return the text of a file that only its owner can read; raise `UsageError` if others can."""
    forbidden = stat.S_IRWXG | stat.S_IRWXO
    return _read_checked(path, forbidden=forbidden, why="others can read it", mode="600", kind=kind)


def read_trusted(path: Path) -> str:
    """Return the text of a file that only its owner can write; raise `UsageError` if others can."""
    return _read_checked(path, forbidden=stat.S_IWGRP | stat.S_IWOTH, why="others can write to it", mode="644")


def make_private_directory(directory: Path) -> None:
    """Create a directory that only its owner can enter (0700); an existing one is left unchanged."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)


def _read_checked(path: Path, *, forbidden: int, why: str, mode: str, kind: str = KEY_FILE) -> str:
    try:
        # The descriptor is checked, not the path: nobody can swap the file between check and read.
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            if stat.S_IMODE(status.st_mode) & forbidden:
                raise UsageError(f"{path}: {why} (mode {stat.S_IMODE(status.st_mode):04o}); chmod {mode} {path}")
            if status.st_uid not in (0, os.geteuid()):
                raise UsageError(f"{path}: belongs to user id {status.st_uid}; it must belong to you or root")
            content = file.read(MAX_KEY_FILE_BYTES + 1)
    except OSError as error:
        advice = " (`bench-master keygen` creates keys)" if kind == KEY_FILE else ""
        raise UsageError(f"{path}: {error.strerror}{advice}") from error
    if len(content) > MAX_KEY_FILE_BYTES:
        raise UsageError(f"{path}: larger than {MAX_KEY_FILE_BYTES} bytes; is this a {kind}?")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not text; is this a {kind}?") from error


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
        problem = "" if name == "name" else invalid_key_reason(value)
        if name == "name" and not KEY_NAME_PATTERN.fullmatch(value):
            problem = "not a valid worker name"
        if problem:
            raise UsageError(f"{place}:{line.find(':') + 3}: {name}: {problem}")
        found[name] = value
    missing = [name for name in names if name not in found]
    if missing:
        raise UsageError(f"{path}: {', '.join(missing)} missing; is this the right kind of key file?")
    if public_from_secret(found["secret"].encode()) != found["public"].encode():
        raise UsageError(f"{path}: public and secret key do not match; create a new key")
    return found


def _write(path: Path, comment: str, fields: dict[str, str]) -> None:
    lines = ["# Weighbridge secret key.", f"# {comment}", *(f"{name}: {value}" for name, value in fields.items())]
    try:
        # O_EXCL: a key is never overwritten; the mode holds from the first byte on.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise UsageError(f"{path}: exists already; keys are never overwritten (remove it first)") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write("\n".join(lines) + "\n")


LOG: Final = logging.getLogger(__name__)

FILE_HEADER: Final = """\
# Workers that this master admits: <public key> <name>, one a line.
# Delete a line to revoke its key; no restart is needed.
"""

LANE_PREFIX: Final = "weighbridge.lane."
CONTROL_DOMAIN: Final = "weighbridge.control"
RESULTS_DOMAIN: Final = "weighbridge.results"


def lane_domain(name: str) -> str:
    """Return the ZAP domain of a worker's lane: no other worker's key is admitted there."""
    return LANE_PREFIX + validate_name(name)


def parse_allow_list(text: str, place: str) -> dict[bytes, str]:
    """Return names by public key; raise `UsageError` with ``place:line:column`` of a mistake.

    Each key and each name may appear once: a name is an identity, which has one key.
    """
    names: dict[bytes, str] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        key, _, name = line.strip().partition(" ")
        name = name.strip()
        column = line.index(key) + 1
        problem = invalid_key_reason(key)
        if problem:
            raise UsageError(f"{place}:{number}:{column}: {problem}; expected `<public key> <name>`")
        name_column = line.rindex(name) + 1 if name else len(line) + 1
        if not name:
            raise UsageError(f"{place}:{number}:{name_column}: missing name; expected `<public key> <name>`")
        try:
            validate_name(name)
        except UsageError as error:
            raise UsageError(f"{place}:{number}:{name_column}: {error}") from error
        if name in lines:
            raise UsageError(f"{place}:{number}:{name_column}: {name} already has a key on line {lines[name]}")
        if key.encode() in names:
            raise UsageError(f"{place}:{number}:{column}: duplicate of the key of {names[key.encode()]}")
        names[key.encode()] = name
        lines[name] = number
    return names


class AllowList:
    """The keys that a master admits, according to the current content of its file.

    A `ZapHandler` calls `admit`. An open connection outlives its key's revocation (ZAP checks the handshake only), so
    its server also has to call `has_name`. With `only_names`, workers with other names are refused.
    """

    def __init__(self, path: Path, only_names: frozenset[str] | None = None) -> None:
        """Read the file; raise `UsageError` if it is missing or malformed, or if others can write to it."""
        self.path = path
        self._only_names = only_names
        self._seen = self._stamp()
        self._names = parse_allow_list(read_trusted(path), str(path))

    def admit(self, domain: str, public_key: bytes) -> str | None:
        """Return the name of the key's owner if `domain` admits it, else None; `public_key` is in Z85."""
        name = self.entries().get(public_key)
        if name is None:
            return None
        if domain in (CONTROL_DOMAIN, RESULTS_DOMAIN) or domain == LANE_PREFIX + name:
            return name
        return None

    def has_name(self, name: str) -> bool:
        """Return whether a worker of this name has a key on the list."""
        return name in self.entries().values()

    def entries(self) -> dict[bytes, str]:
        """Return names by public key, read again if the file has changed; empty while the file is unusable."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self._names = parse_allow_list(read_trusted(self.path), str(self.path))
            except UsageError as error:
                # Half-edited, or tampered with: the last valid list may hold the very key that is being revoked.
                LOG.error("%s; all workers are refused until it is repaired", error)  # noqa: TRY400  a user error
                self._names = {}
        return {
            key: name for key, name in self._names.items() if self._only_names is None or name in self._only_names
        }

    def _stamp(self) -> tuple[int, int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino, status.st_ctime_ns


def add_worker(path: Path, public_key: bytes, name: str) -> None:
    """Append a worker to the list, which is created if needed; raise `UsageError` if it has the key or name."""
    key = public_key.decode("ascii")
    if key.startswith("#"):
        raise UsageError(
            f"the public key of {name} begins with '#', which would be a comment here; create another key pair"
        )
    text = read_trusted(path) if path.exists() else FILE_HEADER
    if text and not text.endswith("\n"):
        text += "\n"
    text += f"{key} {name}\n"
    parse_allow_list(text, str(path))
    _replace(path, text)


def revoke_worker(path: Path, name: str) -> None:
    """Delete a worker's line; raise `UsageError`, which suggests the nearest name, if there is none."""
    text = read_trusted(path)
    names = set(parse_allow_list(text, str(path)).values())
    if name not in names:
        raise UsageError(f"{path}: no worker {name!r}{did_you_mean(name, names)}; `keygen --list` shows them")
    kept = [line for line in text.splitlines() if line.startswith("#") or line.split()[1:] != [name]]
    _replace(path, "".join(f"{line}\n" for line in kept))


def _replace(path: Path, text: str) -> None:
    # Written to a new file and renamed: a master that reads now sees the old list or the new one, never a part.
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="ascii")
    temporary.chmod(0o600)
    temporary.replace(path)


class ProvisionedWorker(Struct, frozen=True):
    """A worker that is on the allow-list."""

    name: str
    path: Path
    made: bool
    """Whether key and line were made just now."""


LOCK_TIMEOUT_S: Final = 10.0
"""How long to wait for another process that makes keys in the same directory, in seconds."""


class KeyProvisioner:
    """Makes keys in one directory and puts workers on the allow-list; never overwrites a key.

    Threads and other masters of the same user wait for each other: between a key and its line nobody looks.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.master_path = directory / MASTER_FILE
        self.allow_list_path = directory / ALLOW_LIST_FILE
        self._lock = threading.RLock()
        self._depth = 0

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep threads and other processes out of the directory; raise `UsageError` after `LOCK_TIMEOUT_S`."""
        with self._lock, ExitStack() as held:
            if self._depth == 0:
                make_private_directory(self.directory)
                held.callback(os.close, self._locked())
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def _locked(self) -> int:
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        if not lock_within(descriptor, LOCK_TIMEOUT_S):
            os.close(descriptor)
            raise UsageError(
                f"{self.directory}: another process has been making keys here for {LOCK_TIMEOUT_S:g} s; find it with "
                "fuser, and end it if it hangs"
            )
        return descriptor

    def master(self) -> tuple[KeyPair, bool]:
        """Return the master's key and whether it was made just now; the allow-list is there afterwards."""
        with self._alone():
            made = not self.master_path.exists()
            if made:
                write_master_key(self.master_path, KeyPair.generate())
            if not self.allow_list_path.exists():
                self.allow_list_path.write_text(FILE_HEADER, encoding="ascii")
                self.allow_list_path.chmod(0o600)
            return read_master_key(self.master_path), made

    def worker(self, name: str) -> ProvisionedWorker:
        """Return a worker, with key and line made if need be; an older key file may have been moved away since.

        Raises `UsageError` for a key file that is here and not on the list: it may have been revoked.
        """
        with self._alone():
            master, _ = self.master()
            path = worker_file(self.directory, name)
            if name in parse_allow_list(read_trusted(self.allow_list_path), str(self.allow_list_path)).values():
                return ProvisionedWorker(name, path, made=False)
            if path.exists():
                # Its line was deleted or its making broke off: one that may have been revoked is not let in.
                public = read_worker_key(path).keys.public.decode()
                raise UsageError(
                    f"{path}: a key of {name} is there, but not on the allow-list. Remove the file to make a new "
                    f"key, or admit this one again: echo '{public} {name}' >> {self.allow_list_path}"
                )
            key = WorkerKey(name, KeyPair.generate(), master.public)
            write_worker_key(path, key)
            add_worker(self.allow_list_path, key.keys.public, name)
            return ProvisionedWorker(name, path, made=True)

    def key_file_to_deliver(self, name: str) -> Path:
        """Return the key file of a worker that is to be started from here; raise `UsageError` if it is not here."""
        enrolled = self.worker(name)
        if not enrolled.path.exists():
            raise UsageError(
                f"{enrolled.path}: not found, though {name} is on the allow-list, so its key was moved away; "
                f"put it back, or make another: bench-master keygen --revoke {name}, then start again"
            )
        key = read_worker_key(enrolled.path)
        if key.master_public != self.master()[0].public:
            raise UsageError(
                f"{enrolled.path}: belongs to another master than {self.master_path}; "
                f"remove it and run bench-master keygen --revoke {name}, then start again"
            )
        return enrolled.path
