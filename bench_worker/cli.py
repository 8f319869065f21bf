"""The command line of `bench-worker`: serve a master, or answer a query about this machine and exit.

Queries (``--list-engines`` and others) are how `bench-master` learns about its own host without importing the worker:
each is one module of `bench_worker.queries`, or of a feature, and prints JSON objects, one a line. A query imports
what it needs when it runs: a worker that serves loads all of these modules and runs none.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import pkgutil
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, cast

import gevent
from msgspec import Struct, field

from bench_common import __version__, load_entry, registered
from bench_common.argument_types import (
    CONTROL_PORT,
    MAX_SLOTS,
    authority,
    host_address,
    host_name,
    int_range,
    name,
    port,
    seconds,
)
from bench_common.cli import (
    CommandParser,
    add_debug_flag,
    engine_option,
    host_settings_option,
    read_options,
)
from bench_common.clock import clock_id
from bench_common.curve import INSECURE_WORKER_WARNING, curve_required
from bench_common.engine_traits import EngineLabel, use_engine_labels
from bench_common.errors import ExitCode, UsageError
from bench_common.guard import honors_sighup, run_guarded
from bench_common.host_info import HostInfo
from bench_common.keys import WorkerKey, read_worker_key
from bench_common.options import Heading, Option, add_options
from bench_common.rendezvous import check_socket, control_socket
from bench_common.safe_text import log_to_stderr
from bench_common.startup import STAGE_ENGINES, STAGE_LOADING
from bench_common.streams import tell
from bench_common.version import VersionAction
from bench_worker import queries
from bench_worker.host.fingerprint import fingerprint, guess_environment
from bench_worker.supervisor import LoadProcessHandle, fork_load_process

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench_worker.preflight import EngineCatalog

PROGRAM = "bench-worker"
EPILOG: Final = (
    "A worker connects to its master, runs the jobs that it gets, cleans up, and waits for the next run.\n"
    "Ctrl-C stops it and removes what its jobs created."
)
QUERIES: Final = "weighbridge.queries"
"""The entry points of queries from features and other packages: each is a module."""


class Query(Protocol):
    """What a module of `bench_worker.queries` offers, and one that an entry point of `QUERIES` names."""

    FLAG: str
    """The option that asks it."""
    HELP: str
    """What it answers, for ``--help``."""
    Options: type[Any]
    """The Struct that holds its arguments (see `bench_common.options`)."""

    def run(self, options: Any) -> Iterable[dict[str, Any]]:
        """Yield the results as JSON objects, each printed at once."""


def all_queries() -> list[Query]:
    """Import and return every query, by flag; what cannot be loaded is left out, and told on stderr."""
    modules: list[Any] = [
        importlib.import_module(f"{queries.__name__}.{info.name}") for info in pkgutil.iter_modules(queries.__path__)
    ]
    for point in registered(QUERIES):
        try:
            modules.append(load_entry(point))
        except Exception as error:  # noqa: BLE001  somebody else's module may raise anything when imported
            problem = f"it cannot be loaded: {type(error).__name__}: {error}"
            tell(f"{PROGRAM}: the query {point.name!r} ({point.value}) is left out: {problem}")
    return sorted((cast("Query", module) for module in modules if hasattr(module, "FLAG")), key=lambda q: q.FLAG)


def build_parser(argv: Sequence[str] = ("--help",)) -> argparse.ArgumentParser:
    """Return the parser of both uses; without queries, which take milliseconds to load, where `argv` asks none."""
    parser = CommandParser(
        prog=PROGRAM,
        description="Weighbridge's agent on a host: runs the jobs that a master assigns.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=VersionAction, help="print versions and the commit, and exit")
    parser.add_argument("-v", "--verbose", action="store_true", help="log more to stderr")
    add_debug_flag(parser)
    add_options(parser, ServeOptions)
    parser.add_argument("--load-process", type=int, help=argparse.SUPPRESS)
    parser.set_defaults(query=None)
    if not {"-h", "--help"}.intersection(argv) and parser.has_options(argv):
        return parser
    group = parser.add_argument_group("queries about this machine, answered as JSON lines")
    for query in all_queries():
        group.add_argument(query.FLAG, dest="query", action="store_const", const=query, help=query.HELP)
        add_options(group, query.Options)
    return parser


def run_command_line(argv: Sequence[str]) -> int:
    """Parse `argv` (without the program's name), serve or run a query, return the exit code."""
    parser = build_parser(argv)
    arguments = parser.parse_args(argv)
    log_to_stderr(logging.INFO if arguments.verbose else logging.WARNING)

    def command() -> int:
        use_engine_labels(arguments.engine)
        if arguments.load_process is not None:
            from bench_worker.load_process import run_load_process

            return run_load_process(arguments.load_process, arguments.engines)
        if arguments.query is None:
            return serve(read_options(ServeOptions, arguments))
        query: Query = arguments.query
        for item in query.run(read_options(query.Options, arguments)):
            sys.stdout.write(json.dumps(item) + "\n")
            sys.stdout.flush()
        return 0

    return run_guarded(command, program=PROGRAM, debug=arguments.debug)


def _engine_names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


class ServeOptions(Struct, frozen=True, kw_only=True):
    """The command line of a worker that serves a master."""

    zmq_host: Annotated[
        str | None,
        Heading("the master"),
        Option(
            "--zmq-host HOST",
            "host name or IP address of bench-master (default: a master of this user on this machine)",
            type=host_name,
        ),
    ] = None
    zmq_control_port: Annotated[
        int, Option("--zmq-control-port PORT", "its port for control messages (default: %(default)s)", type=port)
    ] = CONTROL_PORT
    key: Annotated[Path | None, Option("--key FILE", "key file of this worker, from `bench-master keygen`")] = None
    insecure: Annotated[bool, Option("--insecure", "connect to a TCP port without a key")] = False
    control: Annotated[str | None, Option("--control ENDPOINT", argparse.SUPPRESS)] = None
    """The endpoint of the master that started this worker, in place of its host and port."""
    stage_file: Annotated[Path | None, Option("--stage-file FILE", argparse.SUPPRESS)] = None
    """Where a worker that its master started tells how far it is."""
    master_timeout: Annotated[
        float | None,
        Option(
            "--master-timeout SECONDS",
            "exit after so long without a master, counted from the start or from the last run (default: never)",
            type=seconds,
        ),
    ] = None
    once: Annotated[bool, Option("--once", "exit after the first run instead of waiting for the next")] = False
    worker_id: Annotated[
        str | None,
        Heading("this worker"),
        Option(
            "WORKER_ID",
            "name of this worker (default: the name in its key, else the host name)",
            nargs="?",
            type=name,
        ),
    ]
    concurrency: Annotated[
        int, Option("-c, --concurrency N", "most jobs at the same time (default: 64)", type=int_range(1, MAX_SLOTS))
    ] = 64
    environment: Annotated[
        str | None,
        Option(
            "--environment NAME",
            "environment: bare-metal, hypervisor, control or any label (default: detected)",
            type=name,
        ),
    ] = None
    label: Annotated[tuple[str, ...], Option("--label K=V", "label to save with the results; repeatable")] = ()
    address: Annotated[
        str | None,
        Option(
            "--address ADDRESS",
            "IP address at which other hosts reach services on this one (default: that of the route to the master)",
            type=host_address,
        ),
    ] = None
    allow_swapoff: Annotated[
        bool, Option("--allow-swapoff", "let scenarios switch swap off on this host while a job runs")
    ] = False
    allow_cold: Annotated[
        bool,
        Option(
            "--allow-cold",
            "let scenarios drop this host's page cache, or remove and fetch again the image, before each job; "
            "needs root",
        ),
    ] = False
    allow_host_settings: Annotated[
        tuple[str, ...],
        host_settings_option("let scenarios change these settings of this host's kernel while a trial runs"),
    ] = ()
    allow_host_mounts: Annotated[
        bool,
        Option(
            "--allow-host-mounts",
            "let scenarios mount directories of this host, use volumes and networks of others, and any log driver",
        ),
    ] = False
    allow_native: Annotated[
        bool,
        Option(
            "--allow-native",
            "let scenarios run programs of this host as this user, without a container (engine native)",
        ),
    ] = False
    engine: Annotated[
        tuple[EngineLabel, ...], engine_option("offer an engine again under a label, with another program or socket")
    ] = ()
    engines: Annotated[
        tuple[str, ...] | None,
        Option("--engines", argparse.SUPPRESS, action="store", type=_engine_names),
    ] = None
    """The engines to look for, those of the plan where the master started this worker; None: all."""
    allow_host_directories: Annotated[bool, Option("--allow-host-directories", argparse.SUPPRESS)] = False
    """Mount directories that the scenario names, for a master that is this user's own."""
    run_file: Annotated[Path | None, Option("--run-file", argparse.SUPPRESS)] = None
    """Says whom this worker serves while it takes part in a run."""


class AgentOptions(Struct, frozen=True):
    """How the agent serves its master."""

    control: str
    """The endpoint of the master's control socket."""
    worker_id: str
    environment: str
    """The kind of place this is, such as ``bare-metal``."""
    slots: int
    """How many jobs run at once, at most."""
    key: WorkerKey | None = None
    """This worker's CURVE key; None for a master of the same user on this machine, and with ``--insecure``."""
    labels: dict[str, str] = field(default_factory=dict)
    """Labels that are saved with the results."""
    local: bool = False
    """Whether its master started it, on its own machine."""
    once: bool = False
    """End with the first run."""
    master_timeout_s: float | None = None
    """End after so long without a master; None: never."""
    allow_host_mounts: bool = False
    """Let scenarios mount directories of this host."""
    allow_foreign: bool = False
    """Let scenarios use volumes, networks and log drivers of others."""
    allow_native: bool = False
    """Let scenarios run programs of this host."""
    allow_swapoff: bool = False
    """Let scenarios switch swap off on this host."""
    allow_cold: bool = False
    """Let scenarios drop this host's page cache and fetch images again before a job."""
    allow_host_settings: tuple[str, ...] = ()
    """Let scenarios change these settings of this host's kernel."""
    engines: tuple[str, ...] | None = None
    """The engines to offer; None: every usable one."""
    address: str | None = None
    """The IP address at which other hosts reach this one; None: to be found out."""
    run_file: Path | None = None
    """The file that says whom this worker serves; None: none."""


LOCAL_MASTER_TIMEOUT_S = 60.0
"""How long a worker that its master started waits for that master before it exits."""


def serve(command_line: ServeOptions) -> int:
    """Serve the master that the command line names; return the exit code."""
    options = _agent_options(command_line)
    stage = StageFile(command_line.stage_file)
    stage.enter(STAGE_LOADING)
    # Loaded before the copy is made, and the copy is made before there is a thread or an event loop.
    from bench_worker.agent import Agent
    from bench_worker.preflight import EngineCatalog

    child = LoadProcessHandle(options.engines, fork_load_process)

    offer = EngineCatalog(options.engines)

    def describe() -> HostInfo:
        names = "all" if options.engines is None else ", ".join(options.engines) or "none"
        stage.enter(f"{STAGE_ENGINES}: {names}")
        return describe_host(offer)

    agent = Agent(options, describe, child, offer, stage.enter)
    for sign in (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if honors_sighup() else ())):
        gevent.signal_handler(sign, agent.stop, ExitCode.INTERRUPTED)
    return agent.serve()


