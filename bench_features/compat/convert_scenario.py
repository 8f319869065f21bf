"""`bench-master convert-scenario`: convert a file of bucketbench or ssbench to a scenario."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Annotated, Final

from msgspec import Struct

from bench_common.errors import ExitCode, UsageError
from bench_common.options import Option, add_options
from bench_common.streams import tell
from bench_master.options.load import LoadOptions
from bench_master.scenario.dialects import scenario_text
from bench_master.scenario.model import Definition

EPILOG: Final = (
    "run-scenario -f also runs such a file directly; this command prints the scenario that it runs.\n"
    "Exit codes: 0 converted, 2 the file is not valid, or of no such tool."
)


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `convert-scenario`."""

    file: Annotated[str, Option("OLD", "bucketbench definition or ssbench scenario, in YAML or JSON")]
    output: Annotated[
        Path | None, Option("-o, --output NEW.yaml", "write to NEW.yaml (default: standard output)")
    ] = None
    definition: Definition
    quiet: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    add_options(parser, Options)
    add_options(parser, LoadOptions, "overhead")


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
