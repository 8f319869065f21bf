"""How a report is shown: the options that `run-scenario` and `report-scenario` share."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any, Final, Self

from msgspec import Struct

from bench_common.argument_types import InvalidValue, file_name
from bench_common.errors import InfrastructureError, UsageError, WeighbridgeError, did_you_mean
from bench_common.files import real_path
from bench_common.options import Option
from bench_common.streams import discard_output, escape_output, program_name, tell_quoted
from bench_master.analysis.document import DEFAULT_PERCENTILE
from bench_master.formatting import DEFAULT_WIDTH, page_of
from bench_master.progress_message import progress_message
from bench_master.reports import Detail, Report, ReportSource, report_formats, report_named
from bench_master.reports.charts import NO_CHART_OPTIONS, ChartOptions, registered_charts
from bench_master.terminal import text_output
from bench_master.terminal_options import TerminalOptions

DEFAULT_FORMAT: Final = "text"
GITHUB_SUMMARY: Final = "GITHUB_STEP_SUMMARY"
"""The variable that names the file of the summary of a job of GitHub Actions."""
_SUMMARY_FORMAT: Final = "github"


class ReportTarget(str):
    """The name of a report format, as argparse compares it with its choices, and where the report goes."""

    __slots__ = ("path",)

    path: Path | None
    """The file; None: standard output."""

    def __new__(cls, name: str, path: Path | None = None) -> Self:
        """Return the format `name`, whose report goes to `path`."""
        target = super().__new__(cls, name)
        target.path = path
        return target


def report_target(text: str) -> ReportTarget:
    """Return ``NAME`` or ``NAME=FILE`` as a target: a type of arguments. The file ``-`` is standard output."""
    name, equals, path = text.partition("=")
    if equals and not path:
        raise InvalidValue(f"{text!r}: expected a file after =, as in {name}=FILE")
    return ReportTarget(name, file_name(path) if equals and path != "-" else None)


class _AddFormat(argparse.Action):
    """Adds a report; a second one for standard output or for the same file is an error."""

    def __call__(self, _parser: argparse.ArgumentParser, namespace: Any, values: Any, *_: Any) -> None:
        target: ReportTarget = self.const or values
        known: Sequence[ReportTarget] = getattr(namespace, self.dest)
        for other in known:
            if other.path is None and target.path is None:
                raise argparse.ArgumentError(
                    self, f"{other} and {target} both go to standard output: give one a file: --format {target}=FILE"
                )
            if other.path is not None and target.path is not None and real_path(other.path) == real_path(target.path):
                raise argparse.ArgumentError(self, f"{other} and {target} both go to {target.path}: name two files")
        setattr(namespace, self.dest, (*known, target))


class _Export(_AddFormat):
    """Adds a report that goes to a file; its name and its file are two words."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, *rest: Any) -> None:
        name, path = values
        if name not in report_formats():
            hint = did_you_mean(name, report_formats())
            known = ", ".join(sorted(report_formats()))
            raise argparse.ArgumentError(self, f"{name!r}: expected a format{hint}; one of {known}")
        super().__call__(parser, namespace, ReportTarget(name, file_name(path)), *rest)


