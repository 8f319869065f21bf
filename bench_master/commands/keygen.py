"""`bench-master keygen`: keys for workers on other hosts, and the list of those that are admitted."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from bench_common.keys import (
    ALLOW_LIST_FILE,
    default_directory,
    parse_allow_list,
    read_trusted,
    revoke_worker,
    validate_name,
    worker_file,
)
from bench_master.run.key_provisioning import KeyProvisioner

NAME = "keygen"
HELP = "make keys for the master and its workers, list and revoke them"

EPILOG: Final = """\
The first call makes the master's key. Each --worker gets a key file of its own, to be moved to that host, and a
line in the allow-list. Nothing is ever overwritten: a worker that is on the list already is left alone.

  bench-master keygen --worker blade-1 --worker blade-2
  bench-master keygen --list
  bench-master keygen --revoke blade-2
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = EPILOG
    default = str(default_directory()).replace("%", "%%")
    parser.add_argument("--dir", type=Path, metavar="DIR", help=f"where keys are kept (default: {default})")
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--worker", action="append", metavar="NAME", default=[], help="make a worker's key; repeatable"
    )
    action.add_argument("--list", action="store_true", help="show the workers that are admitted")
    action.add_argument("--revoke", metavar="NAME", help="delete a worker's line; its key is refused from then on")


def run(arguments: argparse.Namespace) -> int:
    """Do it; return the exit code."""
    directory: Path = arguments.dir or default_directory()
    if arguments.list:
        _list(directory)
    elif arguments.revoke:
        _revoke(directory, arguments.revoke)
    else:
        _create_keys(directory, arguments.worker)
    return 0


def _create_keys(directory: Path, names: list[str]) -> None:
    for name in names:
        validate_name(name)
    enrolment = KeyProvisioner(directory)
    master, made_now = enrolment.master()
    _print_line(f"master key       {enrolment.master_path}{'' if made_now else ' (was there)'}")
    _print_line(f"its public key   {master.public.decode()}")
    _print_line(f"allow-list       {enrolment.allow_list_path}")
    made = []
    for name in names:
        worker = enrolment.worker(name)
        if worker.made:
            _print_line(f"worker {name}: {worker.path}")
            made.append(worker.path)
        else:
            _print_line(f"worker {name}: on the allow-list already; to replace its key, --revoke {name} first")
    if made:
        _print_line("\nMove each worker's key to its host (it is not needed here), and use it there:")
        for path in made:
            _print_line(f"  scp -p {path} HOST:\n  ssh HOST bench-worker --zmq-host MASTER --key {path.name}")
    elif not names:
        _print_line("\nNext: bench-master keygen --worker NAME")


def _list(directory: Path) -> None:
    path = directory / ALLOW_LIST_FILE
    names = parse_allow_list(read_trusted(path), str(path))
    for key, name in sorted(names.items(), key=lambda item: item[1]):
        _print_line(f"{key.decode()}  {name}")
    if not names:
        sys.stderr.write(f"{path}: no worker is admitted; `bench-master keygen --worker NAME` adds one\n")


def _revoke(directory: Path, name: str) -> None:
    path = directory / ALLOW_LIST_FILE
    revoke_worker(path, name)
    _print_line(f"worker {name}: revoked; its key is refused from its next connection on")
    key_path = worker_file(directory, name)
    if key_path.exists():
        _print_line(f"its key file is still here and worth nothing now: rm {key_path}")


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
