"""The keys ``repeats``, ``aa``, ``overhead``, ``profiles`` and ``services``.

A profile is a set of overrides under a name, such as a small scale that ends in minutes; `overrides` applies the one
that ``scale`` names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bench_common.argument_types import NAME_PATTERN
from bench_common.errors import did_you_mean
from bench_common.thresholds import has_labels, label_equals
from bench_common.treatment import INTERVAL_S, OWN_COMMAND, OverheadSampling
from bench_common.units import format_duration
from bench_master.scenario.diagnostics import Diagnostics, Located
from bench_master.scenario.model import AGAIN, UntilVerdict
from bench_master.scenario.types import (
    DURATION,
    INVALID,
    WHOLE,
    Boolean,
    Choice,
    CommandShape,
    Field,
    MapOf,
    Quantity,
    Record,
    Rule,
    Shape,
    Text,
)
from bench_master.scenario.yaml_tree import MappingNode, Node, ScalarNode
from bench_master.verdicts.stopping import DEFAULT_MOST_ROUNDS, FEWEST_ROUNDS, MOST_ROUNDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from bench_common.treatment import Scalar, Treatment
    from bench_workloads.base import Workload

# ruff: noqa: D102  the base class documents what each method of a shape or rule does


PRIMARY: Final = "primary"
LABELS: Final = MapOf("labels of a treatment such as {engine: docker}", "^.+$", Text("a label's value"), 1)
MAX_REPEATS: Final = 100_000
MAX_BUDGET_S: Final = 30 * 86_400.0
AT_MOST: Final = Quantity(WHOLE, minimum=FEWEST_ROUNDS, maximum=MOST_ROUNDS)
BUDGET: Final = Quantity(DURATION, exclusive_minimum=0, maximum=MAX_BUDGET_S)


@dataclass(frozen=True)
class RepeatsShape(Shape):
    """A number of trials, or a mapping that says to go on until every comparison is settled (`UntilVerdict`)."""

    @property
    def expected(self) -> str:
        return f"{self._number.expected}, or {{until: verdict, at-most: {DEFAULT_MOST_ROUNDS}}}"

    @property
    def _number(self) -> Quantity:
        return Quantity(WHOLE, minimum=1, maximum=MAX_REPEATS)

    @property
    def _record(self) -> Record:
        return Record(
            "repeats",
            (
                Field(
                    "until", Choice("goal", ("verdict",)), "verdict: until every comparison is settled", None, True
                ),
                Field("at-most", AT_MOST, "rounds at most", DEFAULT_MOST_ROUNDS),
                Field("budget", BUDGET, "how long the run may take: it ends after the round in which this is over"),
            ),
        )

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, MappingNode):
            number = self._number
            return number.read(node, findings) if isinstance(node, ScalarNode) else self.refuse(node, findings)
        known = len(findings.problems)
        read = self._record.read(node, findings)
        if len(findings.problems) > known or any(given.value is INVALID for given in read.values()):
            return INVALID
        return UntilVerdict(
            read["at-most"].value if "at-most" in read else DEFAULT_MOST_ROUNDS,
            read["budget"].value if "budget" in read else None,
        )

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self._number.schema(), self._record.schema()]}

    def label(self, value: Any) -> Scalar:
        return f"until verdict, at most {value.at_most}" if isinstance(value, UntilVerdict) else int(value)


@dataclass(frozen=True)
class AgainShape(Shape):
    """A label's value, or labels, of the treatments that run twice; a value alone is read as ``{"": value}``."""

    @property
    def expected(self) -> str:
        return "the value of a label, such as docker, or labels, such as {engine: docker, job: life}"

    @property
    def _value(self) -> Text:
        return Text("a label's value", unquoted_types=("number", "boolean"))

    @property
    def _labels(self) -> MapOf:
        return MapOf("labels of a treatment", "^.+$", self._value, 1)

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if isinstance(node, ScalarNode):
            value = self._value.read(node, findings)
            return INVALID if value is INVALID else {"": value}
        if not isinstance(node, MappingNode):
            return self.refuse(node, findings)
        read = self._labels.read(node, findings)
        if read is INVALID or any(given.value is INVALID for given in read.values()):
            return INVALID
        return {key: given.value for key, given in read.items()}

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [self._value.schema(), self._labels.schema()]}


def find_again(
    read: Mapping[str, Located[Any]], treatments: Sequence[Treatment], findings: Diagnostics
) -> list[Treatment]:
    """Return the treatments that run twice; report labels that no treatment has."""
    given = read.get("aa")
    if given is None or given.value is INVALID or not treatments:
        return []
    found = [
        treatment
        for treatment in treatments
        if all(
            any(label_equals(label, value) for name, label in treatment.labels.items() if key in ("", name))
            for key, value in given.value.items()
        )
    ]
    if not found:
        wanted = ", ".join(f"{key}={value}" if key else str(value) for key, value in given.value.items())
        labels = [(key, str(value)) for treatment in treatments for key, value in treatment.labels.items()]
        known = dict.fromkeys(value for _, value in labels)
        hint = "".join(did_you_mean(str(value), known) for value in given.value.values())
        keys = ", ".join(dict.fromkeys(key for key, _ in labels))
        findings.add(
            given.place, f"aa: no treatment matches {wanted}{hint or f'; the labels are: {keys}'}", deep=True
        )
    return found


