"""Results that were measured elsewhere: from what a tool printed to a stats file that every report reads."""

from bench_master.imported.monitors import Monitor, read_monitor
from bench_master.imported.runs import Run, read_bytes, split_runs, text_of
from bench_master.imported.writing import Import, write_import

__all__ = ["Import", "Monitor", "Run", "read_bytes", "read_monitor", "split_runs", "text_of", "write_import"]
