"""Finds and removes what runs left in containerd: in our namespace, and only what carries the label."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from bench_common.errors import InfrastructureError
from bench_worker.engines import oci_homes
from bench_worker.engines.base import RUN_LABEL, WORKER_LABEL, Leftover, OperationFailed
from bench_worker.engines.containerd.tasks import delete
from bench_worker.engines.containerd_commit import images_of

if TYPE_CHECKING:
    from pathlib import Path

    from bench_worker.engines.command_line import CommandLine

ENGINE: Final = "containerd"
_IMAGE: Final = "image"


def find(cli: CommandLine, run_id: str | None, worker_id: str | None, *, timeout_s: float) -> list[Leftover]:
    """Return containers and images with the label; raise `InfrastructureError` when containerd does not tell."""
    wanted = [f'labels."{RUN_LABEL}"' if run_id is None else f'labels."{RUN_LABEL}"=="{run_id}"']
    if worker_id is not None:
        wanted.append(f'labels."{WORKER_LABEL}"=="{worker_id}"')
    try:
        names = cli.errand(timeout_s).ask("containers", "ls", "-q", ",".join(wanted)).text.split()
        runs = {name: _run_of(cli, name, timeout_s) for name in names}
        images = _images(cli, ",".join(wanted), timeout_s)
    except OperationFailed as error:
        raise InfrastructureError(f"containerd cannot say what was left behind: {error}") from error
    return [
        *(Leftover(ENGINE, "container", name, name, run) for name, run in runs.items() if run),
        *(Leftover(ENGINE, _IMAGE, name, name, run) for name, run in images.items()),
    ]


def remove(cli: CommandLine, leftover: Leftover, home: Path, *, timeout_s: float) -> None:
    """Remove one that still carries the label of its run, and its directory below `home`; gone already is fine.

    With a container goes the image that was made of it and has no label yet. Raises `InfrastructureError`.
    """
    try:
        if leftover.what == _IMAGE:
            if _images(cli, f"name=={leftover.identity}", timeout_s).get(leftover.identity) == leftover.run_id:
                delete(cli.errand(timeout_s), "images", "rm", "--sync", leftover.identity)
        elif _run_of(cli, leftover.identity, timeout_s) == leftover.run_id:
            errand = cli.errand(timeout_s)
            delete(errand, "tasks", "delete", "--force", leftover.identity)
            delete(errand, "containers", "delete", leftover.identity)
            for image in errand.ask("images", "ls", "-q").text.split():
                if image.startswith(images_of(leftover.identity)):
                    delete(errand, "images", "rm", "--sync", image)
            oci_homes.delete(home / leftover.identity)
    except (OperationFailed, OSError) as error:
        raise InfrastructureError(f"{leftover.name} cannot be removed: {error}") from error


def _images(cli: CommandLine, wanted: str, timeout_s: float) -> dict[str, str]:
    """Return the images with our label that a filter lets through, with their runs."""
    # A table with a line of titles: the name comes first, the labels last.
    rows = [row.split() for row in cli.errand(timeout_s).ask("images", "ls", wanted).text.splitlines()[1:]]
    labels = {row[0]: dict(pair.partition("=")[::2] for pair in row[-1].split(",")) for row in rows}
    return {name: pairs[RUN_LABEL] for name, pairs in labels.items() if RUN_LABEL in pairs}


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
