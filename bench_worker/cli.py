"""The command line of `bench-worker`: serve a master, or answer a question about this machine and end.

Questions (``--list-engines`` and its kin) are how `bench-master` learns about its own host without importing the
worker: each is one module of `bench_worker.queries` and prints JSON objects, one a line. What it takes to answer is
imported by the answer: a worker that serves loads each of these modules, and asks none.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from bench_common import __version__
from bench_common.addresses import host_address, host_name
from bench_common.arguments import MAX_SLOTS, name, port, seconds, whole_number
from bench_common.cli import add_debug_flag, guarded
from bench_common.command_parser import CommandParser
from bench_common.ports import CONTROL_PORT
from bench_worker import queries

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PROGRAM = "bench-worker"


class Question(Protocol):
    """What a module of `bench_worker.queries` offers."""

    FLAG: str
    HELP: str

    def configure(self, group: argparse._ArgumentGroup) -> None:
        """Add the arguments that only this question knows."""

    def answer(self, arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
        """Yield the answer as JSON objects, each printed at once."""


def all_questions() -> list[Question]:
    """Import and return every question, by flag."""
    modules = [
        importlib.import_module(f"{queries.__name__}.{info.name}") for info in pkgutil.iter_modules(queries.__path__)
    ]
    return sorted((cast("Question", module) for module in modules if hasattr(module, "FLAG")), key=lambda q: q.FLAG)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of both uses."""
    parser = CommandParser(
        prog=PROGRAM,
        description="Weighbridge's agent on a host: runs the jobs that a master hands out.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"weighbridge {__version__}")
    parser.add_argument("-v", "--verbose", action="store_true", help="say more on stderr")
    add_debug_flag(parser)
    _add_service(parser)
    group = parser.add_argument_group("questions about this machine, answered as JSON lines")
    for question in all_questions():
        group.add_argument(question.FLAG, dest="question", action="store_const", const=question, help=question.HELP)
        question.configure(group)
    return parser


def _add_service(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a worker that serves a master."""
    parser.epilog = (
        "A worker keeps asking its master to join, runs what it is given, cleans up, and waits for the next run.\n"
        "Ctrl-C ends it, and removes what its jobs made."
    )
    where = parser.add_argument_group("the master")
    where.add_argument("--zmq-host", type=host_name, metavar="HOST", help="where bench-master runs")
    where.add_argument(
        "--zmq-control-port", type=port, default=CONTROL_PORT, metavar="PORT", help="(default: %(default)s)"
    )
    where.add_argument(
        "--key", type=Path, metavar="FILE", help="this worker's key file, made by `bench-master keygen`"
    )
    where.add_argument("--insecure", action="store_true", help="reach a master beyond loopback without a key")
    where.add_argument("--control", metavar="ENDPOINT", help=argparse.SUPPRESS)
    where.add_argument(
        "--patience",
        type=seconds,
        metavar="SECONDS",
        help="how long to wait for a master, before the first run and after each (default: for ever)",
    )
    where.add_argument("--once", action="store_true", help="end with the first run instead of waiting for the next")
    who = parser.add_argument_group("this worker")
    who.add_argument(
        "worker_id",
        nargs="?",
        type=name,
        metavar="WORKER_ID",
        help="its name (default: its key's name, else the host's)",
    )
    who.add_argument(
        "-c",
        "--concurrency",
        type=whole_number(1, MAX_SLOTS),
        default=64,
        metavar="N",
        help="jobs at once, at most (default: 64)",
    )
    who.add_argument(
        "--environment",
        type=name,
        metavar="NAME",
        help="kind of place: bare-metal, hypervisor, control or any label (default: as this machine looks)",
    )
    who.add_argument(
        "--label", action="append", default=[], metavar="K=V", help="a label that is saved with the results"
    )
    who.add_argument(
        "--address",
        type=host_address,
        metavar="ADDRESS",
        help="the IP address at which other hosts reach services that run here (default: as this one goes out)",
    )
    who.add_argument(
        "--allow-swapoff", action="store_true", help="let scenarios switch swap off on this host while a job runs"
    )
    who.add_argument("--allow-host-mounts", action="store_true", help="let scenarios mount directories of this host")
    # What a master's own worker has no use for, it need not look for.
    who.add_argument("--engines", type=lambda text: tuple(filter(None, text.split(","))), help=argparse.SUPPRESS)
    parser.add_argument("--load-process", type=int, help=argparse.SUPPRESS)


def run_command_line(argv: Sequence[str]) -> int:
    """Parse `argv` (without the program's name), serve or answer, return the exit code."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    logging.basicConfig(
        level=logging.INFO if arguments.verbose else logging.WARNING, format="%(levelname)s: %(message)s"
    )

    def command() -> int:
        if arguments.load_process is not None:
            from bench_worker.load_process import run_load_process

            return run_load_process(arguments.load_process, arguments.engines)
        if arguments.question is None:
            from bench_worker.service import serve

            return serve(arguments)
        for item in arguments.question.answer(arguments):
            sys.stdout.write(json.dumps(item) + "\n")
            sys.stdout.flush()
        return 0

    return guarded(command, program=PROGRAM, debug=arguments.debug)
