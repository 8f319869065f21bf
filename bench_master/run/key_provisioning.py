"""Makes keys and puts their owners on the allow-list; what is there already is used, and never overwritten."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from bench_common.errors import UsageError
from bench_common.keys import (
    ALLOW_LIST_FILE,
    FILE_HEADER,
    MASTER_FILE,
    KeyPair,
    WorkerKey,
    add_worker,
    make_private_directory,
    parse_allow_list,
    read_master_key,
    read_trusted,
    read_worker_key,
    worker_file,
    write_master_key,
    write_worker_key,
)


@dataclass(frozen=True, slots=True)
class ProvisionedWorker:
    """A worker that is on the allow-list, its key file, and whether both were made just now."""

    name: str
    path: Path
    made: bool


class KeyProvisioner:
    """The keys in one directory. Threads may use it together."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.master_path = directory / MASTER_FILE
        self.allow_list_path = directory / ALLOW_LIST_FILE
        self._lock = threading.RLock()

    def master(self) -> tuple[KeyPair, bool]:
        """Return the master's key and whether it was made just now; the allow-list is there afterwards."""
        with self._lock:
            make_private_directory(self.directory)
            made = not self.master_path.exists()
            if made:
                write_master_key(self.master_path, KeyPair.generate())
            if not self.allow_list_path.exists():
                self.allow_list_path.write_text(FILE_HEADER, encoding="ascii")
                self.allow_list_path.chmod(0o600)
            return read_master_key(self.master_path), made

    def worker(self, name: str) -> ProvisionedWorker:
        """Return a worker's enrolment, made if need be; its key file may be elsewhere by now if it was not.

        Raises `UsageError` for a key that lies here and is not on the list: it may have been revoked.
        """
        with self._lock:
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
        """Return the key file of a worker that is to be started from here; raise `UsageError` where it has gone."""
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
