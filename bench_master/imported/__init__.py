"""Results that were measured elsewhere: from what a tool printed to a stats file that every report reads."""

from bench_master.imported.import_writer import ImportSpec, write_import
from bench_master.imported.readers import ImportedRun, MonitorLog, decode_text, read_bytes, read_monitor, split_runs

__all__ = [
    "ImportSpec",
    "ImportedRun",
    "MonitorLog",
    "decode_text",
    "read_bytes",
    "read_monitor",
    "split_runs",
    "write_import",
]
