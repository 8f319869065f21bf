"""What a guest benchmark is: steps to run, typed parameters, metrics, and a parser that is a pure function of text.

A workload is one module that registers a subclass of `Workload` under the entry-point group
``weighbridge.workloads``. It knows its tool and nothing of engines, hosts or sockets: the same steps run inside a
container and as plain processes.
"""

from __future__ import annotations

import abc
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from msgspec import Struct

from bench_common.treatment import Guest, MetricSource, Scalar
from bench_workloads.line_reader import clean_line

Direction = Literal["higher", "lower", ""]
ParameterType = Literal["int", "float", "size", "duration", "bool", "choice", "text"]


class Parameter(Struct, frozen=True):
    """A typed parameter of a workload. Values are in base units: sizes in bytes, durations in seconds."""

    name: str
    """Its key in a scenario's ``params``."""
    type: ParameterType
    """What a scenario may write."""
    default: Scalar
    """The value where the scenario gives none."""
    help: str
    """One line for ``list workloads``."""
    unit: str = ""
    """Unit of the value, for reports."""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    """Allowed values of a ``choice``."""


class Metric(Struct, frozen=True):
    """A number that a run yields."""

    name: str
    """Its name in reports and thresholds."""
    unit: str
    """Its unit, such as ``1/s``."""
    direction: Direction
    """Whether higher or lower is better; empty: neither."""
    help: str
    """One line for ``list workloads``."""


class Step(Struct, frozen=True):
    """One command of a guest job."""

    name: str
    """The operation's name in reports."""
    argv: tuple[str, ...]
    """The command; placeholders such as ``{mariadb.host}`` are filled in by the worker."""
    timed: bool = True
    """False for a step that only prepares or cleans up."""
    parse: bool = True
    """Whether the parser reads this step's output."""
    once: bool = False
    """Run before the first job of a treatment only, to prepare the services; they keep what it prepared."""
    expected_s: float | None = None
    """About how long it takes (s); without it, as long as the job may take."""
    metrics: tuple[MetricSource, ...] = ()
    """What to find in its output in place of what `parse` of the workload returns."""


class Service(Struct, frozen=True):
    """A server that a workload needs next to its own container.

    The steps of the workload reach it at ``{NAME.host}`` and ``{NAME.port}``, and as part of a URL at
    ``{NAME.authority}``; a Unix socket is at ``{NAME.socket}``. The worker fills these in.
    """

    name: str
    """What scenarios and placeholders call it."""
    image: str
    """The image of its container."""
    command: tuple[str, ...]
    """What runs in it; ``LISTEN_HOST``, ``LISTEN_PORT`` and ``LISTEN_SOCKET`` say where to listen."""
    port: int
    """The port in a network of its own; in the host's network it gets a free one."""
    ready: tuple[str, ...]
    """A command that exits with 0 as soon as the server can be used; its output is kept with the job's."""
    binary: str
    """The program that must be on PATH to run it natively."""
    socket: str = ""
    """Absolute path of its Unix socket, for jobs that use one."""
    package: str = ""
    """The package of Debian that has the program, where it is not named like it."""
    ready_s: float = 60.0
    """How long it may take from its start until it is ready (s)."""
    stop_s: float = 30.0
    """How long it may take to stop (s)."""