def run_again(treatments: Sequence[Treatment], first_index: int) -> list[Treatment]:
    """Return each treatment a second time, under a hidden label."""
    return [
        msgspec.structs.replace(treatment, index=first_index + place, labels={**treatment.labels, AGAIN: "again"})
        for place, treatment in enumerate(treatments)
    ]


@dataclass(frozen=True)
class OverheadShape(Shape):
    """``true``, ``false`` or a mapping of settings; read as an `OverheadSampling`, or None."""

    engine: Choice

    @property
    def expected(self) -> str:
        return "true, false, or settings such as {interval: 500ms, baseline: {engine: docker}}"

    @property
    def _record(self) -> Record:
        names = "|".join(map(re.escape, self.engine.choices))
        group = Text("a control group such as /system.slice/docker.service", "^/.*$", unquoted_types=())
        return Record(
            "overhead",
            (
                Field(
                    "interval",
                    Quantity(DURATION, minimum=0.1, maximum=60),
                    "how often to read the engines' processes",
                    format_duration(INTERVAL_S),
                ),
                Field("baseline", LABELS, "labels of the treatment that the others are compared with"),
                Field(
                    "cgroups",
                    MapOf("control groups by engine", f"^({names})$", group, 1),
                    "control groups to read instead of the engine's processes, by engine",
                ),
            ),
        )

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if isinstance(node, ScalarNode) and node.plain and node.text in ("true", "false"):
            return OverheadSampling() if Boolean().read(node, findings) else None
        if not isinstance(node, MappingNode):
            return self.refuse(node, findings)
        read = self._record.read(node, findings)
        inner = [given.value for name in ("baseline", "cgroups") if name in read for given in _inner(read[name])]
        if any(given.value is INVALID for given in read.values()) or INVALID in inner:
            return INVALID
        return OverheadSampling(
            interval_s=read["interval"].value if "interval" in read else INTERVAL_S,
            **{
                name: {key: given.value for key, given in read[name].value.items()}
                for name in ("baseline", "cgroups")
                if name in read
            },
        )

    def schema(self) -> dict[str, Any]:
        return {"anyOf": [{"type": "boolean"}, self._record.schema()]}


def check_baseline(
    read: Mapping[str, Located[Any]], treatments: Sequence[Treatment], findings: Diagnostics
) -> OverheadSampling | None:
    """Return the overhead settings; report a baseline that matches no treatment."""
    given = read.get("overhead")
    if given is None or given.value is INVALID or given.value is None:
        return None
    overhead: OverheadSampling = given.value
    problem = unmatched_labels(overhead.baseline, [treatment.labels for treatment in treatments])
    if problem:
        findings.add(given.place, problem, deep=True)
    return overhead


def check_verdict_baseline(
    read: Mapping[str, Located[Any]], treatments: Sequence[Treatment], findings: Diagnostics
) -> Mapping[str, str]:
    """Return the labels of the treatments that others are compared with; report those that match none."""
    given = read.get("baseline")
    if given is None or given.value is INVALID or INVALID in [one.value for one in given.value.values()]:
        return {}
    baseline = {key: one.value for key, one in given.value.items()}
    problem = unmatched_labels(baseline, [treatment.labels for treatment in treatments])
    if problem:
        findings.add(given.place, problem, deep=True)
    return baseline


def unmatched_labels(
    baseline: Mapping[str, str], labels: Sequence[Mapping[str, Any]], what: str = "the baseline"
) -> str:
    """Return why no treatment, of those with these labels, has the labels of `what`; empty if one has."""
    if not labels or any(has_labels(own, baseline.items()) for own in labels):
        return ""
    wanted = f"no treatment matches {what} {', '.join(f'{key}={value}' for key, value in baseline.items())}"
    keys = list(dict.fromkeys(key for own in labels for key in own))
    for key, value in baseline.items():
        if key not in keys:
            return f"{wanted}: unknown label '{key}'{did_you_mean(key, keys)}; the labels are: {', '.join(keys)}"
        if not any(has_labels(own, [(key, value)]) for own in labels):
            known = list(dict.fromkeys(label_text(own[key]) for own in labels if key in own))
            return f"{wanted}{did_you_mean(value, known)}; {key} is one of: {', '.join(known)}"
    return f"{wanted}: none has all of these labels; give fewer of them"


def label_text(value: Any) -> str:
    """Return a label's value as a scenario has it."""
    return (
        {True: "true", False: "false"}[value] if isinstance(value, bool) else "null" if value is None else str(value)
    )


def _inner(given: Any) -> list[Any]:
    return [] if given.value is INVALID else list(given.value.values())


