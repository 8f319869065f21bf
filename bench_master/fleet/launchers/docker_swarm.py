"""Launcher `docker-swarm`: a global service for each worker, restricted to its node, made with the user's ``docker``.

Each worker has a secret with its key, which goes to ``docker`` through stdin. The image must contain Weighbridge.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from bench_common.errors import InfrastructureError
from bench_master.fleet.hosts import FleetHost
from bench_master.fleet.launchers.cluster import LABEL, ClusterLauncher, run_tool

GRACE: Final = "60s"
"""Time for a worker to clean up before its container is killed."""


class SwarmLauncher(ClusterLauncher):
    """Nodes of a swarm, by ``address`` (their host name); ``docker`` on this machine must talk to a manager."""

    name = "docker-swarm"
    settings: ClassVar[Mapping[str, str]] = {
        "image": "an image that contains Weighbridge",
        "context": "docker context (default: the current one)",
        "engine_socket": "socket of the node's engine to mount (default: none)",
    }

    def start_worker(self, host: FleetHost, worker: str, address: str) -> str:
        """Create secret and service, unless the service exists."""
        docker, name = _docker(host), _service_name(worker)
        if self._listed(host, "service", worker):
            return ""
        image = self.setting(host, "image")
        if self._listed(host, "secret", worker):
            # Left by a start that failed; the content of a secret cannot be changed.
            run_tool([*docker, "secret", "rm", name])
        key = self.launch_spec.key_file_of(worker).read_text("ascii")
        run_tool([*docker, "secret", "create", "--label", f"{LABEL}={worker}", name, "-"], key)
        try:
            run_tool(
                [
                    *docker,
                    "service",
                    "create",
                    *self.options(host, worker),
                    image,
                    *self._command(host, worker, address),
                ]
            )
        except InfrastructureError:
            run_tool([*docker, "secret", "rm", name])
            raise
        return f"service {name}, master {address}"

    def options(self, host: FleetHost, worker: str) -> list[str]:
        """Return the options of the service."""
        name = _service_name(worker)
        options = ["--detach", "--name", name, "--label", f"{LABEL}={worker}", "--mode", "global"]
        options += ["--constraint", f"node.hostname=={host.login.address}", "--network", "host"]
        options += ["--secret", f"source={name},target=worker.key,uid=0,mode=0400"]
        options += ["--restart-condition", "none", "--stop-grace-period", GRACE]
        for variable, value in host.env.items():
            options += ["--env", f"{variable}={value}"]
        socket = host.settings.get("engine_socket")
        if socket is not None:
            options += ["--mount", f"type=bind,source={socket},target={socket}"]
        return options

    def stop_worker(self, host: FleetHost, worker: str) -> str:
        """Remove service and secret."""
        there = self._listed(host, "service", worker)
        for kind in ("service", "secret"):
            if self._listed(host, kind, worker):
                run_tool([*_docker(host), kind, "rm", _service_name(worker)])
        return "ended" if there else "was not running"

    def read_log(self, host: FleetHost, worker: str) -> str:
        """Return the log of the service."""
        return run_tool([*_docker(host), "service", "logs", "--raw", _service_name(worker)])

    def _command(self, host: FleetHost, worker: str, address: str) -> list[str]:
        return self.command(host, worker, address, key="/run/secrets/worker.key", python="python3")

    @staticmethod
    def _listed(host: FleetHost, kind: str, worker: str) -> bool:
        names = run_tool([*_docker(host), kind, "ls", "--filter", f"label={LABEL}={worker}", "--format", "{{.Name}}"])
        return _service_name(worker) in names.split()


def _service_name(worker: str) -> str:
    return f"weighbridge-{worker}"


def _docker(host: FleetHost) -> list[str]:
    context = host.settings.get("context")
    return ["docker"] if context is None else ["docker", "--context", context]
