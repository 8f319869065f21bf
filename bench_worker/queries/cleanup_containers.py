"""``--cleanup-containers``: removes what runs left behind on this machine, or lists it first."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from bench_worker.cleanup import CleanupStatus
    from bench_worker.engines.base import Leftover

FLAG = "--cleanup-containers"
HELP = "remove what runs that are over left behind here"


def configure(group: argparse._ArgumentGroup) -> None:
    """Add how much is looked at, and whether it is touched."""
    group.add_argument(
        "--dry-run",
        dest="cleanup_dry_run",
        action="store_true",
        help="with --cleanup-containers: list, remove nothing",
    )
    group.add_argument(
        "--run",
        dest="cleanup_run_id",
        metavar="RUN_ID",
        help="with --cleanup-containers: of this run alone, even if it is alive",
    )


def answer(arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Yield each leftover's fields with `removed`, its `verdict` and, where it is still there, `why`.

    An engine that could not be asked is a row without an identity.
    """
    from bench_worker.cleanup import clean_up_all

    rows: list[dict[str, Any]] = []

    def told(leftover: Leftover, verdict: CleanupStatus, reason: str) -> None:
        rows.append({**asdict(leftover), "removed": verdict == "removed", "verdict": verdict, "why": reason})

    sweep = clean_up_all(run_id=arguments.cleanup_run_id, told=told, dry_run=arguments.cleanup_dry_run)
    yield from rows
    for failure in sweep.failed:
        if failure.leftover is None:
            yield {
                "engine": failure.engine,
                "what": "engine",
                "identity": "",
                "name": failure.engine,
                "run_id": "",
                "age_s": None,
                "removed": False,
                "verdict": "failed",
                "why": failure.reason,
            }
