"""The command that deletes what a run left in the stores of its jobs, so that it can be copied from a report."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Final

from bench_common.stats.block_types import StoredTreatment

COMMAND: Final = ("bench-master", "cleanup-containers")


def cleanup_commands(run_id: str | None, treatments: Iterable[StoredTreatment]) -> list[str]:
    """Return a command for each store, and base of containers, of treatments as the stats file has them.

    Without a `run_id` they are about every run that is not alive.
    """
    found: dict[str, None] = {}
    for one in treatments:
        fields = one.job if isinstance(one.job, Mapping) else {}
        words = [*COMMAND, "--store", str(fields.get("profile") or one.engine)]
        words += ["--base", str(fields["container_base"])] if fields.get("container_base") else []
        words += ["--run", run_id] if run_id else []
        found[shlex.join([*words, "--yes"])] = None
    return list(found)


def cleanup_advice(run_id: str, treatments: Iterable[StoredTreatment]) -> str:
    """Return what deletes what a run left, in the stores of these treatments, or on hosts where there are none."""
    commands = cleanup_commands(run_id, treatments) or [shlex.join([*COMMAND, "--run", run_id])]
    return " and ".join(f"`{one}`" for one in commands)