class StageFile:
    """Tells the master on this machine, in a file, how far this worker is on its way to a run."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stage = ""

    def enter(self, stage: str) -> None:
        """Note a stage; nothing is written while it stays the same. A disk that is full must not stop the worker."""
        if self._path is None or stage == self._stage:
            return
        self._stage = stage
        with suppress(OSError):
            self._path.write_text(stage, encoding="utf-8")


def describe_host(offer: EngineCatalog) -> HostInfo:
    """Return what a master learns about this host: versions, engines, fingerprint."""
    return {
        "host": socket.gethostname(),
        "boot_id": clock_id(),
        "version": __version__,
        "engines": offer.probe(),
        "fingerprint": dict(fingerprint()),
    }


def _agent_options(given: ServeOptions) -> AgentOptions:
    control = _control_endpoint(given)
    key = read_worker_key(given.key) if given.key is not None else None
    if key is None and curve_required(control, insecure=given.insecure):
        raise UsageError(
            f"{control} can be anybody's, and a worker accepts only its master's key: give --key FILE, made with "
            "`bench-master keygen --worker NAME` on the master (or --insecure on a trusted network; for a master of "
            "yours on this machine leave --zmq-host out)"
        )
    if key is None and curve_required(control):
        sys.stderr.write(INSECURE_WORKER_WARNING.format(address=control, user=os.geteuid()))
    return AgentOptions(
        control=control,
        worker_id=_worker_id(given.worker_id, key),
        environment=given.environment or guess_environment(),
        slots=given.concurrency,
        key=key,
        labels=dict(_label(text) for text in given.label),
        local=given.control is not None,
        once=given.once,
        master_timeout_s=LOCAL_MASTER_TIMEOUT_S if given.control else given.master_timeout,
        allow_host_mounts=given.allow_host_mounts or given.allow_host_directories,
        allow_foreign=given.allow_host_mounts,
        allow_native=given.allow_native,
        allow_swapoff=given.allow_swapoff,
        allow_cold=given.allow_cold,
        allow_host_settings=given.allow_host_settings,
        engines=given.engines,
        address=given.address,
        run_file=given.run_file,
    )


def _control_endpoint(given: ServeOptions) -> str:
    """Return the endpoint of the master's control socket; raise `InfrastructureError` for a stranger's."""
    if given.control and given.zmq_host:
        raise UsageError("--control and --zmq-host: give one of them")
    if given.zmq_host:
        return f"tcp://{authority(given.zmq_host, given.zmq_control_port)}"
    if given.key is not None and not given.control:
        raise UsageError("--key: name the master's host with --zmq-host HOST")
    control = given.control or f"ipc://{control_socket(given.zmq_control_port)}"
    if control.startswith("ipc://"):
        check_socket(Path(control.removeprefix("ipc://")))
    return control


def _worker_id(given: str | None, key: WorkerKey | None) -> str:
    if key is not None and given not in (None, key.name):
        raise UsageError(f"WORKER_ID {given!r}: the key is for worker {key.name!r}; leave the name out")
    if given in {info.name.replace("_", "-") for info in pkgutil.iter_modules(queries.__path__)}:
        raise UsageError(f"WORKER_ID {given!r}: what asks about this machine is an option: {PROGRAM} --{given}")
    return given or (key.name if key is not None else socket.gethostname())


def _label(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"--label {text!r}: expected K=V")
    return name, value
