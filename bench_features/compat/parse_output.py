"""`bench-master parse-output`: print the metrics in a guest benchmark's output.

For outputs from elsewhere, and to try a parser by hand: the same pure function reads a job's output in a run.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

from msgspec import Struct

from bench_common.errors import ExitCode, ParseError
from bench_common.options import Option
from bench_common.streams import tell
from bench_features.compat.imports import decode_text, read_bytes
from bench_features.compat.log_files import common_beginning, without_prefixes
from bench_workloads.registry import workload


class Options(Struct, frozen=True):
    """The command line of `parse-output`."""

    workload: Annotated[str, Option("WORKLOAD", "workload that printed the output (see list workloads)")]
    file: Annotated[str, Option("FILE", "output, plain or gzip (default: stdin)", nargs="?")] = "-"


def run(options: Options) -> int:
    """Print the metrics; for output that cannot be parsed print ``FILE:LINE: reason`` and return 2."""
    parser = workload(options.workload)
    place, data = read_bytes(options.file)
    try:
        text = decode_text(place, data)
        values = parser.parse(without_prefixes(parser, text))
    except ParseError as error:
        tell("; ".join(filter(None, (_format_error(place, error), common_beginning(text)))))
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
