"""What a guest benchmark is: steps to run, typed parameters, metrics, and a parser that is a pure function of text.

A workload is one module that registers a subclass of `Workload` under the entry-point group
``weighbridge.workloads``. It knows its tool and nothing of engines, hosts or sockets: the same steps run inside a
container and as plain processes.
"""

from __future__ import annotations

import abc
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_common.treatment import Scalar

Direction = Literal["higher", "lower"]
ParameterType = Literal["int", "float", "size", "duration", "bool", "choice", "text"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A typed parameter: sizes are bytes, durations seconds, once loaded.

    `minimum` and `maximum` are inclusive, in base units; `choices` is for ``choice``. `default` is in base units.
    """

    name: str
    type: ParameterType
    default: Scalar
    help: str
    unit: str = ""
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Metric:
    """A named number: its unit, and whether higher or lower is better."""

    name: str
    unit: str
    direction: Direction
    help: str


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a guest job. An untimed step prepares or tidies; `parse` says whose output the parser reads.

    A step that is done `once` prepares the services of the workload: in a container like the job's own, before the
    first job of a treatment. The services are then stopped after a job and started again for the next, and keep what
    was prepared. `expected_s` is about how long it takes (s); without it, as long as the job may.
    """

    name: str
    argv: tuple[str, ...]
    timed: bool = True
    parse: bool = True
    once: bool = False
    expected_s: float | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """A server that a workload needs beside its own container, on the same host.

    `image` and `command` are what runs; it is told where to listen by the variables ``LISTEN_HOST`` and
    ``LISTEN_PORT``, the latter being `port` where it has a network of its own and a free one where it shares the
    host's. It can be used once `ready`, run beside it, exits with 0, which must come about within `ready_s` (s) of
    its start; what that prints is kept with the job's output. `stop_s` is how long it may take to end. `binary` is
    what must be on PATH to run it natively.

    The steps of the workload find it at ``{NAME.host}`` and ``{NAME.port}``, and both as a URL has them at
    ``{NAME.authority}``: the worker fills these in. Where the
    workload says that it `uses_sockets`, the variable ``LISTEN_SOCKET`` is `socket`, the absolute path of a Unix
    socket in a directory of its own, and the steps find that at ``{NAME.socket}``.
    """

    name: str
    image: str
    command: tuple[str, ...]
    port: int
    ready: tuple[str, ...]
    binary: str
    socket: str = ""
    ready_s: float = 60.0
    stop_s: float = 30.0


class Workload(abc.ABC):
    """A guest benchmark.

    Class attributes describe it: `name` (registered and written in scenarios), `summary` (one line), `image` (the
    image that `build-images` makes for it), `binary` (what must be on PATH to run it natively), `parameters`,
    `metrics`. `services` are the servers that a job needs beside it. `programs` are those commands of its images that
    Weighbridge brings itself: by name, the file below ``dockerfiles`` that is run natively. `tool_names` gives the
    parameter for what the tool itself calls it, today or in old versions, and `tool_test` is what the tool's own
    ``--test`` calls the workload, if it has one: scenarios that use these are understood, with a note that says the
    name here. `run_begins` is a regular expression for the first line of a run's output, by which runs are found in a
    log of many; without it a text is one run. `run_line` is one for lines that only a run prints: where the parser
    refuses one of them, what stands before it is no whole run. `tool_dropped` gives for an option that means nothing
    any more the one value with which it may be left out, and why. `tool_meanings` gives for an option of old versions
    what each of its values is of the parameter ``test`` here, or nothing; those of later options go before those of
    earlier ones, and under the name ``test`` is what it is without any of them. `provided_by` says how to come by the
    binary where it is no package of that name. `caveat` is what a reader of its numbers must know, in a few words.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    image: ClassVar[str]
    binary: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]]
    metrics: ClassVar[tuple[Metric, ...]]
    tool_option_names: ClassVar[Mapping[str, str]] = {}
    services: ClassVar[tuple[Service, ...]] = ()
    programs: ClassVar[Mapping[str, str]] = {}
    tool_test_name: ClassVar[str | None] = None
    obsolete_options: ClassVar[Mapping[str, tuple[str, str]]] = {}
    legacy_option_values: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    run_start_pattern: ClassVar[str | None] = None
    run_line_pattern: ClassVar[str | None] = None
    install_hint: ClassVar[str] = ""
    caveat: ClassVar[str] = ""

    @abc.abstractmethod
    def steps(self, params: Mapping[str, Scalar]) -> tuple[Step, ...]:
        """Return the commands of one job, in order, for complete `params` (base units)."""

    @abc.abstractmethod
    def parse(self, text: str) -> dict[str, float]:
        """Return metric values by name from what the tool printed.

        Pure: no clock, file or process. Raises `ParseError`, with the offending line, on text that is not a complete,
        successful run of a version that the parser knows: `NotARunOutput` where nothing of this test was to run.
        """

    def run_starts(self, lines: Sequence[str]) -> list[int]:
        """Return the places of those lines of a log, from 0, that a run can begin with."""
        begins = re.compile(self.run_start_pattern) if self.run_start_pattern else None
        if begins is None:
            return [0] if any(line.strip() for line in lines) else []
        # A terminal's echo of a control character may stand in front of the first line.
        return [at for at, line in enumerate(lines) if begins.match(line.strip(" \t\r\0\ufeff").removeprefix("^@"))]

    def progress(self, text: str) -> str:
        """Return in a few words how a step gets on that has printed `text` so far; nothing where it does not say."""
        del text
        return ""

    def progress_interval_s(self, params: Mapping[str, Scalar]) -> float | None:
        """Return how often a step says how it gets on, in seconds; None where it does not."""
        return float(str(params.get("report_interval") or 0)) or None

    def expected_seconds(self, params: Mapping[str, Scalar]) -> float | None:
        """Return about how long one job takes on an idle machine, in seconds; None where nobody can know."""
        del params
        return None

    def verify(self, params: Mapping[str, Scalar], metrics: Mapping[str, float]) -> None:
        """Raise `ParseError` where `metrics`, which a job with `params` gave, show less than it was to do."""
        del params, metrics

    def service_files(self, params: Mapping[str, Scalar]) -> dict[str, dict[str, str]]:
        """Return the files that `params` put into each service's container: texts by absolute path."""
        del params
        return {}

    def uses_sockets(self, params: Mapping[str, Scalar]) -> bool:
        """Say whether jobs with `params` reach their services by Unix sockets; these are then on the same host."""
        del params
        return False

    def stated_params(self, text: str) -> dict[str, Scalar]:
        """Return what an output says of how it was run: parameters in base units, and ``version`` where it matters.

        Pure, as `parse` is, and of any text: what is not said is left out.
        """
        del text
        return {}

    def defaults(self) -> dict[str, Scalar]:
        """Return every parameter's default, in base units."""
        return {parameter.name: parameter.default for parameter in self.parameters}
