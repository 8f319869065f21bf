"""What the launchers of clusters share: each worker is one object of the cluster, made with the user's own tool.

The tools (kubectl, sbatch, docker) are used as the user has set them up. What is created for a run is removed at its
end; if the master is killed, its `Janitor` does that.
"""

from __future__ import annotations

import abc
import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Event
from time import monotonic
from typing import Final, Literal

from msgspec import Struct

from bench_common.errors import InfrastructureError
from bench_common.safe_text import shorten
from bench_features.clusters.janitor import Janitor
from bench_features.fleet.hosts import FleetHost
from bench_features.fleet.launchers.base import (
    IN_USE,
    RUNNING,
    STARTED,
    HostProgress,
    Launcher,
    LaunchSpec,
    WorkerOutcome,
    collect_outcomes,
    for_each_worker,
    run_parallel,
)

LABEL: Final = "weighbridge.worker"
"""Label with the worker's name on everything that is made for it; nothing else is ever removed."""
OWNER_LABEL: Final = "weighbridge.owner"
"""Label with the id of whoever started the worker."""
ONCE_LABEL: Final = "weighbridge.once"
"""Label of a worker that serves a single run; its value is always ``yes``."""
SETTINGS_LABEL: Final = "weighbridge.settings"
"""Label with a hash of what the worker was started with."""
STARTED_BY: Final = "weighbridge.started-by"
"""Label, or annotation, that says to people who started the worker."""

START_TIMEOUT_S: Final = 300.0
"""Time limit for a worker to run on its node (s): its image may have to be pulled."""
PLACEMENT_S: Final = 10.0
"""How long the cluster may find no place for a worker (s)."""
LAST_LINES: Final = 5
"""How many lines of a worker's log an error has."""
POLL_S: Final = 0.5
"""Time between two looks at a worker that starts or stops (s)."""


class PlacedWorker(Struct, frozen=True):
    """A worker that the cluster knows already."""

    alive: bool
    """Whether it runs, or may still start."""
    owner: str = ""
    """The id of whoever started it."""
    once: bool = False
    """Whether it serves a single run."""
    settings: str = ""
    """The hash of what it was started with; empty if unknown."""
    started_by: str = ""
    """Who started it, as a text."""


class StartState(Struct, frozen=True):
    """How far a worker has come on its way to its node."""

    state: Literal["running", "waiting", "unplaced", "failed"]
    """``unplaced``: the cluster has no node for it at present."""
    reason: str = ""
    """Why it does not run, in the words of the cluster."""


