"""Runs of other kinds: on an object store, and imported."""

import numpy as np
from builders import MS, S, StatsBuilder, footer, header, host, operation_rows, treatment_wire
from places import DATA

from bench_common.errors import ExitCode
from bench_common.job_rows import TRANSFER_ROW
from bench_common.records import TransactionRecord, ticket_of
from bench_master.cli import run_command_line

OBJECT_OPERATIONS = ("read[tiny]", "read[tiny].first")


def object_run(path):
    """Write a run of four trials on an object store, with blocks of its own for each."""
    treatment = treatment_wire(0, {"environment": "lab", "engine": "swift"}, OBJECT_OPERATIONS)
    builder = StatsBuilder(
        path, header([treatment | {"jobs_per_trial": 1}], [(0, block, False) for block in range(4)])
    )
    builder.add("host", host())
    for trial in range(4):
        begin, row = (1001 + trial) * S, {"ticket": ticket_of(trial), "trial": trial}
        builder.add("event", {"at_ns": begin, "kind": "trial-begin", "trial": trial})
        builder.add_jobs(row | {"start_ns": begin, "end_ns": begin + 5 * MS})
        builder.add_operations(row | {"start_ns": begin, "duration_ns": 5 * MS})
        builder.writer.first_bytes(operation_rows(row | {"operation": 1, "start_ns": begin, "duration_ns": 2 * MS}))
        moved = np.zeros(1, TRANSFER_ROW)
        moved["ticket"], moved["trial"], moved["ok"], moved["bytes"], moved["duration_ns"] = (
            trial,
            trial,
            1,
            9,
            5 * MS,
        )
        builder.writer.transfers(moved)
        builder.writer.transactions(
            [TransactionRecord(ticket_of(trial), 0, trial, OBJECT_OPERATIONS[0], f"tx{trial}")]
        )
        end = {"at_ns": begin + S // 2, "kind": "trial-end", "trial": trial, "not_started": 0, "complete": True}
        builder.add("event", end).flush()
    return builder.close(footer(counts={"planned": 4, "done": 4, "failed": 0}))


def imported_run(folder):
    """Import two runs of sysbench, with what they printed, and a monitor's samples."""
    log, monitor, stats = folder / "log.txt", folder / "cpu.csv", folder / "imported.stats.gz"
    log.write_text((DATA / "sysbench" / "cpu-1t.txt").read_text() * 2)
    monitor.write_text("user,nice,system,idle,iowait,irq,softirq,steal\n0,0,0,0,0,0,0,0\n50,0,0,50,0,0,0,0\n")
    words = ["import-results", "sysbench-cpu", "--environment", "lab", "--engine", "docker", "-s", str(stats)]
    assert run_command_line([*words, str(log), str(monitor)]) == ExitCode.OK
    return stats
