"""Finds and removes what runs left in containerd: in our namespace, and only what carries the label."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench_common.errors import InfrastructureError
from bench_worker.engines import oci_homes
from bench_worker.engines.base import RUN_LABEL, WORKER_LABEL, Leftover, OperationFailed
from bench_worker.engines.containerd_tasks import delete

if TYPE_CHECKING:
    from pathlib import Path

    from bench_worker.engines.command_line import CommandLine

ENGINE = "containerd"


def find(cli: CommandLine, run_id: str | None, worker_id: str | None, *, timeout_s: float) -> list[Leftover]:
    """Return the containers with the label; raise `InfrastructureError` when containerd does not tell."""
    wanted = [f'labels."{RUN_LABEL}"' if run_id is None else f'labels."{RUN_LABEL}"=="{run_id}"']
    if worker_id is not None:
        wanted.append(f'labels."{WORKER_LABEL}"=="{worker_id}"')
    try:
        names = cli.errand(timeout_s).ask("containers", "ls", "-q", ",".join(wanted)).text.split()
        runs = {name: _run_of(cli, name, timeout_s) for name in names}
    except OperationFailed as error:
        raise InfrastructureError(f"containerd cannot say what was left behind: {error}") from error
    return [Leftover(ENGINE, "container", name, name, run) for name, run in runs.items() if run]


def remove(cli: CommandLine, leftover: Leftover, home: Path, *, timeout_s: float) -> None:
    """Remove one that still carries the label of its run, and its directory below `home`; gone already is fine.

    Raises `InfrastructureError`.
    """
    try:
        if _run_of(cli, leftover.identity, timeout_s) == leftover.run_id:
            errand = cli.errand(timeout_s)
            delete(errand, "tasks", "delete", "--force", leftover.identity)
            delete(errand, "containers", "delete", leftover.identity)
            oci_homes.delete(home / leftover.identity)
    except (OperationFailed, OSError) as error:
        raise InfrastructureError(f"{leftover.name} cannot be removed: {error}") from error


def _run_of(cli: CommandLine, name: str, timeout_s: float) -> str:
    """Return the run whose label a container carries; nothing where there is no such container any more."""
    errand = cli.errand(timeout_s)
    answer = errand.call("containers", "info", name)
    if answer.exit_code:
        failure = errand.failed(answer)
        if failure.kind == "not-found":
            return ""
        raise failure
    facts: dict[str, Any] = json.loads(answer.stdout)
    return str((facts.get("Labels") or {}).get(RUN_LABEL, ""))
