"""A stats file read once: `MeasuredRun` has the sums that reports, charts, comparisons and the archive are made of.

The first look at the blocks sums up what needs nothing but the header. The rest needs the whole file to be known: a
metric counts if its job succeeded, a sample belongs to the trial that it lies in, and an exact percentile is looked
for where the histogram has it. So its blocks are kept as they are stored and looked at again, which is no second walk
through the file. Of a file with some millions of jobs too much would be kept: there all that was asked for together
shares one second walk. Memory is bounded either way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Final, Protocol

from bench_common.records import OPERATION_DONE
from bench_common.stats.block_types import Header
from bench_common.stats.reader import Block, KeptBlocks, StatsFile
from bench_master.run_data.aggregate import RESPONSE, Aggregator
from bench_master.run_data.chart_sums import ChartSums
from bench_master.run_data.host_samples import EngineCosts, HostCpu
from bench_master.run_data.percentiles import ExactPercentiles
from bench_master.run_data.trial_statistics import TrialStatistics
from bench_master.run_data.trial_values import Failures, TrialCollector, TrialTable

LOOKED_AT_AGAIN: Final = frozenset({"jobs", "operations", "transfers", "transactions", "metrics", "samples", "event"})
COMPARED_KINDS: Final = frozenset({"jobs", "operations", "samples", "metrics", "host", "event", "footer"})
"""What runs are compared by: all but errors, outputs and what was moved."""


class Part(Enum):
    """What needs the whole file to be known; each part costs time, and is made when it is first asked for."""

    METRICS = auto()
    """The metrics of successful jobs."""
    SAMPLES = auto()
    """What hosts and engines used in each trial."""
    TRIALS = auto()
    """The value of each trial."""
    CHARTS = auto()
    """What charts need."""
    STATISTICS = auto()
    """The durations of each operation in each trial, as a few numbers."""


ARCHIVED_PARTS: Final = frozenset({Part.TRIALS, Part.STATISTICS})
"""What the archive has of a run and its report may not have."""


class Look(Protocol):
    """Takes the blocks of some kinds in a second look."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of blocks that it takes."""

    def add(self, block: Block) -> None:
        """Take a block of one of the kinds."""


