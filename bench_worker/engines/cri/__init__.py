"""PACKAGE bench_worker/engines/cri."""
