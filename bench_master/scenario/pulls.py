"""What a job that pulls its image cannot have: others that use the same store at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_master.scenario.types import INVALID

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_common.treatment import Operation
    from bench_master.scenario.diagnostics import Findings
    from bench_master.scenario.matrix import Settings


def check_pull(operations: Sequence[Operation], settings: Settings, findings: Findings) -> None:
    """Note where an image would be taken away from under other jobs, and where there is no image to pull."""
    pulls = [one for one in operations if one.kind == "pull"]
    if not pulls:
        return
    if "container.rootfs" in settings:
        message = "'pull' fetches an image, and 'container.rootfs' stands in its place: leave one of the two out"
        findings.add(settings["container.rootfs"].place, message, deep=True)
    if not any(one.anew for one in pulls):
        return
    concurrency, rate = settings.get("concurrency"), settings.get("rate")
    if rate is not None:
        message = "'pull' with 'anew' takes the image away from under jobs that are still under way: leave 'rate' out"
        findings.add(rate.place, message, deep=True)
    elif concurrency is not None and concurrency.value is not INVALID and concurrency.value > 1:
        message = (
            "'pull' with 'anew' takes the image away from under the other jobs: give it 'concurrency: 1', or leave "
            "'anew' out"
        )
        findings.add(concurrency.place, message, deep=True)
