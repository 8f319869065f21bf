"""A loaded scenario: complete, checked, with nothing left to decide but the order of its trials.

A file of another tool is a `TranslatedScenario` before it is loaded; `bench_master.scenario.dialects` finds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from msgspec import Struct, field

from bench_common.argument_types import InvalidValue, duration
from bench_common.options import Heading, Option
from bench_common.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench_common.treatment import OverheadSampling, Treatment
    from bench_master.scenario.yaml_tree import MappingNode, Node

Order = Literal["interleaved", "blocked", "as-written"]

AGAIN: Final = "(aa)"
"""The hidden label of a treatment that runs a second time. No key of a scenario can have this label."""


def is_again(labels: Mapping[str, Any]) -> bool:
    """Return whether a treatment with these labels is another one, running a second time."""
    return AGAIN in labels


def originals(labels: Iterable[Mapping[str, Any]]) -> dict[int, int]:
    """Return the index of each treatment that is another one, running a second time, with that of the other one."""
    places: dict[bool, dict[tuple[tuple[str, str], ...], int]] = {True: {}, False: {}}
    for index, own in enumerate(labels):
        places[is_again(own)][tuple((key, str(value)) for key, value in own.items() if key != AGAIN)] = index
    return {index: places[False][key] for key, index in places[True].items() if key in places[False]}


class UntilVerdict(Struct, frozen=True):
    """Trials until every comparison is settled, in place of a fixed number of them."""

    at_most: int
    """Rounds at most: the last look at the comparisons."""
    budget_s: float | None = None
    """How long the run may take; None for any time."""


class Claim(Struct, frozen=True):
    """What is claimed of two treatments before the first job."""

    treatment: Mapping[str, Any]
    """All labels of the treatment that it is about."""
    against: Mapping[str, Any]
    """All labels of the one that this is compared with."""
    measure: str
    """The measure, as reports call it."""
    says: str
    """What is claimed: ``faster by 10%``."""
    rounds: int
    """It is judged by the first so many rounds."""

    @property
    def compared(self) -> tuple[Any, ...]:
        """What is compared by what; claims about the same comparison share its interval."""
        return (dict(self.treatment), dict(self.against), self.measure)


class Scenario(Struct, frozen=True):
    """What to run, where, how often, in which order."""

    name: str
    description: str
    path: str
    """The file that it was read from."""
    text: str
    """The text of that file."""
    document: Mapping[str, Any]
    """The scenario as plain JSON-able data after every override; it loads to an equal scenario."""
    treatments: tuple[Treatment, ...]
    repeats: tuple[int, ...]
    """Trials of each treatment, by its index; at most so many with `until_verdict`."""
    warmup: tuple[int, ...]
    """Warm-up trials of each treatment, by its index."""
    order: Order
    seed: int | None
    """None: the run draws one."""
    sampling_interval_s: float
    thresholds: tuple[str, ...]
    until_verdict: UntilVerdict | None = None
    """None for a fixed number of trials."""
    settle_s: float = 0.0
    """The pause after each trial, before the next begins."""
    notes: tuple[str, ...] = ()
    primary: tuple[str, ...] = ()
    """The primary measure of each treatment, by its index."""
    baseline: Mapping[str, str] = field(default_factory=dict)
    """Labels of the treatments that others are compared with; empty for the first one."""
    margin: float | None = None
    """Smaller differences count as none, as a share; None for the default."""
    claims: tuple[Claim, ...] = ()
    """What it claims before its first job; the verdicts on all else are exploratory."""
    overhead: OverheadSampling | None = None
    explain: bool = False
    """Whether to trace a few jobs of each treatment after the measured trials."""
    speed_probe: bool = True
    """Whether each host measures its speed before each trial."""
    host_ceiling: bool = False
    """Whether to measure the host ceiling before the treatments."""
    user_count: int | None = None
    """Jobs in flight over all workers together, in another tool's file; None: the treatments' own on each worker."""
    origin: Origin | None = None
    """The file of another tool that it was; None: a scenario file."""
    untranslated: tuple[str, ...] = ()
    """The notes about parts of such a file that were not carried over."""
    profiles: tuple[str, ...] = ()
    """The scales that it offers besides ``full``."""
    scale: str = "full"
    """The scale that it was loaded at."""
    allow_failures: bool = False
    """Whether the run may end with exit code 0 although jobs failed."""
    setting_places: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Where a host setting is given a value: ``FILE:LINE:COLUMN`` by name and value."""
    command_places: Mapping[str, str] = field(default_factory=dict)
    """Where a command of this program is first given: ``FILE:LINE:COLUMN``."""
    published: Mapping[str, Any] | None = None
    """Figures of others, as `bench_master.scenario.published` reads them."""


# -- files of other tools -------------------------------------------------------------------------------------------


class TranslatedScenario(Struct):
    """The file as a scenario's tree, with comments."""

    root: MappingNode
    comments: dict[tuple[int, str], str] = field(default_factory=dict)
    """By the identity of a mapping in `root`, and a key of it."""
    users: int | None = None
    """Jobs in flight over all workers together; None: the scenario's own concurrency, on each worker."""

    def put(self, node: MappingNode, key: str, value: Node, comment: str = "") -> None:
        """Set a key, with a comment on the decision."""
        node.put(key, value, value.place)
        if comment:
            self.comments[id(node), key] = comment


def _driver_names(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, (part.strip() for part in text.split(","))))
    if not names:
        raise InvalidValue(f"{text!r}: expected names of drivers, such as Docker,CRun")
    return names


def _stop_grace(text: str) -> str:
    return format_duration(duration(text))


class DefinitionFlags(Struct, frozen=True):
    """How the command line asks for another tool's file to be read; the first four are of bucketbench's."""

    legacy: Annotated[
        bool, Option("--legacy", "run each driver with 1, 2, ... threads up to its maximum, not only all")
    ] = False
    overhead: bool = False
    """Sample the engines' own processes, as bucketbench's ``-o`` does."""
    drivers: Annotated[
        tuple[str, ...],
        Option(
            "--drivers A,B",
            "run only these drivers, by type; the second one of a type is called Docker-2",
            action="store",
            type=_driver_names,
        ),
    ] = ()
    grace: Annotated[
        str | None,
        Option(
            "--stop-grace TIME",
            "how long `stop` waits before it kills, under every driver; 0 is SIGKILL alone (default: what "
            "bucketbench does under each: 30s for Docker, 10s for DockerCLI, 0 for the others)",
            type=_stop_grace,
        ),
    ] = None
    user_count: int | None = None
    """Jobs in flight by ``-u``: the file then needs no number of users."""
    operation_count: int | None = None
    """Jobs by ``-o``: the file then needs no size."""
    run_seconds: float | None = None
    """A length by ``-r``, likewise."""


Definition: TypeAlias = Annotated[DefinitionFlags, Heading("bucketbench definitions")]


class Origin(Struct, frozen=True):
    """What a translated file was."""

    tool: str
    """The name of the tool."""
    article: str
    noun: str
    """What the tool calls its file."""
    marks: str
    """By which keys one tells it, for people."""
    takes_flags: bool = False
    """Whether `DefinitionFlags` apply to it."""
    length_wins: bool = False
    """Whether a length by ``-r`` takes precedence over a number of jobs by ``-o``."""
    if_refused: str = ""
    """What to try if no worker can run it; empty for nothing of its own."""

    @property
    def plural(self) -> str:
        """Several of its files, as ``ssbench scenarios``."""
        return f"{self.tool} {self.noun}s"
