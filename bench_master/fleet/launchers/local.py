"""Launcher `local`: starts workers on this machine, without SSH and from this very installation."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from bench_common.errors import InfrastructureError
from bench_master.fleet import remote_agent
from bench_master.fleet.hosts import FleetHost
from bench_master.fleet.launchers.base import (
    RUNNING,
    STARTED,
    Answers,
    Launcher,
    Outcome,
    Told,
    each_worker,
    outcomes_of,
    side_by_side,
)
from bench_master.local_worker import ask_worker

HERE = "this installation"


class LocalLauncher(Launcher):
    """This machine. Its workers outlive the command, as those on other hosts do."""

    name = "local"

    def start(self, hosts: Sequence[FleetHost], told: Told) -> list[Outcome]:
        """Start the workers."""

        def start(host: FleetHost, name: str) -> Outcome:
            address = host.master or self.errand.master_here
            told(host.name, f"starting {name}")
            answer = _do(
                host,
                "start",
                name=name,
                key=self.errand.key_of(name).read_text("ascii"),
                argv=self.errand.arguments(host, address),
                lifetime=self.errand.lifetime(),
                env=_environment(host),
                python=sys.executable,
                identity=HERE,
            )
            state = RUNNING if answer["state"] == "running" else STARTED
            return Outcome(host.name, name, state, f"pid {answer['pid']}, master {address}")

        def start_all(host: FleetHost) -> list[Outcome]:
            return each_worker(host, partial(start, host))

        return outcomes_of(hosts, side_by_side(hosts, start_all))

    def stop(self, hosts: Sequence[FleetHost], told: Told, *, purge: bool) -> list[Outcome]:
        """End the workers."""

        def stop(host: FleetHost) -> list[Outcome]:
            told(host.name, "ending workers")
            ended = _do(host, "stop", names=list(host.worker_names), purge=purge)["ended"]
            return [Outcome(host.name, name, how) for name, how in ended.items()]

        return outcomes_of(hosts, side_by_side(hosts, stop))

    def logs(self, hosts: Sequence[FleetHost], told: Told) -> dict[str, str | InfrastructureError]:
        """Return the end of each log."""
        del told
        missing = InfrastructureError("no worker of that name was started here")
        found: dict[str, str | InfrastructureError] = {}
        for host in hosts:
            logs = _do(host, "logs", names=list(host.worker_names))["logs"]
            found |= {name: logs.get(name, missing) for name in host.worker_names}
        return found

    def ask(
        self, hosts: Sequence[FleetHost], told: Told, questions: Sequence[Sequence[str]]
    ) -> dict[str, Answers | InfrastructureError]:
        """Ask this installation's ``bench-worker``."""
        for host in hosts:
            told(host.name, "asking bench-worker")
        return side_by_side(hosts, lambda _: [ask_worker(*flags) for flags in questions])


def _do(host: FleetHost, verb: str, **fields: Any) -> dict[str, Any]:
    try:
        return remote_agent.VERBS[verb]({"verb": verb, "directory": host.directory, **fields}, io.BytesIO())
    except remote_agent.Refused as error:
        raise InfrastructureError(str(error)) from error


def _environment(host: FleetHost) -> dict[str, str]:
    """Return what the worker's environment has beside ours: our way of finding modules, should we have one."""
    path = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))} if "PYTHONPATH" in os.environ else {}
    return {**path, **host.env}
