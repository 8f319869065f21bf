"""PACKAGE bench_worker/timing."""
