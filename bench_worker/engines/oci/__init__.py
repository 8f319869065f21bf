"""PACKAGE bench_worker/engines/oci."""
