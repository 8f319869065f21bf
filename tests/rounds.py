"""Builds stats files of rounds, and gives their verdicts."""

import numpy as np
from builders import S, StatsBuilder, footer, header, host, treatment_wire

from bench_common.records import MetricRecord, Outcome, ticket_of
from bench_common.stats.block_types import StoredMetric
from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import build_document
from bench_master.analysis.verdict_options import VerdictOptions

A = (1.00, 1.02, 0.99, 1.10, 1.01, 0.98, 1.03, 1.05, 1.00, 1.04)
B = (1.06, 1.07, 1.04, 1.18, 1.05, 1.04, 1.07, 1.13, 1.08, 1.06)
"""The specification's example: trials of two treatments."""
RATE = {"events_per_second": StoredMetric("1/s", "higher")}


class Rounds:
    """Builds a stats file of rounds: each treatment's trials, given as lists of job times in seconds."""

    def __init__(self, path, engines=("docker", "podman"), **changes):
        self.engines = engines
        self.labels = changes.pop("labels", [{"engine": engine} for engine in engines])
        self.wire = changes.pop("wire", {})
        self.path, self.changes = path, changes
        self.jobs = {}

    def write(
        self, *sides, lateness=None, failed=(), metrics=None, lost=(), hosts=("blade1",), killed=False,
        used=None, ceilings=None, told=None,
    ):  # fmt: skip
        """Write trials of each side; `failed` are (side, round) of which one more job failed, `lost` all.

        Jobs are done by `hosts` in turn. A run that was `killed` lacks the end of its last trial. `used` has the
        shares of the host's CPUs by side that the harness took and that were idle, `ceilings` its own jobs/s,
        `told` what else is known of these.
        """
        rounds = len(sides[0])
        treatments = [
            treatment_wire(index, own, metrics=RATE if metrics else None) | self.wire
            for index, own in enumerate(self.labels)
        ]
        trials = [(side, block, False) for block in range(rounds) for side in range(len(sides))]
        builder = StatsBuilder(self.path, header(treatments, trials, **self.changes))
        for worker, name in enumerate(hosts):
            builder.add("host", host(worker, host=name))
        now, job = 1001 * S, 0
        for trial, (side, block, _) in enumerate(trials):
            builder.add("event", {"at_ns": now, "kind": "trial-begin", "trial": trial, "workers": [0]})
            times = np.atleast_1d(sides[side][block])
            late = int((lateness or [0] * len(sides))[side] * S)
            for place, seconds in enumerate([*times, *([0.5] if (side, block) in failed else [])]):
                bad = place == len(times) or (side, block) in lost
                took = int(seconds * S)
                builder.add_jobs(
                    {
                        "ticket": ticket_of(job), "treatment": side, "trial": trial, "worker": place % len(hosts),
                        "start_ns": now, "end_ns": now + took, "uncertainty_ns": late,
                        "outcome": Outcome.FAILED if bad else Outcome.DONE,
                    }
                )  # fmt: skip
                if metrics and not bad:
                    value = metrics[side][block]
                    builder.writer.metrics([MetricRecord(ticket_of(job), side, trial, "events_per_second", value)])
                now, job = now + took, job + 1
            if not (killed and trial == len(trials) - 1):
                end = {"at_ns": now, "kind": "trial-end", "trial": trial, "not_started": 0}
                shares = {"harness": [int(one * S) for one in (*used[side], 1.0)]} if used else {}
                builder.add("event", end | shares)
        for side, rate in (ceilings or {}).items():
            own = {"ceiling": "no-op", "rate_per_s": rate, "measured": "2026-01-02T03:00:00+00:00", "setup": "s"}
            own |= {"at_ns": now, "kind": "harness-ceiling", "treatment": side} | (told or {})
            builder.add("event", own)
        self.path = builder.close(footer())
        return self

    def verdicts(self, **options):
        """Return the verdicts of the report."""
        return build_document(StatsFile(self.path), options=VerdictOptions(**options)).verdicts

    def only(self, **options):
        """Return the one comparison."""
        (comparison,) = self.verdicts(**options).comparisons
        return comparison