class ClusterLauncher(Launcher):
    """Starts workers through a cluster's scheduler; a subclass starts and stops one worker and reads its log."""

    def __init__(self, launch_spec: LaunchSpec) -> None:
        super().__init__(launch_spec)
        self._janitor = Janitor()
        self._cancelled = Event()

    def start(self, hosts: Sequence[FleetHost], progress: HostProgress) -> list[WorkerOutcome]:
        """Start the workers of each host."""

        def start(host: FleetHost) -> list[WorkerOutcome]:
            if self.launch_spec.uses_tunnel(host):
                raise InfrastructureError(f"launcher {self.name} has no SSH connection for a tunnel")
            address = self.launch_spec.master_for(host)

            def launch(worker: str) -> WorkerOutcome:
                progress(host.name, f"starting {worker}")
                return self._launch(host, worker, address)

            return for_each_worker(host, launch)

        return collect_outcomes(hosts, run_parallel(hosts, start, progress, self._cancelled.set))

    def stop(self, hosts: Sequence[FleetHost], progress: HostProgress, *, purge: bool) -> list[WorkerOutcome]:
        """Stop the workers of each host. Nothing was installed there, so there is nothing to purge."""
        del purge

        def stop(host: FleetHost) -> list[WorkerOutcome]:
            def end(worker: str) -> WorkerOutcome:
                progress(host.name, f"stopping {worker}")
                return WorkerOutcome(host.name, worker, self._stop(host, worker))

            return for_each_worker(host, end)

        return collect_outcomes(hosts, run_parallel(hosts, stop, progress))

    def logs(self, hosts: Sequence[FleetHost], progress: HostProgress) -> dict[str, str | InfrastructureError]:
        """Return the log of each worker."""

        def read(host: FleetHost) -> dict[str, str]:
            progress(host.name, "reading logs")
            return {worker: self.read_log(host, worker) for worker in host.worker_names}

        found: dict[str, str | InfrastructureError] = {}
        for host in hosts:
            answer = run_parallel([host], read)[host.name]
            for worker in host.worker_names:
                found[worker] = answer if isinstance(answer, InfrastructureError) else answer[worker]
        return found

    def close(self) -> None:
        """End the janitor, which removes what could not be removed so far."""
        self._janitor.close()

    def setting(self, host: FleetHost, name: str, default: str | None = None) -> str:
        """Return a setting of a host; raise `InfrastructureError` if it is missing and has no default."""
        value = host.settings.get(name, default)
        if value is None:
            raise InfrastructureError(
                f"launcher {self.name} needs the setting '{name}' ({self.settings[name]}): add it under 'settings:'"
            )
        return value

    def command(
        self, host: FleetHost, worker: str, address: str, *, key: str, python: str, lifetime: bool = True
    ) -> list[str]:
        """Return the argument vector of a worker, which has the path of its key but no key.

        Without `lifetime` it is the same for one run as for many.
        """
        words = [*self.launch_spec.arguments(host, address), *(self.launch_spec.lifetime() if lifetime else ())]
        return [host.python or python, "-m", "bench_worker", *words, "--key", key, worker]

    def settings_hash(self, host: FleetHost, worker: str, address: str) -> str:
        """Return a hash of everything that a worker is started with, except of how long it waits for a master."""
        command = self.command(host, worker, address, key="", python="", lifetime=False)
        content = [command, dict(host.env), dict(host.settings), host.login.address]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def labels(self, host: FleetHost, worker: str, address: str) -> dict[str, str]:
        """Return the labels of everything that is made for a worker."""
        once = {ONCE_LABEL: "yes"} if self.launch_spec.once else {}
        settings = self.settings_hash(host, worker, address)
        return {LABEL: worker, OWNER_LABEL: self.launch_spec.owner_id, SETTINGS_LABEL: settings, **once}

    def await_start(self, look: Callable[[], StartState]) -> None:
        """Wait until a worker runs on its node; raise `InfrastructureError` with the reason if it cannot."""
        since = placeable = monotonic()
        while True:
            now, state = monotonic(), look()
            if state.state == "running":
                return
            if state.state == "failed":
                raise InfrastructureError(state.reason)
            if state.state != "unplaced":
                placeable = now
            elif now - placeable > PLACEMENT_S:
                raise InfrastructureError(f"it cannot start: {state.reason}")
            if now - since > START_TIMEOUT_S:
                reason = f": {state.reason}" if state.reason else ""
                raise InfrastructureError(f"it did not start within {START_TIMEOUT_S:g} s{reason}")
            if self._cancelled.wait(POLL_S):
                raise InfrastructureError("interrupted while it started")

    def _launch(self, host: FleetHost, worker: str, address: str) -> WorkerOutcome:
        """Start a worker, unless it runs; if that fails, remove what was created for it."""
        found = self.find_worker(host, worker)
        if found is not None and not found.alive:
            self.stop_worker(host, worker)
            found = None
        if found is not None:
            return self._running(host, worker, address, found)
        removal = self.removal(host, worker)
        if self.launch_spec.once and removal:
            self._janitor.expect(worker, removal)
        try:
            detail = self.start_worker(host, worker, address)
        except InfrastructureError:
            with suppress(InfrastructureError):
                self.stop_worker(host, worker)
                self._janitor.done(worker)
            raise
        return WorkerOutcome(host.name, worker, STARTED if detail else RUNNING, detail)

    def _running(self, host: FleetHost, worker: str, address: str, found: PlacedWorker) -> WorkerOutcome:
        """Return the outcome for a worker that is there already; raise `InfrastructureError` if it is another."""
        if found.once and found.owner != self.launch_spec.owner_id:
            detail = f"was started for a run of {found.started_by or 'another master'}"
            return WorkerOutcome(host.name, worker, IN_USE, detail)
        if found.settings not in ("", self.settings_hash(host, worker, address)):
            raise InfrastructureError(
                f"worker {worker} runs already, with other settings: stop it with fleet stop, then start it again"
            )
        return WorkerOutcome(host.name, worker, RUNNING)

    def _stop(self, host: FleetHost, worker: str) -> str:
        """Stop a worker, unless it was started by somebody whose workers are not to be stopped."""
        owner = self.launch_spec.stop_owner
        found = None if owner is None else self.find_worker(host, worker)
        if found is not None and found.owner not in ("", owner):
            return "belongs to somebody else"
        ended = self.stop_worker(host, worker)
        self._janitor.done(worker)
        return ended

    def find_worker(self, host: FleetHost, worker: str) -> PlacedWorker | None:
        """Return what the cluster knows of a worker; None if it knows nothing, or if `start_worker` looks."""
        del host, worker
        return None

    def removal(self, host: FleetHost, worker: str) -> list[list[str]]:
        """Return the commands that remove what `start_worker` will create, and nothing else, in their order."""
        del host, worker
        return []

    @abc.abstractmethod
    def start_worker(self, host: FleetHost, worker: str, address: str) -> str:
        """Start a worker; return a description of it, or an empty text if it runs already."""

    @abc.abstractmethod
    def stop_worker(self, host: FleetHost, worker: str) -> str:
        """Stop a worker and remove what was created for it; return ``ended`` or ``was not running``."""

    @abc.abstractmethod
    def read_log(self, host: FleetHost, worker: str) -> str:
        """Return a worker's log."""


def object_name(worker: str, owner: str = "") -> str:
    """Return what a worker's objects are called: lower-case letters, digits and dashes, and unique.

    With an `owner` the name is of this one's worker alone.
    """
    plain = re.sub(r"[^a-z0-9-]", "-", worker.lower()).strip("-")[:34].rstrip("-")
    suffix = "" if plain == worker else f"-{hashlib.sha256(worker.encode()).hexdigest()[:6]}"
    return f"weighbridge-{plain}{suffix}" + (f"-{owner[:8]}" if owner else "")


TOOL_TIMEOUT_S: Final = 120.0
"""Time limit of a tool (s)."""


def run_tool(argv: Sequence[str], stdin: str = "", *, timeout_s: float = TOOL_TIMEOUT_S) -> str:
    """Return what a tool prints; raise `InfrastructureError` with its error message if it fails or is missing.

    Secrets go to `stdin`: everybody on this machine can read an argument vector.
    """
    try:
        done = subprocess.run(  # noqa: S603  no shell; the user's own tool
            list(argv), input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError as error:
        raise InfrastructureError(f"{argv[0]} is not installed here, or not on PATH") from error
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"{' '.join(argv[:2])} did not finish within {timeout_s:g} s") from error
    if done.returncode:
        reason = " ".join((done.stderr.strip() or done.stdout.strip()).split())
        raise InfrastructureError(
            f"{' '.join(argv[:2])} failed with exit code {done.returncode}: {shorten(reason, 800)}"
        )
    return done.stdout
