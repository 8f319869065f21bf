"""Runs of known levels, for comparisons and series."""

import math

import numpy as np
from builders import MS, S, StatsBuilder, footer, header, host, treatment_wire

from bench_common.records import ticket_of
from bench_master.cli import run_command_line

ROUNDS = 6


def a_run(
    path, level_ms, *, number=0, engines=("docker",), spread=0.01, jobs=1, head=None, on=None, foot=True,
    harness=None, concurrency=2,
):  # fmt: skip
    """Write a run whose trials take about `level_ms`, ten times that for the second engine ...; return its path.

    `harness` are its own jobs/s, and the shares of the host's CPUs that it took and that were idle.
    """
    generator = np.random.default_rng([7, number])
    treatments = [
        treatment_wire(index, {"engine": engine}, ("run",)) | {"jobs_per_trial": jobs, "concurrency": concurrency}
        for index, engine in enumerate(engines)
    ]
    trials = [(index, block, False) for block in range(ROUNDS) for index in range(len(engines))]
    about = {"run_id": f"run-{number}", "created": f"2026-01-{1 + number // 24:02}T{number % 24:02}:00:00+00:00"}
    builder = StatsBuilder(path, header(treatments, trials, **about) | (head or {})).add(
        "host", host(0, **(on or {}))
    )
    clock, job = 1001 * S, 0
    for trial, (treatment, _, _) in enumerate(trials):
        builder.add("event", {"at_ns": clock, "kind": "trial-begin", "trial": trial})
        for _ in range(jobs):
            took = int(level_ms * 10**treatment * MS * math.exp(spread * generator.normal()))
            row = {"ticket": ticket_of(job), "treatment": treatment, "trial": trial}
            builder.add_jobs(row | {"start_ns": clock, "end_ns": clock + took})
            clock, job = clock + took, job + 1
        used = {"harness": [int(one * S) for one in (*harness[1:], 1.0)]} if harness else {}
        builder.add("event", {"at_ns": clock, "kind": "trial-end", "trial": trial} | used)
    for index in range(len(engines)) if harness else ():
        own = {"kind": "harness-ceiling", "ceiling": "no-op", "measured": "2026-01-02", "setup": "s"}
        builder.add("event", own | {"at_ns": clock, "treatment": index, "rate_per_s": harness[0]})
    return builder.close(footer() if foot else None)


def archive(folder, levels_ms, **more):
    folder.mkdir(exist_ok=True)
    return [
        a_run(folder / f"{number:03}.stats.gz", level, number=number, **more)
        for number, level in enumerate(levels_ms)
    ]


def compare(capsys, *arguments, expected=0):
    """Return what `compare` prints; a list if it is JSON."""
    status = run_command_line(["compare", *map(str, arguments)])
    printed = capsys.readouterr()
    assert status == expected, printed.err
    return printed
