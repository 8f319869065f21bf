"""What a feature adds to runs: its options, what it checks, who watches the run, and what becomes of it at its end.

`run-scenario` and `weigh` know no feature. They ask every `RunExtension` that an entry point of
``weighbridge.run_extensions`` names; one without a package beside it leaves no trace, and its options are unknown.
A feature has in its ``__init__.py``, which is loaded whenever a run's options are read and so imports little::

    class AgeOptions(Struct, frozen=True):
        age: Annotated[int | None, Option("--age DAYS", "...", type=int)] = None

    class AgeExtension(RunExtension):
        Options = AgeOptions

        def add_options(self, groups: OptionGroups) -> None:
            add_options(groups.named(RESULTS), AgeOptions)

        def finish(self, options: RunOptions, source: ReportSource) -> ExitCode:
            age = options.extensions.of(AgeOptions).age
            if age is None:
                return ExitCode.OK
            from ages.keeping import keep  # what only such a run needs is loaded there

            return keep(source.stats.path, age)

    AGE = AgeExtension()

and in ``pyproject.toml`` ``age = "ages:AGE"``. The operations are called in this order: `add_options`
for each parser; `prepare`, `engine_labels`, then `settle` once the options are read; `change_tree`; `check`
before anything starts; `around` and `workers`, within which the run takes place, and in it `certificates`; `parts`
and `finish` when it has ended, `finish` after the reports. A method that is not overridden does nothing. Extensions
are asked in the order of their names. An option of a feature is a field of the feature's own Struct, which has a
default for each field (see `bench_common.options`), and `ExtensionOptions.of` returns it.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeVar

from msgspec import Struct

from bench_common.cli import CommandParser, read_options
from bench_common.errors import ExitCode
from bench_master.options.load import change_load
from bench_master.registered_parts import load_registered
from bench_master.run.started_workers import NO_WORKERS, StartedWorkers, together

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Self

    from bench_common.engine_traits import EngineLabel
    from bench_common.host_info import Fingerprint
    from bench_common.secret import Secret
    from bench_common.stats.block_types import StoredCertificate
    from bench_master.options.run import RunOptions
    from bench_master.plan_text import ExpectedWorker
    from bench_master.reports import ReportSource
    from bench_master.run.watched_run import WatchedRun
    from bench_master.run_data.measured import LookMaker
    from bench_master.scenario.diagnostics import Diagnostics
    from bench_master.scenario.load import TreeChange
    from bench_master.scenario.model import Origin
    from bench_master.scenario.yaml_tree import MappingNode

GROUP: Final = "weighbridge.run_extensions"
WORKERS: Final = "workers"
LOAD: Final = "load (overrides the scenario)"
DISPATCH: Final = "dispatch"
FIRST_RESULTS: Final = "what comes out"
"""The heading below which ``--help`` has what becomes of the results, among the options that it shows first."""
FIRST_PLACES: Final = "where it runs"
"""Likewise, on which hosts."""
RESULTS: Final = "results"
VERDICTS: Final = "verdicts"
NETWORK: Final = "network (for workers on other hosts)"
Own = TypeVar("Own", bound=Struct)


class OptionGroups:
    """The groups of options of one command, by heading; one that is not there yet comes after the others."""

    def __init__(self, parser: argparse.ArgumentParser, *, takes_file: bool) -> None:
        self.parser = parser
        self.takes_file = takes_file
        """Whether the command runs a scenario of a file, as `run-scenario` does and `weigh` does not."""
        self._groups: dict[str, argparse._ArgumentGroup] = {}

    def named(self, heading: str) -> argparse._ArgumentGroup:
        """Return the group with a heading."""
        if heading not in self._groups:
            self._groups[heading] = self.parser.add_argument_group(heading)
        return self._groups[heading]

    def show_first(self, heading: str, *flags: str) -> None:
        """Have ``--help`` show these options, which the command has by now, below one of its headings."""
        first = self.parser.first_help if isinstance(self.parser, CommandParser) else None
        if first is not None:
            first.parts.setdefault(heading, []).extend(flags)


class ExtensionOptions(Struct, frozen=True):
    """The options of all features, each feature's as a Struct of its own."""

    values: tuple[Struct, ...] = ()

    @classmethod
    def read_arguments(cls, arguments: argparse.Namespace) -> Self:
        """Return what the parser found (see `bench_common.cli.read_options`)."""
        return cls(tuple(read_options(one.Options, arguments) for one in run_extensions().values()))

    def replaced(self, own: Struct) -> Self:
        """Return these options with those of one feature in the place of its former ones."""
        others = (one for one in self.values if type(one) is not type(own))
        return type(self)((*others, own))

    def of(self, kind: type[Own]) -> Own:
        """Return the options of one feature, by their type; its defaults where no command line was read."""
        return next((one for one in self.values if isinstance(one, kind)), None) or kind()


NO_EXTENSIONS: Final = ExtensionOptions()


class RunObserver(Protocol):
    """Who watches a run from its start to its end, within the master's process."""

    def start(self, run: WatchedRun) -> None:
        """Begin to watch: the workers are about to connect."""

    def finish(self, status: str, reasons: Sequence[str]) -> None:
        """End it: the run is over, and events can still be recorded; `status` is that of its `RunResult`."""


