"""What other tools wrote: bucketbench's and ssbench's scenarios, reports and result files, and logs of benchmarks.

Here are its sub-commands, as ``--help`` lists them.
"""

from __future__ import annotations

from typing import Final

from bench_master.commands import CommandEntry

CONVERT_SCENARIO: Final = CommandEntry(
    "convert a bucketbench definition or an ssbench scenario, and list what cannot be converted",
    "bench_features.compat.convert_scenario",
)
IMPORT_RESULTS: Final = CommandEntry(
    "make a stats file of benchmark outputs measured elsewhere, to report and compare like a run",
    "bench_features.compat.import_results",
)
PARSE_OUTPUT: Final = CommandEntry(
    "print the metrics in a guest benchmark's output as JSON", "bench_features.compat.parse_output"
)
