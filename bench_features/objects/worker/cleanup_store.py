"""`bench-worker --cleanup-store`: delete what runs left in an object store, or list it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct

from bench_common.options import Option

if TYPE_CHECKING:
    from bench_features.objects.common.access import Access
    from bench_features.objects.worker.leftovers import LeftContainer
    from bench_features.objects.worker.population import Phase

FLAG = "--cleanup-store"
HELP = "delete what runs left in the object store of --store"


class Options(Struct, frozen=True, kw_only=True):
    """The arguments of this query."""

    cleanup_store: Annotated[str | None, Option("--store PROFILE|URL", "with --cleanup-store: the store")] = None
    cleanup_base: Annotated[
        str | None,
        Option("--base BASE", "with --cleanup-store: delete our objects in the containers of this base, too"),
    ] = None
    cleanup_dry_run: bool
    cleanup_run_id: str | None
    """The run to clean up, even if it is active; None: every run that is not active on this machine."""


def run(options: Options) -> Iterable[dict[str, Any]]:
    """Yield each container with its number of objects, `verdict` and, if it is still there, `why`."""
    from bench_features.objects.common.access import find_accesses

    for access in find_accesses(options.cleanup_store or ""):
        yield from _clean_up(access, options)


def _clean_up(access: Access, options: Options) -> Iterator[dict[str, Any]]:
    from bench_common.streams import tell
    from bench_features.objects.worker.base import StoreOptions
    from bench_features.objects.worker.leftovers import SLOTS, find_containers, remove_containers
    from bench_features.objects.worker.registry import open_store
    from bench_worker.leases import live_runs

    def report(phase: Phase) -> None:
        tell(f"bench-worker: {phase.objects} objects deleted")

    # With parts, containers of parts are found and deleted with their own.
    store = open_store(access, StoreOptions(slots=SLOTS, multipart_above_bytes=0))
    try:
        run_id = options.cleanup_run_id
        found = find_containers(store, run_id, options.cleanup_base)
        alive = live_runs() if run_id is None else frozenset[str]()
        chosen = [one for one in found if one.run_id not in alive]
        removing = chosen if not options.cleanup_dry_run else []
        why = remove_containers(store, removing, run_id=run_id, report=report)
        for one in found:
            if one not in chosen:
                yield _row(access, one, "kept", f"run {one.run_id} is alive on this host")
            elif options.cleanup_dry_run:
                yield _row(access, one, "listed", "a dry run removes nothing")
            elif one.name not in why:
                yield _row(access, one, "removed", "")
            else:
                yield _row(access, one, "kept" if one.others else "failed", why[one.name])
    finally:
        store.close()


def _row(access: Access, one: LeftContainer, verdict: str, why: str) -> dict[str, Any]:
    return {
        "engine": access.store,
        "what": "container",
        "identity": f"{access.store}:{one.name}",
        "name": one.name,
        "run_id": one.run_id,
        "age_s": None,
        "objects": one.objects,
        "others": one.others,
        "removed": verdict == "removed",
        "verdict": verdict,
        "why": why,
    }
