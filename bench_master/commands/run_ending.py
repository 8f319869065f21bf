"""The end of `run-scenario`: the report, what is saved beside it, and the exit code."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench_common.errors import ExitCode, InfrastructureError, UsageError
from bench_common.stats.reader import StatsFile
from bench_master.progress.quantities import one_line
from bench_master.reports import ReportSource, report_named
from bench_master.run.session import Result
from bench_master.table import counted


def conclude(result: Result, arguments: argparse.Namespace) -> int:
    """Show the report; return the exit code that the run's end, its thresholds and its results call for."""
    if result.status == "refused":
        text = "this plan cannot be run here:\n" + "\n".join(f"  {reason}" for reason in result.reasons)
        raise (InfrastructureError if result.unusable else UsageError)(text)
    if result.stats is None:
        if result.status == "interrupted":
            return int(ExitCode.INTERRUPTED)
        raise InfrastructureError("the run did not begin: " + "; ".join(result.reasons))
    source = ReportSource(StatsFile(result.stats), arguments.pctile)
    if not arguments.no_report:
        report_named(arguments.format).write(source, sys.stdout)
        sys.stdout.flush()
    files = _files(result, result.stats, source, arguments)
    if not arguments.quiet:
        sys.stderr.writelines(f"{line}\n" for line in files)
    for reason in result.reasons:
        sys.stderr.write(f"bench-master: {reason}\n")
    if result.status == "interrupted" and not result.unwritable:
        return int(ExitCode.INTERRUPTED)
    if result.status != "complete":
        return int(ExitCode.INFRASTRUCTURE)
    errors_shown = arguments.format == "text" and not arguments.no_report
    return _judge(source, noop=arguments.noop, errors_shown=errors_shown)


def _files(result: Result, stats: Path, source: ReportSource, arguments: argparse.Namespace) -> list[str]:
    """Save what is to stand beside the stats file; return lines that say where everything is."""
    files = [f"stats file: {stats}", *(f"profile: {path}" for path in result.profiles)]
    if arguments.trace:
        files.append(f"trace: {_save_trace(source, stats)} (open it at ui.perfetto.dev)")
    if not arguments.no_report:
        files.append(f"report again: bench-master report-scenario -s {shlex.quote(str(stats))}")
    return files


def _save_trace(source: ReportSource, stats: Path) -> Path:
    path = stats.with_name(f"{stats.name.removesuffix('.stats.gz')}.trace.json")
    try:
        with path.open("w", encoding="utf-8") as out:
            report_named("trace").write(source, out)
    except OSError as error:
        raise InfrastructureError(f"{path}: the trace cannot be written: {error.strerror}") from error
    return path


def _judge(source: ReportSource, *, noop: bool, errors_shown: bool) -> int:
    """Return the exit code of a complete run: what gave no result at all is no success, nor is a missed threshold."""
    treatments = source.document["treatments"]
    for row in treatments:
        if row["left_out"]:
            sys.stderr.write(
                f"bench-master: left out, as it is optional: {row['title']}: {one_line(row['left_out'])}\n"
            )
    if treatments and all(row["left_out"] for row in treatments):
        sys.stderr.write("bench-master: every treatment was left out, so nothing was measured\n")
        return int(ExitCode.INFRASTRUCTURE)
    barren = sum(not row["jobs"]["done"] and not row["left_out"] for row in treatments)
    if barren:
        of_all = f"{barren} of {counted(len(treatments), 'treatment')}"
        reason = "" if errors_shown else _first_error(source.document)
        sys.stderr.write(f"bench-master: no job was done in {of_all}{reason}\n")
        return int(ExitCode.INFRASTRUCTURE)
    if noop:
        return int(ExitCode.OK)
    for verdict in source.failed_thresholds:
        sys.stderr.write(f"bench-master: threshold failed: {verdict['message']}\n")
    return int(ExitCode.THRESHOLD if source.failed_thresholds else ExitCode.OK)


def _first_error(document: Mapping[str, Any]) -> str:
    """Return what the most frequent error in treatments without a result said, on one line; nothing if none did."""
    barren = {row["title"] for row in document["treatments"] if not row["jobs"]["done"] and not row["left_out"]}
    for group in document["errors"]:
        if barren.intersection(group["treatments"]):
            return f"; {group['operation']}: {one_line(group['message'])}"
    return ""
