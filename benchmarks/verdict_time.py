"""What verdicts cost beyond reading a stats file: processor time and memory, of many treatments with many jobs.

The jobs come from memory, encoded as in a stats file: each block is decoded, which is the baseline, and shown to what
makes the verdicts. A trial of each treatment is a round; the jobs of one trial are in memory at a time.

    python benchmarks/verdict_time.py [--treatments N] [--jobs 1M] [--rounds N] [--late]
"""

from __future__ import annotations

import resource
import time
from functools import partial
from typing import Any

from common import numbers, parser_of, print_ratio

MIB = 1 << 20
FIRST_NS = 1_001_000_000_000
COLUMNS = ("trial", "treatment", "outcome", "duration_ns", "uncertainty_ns")
"""What the verdicts read of a job."""
BLOCK = 65_536


def header(treatments: int, rounds: int) -> dict[str, Any]:
    """Return the header of a run: treatments of one job and several engines, in rounds."""
    listed = []
    for index in range(treatments):
        labels = {"environment": "synthetic", "engine": f"engine-{index}"}
        title = " ".join(f"{key}={value}" for key, value in labels.items())
        listed.append({"index": index, **labels, "labels": labels, "title": title, "operation_names": []})
    trials = [[treatment, block, False] for block in range(rounds) for treatment in range(treatments)]
    return {"order": "interleaved", "seed": 7, "treatments": listed, "trials": trials}


def encoded_trials(jobs: int, *, late: bool) -> list[list[dict[str, Any]]]:
    """Return a few trials of so many jobs, each as the bodies of its blocks."""
    import numpy as np

    from bench_common.job_rows import JOB_ROW
    from bench_common.stats.rows import pack_jobs

    random, found = np.random.default_rng(7), []
    for _ in range(8):
        rows = np.zeros(jobs, JOB_ROW)
        took = (random.lognormal(np.log(0.1), 0.5, jobs) * random.lognormal(0.0, 0.01) * 1e9).astype("i8")
        rows["ticket"], rows["start_ns"], rows["end_ns"] = np.arange(jobs), FIRST_NS, FIRST_NS + took
        if late:
            rows["uncertainty_ns"] = random.integers(1000, 100_000, jobs)
        found.append([pack_jobs(rows[begin : begin + BLOCK]) for begin in range(0, jobs, BLOCK)])
    return found


def peak() -> int:
    """Return the most memory that this process has had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Decode all trials alone, then with verdicts, and print what these cost."""
    parser = parser_of(__doc__)
    parser.add_argument("--treatments", type=int, default=100)
    parser.add_argument("--jobs", type=numbers, default="1M", help="jobs of each treatment, such as 1M")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--late", action="store_true", help="ends that may be stamped late, which makes a band")
    options = parser.parse_args()

    import numpy as np

    from bench_common.stats.rows import Columns, unpack_jobs
    from bench_master.analysis.comparisons import build_verdicts
    from bench_master.analysis.verdict_types import VerdictOptions
    from bench_master.run_data.aggregate import Aggregator
    from bench_master.run_data.trial_values import TrialCollector

    plan = header(options.treatments, options.rounds)
    trials = encoded_trials(options.jobs[0] // options.rounds, late=options.late)
    ledger, collector = Aggregator(plan), TrialCollector(plan)

    def blocks(trial: int, treatment: int) -> Any:
        for body in trials[(trial * 5 + treatment) % len(trials)]:
            for _, rows in unpack_jobs(body, {"jobs"}):
                # The same jobs serve many trials: only what tells these apart is put in.
                own = {"trial": trial, "treatment": treatment}
                makers = {name: partial(np.full, len(rows), value) for name, value in own.items()}
                makers |= {name: partial(rows.__getitem__, name) for name in COLUMNS if name not in own}
                yield Columns(len(rows), {name: lambda _, make=make: make() for name, make in makers.items()})

    began = time.process_time()
    for trial, (treatment, _, _) in enumerate(plan["trials"]):
        for rows in blocks(trial, treatment):
            for name in COLUMNS:
                _ = rows[name]
    decoded_s, before = time.process_time() - began, peak()

    began = time.process_time()
    for trial, (treatment, _, _) in enumerate(plan["trials"]):
        for rows in blocks(trial, treatment):
            collector.add_jobs(rows)
        collector.add_event({"kind": "trial-end", "trial": trial, "at_ns": FIRST_NS})
    table = collector.table(ledger, "worst")
    values_s = time.process_time() - began
    began = time.process_time()
    report = build_verdicts(plan, ledger, table, VerdictOptions())
    verdicts_s = time.process_time() - began
    assert report is not None
    jobs = options.treatments * options.jobs[0]
    print(f"{jobs:,} jobs of {options.treatments} treatments in {options.rounds} rounds: {report.answer}")
    print(f"decoding: CPU {decoded_s:.2f} s")
    print(f"values of {len(plan['trials']):,} trials: CPU {values_s - decoded_s:.2f} s more")
    print(f"{len(report.comparisons)} comparisons: CPU {verdicts_s:.2f} s")
    print(
        f"verdicts beyond reading: CPU {values_s - decoded_s + verdicts_s:.2f} s, {(peak() - before) / MIB:.0f} MiB"
    )
    print_ratio("of decoding with verdicts to decoding", values_s + verdicts_s, decoded_s)


if __name__ == "__main__":
    main()
