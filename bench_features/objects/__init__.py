"""Jobs on object stores, by Swift and S3: ``master`` and ``worker`` are for one side each, ``common`` for both."""

from typing import Final

from bench_common.job_kind import JobKind

KIND: Final = JobKind(
    "objects",
    job="bench_features.objects.common.job:Objects",
    rules="bench_features.objects.common.rules:ObjectsRules",
    master="bench_features.objects.master.part:ObjectKeys",
    host="bench_features.objects.worker.host:StoreHost",
    runner="bench_features.objects.worker.runner:StoreRunner",
)
"""What is registered as an entry point."""