def percentile(text: str) -> float:
    """Return `text` as a percentile: a type of arguments."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:  # noqa: PLR2004
        raise InvalidValue(f"{text!r}: expected a number from 0 to 100, such as 95 or 99.9")
    return value


class ReportOptions(Struct, frozen=True):
    """How reports are shown."""

    formats: Annotated[
        tuple[ReportTarget, ...],
        Option(
            "--format NAME[=FILE]",
            "format of the report (default: text), or with =FILE of one more report, which is written to FILE; "
            f"can be repeated; one of: {', '.join(sorted(report_formats()))}",
            action=_AddFormat,
            type=report_target,
            choices=sorted(report_formats()),
        ),
        Option("--csv", "same as --format csv", action=_AddFormat, nargs=0, const=ReportTarget("csv")),
        Option(
            "--export NAME FILE",
            "also write the report to FILE: json, markdown, html, csv or another format; same as "
            "--format NAME=FILE; repeatable",
            action=_Export,
        ),
    ] = ()
    chart_options: ChartOptions = NO_CHART_OPTIONS
    pctile: Annotated[
        float,
        Option(
            "--pctile P",
            f"percentile to show, from 0 (the minimum) to 100 (the maximum) (default: {DEFAULT_PERCENTILE:g})",
            type=percentile,
        ),
    ] = DEFAULT_PERCENTILE
    quiet: bool = False
    verbose: bool = False

    @property
    def format(self) -> str:
        """The name of the report format on standard output."""
        return next((str(target) for target in self.formats if target.path is None), DEFAULT_FORMAT)

    @property
    def files(self) -> list[tuple[str, Path]]:
        """The format and the file of each report that goes to a file."""
        return [(str(target), target.path) for target in self.formats if target.path is not None]

    @property
    def detail(self) -> Detail:
        """How much a report for people shows."""
        return "full" if self.verbose else "answer" if self.quiet else "page"


def check_chart(options: ReportOptions) -> None:
    """Refuse a chart that no report shows, and what it does not show."""
    drawing = registered_charts()
    if drawing is not None:
        drawing.check(options)


def schema_option(schema: Callable[[], dict[str, Any]], what: str) -> Option:
    """Return ``--schema``, which prints the JSON Schema of `what` and ends the program, as ``--version`` does."""

    class PrintSchema(argparse.Action):
        def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
            sys.stdout.write(json.dumps(schema(), indent=2) + "\n")
            parser.exit()

    text = f"print the JSON Schema (draft 2020-12) of {what}, and exit"
    return Option("--schema", text, action=PrintSchema, nargs=0)


def print_report(name: str, source: ReportSource, terminal: TerminalOptions, *, paged: bool = False) -> None:
    """Write a report to standard output; only the one for people has colours, a pager and the terminal's width."""
    report = report_named(name)
    try:
        if name == "text":
            with text_output(terminal, paged=paged) as out:
                report.write(source, out)
        else:
            # What is printed line by line on the terminal itself is no silence.
            waits = nullcontext() if sys.stdout.isatty() else progress_message("writing the report")
            with page_of(DEFAULT_WIDTH), waits:
                report.write(source, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads the first lines only must learn on stderr that the run is not whole.
        if not source.incomplete_text:
            raise
        discard_output()


def load_reports(options: ReportOptions, stats_file: Path) -> list[tuple[Report, Path]]:
    """Return the reports that go to files, after a check of what would fail only when the figures are there.

    Raises `UsageError` where a format is not usable, or its file cannot be written or is the stats file itself.
    """
    found = []
    for name, path in options.files:
        report = report_named(name)
        check_writable(path, stats_file)
        found.append((report, path))
    return found


def check_writable(path: Path, stats_file: Path) -> None:
    """Raise `UsageError` unless a report can be written to `path`."""
    if real_path(path) == real_path(stats_file):
        raise UsageError(f"{path}: this is the stats file itself; name another file to write to")
    if not path.parent.is_dir():
        raise UsageError(
            f"{path}: cannot write: the folder {path.parent} does not exist; make it, or name another file"
        )
    if path.is_dir():
        raise UsageError(f"{path}: cannot write: it is a folder; name another file")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"{path}: cannot write: Permission denied; name another file")


def write_report_file(report: Report, source: ReportSource, path: Path) -> None:
    """Write a report to a file, which is replaced at once where possible; no reader sees half of it.

    GitHub's summary file, which ``GITHUB_STEP_SUMMARY`` names, may have lines of other commands: they stay.
    """
    try:
        with page_of(DEFAULT_WIDTH), progress_message(f"writing {path}"):
            if _is_replaceable(path):
                _replace_file(report, source, real_path(path))
            else:
                begin = (
                    path.open("a", encoding="utf-8", newline="")
                    if _is_github_summary(path)
                    else (path.open("w", encoding="utf-8", newline=""))
                )
                with escape_output(begin) as out:
                    report.write(source, out)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise UsageError(f"{path}: cannot write: {error.strerror}; name another file") from error
    except OSError as error:
        if error.filename is not None and error.filename != str(path):
            raise
        raise InfrastructureError(f"{path}: cannot write: {error.strerror or error}") from error


def _is_replaceable(path: Path) -> bool:
    """Whether a new file can take the place of `path`: not that of a device, a pipe or GitHub's summary."""
    if (path.exists() and not path.is_file()) or _is_github_summary(path):
        return False
    return os.access(real_path(path).parent, os.W_OK)


def _is_github_summary(path: Path) -> bool:
    summary = os.environ.get(GITHUB_SUMMARY)
    return bool(summary) and real_path(Path(str(summary))) == real_path(path)


def job_summary(formats: Collection[ReportTarget], environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the summary of the job of GitHub Actions that this process is of; None elsewhere.

    None, too, where a summary for GitHub goes to a file by its name (``--format github=FILE``): its user decides.
    """
    path = environ.get(GITHUB_SUMMARY)
    named = any(target == _SUMMARY_FORMAT and target.path is not None for target in formats)
    if environ.get("GITHUB_ACTIONS") != "true" or not path or named or _SUMMARY_FORMAT not in report_formats():
        return None
    return Path(path)


def add_to_job_summary(formats: Collection[ReportTarget], source: ReportSource) -> None:
    """Append the report to the job's summary, if there is one; what is wrong with it is told and costs no run."""
    path = job_summary(formats)
    if path is not None:
        try:
            write_report_file(report_named(_SUMMARY_FORMAT), source, path)
        except WeighbridgeError as error:
            tell_quoted(f"{program_name()}: the summary of the job lacks the report: {error}")


def _replace_file(report: Report, source: ReportSource, path: Path) -> None:
    # No name that a collector of *.prom or a pattern of a CI job would match.
    part = path.with_name(f".weighbridge-{os.getpid()}.tmp")
    try:
        with escape_output(part.open("w", encoding="utf-8", newline="")) as out:
            report.write(source, out)
        if path.exists():
            part.chmod(path.stat().st_mode & 0o777)
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
