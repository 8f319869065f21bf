"""What master and worker share about jobs on object stores: what a job is, and how a store is reached."""

from bench_common.job_kind import JobKind

KIND = JobKind(
    "objects",
    job="bench_common.objects.job:Objects",
    rules="bench_common.objects.rules:ObjectsRules",
    master="bench_master.objects.keys:ObjectKeys",
    host="bench_worker.stores.host:StoreHost",
    runner="bench_worker.stores.runner:StoreRunner",
)
"""What is registered as an entry point."""
