"""The command line of `bench-worker`: serve a master, or answer a question about this machine and end.

Questions (``--list-engines`` and its kin) are how `bench-master` learns about its own host without importing the
worker: each is one module of `bench_worker.queries` and prints JSON objects, one a line. What it takes to answer is
imported by the answer: a worker that serves loads each of these modules, and asks none.

How an agent is to serve, apart from the agent: known before what it takes to serve is loaded.

A worker that serves a master, as the command line asks for it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import pkgutil
import signal
import socket
import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import gevent

from bench_common import __version__
from bench_common.cli import (
    CONTROL_PORT,
    MAX_SLOTS,
    CommandParser,
    add_debug_flag,
    authority,
    honors_sighup,
    host_address,
    host_name,
    int_range,
    name,
    port,
    run_guarded,
    seconds,
)
from bench_common.clock import clock_id
from bench_common.curve import curve_required
from bench_common.errors import ExitCode, UsageError
from bench_common.keys import WorkerKey, read_worker_key
from bench_worker import queries
from bench_worker.host.fingerprint import fingerprint, guess_environment
from bench_worker.supervisor import LoadProcessHandle

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench_worker.preflight import EngineCatalog

PROGRAM = "bench-worker"


class Query(Protocol):
    """What a module of `bench_worker.queries` offers."""

    FLAG: str
    HELP: str

    def configure(self, group: argparse._ArgumentGroup) -> None:
        """Add the arguments that only this question knows."""

    def answer(self, arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
        """Yield the answer as JSON objects, each printed at once."""


def all_queries() -> list[Query]:
    """Import and return every question, by flag."""
    modules = [
        importlib.import_module(f"{queries.__name__}.{info.name}") for info in pkgutil.iter_modules(queries.__path__)
    ]
    return sorted((cast("Query", module) for module in modules if hasattr(module, "FLAG")), key=lambda q: q.FLAG)


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
    _add_serve_arguments(parser)
    group = parser.add_argument_group("questions about this machine, answered as JSON lines")
    for question in all_queries():
        group.add_argument(question.FLAG, dest="question", action="store_const", const=question, help=question.HELP)
        question.configure(group)
    return parser


def _add_serve_arguments(parser: argparse.ArgumentParser) -> None:
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
        "--master-timeout",
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
        type=int_range(1, MAX_SLOTS),
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
            return serve(arguments)
        for item in arguments.question.answer(arguments):
            sys.stdout.write(json.dumps(item) + "\n")
            sys.stdout.flush()
        return 0

    return run_guarded(command, program=PROGRAM, debug=arguments.debug)


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """How the agent was started."""

    control: str
    """The endpoint of the master's control socket."""
    worker_id: str
    """This worker's name."""
    environment: str
    """The kind of place this is, such as ``bare-metal``."""
    slots: int
    """How many jobs run at once, at most."""
    key: WorkerKey | None = None
    """This worker's CURVE key; None on loopback and with ``--insecure``."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels that are saved with the results."""
    once: bool = False
    """End with the first run."""
    master_timeout_s: float | None = None
    """End after so long without a master; None: never."""
    allow_host_mounts: bool = False
    """Let scenarios mount directories of this host."""
    allow_swapoff: bool = False
    """Let scenarios switch swap off on this host."""
    engines: tuple[str, ...] | None = None
    """The engines to offer; None: every usable one."""
    address: str | None = None
    """The IP address at which other hosts reach this one; None: to be found out."""


LOCAL_MASTER_TIMEOUT_S = 60.0
"""How long a worker that its master started itself waits for an answer before it ends."""


def serve(arguments: argparse.Namespace) -> int:
    """Serve the master that `arguments` name; return the exit code."""
    options = _options(arguments)
    # First of all: it takes as long to load as all that follows does until a master can be asked for work.
    child = LoadProcessHandle(options.engines)
    from bench_worker.agent import Agent
    from bench_worker.preflight import EngineCatalog

    offer = EngineCatalog(options.engines)
    agent = Agent(options, partial(describe_host, offer), child, offer)
    for sign in (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if honors_sighup() else ())):
        gevent.signal_handler(sign, agent.stop, ExitCode.INTERRUPTED)
    return agent.serve()


def describe_host(offer: EngineCatalog) -> dict[str, Any]:
    """Return what a master is told of this host: versions, engines, fingerprint."""
    marks = fingerprint()
    return {
        "host": socket.gethostname(),
        "boot_id": clock_id(),
        "version": __version__,
        "engines": offer.look(),
        "fingerprint": dict(marks),
    }


def _options(arguments: argparse.Namespace) -> AgentOptions:
    if bool(arguments.control) == bool(arguments.zmq_host):
        raise UsageError("no master named: give --zmq-host HOST (or ask a question, see --help)")
    control = arguments.control or f"tcp://{authority(arguments.zmq_host, arguments.zmq_control_port)}"
    key = read_worker_key(arguments.key) if arguments.key is not None else None
    if key is None and curve_required(control, insecure=arguments.insecure):
        raise UsageError(
            f"{control} is beyond this host, and a worker obeys its master's key only: give --key FILE, made by "
            "`bench-master keygen --worker NAME` on the master (or --insecure, on a network of your own)"
        )
    return AgentOptions(
        control=control,
        worker_id=_worker_id(arguments.worker_id, key),
        environment=arguments.environment or guess_environment(),
        slots=arguments.concurrency,
        key=key,
        labels=dict(_label(text) for text in arguments.label),
        once=arguments.once,
        master_timeout_s=LOCAL_MASTER_TIMEOUT_S if arguments.control else arguments.master_timeout,
        allow_host_mounts=arguments.allow_host_mounts,
        allow_swapoff=arguments.allow_swapoff,
        engines=arguments.engines,
        address=arguments.address,
    )


def _worker_id(given: str | None, key: WorkerKey | None) -> str:
    if key is not None and given not in (None, key.name):
        raise UsageError(f"WORKER_ID {given!r}: the key belongs to worker {key.name!r}, and a key is an identity")
    return given or (key.name if key is not None else socket.gethostname())


def _label(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"--label {text!r}: expected K=V")
    return name, value
