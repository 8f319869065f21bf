"""Launcher `local`: starts workers on this machine, without SSH, from this installation."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from bench_common.errors import InfrastructureError
from bench_features.fleet import remote_agent
from bench_features.fleet.hosts import FleetHost
from bench_features.fleet.launchers.base import (
    IN_USE,
    RUNNING,
    STARTED,
    HostProgress,
    Launcher,
    QueryResults,
    WorkerOutcome,
    collect_outcomes,
    for_each_worker,
    run_parallel,
    start_unless_in_use,
)
from bench_master.worker_query import query_worker

LOCAL_HOST = "this installation"


class LocalLauncher(Launcher):
    """This machine. Its workers outlive the command, like those on other hosts."""

    name = "local"

    def start(self, hosts: Sequence[FleetHost], progress: HostProgress) -> list[WorkerOutcome]:
        """Start the workers."""

        def start(host: FleetHost, name: str) -> WorkerOutcome:
            address = host.master or self.launch_spec.master_here
            progress(host.name, f"starting {name}")
            request = partial(
                _run_verb,
                host,
                "start",
                name=name,
                key=self.launch_spec.key_file_of(name).read_text("ascii"),
                argv=self.launch_spec.arguments(host, address),
                lifetime=self.launch_spec.lifetime(),
                owner=self.launch_spec.owner(),
                names=list(host.worker_names),
                env=_worker_environment(host),
                python=sys.executable,
                identity=LOCAL_HOST,
            )
            answer = start_unless_in_use(request)
            if answer["state"] == IN_USE:
                return WorkerOutcome(host.name, name, IN_USE, answer["detail"])
            state = RUNNING if answer["state"] == "running" else STARTED
            return WorkerOutcome(host.name, name, state, f"pid {answer['pid']}, master {address}")

        def start_all(host: FleetHost) -> list[WorkerOutcome]:
            return for_each_worker(host, partial(start, host))

        return collect_outcomes(hosts, run_parallel(hosts, start_all, progress))

    def stop(self, hosts: Sequence[FleetHost], progress: HostProgress, *, purge: bool) -> list[WorkerOutcome]:
        """Stop the workers."""

        def stop(host: FleetHost) -> list[WorkerOutcome]:
            progress(host.name, "stopping workers")
            ended = _run_verb(
                host, "stop", names=list(host.worker_names), purge=purge, owner=self.launch_spec.stop_owner
            )["ended"]
            return [WorkerOutcome(host.name, name, how) for name, how in ended.items()]

        return collect_outcomes(hosts, run_parallel(hosts, stop, progress))

    def logs(self, hosts: Sequence[FleetHost], progress: HostProgress) -> dict[str, str | InfrastructureError]:
        """Return the end of each log."""
        del progress
        missing = InfrastructureError("no worker of this name was started here")
        found: dict[str, str | InfrastructureError] = {}
        for host in hosts:
            logs = _run_verb(host, "logs", names=list(host.worker_names))["logs"]
            found |= {name: logs.get(name, missing) for name in host.worker_names}
        return found

    def query(
        self, hosts: Sequence[FleetHost], progress: HostProgress, queries: Sequence[Sequence[str]]
    ) -> dict[str, QueryResults | InfrastructureError]:
        """Query ``bench-worker`` of this installation."""
        for host in hosts:
            progress(host.name, "querying bench-worker")
        return run_parallel(
            hosts, lambda host: [query_worker(*flags, *host.engine_flags) for flags in queries], progress
        )


def _run_verb(host: FleetHost, verb: str, **fields: Any) -> dict[str, Any]:
    try:
        return remote_agent.COMMANDS[verb]({"verb": verb, "directory": host.directory, **fields}, io.BytesIO())
    except remote_agent.RequestError as error:
        raise InfrastructureError(str(error)) from error


def _worker_environment(host: FleetHost) -> dict[str, str]:
    """Return the variables to add to the worker's environment: our module path, if one is set, and the host's own."""
    path = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))} if "PYTHONPATH" in os.environ else {}
    return {**path, **host.env}