class Workload(abc.ABC):
    """A guest benchmark: class attributes describe it, methods say how to run its tool and read the output."""

    name: ClassVar[str]
    """Its registered name, as scenarios write it."""
    summary: ClassVar[str]
    """One line for ``list workloads``."""
    image: ClassVar[str]
    """The image that ``build-images`` builds for it."""
    binary: ClassVar[str]
    """The program that must be on PATH to run it natively."""
    package: ClassVar[str] = ""
    """The package of Debian that has the program, where it is not named like it."""
    parameters: ClassVar[tuple[Parameter, ...]]
    """What a scenario may set."""
    metrics: ClassVar[tuple[Metric, ...]]
    primary_metrics: ClassVar[tuple[str, ...]] = ()
    """The metrics that a report's first page shows; empty: the first one.

    Treatments are compared by the first of them that has a direction, unless a scenario says otherwise.
    """
    tool_option_names: ClassVar[Mapping[str, str]] = {}
    """By the tool's own name of an option, now or in old versions: the parameter, which a message names."""
    services: ClassVar[tuple[Service, ...]] = ()
    """The servers that a job needs."""
    programs: ClassVar[Mapping[str, str]] = {}
    """By command name: the file below ``dockerfiles`` that Weighbridge brings, for native runs."""
    run_start_pattern: ClassVar[str | None] = None
    """Regular expression for a run's first line, to find runs in a log of many; without it a text is one run."""
    run_line_pattern: ClassVar[str | None] = None
    """Regular expression for lines that only a run prints: where the parser refuses one, the run is incomplete."""
    install_hint: ClassVar[str] = ""
    """How to get the binary where no package has its name."""
    description: ClassVar[str] = ""
    """What ``list workloads NAME`` says below its tables."""
    caveat: ClassVar[str] = ""
    """What a reader of its numbers must know, in a few words."""

    @abc.abstractmethod
    def steps(self, params: Mapping[str, Scalar]) -> tuple[Step, ...]:
        """Return the commands of one job, in order, for complete `params` (base units)."""

    @abc.abstractmethod
    def parse(self, text: str) -> dict[str, float]:
        """Return metric values by name from what the tool printed.

        Pure: no clock, file or process. Raises `ParseError`, with the offending line, on text that is not a complete,
        successful run of a supported version; `NotARunOutput` where the text is no run of this test at all.
        """

    def for_job(self, job: Guest) -> Workload:
        """Return the workload as `job` configures it, for one whose metrics or services are not always the same."""
        del job
        return self

    def run_starts(self, lines: Sequence[str]) -> list[int]:
        """Return the places of those lines of a log, from 0, that a run can begin with."""
        begins = re.compile(self.run_start_pattern) if self.run_start_pattern else None
        if begins is None:
            return [0] if any(line.strip() for line in lines) else []
        return [at for at, line in enumerate(lines) if begins.match(clean_line(line))]

    def progress(self, text: str) -> str:
        """Return the latest progress in what a step has printed so far, in a few words, or nothing."""
        del text
        return ""

    def progress_interval_s(self, params: Mapping[str, Scalar]) -> float | None:
        """Return the interval of progress lines in seconds; None where a step prints none."""
        return float(str(params.get("report_interval") or 0)) or None

    def expected_seconds(self, params: Mapping[str, Scalar]) -> float | None:
        """Return about how long one job takes on an idle machine, in seconds; None if unknown."""
        del params
        return None

    def usual_seconds(self, params: Mapping[str, Scalar]) -> float | None:
        """Return about how long one job takes on an ordinary machine, in seconds, where its work ends it.

        For the estimate of a plan alone, where `expected_seconds` is unknown; it limits nothing.
        """
        del params
        return None

    def disk_bytes(self, params: Mapping[str, Scalar]) -> int:
        """Return about how much disk the files of one job take, in bytes, its servers' included; images are not."""
        del params
        return 0

    def fixed_measures(self, params: Mapping[str, Scalar]) -> dict[str, str]:
        """Return the figures whose values `params` fix, each with the parameter; ``job`` is the run's duration.

        Such a measure tells no treatments apart.
        """
        del params
        return {}

    def verify(self, params: Mapping[str, Scalar], metrics: Mapping[str, float]) -> None:
        """Raise `ParseError` where `metrics` show that a job with `params` did less than it should."""
        del params, metrics

    def service_files(self, params: Mapping[str, Scalar]) -> dict[str, dict[str, str]]:
        """Return the files that `params` put into each service's container: texts by absolute path."""
        del params
        return {}

    def shares_container(self, params: Mapping[str, Scalar]) -> bool:
        """Return whether jobs with `params` run in the container that the steps ``once`` have prepared.

        Otherwise each job has a new one, and such steps prepare only what outlives theirs: services and volumes.
        """
        del params
        return False

    def uses_sockets(self, params: Mapping[str, Scalar]) -> bool:
        """Return whether jobs with `params` reach their services by Unix sockets, on the same host."""
        del params
        return False

    def stated_params(self, text: str) -> dict[str, Scalar]:
        """Return the parameters that an output states, in base units, and ``version`` where it matters.

        Pure, and total: it accepts any text and leaves out what the text does not state.
        """
        del text
        return {}

    def declared_metrics(self) -> dict[str, dict[str, str | bool]]:
        """Return what a stats file says of each metric: unit, direction (may be empty), and which are ``primary``."""
        primary = self.primary_metrics or tuple(one.name for one in self.metrics[:1])
        return {
            one.name: {"unit": one.unit, "direction": one.direction}
            | ({"primary": True} if one.name in primary else {})
            for one in self.metrics
        }

    def defaults(self) -> dict[str, Scalar]:
        """Return every parameter's default, in base units."""
        return {parameter.name: parameter.default for parameter in self.parameters}
