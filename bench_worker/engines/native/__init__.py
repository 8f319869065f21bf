"""PACKAGE bench_worker/engines/native."""
