"""`bench-master parse-output`: what a guest benchmark printed, as metrics.

For outputs that were taken elsewhere, and for trying a parser by hand: the same pure function that reads a job's
output in a run.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from bench_common.errors import ExitCode, ParseError
from bench_master.imported import decode_text, read_bytes
from workloads.registry import workload

NAME = "parse-output"
HELP = "print the metrics in a guest benchmark's output as JSON"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("workload", metavar="WORKLOAD", help="whose output it is (see list-workloads)")
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="the output, plain or gzip; - is stdin")


def run(arguments: argparse.Namespace) -> int:
    """Print the metrics; a text that cannot be parsed is told as ``FILE:LINE: reason`` with exit code 2."""
    parser = workload(arguments.workload)
    place, data = read_bytes(arguments.file)
    try:
        values = parser.parse(decode_text(place, data))
    except ParseError as error:
        sys.stderr.write(f"{_format_error(place, error)}\n")
        return int(ExitCode.USAGE)
    described = {metric.name: metric for metric in parser.metrics}
    metrics: dict[str, Any] = {
        name: {"value": value, "unit": described[name].unit, "direction": described[name].direction}
        for name, value in values.items()
    }
    sys.stdout.write(json.dumps({"workload": parser.name, "metrics": metrics}, indent=2) + "\n")
    return int(ExitCode.OK)


def _format_error(place: str, error: ParseError) -> str:
    """Return the message in the form that editors and compilers share."""
    if error.line is None:
        return f"{place}: {error}"
    return f"{place}:{error.line}: {str(error).removeprefix(f'line {error.line}: ')}"