SCALE: Final = "scale"
PROFILES: Final = "profiles"
FULL: Final = "full"
"""The scale of a scenario without a profile."""
PROFILE_PATTERN: Final = "^[A-Za-z][A-Za-z0-9_+-]*$"


class OverridesShape(Shape):
    """The overrides of a profile: values by dotted key, checked when they are applied."""

    @property
    def expected(self) -> str:
        return "a profile: values by dotted key, such as {repeats: 2, jobs.cpu.params.time: 1s}"

    def read(self, node: Node, findings: Diagnostics) -> Any:
        return node if isinstance(node, MappingNode) else self.refuse(node, findings)

    def schema(self) -> dict[str, Any]:
        return {"type": "object"}


_PLACEMENT_FIELD: Final = Field(
    "placement",
    Text("an environment or a worker id", NAME_PATTERN, unquoted_types=("number", "boolean", "null")),
    "the environment or worker that runs it; without it, the host of the job",
)


def services_record(workloads: Iterable[type[Workload]], container: Record) -> Record:
    """Return the record of all services that the workloads declare: a container each, without a command."""
    names = sorted({service.name for workload in workloads for service in workload.services})
    own = Record(
        "service",
        (*(field for field in container.fields if field.name != "command"), _PLACEMENT_FIELD),
        container.rules,
    )
    return Record("services", tuple(Field(name, own, f"the container of {name}") for name in names))


OWN_SERVICE_PATTERN: Final = "^(?!once$)[a-z][a-z0-9-]{0,31}$"
"""Names of a user's own services: they become parts of containers' names."""


@dataclass(frozen=True)
class JobServices(Record):
    """The services of a job: those that workloads declare, and the user's own, which say what serves.

    A name that nobody declares is the user's own if it says any of that; otherwise it is a misspelling.
    """

    own: Record = field(kw_only=True)

    def read(self, node: Node, findings: Diagnostics) -> Any:
        if not isinstance(node, MappingNode):
            return self.refuse(node, findings)
        own = {key: value for key, value in node.values.items() if self._is_own(key, value)}
        others = MappingNode(node.place)
        for key, value in node.values.items():
            if key not in own:
                others.put(key, value, node.key_places[key])
        read = super().read(others, findings)
        for key, value in own.items():
            if not re.fullmatch(OWN_SERVICE_PATTERN, key):
                text = f"{key!r} cannot name a service: use up to 32 small letters, digits and -, with a letter first"
                findings.add(node.key_places[key], text)
            read[key] = Located(self.own.read(value, findings), value.place)
        return read

    def _is_own(self, key: str, value: Node) -> bool:
        known = {field.name for field in self.fields}
        return key not in known and isinstance(value, MappingNode) and bool(SERVING_KEYS & value.values.keys())

    def schema(self) -> dict[str, Any]:
        known = "|".join(re.escape(field.name) for field in self.fields)
        names = {"anyOf": [{"pattern": f"^({known})$"}, {"pattern": OWN_SERVICE_PATTERN}]}
        return {
            **super().schema(),
            "title": "services of a job",
            "additionalProperties": self.own.schema(),
            "propertyNames": names,
        }


SERVING_KEYS: Final = frozenset({"command", "port", "ready"})
"""What a user's own service has to say beside the settings of its container."""


def job_services(declared: Record, container: Record) -> JobServices:
    """Return the record of a job's services: the `declared` ones, and the user's own."""
    own = Record(
        "service of your own",
        (
            *(one for one in container.fields if one.name != "command"),
            _PLACEMENT_FIELD,
            Field("command", CommandShape(), "the command that serves", required=True),
            Field("port", Quantity(WHOLE, minimum=1, maximum=65535), "the TCP port where it listens", required=True),
            Field("ready", CommandShape(), "a command that ends with 0 once it can be used", required=True),
        ),
        container.rules,
        container.misplaced_keys,
    )
    return JobServices(declared.what, declared.fields, declared.rules, declared.misplaced_keys, own=own)


@dataclass(frozen=True)
class ServicesOfWorkload(Rule):
    """A job configures only services of its workload."""

    workloads: Mapping[str, type[Workload]]

    def check(self, node: MappingNode, findings: Diagnostics) -> None:
        name, services = node.values.get("workload"), node.values.get("services")
        if not isinstance(services, MappingNode):
            return
        workload = self.workloads.get(name.text) if isinstance(name, ScalarNode) else None
        if workload is None and name is not None:
            return
        if workload is not None and workload.name == OWN_COMMAND:
            return  # any that is declared, and its own
        known = [service.name for service in workload.services] if workload is not None else []
        owner = f"workload {workload.name}" if workload is not None else "a life-cycle job"
        for key in services.values:
            if key not in known:
                hint = did_you_mean(key, known) or f"; the services are: {', '.join(known) or 'none'}"
                findings.add(services.key_places[key], f"{owner} has no service '{key}'{hint}", deep=True)

    def schema(self) -> dict[str, Any]:
        return {}
