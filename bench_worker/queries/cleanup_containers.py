"""`bench-worker --cleanup-containers`: remove what runs left behind on this machine, or list it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from msgspec.structs import asdict

from bench_common.options import Option

if TYPE_CHECKING:
    from bench_worker.cleanup import CleanupStatus
    from bench_worker.engines.base import Leftover

FLAG = "--cleanup-containers"
HELP = "remove what finished runs left behind on this machine"


class Options(Struct, frozen=True):
    """The arguments of this query."""

    cleanup_dry_run: Annotated[
        bool, Option("--dry-run", "with --cleanup-containers: list what would be removed, and remove nothing")
    ] = False
    cleanup_run_id: Annotated[
        str | None,
        Option("--run RUN_ID", "with --cleanup-containers: clean up after this run only, even if it is active"),
    ] = None


def run(options: Options) -> Iterable[dict[str, Any]]:
    """Yield each leftover's fields with `removed`, its `verdict` and, if it is still there, `why`.

    An engine that failed to answer is a row without an identity.
    """
    from bench_worker.cleanup import clean_up_all

    rows: list[dict[str, Any]] = []

    def collect(leftover: Leftover, verdict: CleanupStatus, reason: str) -> None:
        rows.append({**asdict(leftover), "removed": verdict == "removed", "verdict": verdict, "why": reason})

    cleaned = clean_up_all(run_id=options.cleanup_run_id, on_result=collect, dry_run=options.cleanup_dry_run)
    yield from rows
    for failure in cleaned.failed:
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
