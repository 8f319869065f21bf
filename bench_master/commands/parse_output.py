"""`bench-master parse-output`: what a guest benchmark printed, as metrics.

For outputs that were taken elsewhere, and for trying a parser by hand: the same pure function that reads a job's
output in a run.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import sys
import zlib
from pathlib import Path
from typing import Any, Final

from bench_common.errors import ExitCode, ParseError, UsageError
from workloads.registry import workload

NAME = "parse-output"
HELP = "print the metrics in a guest benchmark's output as JSON"

_GZIP_MAGIC: Final = b"\x1f\x8b"
_LIMIT_BYTES: Final = 64 * 2**20
"""No benchmark prints more; a larger file is not an output, and a gzip bomb stops here."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("workload", metavar="WORKLOAD", help="whose output it is (see list-workloads)")
    parser.add_argument("file", metavar="FILE", nargs="?", default="-", help="the output, plain or gzip; - is stdin")


def run(arguments: argparse.Namespace) -> int:
    """Print the metrics; a text that cannot be parsed is told as ``FILE:LINE: reason`` with exit code 2."""
    parser = workload(arguments.workload)
    place, data = _read(arguments.file)
    try:
        values = parser.parse(_text(place, data))
    except ParseError as error:
        sys.stderr.write(f"{_located(place, error)}\n")
        return int(ExitCode.USAGE)
    described = {metric.name: metric for metric in parser.metrics}
    metrics: dict[str, Any] = {
        name: {"value": value, "unit": described[name].unit, "direction": described[name].direction}
        for name, value in values.items()
    }
    sys.stdout.write(json.dumps({"workload": parser.name, "metrics": metrics}, indent=2) + "\n")
    return int(ExitCode.OK)


def _read(name: str) -> tuple[str, bytes]:
    """Return what to call the source, and its bytes."""
    if name == "-":
        return "<stdin>", sys.stdin.buffer.read(_LIMIT_BYTES + 1)
    try:
        with Path(name).open("rb") as stream:
            return name, stream.read(_LIMIT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror or error}") from error


def _text(place: str, data: bytes) -> str:
    """Return `data` as text, unpacked if it is gzip; bytes that are no UTF-8 stay visible as escapes."""
    if data.startswith(_GZIP_MAGIC):
        data = _unpacked(place, data)
    if len(data) > _LIMIT_BYTES:
        raise UsageError(
            f"{place}: longer than {_LIMIT_BYTES >> 20} MiB, which no benchmark prints; is it the right file?"
        )
    return data.decode("utf-8", errors="backslashreplace")


def _unpacked(place: str, data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
            return stream.read(_LIMIT_BYTES + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise UsageError(f"{place}: damaged gzip: {error}") from error


def _located(place: str, error: ParseError) -> str:
    """Return the message in the form that editors and compilers share."""
    if error.line is None:
        return f"{place}: {error}"
    return f"{place}:{error.line}: {str(error).removeprefix(f'line {error.line}: ')}"
