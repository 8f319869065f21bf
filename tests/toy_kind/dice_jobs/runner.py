"""The worker's part: runs a job, which its seed decides, and says when each operation began and how long it took."""

from __future__ import annotations

import random
from time import monotonic_ns

from bench_common.records import JobReport
from bench_worker.job_runner import JobRunner


class DiceRunner(JobRunner):
    """Throws the dice of a run."""

    def run(self, treatment, seed, trial, *, users):
        report, draw = JobReport(), random.Random(seed)
        began_ns = monotonic_ns()
        thrown = [draw.randint(1, treatment.job.sides) for _ in range(treatment.job.count)]
        shaken_ns = monotonic_ns()
        pips = sum(thrown)
        report.stamps = [began_ns, shaken_ns - began_ns, shaken_ns, monotonic_ns() - shaken_ns]
        report.metrics = {"pips": float(pips)}
        return report
