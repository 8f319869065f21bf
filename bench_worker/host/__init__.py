"""PACKAGE bench_worker/host."""
