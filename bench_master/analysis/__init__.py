"""PACKAGE bench_master/analysis."""
