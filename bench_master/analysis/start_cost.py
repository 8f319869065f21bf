"""What starting a process costs of the times that are compared, where jobs measure it with an empty command.

The cost is in both sides of a comparison: it makes a ratio of short commands smaller than that of their own work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench_common.treatment import START_COST_STEP
from bench_master.analysis.verdict_types import FlagReport
from bench_master.run_data.aggregate import JOB
from bench_master.verdicts.reasons import Code, because

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench_master.run_data.aggregate import Aggregator
    from bench_master.run_data.trial_values import TrialTable


def start_cost_flags(
    ledger: Aggregator, trials: TrialTable, judged: Iterable[int], margin: float
) -> list[FlagReport]:
    """Return a warning on the treatment of which the cost is the largest share, where that is beyond the margin."""
    found = []
    for index in judged:
        start, job = (ledger.series.get((index, name)) for name in (START_COST_STEP, JOB))
        if start is None or job is None or trials.measures[index].kind not in ("duration", "rate"):
            continue
        cost_ns, time_ns = (series.histogram.quantile(0.5) for series in (start, job))
        if cost_ns and time_ns and cost_ns > margin * time_ns:
            found.append((cost_ns / time_ns, index, cost_ns, time_ns))
    if not found:
        return []
    share, index, cost_ns, time_ns = max(found)
    title = str(ledger.treatments[index].get("title"))
    reason = because(Code.START_COST, treatment=title, cost_s=cost_ns / 1e9, time_s=time_ns / 1e9)
    return [FlagReport("start-cost", title, "warning", None, share, reason)]
