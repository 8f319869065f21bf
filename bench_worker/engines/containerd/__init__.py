"""PACKAGE bench_worker/engines/containerd."""
