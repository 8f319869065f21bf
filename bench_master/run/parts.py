"""The parts of one run, as `bench_master.commands.run_plan` puts them together."""

from __future__ import annotations

from dataclasses import dataclass

from bench_master.coordinator import Coordinator
from bench_master.plan import Plan
from bench_master.run.dispatcher import Dispatcher
from bench_master.run.hosts import WorkerHosts
from bench_master.run.local_workers import LocalWorkers
from bench_master.run.preflight import Preflight
from bench_master.run.profiles import Profiles
from bench_master.run.recorder import Recorder
from bench_master.run.remote_services import ServiceBroker
from bench_master.run.sockets import Sockets


@dataclass(frozen=True, slots=True)
class RunParts:
    """What the session and the message handler of one run work with."""

    plan: Plan
    """Treatments and trials, as asked for."""
    noop: bool
    """Whether workers execute nothing."""
    coordinator: Coordinator
    """Decides; pure."""
    sockets: Sockets
    """Where messages arrive, and whose keys are admitted."""
    hosts: WorkerHosts
    """The workers' names, clocks and load."""
    preflight: Preflight
    """The workers that were asked for what the plan needs."""
    dispatcher: Dispatcher
    """Sends to workers."""
    services: ServiceBroker
    """Services of jobs that run on another worker's host; pure."""
    recorder: Recorder
    """Keeps and shows what happens."""
    local_workers: LocalWorkers
    """The workers of this machine, none or more."""
    profiles: Profiles | None
    """Where profiles are kept; None without ``--profile``."""
