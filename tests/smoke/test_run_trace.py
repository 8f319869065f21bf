"""A trace of a real run: what the stats file holds, on a time axis."""

import json
from collections import defaultdict
from itertools import pairwise

ROUNDING_US = 0.001
"""Sums of decimal fractions may differ in their last digit; a trace is in nanoseconds."""


def test_a_run_saves_its_trace_beside_the_stats_file(workspace):
    """Each operation is a slice within its job's; a worker has as many rows as jobs in flight."""
    run = workspace.run(workspace.scenario(concurrency=3, iterations=4), "--trace")
    path = run.stats.with_name(run.stats.name.replace(".stats.gz", ".trace.json"))
    assert f"trace: {path}" in run.err
    events = json.loads(path.read_text())["traceEvents"]
    jobs = {event["args"]["job"]: event for event in events if event.get("cat") == "job"}
    operations = [event for event in events if event.get("cat") == "operation"]
    assert (len(jobs), len(operations)) == (12, 36)
    for operation in operations:
        job = jobs[operation["args"]["job"]]
        assert (operation["pid"], operation["tid"]) == (job["pid"], job["tid"])
        assert job["ts"] <= operation["ts"]
        assert operation["ts"] + operation["dur"] <= job["ts"] + job["dur"] + ROUNDING_US
    rows = defaultdict(list)
    for job in jobs.values():
        rows[job["pid"], job["tid"]].append((job["ts"], job["ts"] + job["dur"]))
    assert len(rows) <= 3
    for row in rows.values():
        row.sort()
        assert all(end <= start + ROUNDING_US for (_, end), (start, _) in pairwise(row))
