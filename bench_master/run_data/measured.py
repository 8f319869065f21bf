"""A stats file read once: `MeasuredRun` has the sums that reports, charts, comparisons and the archive are made of.

The first look at the blocks sums up what needs nothing but the header. The rest needs the whole file to be known: a
metric counts if its job succeeded, a sample belongs to the trial that it lies in, and an exact percentile is looked
for where the histogram has it. So its blocks are kept as they are stored and looked at again, which is no second walk
through the file. Of a file with some millions of jobs too much would be kept: there all that was asked for together
shares one second walk. Memory is bounded either way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from bench_common.records import OPERATION_DONE
from bench_common.stats.block_types import Header
from bench_common.stats.reader import Block, KeptBlocks, StatsFile
from bench_master.run_data.aggregate import RESPONSE, Aggregator
from bench_master.run_data.host_samples import EngineCosts, HostCpu
from bench_master.run_data.percentiles import ExactPercentiles
from bench_master.run_data.trial_values import Failures, TrialCollector, TrialTable

LOOKED_AT_AGAIN: Final = frozenset(
    {"jobs", "operations", "transfers", "transactions", "metrics", "samples", "event", "errors", "host"}
)
"""What is kept for another look. Outputs of tools are not: those of a run may be larger than all the rest."""
COMPARED_KINDS: Final = frozenset({"jobs", "operations", "samples", "metrics", "host", "event", "footer"})
"""What runs are compared by: all but errors, outputs and what was moved."""


def without_trials(header: Header, trials: Collection[int]) -> Header:
    """Return a header in which some trials are warm-up."""
    stored = enumerate(header.trials)
    return replace(header, trials=[(*one[:2], one[2] or number in trials) for number, one in stored])


class Look(Protocol):
    """Takes the blocks of some kinds in a second look, which costs time: it is made when it is first asked for."""

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of blocks that it takes."""

    def add(self, block: Block) -> None:
        """Take a block of one of the kinds."""


