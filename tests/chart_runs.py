"""A run that has the data of every chart: jobs, operations, trials, samples, and what only some scenarios have."""

import numpy as np
from builders import MS, S, StatsBuilder, footer, header, host, overhead_report, treatment_wire
from msgspec.structs import replace

from bench_common.records import MetricRecord, ticket_of
from bench_common.stats.reader import StatsFile
from bench_master.analysis.report_types import (
    PublishedReport,
    PublishedStatisticsReport,
    PublishedTableReport,
    StatisticsReport,
)
from bench_master.reports import ReportSource
from bench_master.run_data.packed_hosts import add_host_slopes
from bench_master.run_data.traced_types import TracedTrials
from bench_master.run_data.treatment_types import (
    OpenLoadReport,
    PackedCountReport,
    PackingSummary,
    PackingTrialReport,
    SampleReport,
)

HOSTILE = ("<script>alert(1)</script>", "]]>", "\u202egnp.exe", "w" * 10_000, "a&b\"'", "\x00\x1b[2J")
"""Texts that a run may contain."""


def run_of_two_engines(path):
    """Write a run of 3,000 jobs each of two engines at two concurrencies; return it and its document."""
    names = ("create", "start", "remove")
    treatments = [
        treatment_wire(place, {"environment": "lab", "engine": engine, "job": "life", "concurrency": count}, names)
        | {"concurrency": count, "jobs_per_trial": 500}
        for place, (engine, count) in enumerate([("native", 1), ("docker", 1), ("native", 4), ("docker", 4)])
    ]
    trials = [(index, block, block == 0) for block in range(7) for index in range(4)]
    builder = StatsBuilder(path, header(treatments, trials)).add("host", host(0))
    clock, ticket, random = 1001 * S, 0, np.random.default_rng(1)
    for trial, (treatment, block, _) in enumerate(trials):
        builder.add("event", {"at_ns": clock, "kind": "trial-begin", "trial": trial, "workers": [0]})
        took = (random.lognormal(0, 0.4, 500) * (40 if treatment % 2 else 3) * MS / 50).astype(int)
        rows = []
        for duration in took.tolist():
            rows.append(
                {
                    "ticket": ticket_of(ticket),
                    "treatment": treatment,
                    "trial": trial,
                    "start_ns": clock,
                    "end_ns": clock + duration,
                }
            )
            clock, ticket = clock + duration, ticket + 1
        builder.add_jobs(*rows)
        builder.add_operations(
            *(
                {"ticket": row["ticket"], "treatment": treatment, "trial": trial, "operation": k,
                 "start_ns": row["start_ns"], "duration_ns": (row["end_ns"] - row["start_ns"]) // (k + 2)}
                for row in rows for k in range(3)
            )
        )  # fmt: skip
        builder.writer.metrics(
            [MetricRecord(rows[0]["ticket"] + 1, treatment, trial, "hits", 10.0 * treatment + block)]
        )
        builder.add("event", {"at_ns": clock, "kind": "trial-end", "trial": trial})
    times = np.arange(1001 * S, clock, S // 10)
    columns = {"time_ns": times, "interval_ns": np.full(len(times), S // 10)}
    columns |= {f"cpu_{state}_percent": np.full(len(times), 20.0) for state in ("user", "system", "iowait", "steal")}
    columns["cpu_iowait_percent"][3] = -1.0
    columns["memory_used_bytes"] = np.full(len(times), 3 << 30)
    builder.writer.samples(0, "host", columns, {name: "ns" if name.endswith("_ns") else "%" for name in columns})
    counts = {"planned": ticket, "done": ticket, "failed": 0, "lost": 0, "aborted": 0}
    stats = StatsFile(builder.close(footer(counts=counts, duration_s=(clock - 1001 * S) / 1e9)))
    return stats, ReportSource(stats).document


def traced_event(treatment=0, **changed):
    """Return what an event of the stats file says of a traced trial: 12 ms of a start, of which 7 in RCU."""
    causes = [
        {"cause": cause, "process": process, "seconds": seconds, "where": where}
        for cause, process, seconds, where in (
            ("RCU (network namespace)", "dockerd", 0.007, "unshare: synchronize_rcu < setup_net < copy_net_ns"),
            ("on CPU", "runc", 0.003, ""),
            ("fsync", "containerd", 0.002, "fsync: jbd2_log_wait_commit < ext4_sync_file < do_fsync"),
        )
    ]
    ends = [0.0, 0.007, 0.010, 0.012]
    segments = [
        {"start_s": start, "end_s": end, "cause": one["cause"], "process": one["process"]}
        for one, start, end in zip(causes, ends, ends[1:], strict=False)
    ]
    phase = {"operation": "start", "jobs": 5, "total_s": 0.012, "cpu_s": 0.003, "waiting_s": 0.009, "causes": causes}
    return {
        "at_ns": 1900 * S,
        "kind": "traced",
        "treatment": treatment,
        "problem": "",
        "jobs": 5,
        "phases": [phase],
        "job": [{"operation": "start", "start_s": 0.0, "end_s": 0.012, "segments": segments}],
        "sampling": {"interval_s": 0.001, "longest_gap_s": 0.004, "cpu_share": 0.2, "stacks": True, "cut": False},
        **changed,
    }


def traced_reports(treatments):
    """Return the traced trials of a document with so many treatments; the last one was not traced."""
    trials = TracedTrials()
    for index in range(treatments):
        last = index == treatments - 1
        trials.add_event(
            traced_event(index, **({"problem": "it has no engine", "job": [], "phases": []} if last else {}))
        )
    return trials.report(treatments)


def with_everything(document):
    """Return the document with packings, an open system, engines' overhead and published figures."""

    def treatment(place, each):
        trial = PackingTrialReport(
            trial=place, worker="w", warmup=False, containers=20 + place, full=True, reason="full", hold_s=1.0,
            memory_before_bytes=1 << 30, memory_per_container_bytes=2e8 / (20 + place),
            memory_change_per_container_bytes=None, start_s=0.3,
            steady={
                "memory_used_bytes": SampleReport("B", 3, (1 << 30) + 2e8, None, None),
                "cpu_busy_percent": SampleReport("%", 3, 40.0, None, None),
            },
        )  # fmt: skip
        load = OpenLoadReport(
            rate_per_s=10.0 * place + 10, process="poisson", queue_timeout_s=None, offered=100,
            offered_per_s=10.0 * place + 10,            achieved_per_s=10.0, dropped=3, littles_law=None,
        )  # fmt: skip
        return replace(
            each,
            packing=PackingSummary(PackedCountReport(1, 20, 20.0, 20), [trial]),
            open_load=load,
            overhead=overhead_report(
                rss_bytes=SampleReport("B", 9, 5e7, 4e7, 6e7), cpu_percent=SampleReport("%", 9, 3.0, 0.0, 20.0)
            ),
            operations={**each.operations, "response": each.operations["job"]},
        )

    theirs = PublishedStatisticsReport("their server", 3, 10.0, 1.0, None, None, None, "a paper", "")
    ours = StatisticsReport(6, 12.0, 2.0, 9.0, 12.0, 15.0)
    table = PublishedTableReport("engine=docker", {"engine": "docker"}, "rate", "1/s", "higher", ours, [theirs])
    return replace(
        document,
        treatments=add_host_slopes([treatment(place, each) for place, each in enumerate(document.treatments)], {}),
        traced=traced_reports(len(document.treatments)),
        published=PublishedReport("A study", "a paper", "study.csv", "Another machine.", [table]),
    )
