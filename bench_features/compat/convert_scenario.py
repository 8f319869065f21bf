"""`bench-master convert-scenario`: convert a file of bucketbench or ssbench to a scenario."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from msgspec import Struct

from bench_common.argument_types import file_name
from bench_common.errors import ExitCode, UsageError
from bench_common.streams import tell
from bench_master.options.run import add_definition_options, add_overhead_option
from bench_master.scenario.dialects import scenario_text
from bench_master.scenario.model import DefinitionFlags


class Options(Struct, frozen=True):
    """The command line of `convert-scenario`."""

    file: str
    output: Path | None
    """Where to write the scenario; None: standard output."""
    definition: DefinitionFlags
    quiet: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = (
        "run-scenario -f also runs such a file directly; this command prints the scenario that it runs.\n"
        "Exit codes: 0 converted, 2 the file is not valid, or of no such tool."
    )
    parser.add_argument("file", metavar="OLD", help="bucketbench definition or ssbench scenario, in YAML or JSON")
    parser.add_argument(
        "-o", "--output", type=file_name, metavar="NEW.yaml", help="write to NEW.yaml (default: standard output)"
    )
    add_definition_options(parser)
    add_overhead_option(parser)


def run(options: Options) -> int:
    """Write the scenario; return the exit code."""
    text, lost = scenario_text(options.file, options.definition)
    if options.output is None:
        sys.stdout.write(text)
    else:
        _write_output(text, options.output, Path(options.file))
    if not options.quiet:
        for note in lost:
            tell(f"note: {note}")
    return int(ExitCode.OK)


def _write_output(text: str, output: Path, old: Path) -> None:
    if output.exists() and output.samefile(old):
        raise UsageError(f"{output}: this is the file itself; name another file with -o")
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: cannot write: {error.strerror}; name another file with -o") from error
