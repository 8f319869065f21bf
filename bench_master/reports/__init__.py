"""Report formats: each is one class, registered under the entry-point group ``weighbridge.reports``.

`Report` declares what such a class has. It reads a `ReportSource`: the summed-up document, which is what the JSON
report prints, and the stats file itself, for formats that show every job.
"""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import EntryPoint
from typing import Final, Literal, Protocol, TextIO, TypeAlias, runtime_checkable

from bench_common import registered
from bench_common.cli import check_choice
from bench_common.errors import ExitCode, InfrastructureError
from bench_common.safe_text import one_line
from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import DEFAULT_OPTIONS, DEFAULT_PERCENTILE, build_document
from bench_master.analysis.gates import document_gates, judge_gates, unpassed_gates
from bench_master.analysis.report_types import ReportDocument, ThresholdReport
from bench_master.analysis.verdict_types import GateReport, VerdictOptions

GROUP: Final = "weighbridge.reports"

Detail: TypeAlias = Literal["verdicts", "page", "full"]
"""How much a report for people shows: the verdicts alone (``-q``), a page, or all there is (``-v``)."""


class ReportSource:
    """One stats file to report on. The document is built once, when a report first asks for it."""

    def __init__(
        self,
        stats: StatsFile,
        pctile: float = DEFAULT_PERCENTILE,
        options: VerdictOptions = DEFAULT_OPTIONS,
        detail: Detail = "page",
    ) -> None:
        self.stats = stats
        self.pctile = pctile
        self.options = options
        self.detail = detail

    @cached_property
    def document(self) -> ReportDocument:
        """The report document, see `bench_master.analysis.report_types`."""
        return build_document(self.stats, self.pctile, self.options)

    @property
    def incomplete_text(self) -> str:
        """Why the figures do not cover the whole run, on one line; empty if they do."""
        document = self.document
        if not document.incomplete:
            return ""
        totals = document.totals
        missing = f"{totals.missing:,} of {totals.planned:,} planned jobs are missing; " if totals.missing else ""
        return one_line(
            f"{self.stats.path}: the run is {document.run_state}: {missing}{'; '.join(document.incomplete)}"
        )

    @property
    def failed_thresholds(self) -> list[ThresholdReport]:
        """The verdicts on failed thresholds; empty if the scenario has no thresholds."""
        if not self.stats.header.get("thresholds"):
            return []
        return [verdict for verdict in self.document.thresholds if not verdict.passed]

    @cached_property
    def gates(self) -> list[GateReport]:
        """The outcome of each gate; empty without gates."""
        verdicts = self.document.verdicts
        if verdicts is not None:
            return list(verdicts.gates)
        return judge_gates(document_gates(self.stats.header, self.options), (), self.document.treatments)

    def exit_code(self) -> ExitCode:
        """Return the exit code that the file's completeness, thresholds and gates give; the gravest counts.

        A threshold on a figure that an incomplete run lacks has not failed. A no-op run has no figures to judge.
        """
        incomplete = bool(self.document.incomplete)
        failed = any(each.value is not None or not incomplete for each in self.failed_thresholds)
        codes = [
            ExitCode.INFRASTRUCTURE if incomplete else ExitCode.OK,
            ExitCode.THRESHOLD if failed and not self.document.run.noop else ExitCode.OK,
            *(gate.exit_code for gate in self.gates),
        ]
        return ExitCode.gravest(codes)

    def failed_gates(self) -> list[str]:
        """Return a line for each gate that failed or could not be judged."""
        return unpassed_gates(self.gates)


@runtime_checkable
class Report(Protocol):
    """A report format. Its class takes no arguments."""

    name: str
    """What ``--format`` calls it."""
    needs_times: bool
    """Whether it refuses imported results, which carry no timestamps."""

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the whole report to `out`, with the document's `run_state` in it, even if there is nothing else."""


def report_formats() -> dict[str, EntryPoint]:
    """Return the registered formats by name, without importing them."""
    return {entry.name: entry for entry in registered(GROUP)}


def report_named(name: str) -> Report:
    """Return a new report; raise `UsageError` for an unknown format, `InfrastructureError` for a broken plug-in."""
    formats = report_formats()
    check_choice(name, formats, what="report format")
    where = formats[name].value
    try:
        report = formats[name].load()()
    except Exception as error:
        # A plug-in may raise anything on import.
        raise InfrastructureError(
            f"report format {name!r} ({where}) cannot be used: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(report, Report):
        raise InfrastructureError(
            f"report format {name!r} ({where}) cannot be used: its class must have name, needs_times and write"
        )
    return report
