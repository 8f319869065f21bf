"""PACKAGE bench_worker/engines/docker."""
