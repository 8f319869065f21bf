"""Launcher `docker-swarm`: a global service for each worker, restricted to its node, made with the user's ``docker``.

Each worker has a secret with its key, which goes to ``docker`` through stdin. The image must contain Weighbridge.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, ClassVar, Final

from bench_common.errors import InfrastructureError, did_you_mean
from bench_common.safe_text import shorten
from bench_features.clusters.cluster import (
    LABEL,
    LAST_LINES,
    ONCE_LABEL,
    OWNER_LABEL,
    POLL_S,
    SETTINGS_LABEL,
    STARTED_BY,
    ClusterLauncher,
    PlacedWorker,
    StartState,
    object_name,
    run_tool,
)
from bench_features.fleet.hosts import FleetHost
from bench_master.run.endpoints import describe_master

GRACE_S: Final = 60
"""Time for a worker to clean up before its container is killed (s)."""
ENDED: Final = ("complete", "failed", "rejected", "shutdown", "orphaned", "remove")
"""The states of a task that is over, as ``docker service ps`` prints them in lower case."""


class SwarmLauncher(ClusterLauncher):
    """Nodes of a swarm, by ``address`` (their host name); ``docker`` on this machine must talk to a manager."""

    name = "docker-swarm"
    settings: ClassVar[Mapping[str, str]] = {
        "image": "an image that contains Weighbridge",
        "context": "docker context (default: the current one)",
        "engine_socket": "socket of the node's engine to mount (default: none)",
    }

    def find_worker(self, host: FleetHost, worker: str) -> PlacedWorker | None:
        """Look for the worker's service; a secret without one is left of a start that was interrupted."""
        services = self._listed(host, "service", worker)
        if not services:
            return PlacedWorker(alive=False) if self._listed(host, "secret", worker) else None
        text = run_tool([*_docker(host), "service", "inspect", "--format", "{{json .Spec.Labels}}", services[0]])
        labels = json.loads(text or "null") or {}
        tasks = self._tasks(host, services[0])
        return PlacedWorker(
            alive=not tasks or any(_state(task) not in ENDED for task in tasks),
            owner=labels.get(OWNER_LABEL, ""),
            once=ONCE_LABEL in labels,
            settings=labels.get(SETTINGS_LABEL, ""),
            started_by=labels.get(STARTED_BY, ""),
        )

    def start_worker(self, host: FleetHost, worker: str, address: str) -> str:
        """Create secret and service, and wait until the worker runs."""
        docker, name = _docker(host), self._name(worker)
        image = self.setting(host, "image")
        nodes = run_tool([*docker, "node", "ls", "--format", "{{.Hostname}}\t{{.Status}}\t{{.Availability}}"])
        check_node(host.login.address, nodes)
        key = self.launch_spec.key_file_of(worker).read_text("ascii")
        labels = self._label_options(host, worker, address)
        run_tool([*docker, "secret", "create", *labels, name, "-"], key)
        command = self.command(host, worker, address, key="/run/secrets/worker.key", python="python3")
        run_tool([*docker, "service", "create", *self.options(host, worker, address), image, *command])
        self.await_start(lambda: start_state(self._tasks(host, name), lambda: self._last_lines(host, name)))
        return f"service {name}, master {address}"

    def options(self, host: FleetHost, worker: str, address: str) -> list[str]:
        """Return the options of the service."""
        name = self._name(worker)
        options = ["--detach", "--name", name, *self._label_options(host, worker, address), "--mode", "global"]
        options += ["--constraint", f"node.hostname=={host.login.address}", "--network", "host"]
        options += ["--secret", f"source={name},target=worker.key,uid=0,mode=0400"]
        options += ["--init", "--restart-condition", "none", "--stop-grace-period", f"{GRACE_S}s"]
        for variable, value in host.env.items():
            options += ["--env", f"{variable}={value}"]
        socket = host.settings.get("engine_socket")
        if socket is not None:
            options += ["--mount", f"type=bind,source={socket},target={socket}"]
        return options

    def stop_worker(self, host: FleetHost, worker: str) -> str:
        """Remove services and secrets of the worker, and wait until its containers are gone."""
        docker = _docker(host)
        services = self._listed(host, "service", worker)
        tasks = [task["ID"] for service in services for task in self._tasks(host, service)]
        for kind, names in (("service", services), ("secret", self._listed(host, "secret", worker))):
            for name in names:
                run_tool([*docker, kind, "rm", name])
        deadline = monotonic() + 2 * GRACE_S
        while any(self._is_task(host, task) for task in tasks):
            if monotonic() > deadline:
                raise InfrastructureError(
                    f"the service of worker {worker} is removed, but node {host.login.address} has not removed its "
                    "container: is the node down?"
                )
            sleep(POLL_S)
        return "ended" if services else "was not running"

    def removal(self, host: FleetHost, worker: str) -> list[list[str]]:
        """Return the commands that remove service and secret."""
        return [[*_docker(host), kind, "rm", self._name(worker)] for kind in ("service", "secret")]

    def explain_end(self, host: FleetHost, worker: str) -> str | None:
        """Return how the task of a worker ended that had been running; None if it runs on."""
        name = self._name(worker)
        state = start_state(self._tasks(host, name), lambda: self._last_lines(host, name))
        return state.reason if state.state == "failed" else None

    def read_log(self, host: FleetHost, worker: str) -> str:
        """Return the log of the service."""
        names = self._listed(host, "service", worker)
        if not names:
            raise InfrastructureError(f"the swarm has no service of worker {worker}")
        return run_tool([*_docker(host), "service", "logs", "--raw", names[0]])

    def _name(self, worker: str) -> str:
        """Return the name of secret and service; one for a run is of this run alone, whoever removes it later."""
        return object_name(worker, self.launch_spec.owner_id if self.launch_spec.once else "")

    def _label_options(self, host: FleetHost, worker: str, address: str) -> list[str]:
        labels = {**self.labels(host, worker, address), STARTED_BY: describe_master()}
        return [word for name, value in labels.items() for word in ("--label", f"{name}={value}")]

    def _last_lines(self, host: FleetHost, name: str) -> str:
        """Return the end of a service's log; nothing if it cannot be read."""
        with suppress(InfrastructureError):
            text = run_tool(
                [*_docker(host), "service", "logs", "--raw", "--tail", str(LAST_LINES), name], timeout_s=10
            )
            return " ".join(text.split())
        return ""

    @staticmethod
    def _tasks(host: FleetHost, service: str) -> list[dict[str, Any]]:
        text = run_tool([*_docker(host), "service", "ps", "--no-trunc", "--format", "{{json .}}", service])
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    @staticmethod
    def _is_task(host: FleetHost, task: str) -> bool:
        try:
            return bool(run_tool([*_docker(host), "inspect", "--type", "task", "--format", "{{.ID}}", task]).strip())
        except InfrastructureError:
            return False

    @staticmethod
    def _listed(host: FleetHost, kind: str, worker: str) -> list[str]:
        return run_tool(
            [*_docker(host), kind, "ls", "--filter", f"label={LABEL}={worker}", "--format", "{{.Name}}"]
        ).split()