class RunExtension:
    """What one feature adds to runs; its class takes no arguments and keeps nothing between the calls."""

    Options: ClassVar[type[Struct]]
    """Its options, each with a default (see `bench_common.options`)."""
    keeps_options: ClassVar[bool] = False
    """Whether the stats file keeps these options, and a resumed run takes them from there and refuses others."""

    def add_options(self, groups: OptionGroups) -> None:
        """Add `Options` to a command, below the headings where they belong."""

    def prepare(self, options: RunOptions) -> None:
        """Do what comes before all else, even before a scenario is read; raise `UsageError` if options contradict."""

    def settle(self, options: RunOptions) -> RunOptions:
        """Return the options with what follows from this feature's own; raise `UsageError` if they contradict."""
        return options

    def change_tree(self, options: RunOptions, root: MappingNode, findings: Diagnostics) -> None:
        """Put what the options override into a scenario's tree, before it is checked."""

    def check(self, options: RunOptions) -> None:
        """Raise a `WeighbridgeError` where the feature could not do its part at the end of the run."""

    def around(self, options: RunOptions) -> AbstractContextManager[RunObserver | None]:  # noqa: ARG002  see above
        """Return what is open during the run; entering it gives who watches the run, or None."""
        return nullcontext()

    def starts_workers(self, options: RunOptions) -> bool:  # noqa: ARG002
        """Return whether `workers` starts some; then no worker starts on this host unless that is asked for."""
        return False

    def expected_workers(self, options: RunOptions) -> Sequence[ExpectedWorker]:  # noqa: ARG002
        """Return the workers that join if all of them start, for the plan; nothing is started yet."""
        return ()

    def engine_labels(self, options: RunOptions) -> Sequence[tuple[str, EngineLabel]]:  # noqa: ARG002
        """Return the labels of engines that `workers` will have, each after the words for who has it."""
        return ()

    def takes_host_names(self, options: RunOptions) -> bool:  # noqa: ARG002
        """Return whether ``--only`` may name what this feature starts workers on."""
        return False

    def bind_ip(self, options: RunOptions) -> str | None:  # noqa: ARG002
        """Return where the master has to listen for these workers; None: as the options say."""
        return None

    def workers(
        self,
        options: RunOptions,  # noqa: ARG002
        environments: frozenset[str],  # noqa: ARG002
    ) -> AbstractContextManager[StartedWorkers]:
        """Return what has the workers running while it is open; `environments` are those that the plan names."""
        return nullcontext(NO_WORKERS)

    def credentials(self, options: RunOptions, *, encrypted: bool) -> Mapping[str, Secret]:  # noqa: ARG002
        """Return variables of the environment for workers that this process does not start.

        Raises `UsageError` for those that must not go over connections that are not `encrypted`.
        """
        return {}

    def certificates(self, hosts: Mapping[str, Fingerprint]) -> Sequence[StoredCertificate]:  # noqa: ARG002
        """Return what runs of equal treatments had shown of hosts, by name, for the header of the stats file."""
        return ()

    def parts(self, options: RunOptions) -> frozenset[LookMaker]:  # noqa: ARG002
        """Return what `finish` needs of the measured run, so that it is read together with the report's parts."""
        return frozenset()

    def finish(self, options: RunOptions, source: ReportSource) -> ExitCode:  # noqa: ARG002
        """Do the feature's part once the run's stats file is written and reported, whatever the run's end was.

        Returns an exit code that counts beside those of the run; its errors are told, since the run has succeeded.
        """
        return ExitCode.OK


@cache
def run_extensions() -> dict[str, RunExtension]:
    """Return what is registered, by name, in order; what cannot be loaded is left out, and told on stderr."""
    return load_registered(GROUP, RunExtension, "extension of runs")


def settled(options: RunOptions) -> RunOptions:
    """Return the options as every extension wants them."""
    for extension in run_extensions().values():
        options = extension.settle(options)
    return options


def prepare(options: RunOptions) -> None:
    """Let every extension do what comes before all else."""
    for extension in run_extensions().values():
        extension.prepare(options)


def scenario_change(options: RunOptions, origin: Origin | None = None) -> TreeChange:
    """Return what changes a scenario's tree to the options of the command line, so that every check covers them.

    `origin` is the tool whose file it was.
    """

    def change(root: MappingNode, findings: Diagnostics) -> None:
        change_load(options.load, origin, root, findings)
        for extension in run_extensions().values():
            extension.change_tree(options, root, findings)

    return change


def expected_workers(options: RunOptions) -> list[ExpectedWorker]:
    """Return the workers that extensions start if nothing fails."""
    return [one for extension in run_extensions().values() for one in extension.expected_workers(options)]


def started_by_features(options: RunOptions) -> bool:
    """Return whether an extension starts workers."""
    return any(extension.starts_workers(options) for extension in run_extensions().values())


@contextmanager
def started_workers(options: RunOptions, environments: frozenset[str]) -> Iterator[StartedWorkers]:
    """Start the workers of all extensions; yield them together, and stop them afterwards."""
    with ExitStack() as stack:
        started = [stack.enter_context(one.workers(options, environments)) for one in run_extensions().values()]
        yield together(started)


@contextmanager
def watching(options: RunOptions) -> Iterator[list[RunObserver]]:
    """Open what extensions have open during a run; yield who watches it."""
    with ExitStack() as stack:
        opened = [stack.enter_context(one.around(options)) for one in run_extensions().values()]
        yield [observer for observer in opened if observer is not None]