class MeasuredRun:
    """The sums of one stats file.

    Of a damaged or incomplete file they are those of the readable part. Raises `StatsFileError` without a header.
    """

    def __init__(self, stats: StatsFile, *, for_comparison: bool = False) -> None:
        """Read all blocks, so that damage is noticed wherever it is; or only what a run is compared by.

        `for_comparison` there are no values of single hosts, so the first look makes those of the trials.
        """
        self.stats = stats
        """The file, for what shows every job."""
        self._kept = KeptBlocks(LOOKED_AT_AGAIN)
        self.header: Header = stats.header
        self.sums = Aggregator(self.header)
        """What streams by is summed up here; metrics and samples by trial are in it once they were prepared."""
        at_once = TrialCollector(self.header) if for_comparison else None
        for block in stats.blocks(COMPARED_KINDS if for_comparison else None, by_column=True, keep=self._kept):
            self.sums.add(block)
            if at_once is not None and block.kind in at_once.kinds:
                at_once.add(block)
        self.sums.open.settle()
        self.damage = "; ".join(filter(None, (stats.damage, self.sums.contradiction))) or None
        """What could not be read, or is missing or there twice by the file's own account; None if all is there."""
        self.intact_bytes = stats.intact_bytes
        """Bytes that were read; all of them of a file without damage."""
        self.spans = self.sums.spans()
        """The measured trials that began and ended."""
        self.engine_costs = EngineCosts(self.spans, [str(one.get("engine")) for one in self.sums.treatments])
        self.host_cpu = HostCpu(self.spans)
        self._trials = at_once or TrialCollector(
            self.header, {worker: str(body.get("host")) for worker, body in self.sums.hosts.items()}
        )
        self._charts = ChartSums(self.sums, stats.began_ns)
        self._statistics = TrialStatistics(self.header)
        self._looks: dict[Part, Look] = {
            Part.METRICS: _MetricsLook(self.sums),
            Part.SAMPLES: _SamplesLook(self),
            Part.TRIALS: self._trials,
            Part.CHARTS: self._charts,
            Part.STATISTICS: self._statistics,
        }
        self._prepared = {Part.TRIALS} if for_comparison else set[Part]()
        self._percentiles: frozenset[float] = frozenset()
        self._exact = ExactPercentiles(self.sums.series, ())

    @property
    def path(self) -> Path:
        """The file as the user named it."""
        return self.stats.path

    @property
    def is_whole(self) -> bool:
        """Whether the file has an end and no damage before it."""
        return self.damage is None and self.sums.footer is not None

    def prepare(self, parts: Iterable[Part], percentiles: Iterable[float] = ()) -> None:
        """Make the parts, and the percentiles (0..100) exact, that are not there yet: all of them in one look."""
        missing = set(parts) - self._prepared
        looks = [self._looks[part] for part in missing]
        if not self._percentiles.issuperset(percentiles):
            self._percentiles = self._percentiles.union(percentiles)
            self._exact = ExactPercentiles(self.sums.series, sorted(self._percentiles))
            looks.append(_ExactLook(self._exact, self.sums))
        self.look_again(looks)
        self._prepared |= missing
        if Part.SAMPLES in missing:
            self.sums.disturbances.settle(self.sums.hosts, self.spans)

    def percentiles(self, wanted: Iterable[float]) -> ExactPercentiles:
        """Return percentiles (0..100) of all series, exact where memory allows, see `ExactPercentiles`."""
        self.prepare((), wanted)
        return self._exact

    def trials(self, failures: Failures) -> TrialTable:
        """Return the value of each trial, with failed jobs counted in this way."""
        self.prepare({Part.TRIALS, Part.METRICS})
        return self._trials.table(self.sums, failures)

    @property
    def statistics(self) -> TrialStatistics:
        """The durations of each operation in each trial."""
        self.prepare({Part.STATISTICS})
        return self._statistics

    @property
    def charts(self) -> ChartSums:
        """What charts need and the sums lack."""
        self.prepare({Part.CHARTS})
        return self._charts

    def look_again(self, looks: Collection[Look]) -> None:
        """Show the blocks once more to all of these together; of a large file that is a walk through it."""
        kinds = frozenset[str]().union(*(look.kinds for look in looks))
        if not kinds:
            return
        for block in self.blocks(kinds):
            for look in looks:
                if block.kind in look.kinds:
                    look.add(block)

    def blocks(self, kinds: Collection[str]) -> Iterator[Block]:
        """Yield the blocks of some kinds, rows by column; of a large file that is a walk through it."""
        return self.stats.blocks_again(self._kept, kinds)


class _MetricsLook:
    """Sums up metrics, of which those of unsuccessful jobs are known by now."""

    def __init__(self, sums: Aggregator) -> None:
        self._sums = sums

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({"metrics"} if self._sums.has_metrics else ())

    def add(self, block: Block) -> None:
        self._sums.add_metrics(block.body)


class _SamplesLook:
    """Gives samples to the trials that they lie in."""

    def __init__(self, run: MeasuredRun) -> None:
        self._run = run

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({"samples"} if self._run.sums.packings or len(self._run.spans) else ())

    def add(self, block: Block) -> None:
        run = self._run
        run.engine_costs.add(block.body)
        run.host_cpu.add(block.body)
        run.sums.disturbances.add_samples(run.spans, block.body)
        run.sums.packings.add(block.body)


class _ExactLook:
    """Shows `ExactPercentiles` the durations once more."""

    def __init__(self, exact: ExactPercentiles, sums: Aggregator) -> None:
        self._exact = exact
        self._sums = sums

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({"jobs", "operations"} if self._exact.needs_second_pass else ())

    def add(self, block: Block) -> None:
        if block.kind == "operations":
            for key, rows in self._sums.measured_operations(block.body):
                self._exact.collect(key, rows["duration_ns"][rows["ok"] == OPERATION_DONE])
            return
        for key, rows in self._sums.measured_jobs(block.body):
            self._exact.collect(key, rows["duration_ns"])
            responses = self._sums.response_times(key[0], rows)
            if responses is not None:
                self._exact.collect((key[0], RESPONSE), responses)