LookMaker: TypeAlias = "Callable[[MeasuredRun], Look]"
"""Makes a look, such as the class of it, from a run whose first look is done; features have makers of their own."""
Own = TypeVar("Own", bound=Look)


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
        """The file's header, in which a trial that lost a worker is a warm-up: it is in no figure."""
        self.sums = Aggregator(self.header)
        """What streams by is summed up here; metrics and samples by trial are in it once they were prepared."""
        at_once = TrialCollector(self.header) if for_comparison else None
        kinds = COMPARED_KINDS if for_comparison else None
        self._add_all(stats.blocks(kinds, by_column=True, keep=self._kept), at_once)
        self.spoilt = self.sums.spoilt
        """The measured trials in which a worker was lost, with who it was and why."""
        if self.spoilt:
            footer = self.sums.footer
            self.header = without_trials(self.header, self.spoilt)
            self.sums = Aggregator(self.header, self.spoilt)
            at_once = TrialCollector(self.header) if for_comparison else None
            again = LOOKED_AT_AGAIN if kinds is None else LOOKED_AT_AGAIN & kinds
            self._add_all(self.blocks(again), at_once)
            self.sums.footer = footer
        self.damage = stats.damage
        """What could not be read, or is missing or there twice by the file's own account; None if all is there."""
        self.intact_bytes = stats.intact_bytes
        """Bytes that were read; all of them of a file without damage."""
        self.spans = self.sums.spans()
        """The measured trials that began and ended."""
        self.hosts = {worker: str(body.host) for worker, body in self.sums.hosts.items()}
        """The names of the workers' hosts."""
        self.engine_costs = EngineCosts(
            self.spans, [str(one.cost_name or one.engine) for one in self.sums.treatments], self.hosts
        )
        self.host_cpu = HostCpu(self.spans)
        self._looks: dict[LookMaker, Look] = {} if at_once is None else {trial_values: at_once}
        self._percentiles: frozenset[float] = frozenset()
        self._exact = ExactPercentiles({}, ())

    def _add_all(self, blocks: Iterable[Block], at_once: TrialCollector | None) -> None:
        for block in blocks:
            self.sums.add(block)
            if at_once is not None and block.kind in at_once.kinds:
                at_once.add(block)

    @property
    def path(self) -> Path:
        """The file as the user named it."""
        return self.stats.path

    @property
    def is_whole(self) -> bool:
        """Whether the file has an end and no damage before it."""
        return self.damage is None and self.sums.footer is not None

    def prepare(self, makers: Iterable[LookMaker], percentiles: Iterable[float] = ()) -> None:
        """Make the looks, and the percentiles (0..100) exact, that are not there yet: all of them in one look."""
        missing = {make: make(self) for make in dict.fromkeys(makers) if make not in self._looks}
        looks = [*missing.values()]
        if not self._percentiles.issuperset(percentiles):
            self._percentiles = self._percentiles.union(percentiles)
            every = {**self.sums.series, **self.sums.totals}
            self._exact = ExactPercentiles(every, sorted(self._percentiles))
            looks.append(_ExactLook(self._exact, self.sums))
        self.look_again(looks)
        self._looks |= missing
        if SamplesLook in missing:
            self.sums.disturbances.settle(self.hosts, self.spans)

    def percentiles(self, wanted: Iterable[float]) -> ExactPercentiles:
        """Return percentiles (0..100) of all series, exact where memory allows, see `ExactPercentiles`."""
        self.prepare((), wanted)
        return self._exact

    def trials(self, failures: Failures) -> TrialTable:
        """Return the value of each trial, with failed jobs counted in this way."""
        self.prepare({trial_values, MetricsLook})
        return self.part(trial_values).table(self.sums, failures)

    def part(self, make: Callable[[MeasuredRun], Own]) -> Own:
        """Return a feature's part, which is made where nobody prepared it."""
        self.prepare({make})
        made: Own = self._looks[make]  # type: ignore[assignment]  # each maker has the look that it made
        return made

    def look_again(self, looks: Collection[Look]) -> None:
        """Show the blocks once more to all of these together; of a large file that is a walk through it."""
        kinds = frozenset[str]().union(*(look.kinds for look in looks))
        if not kinds:
            return
        for block in self.blocks(kinds):
            for look in looks:
                if block.kind in look.kinds:
                    look.add(block)

    def blocks(self, kinds: Collection[str], *, by_column: bool = True) -> Iterator[Block]:
        """Yield the blocks of some kinds, rows by column or as arrays; of a large file that is a walk through it."""
        return self.stats.blocks_again(self._kept, kinds, by_column=by_column)


def trial_values(run: MeasuredRun) -> TrialCollector:
    """Return the look that makes the value of each trial."""
    return TrialCollector(run.header, run.hosts, done=run.sums.done)


class MetricsLook:
    """Sums up metrics, of which those of unsuccessful jobs are known by now."""

    def __init__(self, run: MeasuredRun) -> None:
        self._sums = run.sums

    @property
    def kinds(self) -> frozenset[str]:
        """Nothing is read again of a run without metrics."""
        return frozenset({"metrics"} if self._sums.has_metrics else ())

    def add(self, block: Block) -> None:
        """Add a block of metrics."""
        self._sums.add_metrics(block.body)


class SamplesLook:
    """Gives samples to the trials that they lie in: what hosts and engines used in each."""

    def __init__(self, run: MeasuredRun) -> None:
        self._run = run

    @property
    def kinds(self) -> frozenset[str]:
        """Nothing is read again of a run without packings and trials that ended."""
        return frozenset({"samples"} if self._run.sums.packings or len(self._run.spans) else ())

    def add(self, block: Block) -> None:
        """Add a block of samples."""
        run = self._run
        run.engine_costs.add(block.body)
        run.host_cpu.add(block.body)
        run.sums.disturbances.add_samples(run.spans, block.body)
        run.sums.packings.add(block.body)
        run.sums.open.watch(run.spans, block.body)


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
                done = rows["duration_ns"][rows["ok"] == OPERATION_DONE]
                for each in self._sums.keys_of(key):
                    self._exact.collect(each, done)
            return
        for key, rows in self._sums.measured_jobs(block.body):
            self._exact.collect(key, rows["duration_ns"])
            responses = self._sums.response_times(key[0], rows)
            if responses is not None:
                self._exact.collect((key[0], RESPONSE), responses)