def check_node(name: str, listing: str) -> None:
    """Raise `InfrastructureError` unless the node takes tasks; `listing` has name, status and availability a line."""
    nodes = {fields[0]: fields[1:] for line in listing.splitlines() if len(fields := line.split("\t")) == 3}  # noqa: PLR2004
    if name not in nodes:
        raise InfrastructureError(
            f"the swarm has no node {name!r}{did_you_mean(name, nodes)}; it has {', '.join(sorted(nodes)) or 'none'}"
        )
    status, availability = nodes[name]
    if (status, availability) != ("Ready", "Active"):
        raise InfrastructureError(
            f"node {name} of the swarm takes no tasks: it is {status.lower()} and its availability is "
            f"{availability.lower()}; see docker node ls"
        )


def start_state(tasks: Sequence[Mapping[str, Any]], last_lines: Callable[[], str]) -> StartState:
    """Return how far the newest task of a service has come; `last_lines` returns the end of its log."""
    if not tasks:
        return StartState("unplaced", "no node fits the service")
    state, error = _state(tasks[0]), str(tasks[0].get("Error") or "").strip('"')
    if state == "running":
        return StartState("running")
    if state in ENDED:
        words = shorten("; ".join(filter(None, (error, last_lines()))), 600)
        return StartState("failed", f"its task is {state}: {words or 'the swarm gives no reason'}")
    return StartState("unplaced" if state == "pending" and error else "waiting", error or f"its task is {state}")


def _state(task: Mapping[str, Any]) -> str:
    return str(task["CurrentState"]).partition(" ")[0].lower()


def _docker(host: FleetHost) -> list[str]:
    context = host.settings.get("context")
    return ["docker"] if context is None else ["docker", "--context", context]
