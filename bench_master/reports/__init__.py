"""Report formats: each is one class, registered under the entry-point group ``weighbridge.reports``.

`Report` declares what such a class has. It reads a `ReportSource`: the summed-up document, which is what the JSON
report prints, and the stats file itself, for formats that show every job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import EntryPoint
from typing import Final, Literal, Protocol, TextIO, TypeAlias, runtime_checkable

from bench_common import load_entry, registered
from bench_common.cli import check_choice
from bench_common.errors import ExitCode, InfrastructureError, WeighbridgeError
from bench_common.safe_text import one_line
from bench_common.stats.reader import StatsFile
from bench_master.analysis.document import DEFAULT_OPTIONS, DEFAULT_PERCENTILE, document_of
from bench_master.analysis.gates import document_gates, judge_gates, unpassed_gates
from bench_master.analysis.report_types import ReportDocument, ThresholdReport
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.analysis.verdict_types import ClaimReport, GateReport
from bench_master.formatting import plural
from bench_master.progress_message import progress_message
from bench_master.reports.charts import NO_CHART_OPTIONS, ChartOptions, registered_charts
from bench_master.run_data.measured import LookMaker, MeasuredRun

GROUP: Final = "weighbridge.reports"

Detail: TypeAlias = Literal["answer", "page", "full"]
"""How much a report for people shows: the answer alone (``-q``), a page, or all there is (``-v``)."""


class ReportSource:
    """One stats file to report on. The document is built once, when a report first asks for it."""

    def __init__(
        self,
        stats: StatsFile,
        pctile: float = DEFAULT_PERCENTILE,
        options: VerdictOptions = DEFAULT_OPTIONS,
        detail: Detail = "page",
        chart_options: ChartOptions = NO_CHART_OPTIONS,
        also: Collection[LookMaker] = (),
    ) -> None:
        self.stats = stats
        self.pctile = pctile
        self.options = options
        self.detail = detail
        self.chart_options = chart_options
        """What to draw in a format that shows one chart."""
        self.also = frozenset(also)
        """Parts of the run that are needed besides its document; see `document_of`."""

    @cached_property
    def document(self) -> ReportDocument:
        """The report document, see `bench_master.analysis.report_types`."""
        with progress_message(f"reading {self.stats.path}"):
            return document_of(self.run, self.pctile, self.options, self.also)

    @cached_property
    def run(self) -> MeasuredRun:
        """The sums that the document and charts are made from."""
        return MeasuredRun(self.stats)

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
        """The verdicts on failed thresholds, that on failed jobs included; not those on undecided ones."""
        document = self.document
        return [verdict for verdict in document.thresholds if document.threshold_state(verdict) == "failed"]

    @cached_property
    def missing_results(self) -> str:
        """Why a complete run is no success: nothing was measured, or treatments have no result; else empty."""
        treatments = self.document.treatments
        if treatments and all(row.skipped for row in treatments):
            return "every treatment was skipped, so nothing was measured"
        ran = [row for row in treatments if not row.skipped]
        barren = sum(not row.jobs.done for row in ran)
        if self.document.run.imported is not None and barren < len(treatments):
            return ""  # a run that broke off states too little to be of the treatment that it was
        return f"no job succeeded in {barren} of {plural(len(ran), 'treatment')}" if barren else ""

    @cached_property
    def gates(self) -> list[GateReport]:
        """The outcome of each gate; empty without gates."""
        verdicts = self.document.verdicts
        if verdicts is not None:
            return list(verdicts.gates)
        return judge_gates(document_gates(self.stats.header, self.options), (), self.document.treatments)

    def exit_code(self) -> ExitCode:
        """Return the gravest of the exit codes of the file's completeness, results, thresholds, gates and claims."""
        codes = [
            ExitCode.INFRASTRUCTURE if self.document.incomplete or self.missing_results else ExitCode.OK,
            ExitCode.THRESHOLD if self.failed_thresholds else ExitCode.OK,
            *(gate.exit_code for gate in self.gates),
            *(claim.exit_code for claim in self._claims),
        ]
        return ExitCode.gravest(codes)

    def failed_gates(self) -> list[str]:
        """Return a line for each gate that failed, and each claim that was broken, or that could not be judged."""
        missed = [each for each in self._claims if each.state != "kept"]
        lines = [f"claim {each.state}: {each.name}: {each.says}: {each.text}" for each in missed]
        return [*unpassed_gates(self.gates), *lines]

    @property
    def _claims(self) -> Sequence[ClaimReport]:
        verdicts = self.document.verdicts
        return () if verdicts is None or verdicts.claims is None else verdicts.claims.claims


@runtime_checkable
class Report(Protocol):
    """A report format. Its class takes no arguments; with ``needs_times = True`` it refuses results without times."""

    def write(self, source: ReportSource, out: TextIO) -> None:
        """Write the whole report to `out`, with the document's `run_state` in it, even if there is nothing else."""


RATES_LONGEST_S: Final = 31 * 86_400
"""How many seconds a file of rates has at most: those without a job are written too, and no run may ask for more."""


@runtime_checkable
class RatesReport(Protocol):
    """What a report format has that counts the jobs of each second in its own way."""

    def write_rates(self, source: ReportSource, out: TextIO) -> int:
        """Write them to `out`; return how many jobs ended outside of what is written."""


def parts_of(formats: Collection[str]) -> frozenset[LookMaker]:
    """Return what reports of these formats need of a run besides its document."""
    drawing = registered_charts()
    if drawing is None or {"html", *drawing.formats}.isdisjoint(formats):
        return frozenset()
    return frozenset({drawing.part()})


def report_formats() -> dict[str, EntryPoint]:
    """Return the registered formats by name, without importing them."""
    return {entry.name: entry for entry in registered(GROUP)}


def report_named(name: str) -> Report:
    """Return a new report; raise `UsageError` for an unknown format, `InfrastructureError` for a broken plug-in.

    A format that needs a library raises `UsageError` if it is not installed.
    """
    formats = report_formats()
    check_choice(name, formats, what="report format")
    what = f"report format {name!r} ({formats[name].value})"
    with naming_plugin(what):
        report = load_entry(formats[name])()
    if not isinstance(report, Report):
        raise InfrastructureError(f"{what} cannot be used: its class must have write")
    return report


@contextmanager
def naming_plugin(what: str) -> Iterator[None]:
    """Raise `InfrastructureError` for what a plug-in raises when it is loaded, which may be anything."""
    try:
        yield
    except WeighbridgeError:
        # It says itself what is missing, such as a library.
        raise
    except Exception as error:
        raise InfrastructureError(f"{what} cannot be used: {type(error).__name__}: {error}") from error
