"""Builds stats files of runs for archives: small ones, of which each is another run."""

from datetime import UTC, datetime, timedelta

from builders import MS, S, StatsBuilder, footer, header, host, treatment_wire

from bench_common.records import Outcome, ticket_of

BEGIN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def a_run(path, number=0, *, days=None, times=(100, 101, 99), engines=("docker", "native"), whole=True, **changes):
    """Write a run of one job a trial, which took `times` (ms) under each engine; return its path.

    `changes` are those of the header, with `facts`, `wire`, `name` and `host` for others.
    """
    facts, wire, name = changes.pop("facts", {}), changes.pop("wire", {}), changes.pop("name", "quickstart")
    treatments = [
        treatment_wire(index, {"environment": "local", "engine": engine}, ("start", "remove")) | wire
        for index, engine in enumerate(engines)
    ]
    trials = [(index, block, False) for block in range(len(times)) for index in range(len(engines))]
    created = BEGIN + timedelta(days=number if days is None else days)
    head = header(
        treatments,
        trials,
        run_id=f"0000{number}run",
        created=created.isoformat(),
        scenario={"name": name, "document": {}},
    )
    builder = StatsBuilder(path, head | changes)
    fingerprint = {"kernel": "6.1.0", "cpu_model": "Test CPU", "memory": 2**33, "boot_id": f"boot-{number}", **facts}
    builder.add("host", host(host=changes.get("host", "blade1"), fingerprint=fingerprint))
    clock = 1001 * S
    for job, (treatment, block, _) in enumerate(trials):
        took = int(times[block] * MS)
        row = {"ticket": ticket_of(job), "treatment": treatment, "trial": job}
        builder.add("event", {"at_ns": clock, "kind": "trial-begin", "trial": job})
        builder.add_jobs(row | {"start_ns": clock, "end_ns": clock + took, "outcome": Outcome.DONE})
        builder.add_operations(
            row | {"operation": 0, "start_ns": clock, "duration_ns": took // 4},
            row | {"operation": 1, "start_ns": clock + took // 4, "duration_ns": took - took // 4},
        )
        clock += took
        builder.add("event", {"at_ns": clock, "kind": "trial-end", "trial": job, "not_started": 0})
    return builder.close(footer(counts={"planned": len(trials), "done": len(trials)}) if whole else None)
