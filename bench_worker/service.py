"""A worker that serves a master, as the command line asks for it."""

from __future__ import annotations

import argparse
import signal
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

import gevent

from bench_common import __version__
from bench_common.addresses import authority
from bench_common.cli import hangs_up
from bench_common.clock import clock_id
from bench_common.curve import curve_required
from bench_common.errors import ExitCode, UsageError
from bench_common.keys import WorkerKey, read_worker_key
from bench_worker.agent_options import AgentOptions
from bench_worker.host.fingerprint import fingerprint, suggested_environment
from bench_worker.supervisor import LoadChild

if TYPE_CHECKING:
    from bench_worker.preflight import Offer

LOCAL_PATIENCE_S = 60.0
"""How long a worker that its master started itself waits for an answer before it ends."""


def serve(arguments: argparse.Namespace) -> int:
    """Serve the master that `arguments` name; return the exit code."""
    options = _options(arguments)
    # First of all: it takes as long to load as all that follows does until a master can be asked for work.
    child = LoadChild(options.engines)
    from bench_worker.agent import Agent
    from bench_worker.preflight import Offer

    offer = Offer(options.engines)
    agent = Agent(options, partial(describe, offer), child, offer)
    for sign in (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hangs_up() else ())):
        gevent.signal_handler(sign, agent.stop, ExitCode.INTERRUPTED)
    return agent.serve()


def describe(offer: Offer) -> dict[str, Any]:
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
        environment=arguments.environment or suggested_environment(),
        slots=arguments.concurrency,
        key=key,
        labels=dict(_label(text) for text in arguments.label),
        once=arguments.once,
        patience_s=LOCAL_PATIENCE_S if arguments.control else arguments.patience,
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
