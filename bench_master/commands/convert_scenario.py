"""`bench-master convert-scenario`: write another tool's file as a scenario."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench_common.cli import file_name
from bench_common.errors import ExitCode, UsageError
from bench_master.bucketbench import scenario_text
from bench_master.commands.run_options import add_definition_options, definition_flags

if TYPE_CHECKING:
    import argparse

NAME = "convert-scenario"
HELP = "write a bucketbench definition as a scenario, and say what cannot be carried over"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = (
        "run-scenario -f runs a definition as it is; this writes the scenario that it runs.\n"
        "Exit codes: 0 converted, 2 the file is no definition, or a wrong one."
    )
    parser.add_argument("file", metavar="OLD.yaml", help="a bucketbench definition")
    parser.add_argument(
        "-o", "--output", type=file_name, metavar="NEW.yaml", help="write to NEW.yaml (default: standard output)"
    )
    add_definition_options(parser)
    parser.add_argument("--overhead", action="store_true", help="measure what the engines themselves cost, too")


def run(arguments: argparse.Namespace) -> int:
    """Write the scenario; return the exit code."""
    output: Path | None = arguments.output
    text, lost = scenario_text(arguments.file, definition_flags(arguments))
    if output is None:
        sys.stdout.write(text)
    else:
        _write_output(text, output, Path(arguments.file))
    if not arguments.quiet:
        sys.stderr.writelines(f"note: {note}\n" for note in lost)
    return int(ExitCode.OK)


def _write_output(text: str, output: Path, old: Path) -> None:
    if output.exists() and output.samefile(old):
        raise UsageError(f"{output}: is the definition itself; name another file with -o")
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: cannot be written: {error.strerror}; name another place with -o") from error
