"""`bench-master keygen`: make, list and revoke the keys of master and workers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

from msgspec import Struct

from bench_common.errors import InfrastructureError, UsageError
from bench_common.keys import (
    ALLOW_LIST_FILE,
    KeyProvisioner,
    default_directory,
    parse_allow_list,
    read_trusted,
    revoke_worker,
    validate_name,
    worker_file,
)
from bench_common.options import Option, add_options
from bench_common.streams import program_name, tell

EPILOG: Final = """\
The first call makes the master's key. Each --worker gets its own key file, which you move to that host, and a line
in the allow-list. No key is ever overwritten: a worker that is already on the list keeps its key.

  bench-master keygen --worker blade-1 --worker blade-2
  bench-master keygen --list
  bench-master keygen --revoke blade-2
"""


class Options(Struct, frozen=True):
    """The command line of `keygen`."""

    key_dir: Annotated[
        Path | None,
        Option("--key-dir DIR", f"directory of the keys (default: {str(default_directory()).replace('%', '%%')})"),
    ] = None
    worker: Annotated[tuple[str, ...], Option("--worker NAME", "make a key for this worker; repeatable")] = ()
    list: Annotated[bool, Option("--list", "list the admitted workers")] = False
    revoke: Annotated[
        str | None, Option("--revoke NAME", "remove a worker from the allow-list, which makes its key invalid")
    ] = None


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_options(parser, Options, "key_dir")
    add_options(parser.add_mutually_exclusive_group(), Options, "worker", "list", "revoke")


def run(options: Options) -> int:
    """Make, list or revoke keys; return the exit code."""
    directory = options.key_dir or default_directory()
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"--key-dir {directory}: is a file; name a directory for the keys")
    try:
        if options.list:
            _list(directory)
        elif options.revoke:
            _revoke(directory, options.revoke)
        else:
            _create_keys(directory, options.worker)
    except OSError as error:
        raise InfrastructureError(f"{error.filename or directory}: {error.strerror or error}") from error
    return 0


def _create_keys(directory: Path, names: Sequence[str]) -> None:
    for name in names:
        validate_name(name)
    provisioner = KeyProvisioner(directory)
    master, made_now = provisioner.master()
    _print_line(f"master key       {provisioner.master_path}{'' if made_now else ' (exists)'}")
    _print_line(f"its public key   {master.public.decode()}")
    _print_line(f"allow-list       {provisioner.allow_list_path}")
    made = []
    for name in names:
        worker = provisioner.worker(name)
        if worker.made:
            _print_line(f"worker {name}: {worker.path}")
            made.append(worker.path)
        else:
            _print_line(f"worker {name}: already on the allow-list; to replace its key, --revoke {name} first")
    if made:
        _print_line("\nMove each worker's key to its host (this host does not need it) and use it there:")
        for path in made:
            _print_line(f"  scp -p {path} HOST:\n  ssh HOST bench-worker --zmq-host MASTER --key {path.name}")
    elif not names:
        _print_line(f"\nNext: {program_name()} keygen --worker NAME")


def _list(directory: Path) -> None:
    path = directory / ALLOW_LIST_FILE
    names = parse_allow_list(read_trusted(path), str(path))
    for key, name in sorted(names.items(), key=lambda item: item[1]):
        _print_line(f"{key.decode()}  {name}")
    if not names:
        tell(f"{path}: no worker is admitted; add one with `bench-master keygen --worker NAME`")


def _revoke(directory: Path, name: str) -> None:
    path = directory / ALLOW_LIST_FILE
    revoke_worker(path, name)
    _print_line(f"worker {name}: revoked; its key is refused from its next connection on")
    key_path = worker_file(directory, name)
    if key_path.exists():
        _print_line(f"its key file is still here and now useless: rm {key_path}")


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
