"""PACKAGE bench_common/stats."""
