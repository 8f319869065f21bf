"""What draws a run: a feature may, and pages and notebooks have tables and texts alone where none does.

The entry point group ``weighbridge.charts`` names a `Charts`; the first by name is taken. It has options of its own,
which `run-scenario`, `weigh` and `report-scenario` show beside those of reports, and draws the charts of the HTML
report. Formats that are a chart are registered as any report format is, and find the options in
`ReportSource.chart_options`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, TypeVar

from msgspec import Struct

from bench_common import load_entry, registered
from bench_common.cli import read_options
from bench_common.options import Option, add_options
from bench_common.streams import program_name, tell

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Self

    from bench_master.analysis.report_types import ReportDocument
    from bench_master.options.report import ReportOptions
    from bench_master.run_data.measured import LookMaker, MeasuredRun

GROUP: Final = "weighbridge.charts"
Own = TypeVar("Own", bound=Struct)


class PageChart(NamedTuple):
    """A chart of a page at both widths, of which a style sheet shows one."""

    name: str
    title: str
    caption: str
    wide: str
    """The SVG for a screen."""
    narrow: str
    """The SVG for a telephone."""
    more: PageChart | None = None
    """What belongs to it and is folded."""


class Image(NamedTuple):
    """A chart that stands alone."""

    svg: str
    width: int
    words: str


class ChartOptions(Struct, frozen=True):
    """The options of whatever draws charts."""

    value: Struct | None = None

    @classmethod
    def add_arguments(cls, where: argparse._ActionsContainer, **instead: Option | None) -> None:
        """Add the options of what draws charts (see `bench_common.options.add_options`)."""
        found = registered_charts()
        if found is not None:
            add_options(where, found.Options, **instead)

    @classmethod
    def read_arguments(cls, arguments: argparse.Namespace) -> Self:
        """Return what the parser found (see `bench_common.cli.read_options`)."""
        found = registered_charts()
        return cls(None if found is None else read_options(found.Options, arguments))

    def of(self, kind: type[Own]) -> Own:
        """Return them by their type; its defaults where no command line was read."""
        return self.value if isinstance(self.value, kind) else kind()


NO_CHART_OPTIONS: Final = ChartOptions()


class Charts(ABC):
    """Draws runs; its class takes no arguments."""

    Options: ClassVar[type[Struct]]
    """Its options, each with a default (see `bench_common.options`)."""
    formats: ClassVar[frozenset[str]]
    """The names of the report formats that show one chart."""

    @abstractmethod
    def part(self) -> LookMaker:
        """Return what charts need of a run beside its document: it takes part in the one reading of the run."""

    @abstractmethod
    def check(self, options: ReportOptions) -> None:
        """Raise `UsageError` where the options ask for what no report of theirs shows."""

    @abstractmethod
    def of_page(self, document: ReportDocument, run: MeasuredRun) -> Iterator[PageChart]:
        """Yield the charts of a page that the run has the data of, in order."""

    @abstractmethod
    def remarks(self, document: ReportDocument) -> tuple[str, str]:
        """Return what a page says of charts that are left out (empty if none are), and how to read those there."""

    @abstractmethod
    def of_comparisons(self, document: ReportDocument) -> Image | None:
        """Return the comparisons for a notebook; None where there is nothing to draw."""


@cache
def registered_charts() -> Charts | None:
    """Return what draws charts; None where nothing is registered that can be loaded."""
    for point in sorted(registered(GROUP), key=lambda one: one.name):
        try:
            found = load_entry(point)
        except Exception as error:  # noqa: BLE001  somebody else's module may raise anything when imported
            why = f"{point.value} cannot be loaded: {type(error).__name__}: {error}"
            tell(f"{program_name()}: there are no charts: {why}")
            continue
        if isinstance(found, Charts):
            return found
    return None
