"""What may explain a difference besides the treatment: parameters, properties of hosts, and the design of the run.

Only rounds in drawn order on the same hosts make two treatments differ in nothing but themselves and chance. The
same test errs in 16 to 100 % of blocked runs under ordinary drift, and no statistics repairs that afterwards.

Each difference has a name, which ``--accept`` takes, and a consequence: some refuse every word, as nobody can tell
their effect from the treatment's, others are only mentioned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

Effect: TypeAlias = Literal["refusal", "warning"]
Grade: TypeAlias = Literal["A", "B", "C", "D"]
"""`A` allows all words, `B` all with a remark, `C` words about hosts or runs, `D` none."""

SIMILARITY_TOLERANCE: Final = 0.02
"""Relative difference up to which two numbers of bytes or Hz count as equal."""
PER_ENVIRONMENT_FACTS: Final = frozenset({"hypervisor", "container"})
"""Facts in which environments differ by definition: not a confounder between them."""
ABSENT: Final = "unknown"
"""How a value is shown that one side does not have."""

_PARAMETERS: Final = (
    "workload",
    "operations",
    "concurrency",
    "iterations",
    "operation_count",
    "run_seconds",
    "rate",
    "arrivals",
    "queue_timeout",
    "swap",
    "until",
    "placement",
)
"""Parameters of a treatment that refuse; those of its workload and container follow as ``params.NAME`` and so on."""
REFUSED_FACTS: Final = frozenset(
    {
        "architecture",
        "cpu_model",
        "cpus_allowed",
        "cpu_threads",
        "cpu_smt",
        "cpu_governor",
        "cpu_turbo",
        "mitigations",
        "hypervisor",
        "clocksource",
        "memory",
        "kernel",
        "filesystem",
        "disk",
        "disk_rotational",
    }
)
"""Properties of a host that change what is measured on it by more than a margin."""
_WARNED_FACTS: Final = (
    "kernel_build",
    "cpu_microcode",
    "swappiness",
    "dirty_ratio",
    "dirty_background_ratio",
    "huge_pages",
    "timer_slack",
    "numa_balancing",
    "libc_version",
    "python_version",
)
"""Properties that mostly change less than a margin; so do all that are in neither list."""
_OWN_FACTS: Final = frozenset({"hostname", "boot_id", "machine_id"})
"""Properties that tell hosts and boots apart, and explain nothing."""
_SKIPPED_PREFIX: Final = "package_"
"""Releases of the harness's own Python packages."""
_RUN_KEYS: Final = ("noop", "host", "machine_id", "speed", "weighbridge")
"""Further names: what whole runs can differ in, and the speed that hosts measured."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A property in which the two sides differ."""

    name: str
    """As ``--accept`` takes it."""
    a: str
    """Its value on the side of the baseline."""
    b: str
    """Its value on the other side."""
    effect: Effect


def are_alike(one: Any, other: Any) -> bool:
    """Return whether two values count as equal: large numbers (bytes, Hz) within two per cent."""
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (one, other))
    if numbers and max(abs(one), abs(other)) > 1e6:  # noqa: PLR2004  bytes and Hz, not small counts and settings
        return bool(abs(one - other) <= SIMILARITY_TOLERANCE * max(abs(one), abs(other)))
    return bool(one == other)


# -- parameters -----------------------------------------------------------------------------------------------------


def parameters(treatment: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a treatment of a header by name, without those that are the default."""
    job, load = treatment.get("job") or {}, treatment.get("open_load") or {}
    found: dict[str, Any] = {
        "workload": job.get("workload"),
        "operations": _operations(job),
        "rate": load.get("rate_per_s"),
        "arrivals": load.get("process"),
        "queue_timeout": load.get("queue_timeout_s"),
    }
    for name in _PARAMETERS:
        if name in treatment:
            found[name] = treatment[name]
    for prefix, values in (("params", job.get("params")), ("container", treatment.get("container"))):
        for name, value in (values or {}).items():
            found[f"{prefix}.{name}"] = value
    if job.get("kind") == "objects":
        found |= _of_objects(job)
    for service, settings in (treatment.get("services") or {}).items():
        for name, value in settings.items():
            found[f"services.{service}.{name}"] = value
    for name, metric in (treatment.get("metrics") or {}).items():
        if isinstance(metric, Mapping):
            found[f"unit of {name}"] = metric.get("unit")
    return {name: value for name, value in found.items() if value not in (None, {}, [], ())}


_WHICH_STORE: Final = frozenset({"kind", "classes", "profile", "endpoints"})
"""Of a job on objects, what says which store it is: two stores may be compared."""


def _of_objects(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a job on objects, those of each size class by its name."""
    found = {f"objects.{name}": value for name, value in job.items() if name not in _WHICH_STORE}
    for one in job.get("classes") or ():
        found |= {f"objects.{one.get('name')}.{name}": value for name, value in one.items() if name != "name"}
    return found


def _operations(job: Mapping[str, Any]) -> list[Any] | None:
    listed = job.get("operations")
    if not listed:
        return None
    fields = ("kind", "name", "argv", "seconds", "signal", "timed", "fresh")
    return [{name: one[name] for name in fields if name in one} for one in listed]


def parameter_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Return the parameters in which two treatments of headers differ, without those that their labels name.

    A label that is compared, such as ``concurrency`` or a name for several settings, is the treatment itself.
    """
    first, second = a.get("labels") or {}, b.get("labels") or {}
    factors = {name for name in {*first, *second} if first.get(name) != second.get(name)} - {"environment"}
    if factors - {"engine"}:
        # Treatments of one job differ in their labels' settings alone; other jobs are other measurements by intent.
        return []
    mine, theirs = parameters(a), parameters(b)
    return [
        Difference(name, _shown(mine.get(name)), _shown(theirs.get(name)), "refusal")
        for name in dict.fromkeys((*mine, *theirs))
        if not are_alike(mine.get(name), theirs.get(name))
    ]


# -- hosts ----------------------------------------------------------------------------------------------------------


def host_differences(
    a: Mapping[str, Any], b: Mapping[str, Any], *, between_environments: bool = False
) -> list[Difference]:
    """Return the properties in which two hosts' fingerprints differ, those that refuse first.

    `between_environments` says that environments are compared, which differ in the hypervisor by definition.
    """
    found = []
    for name in dict.fromkeys((*a, *b)):
        if name in _OWN_FACTS or name.startswith(_SKIPPED_PREFIX):
            continue
        if between_environments and name in PER_ENVIRONMENT_FACTS:
            continue
        if name not in a or name not in b or are_alike(a[name], b[name]):
            continue  # a property that one host does not show says nothing
        effect: Effect = "refusal" if name in REFUSED_FACTS else "warning"
        found.append(Difference(name, _shown(a[name]), _shown(b[name]), effect))
    return sorted(found, key=lambda difference: difference.effect != "refusal")


def engine_differences(
    a: Mapping[str, str], b: Mapping[str, str], engines: Collection[str] | None = None
) -> list[Difference]:
    """Return the engines of two hosts whose versions differ, of those that both sides use (`engines`; None: all)."""
    return [
        Difference(f"engine {name}", _shown(a[name]), _shown(b[name]), "refusal")
        for name in a
        if name in b and a[name] and b[name] and a[name] != b[name] and (engines is None or name in engines)
    ]


def same_machine(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool | None:
    """Return whether two fingerprints are of one machine; None where they do not say."""
    if a.get("machine_id") and b.get("machine_id"):
        return bool(a["machine_id"] == b["machine_id"])
    return None


def known_keys(treatments: Collection[Mapping[str, Any]], fingerprints: Collection[Mapping[str, Any]]) -> list[str]:
    """Return every name that ``--accept`` takes for these treatments and hosts."""

    def names() -> Iterator[str]:
        yield from _PARAMETERS
        yield from sorted(REFUSED_FACTS)
        yield from _WARNED_FACTS
        yield from _RUN_KEYS
        for treatment in treatments:
            yield from parameters(treatment)
            yield f"engine {treatment.get('engine')}"
        for fingerprint in fingerprints:
            yield from fingerprint

    return list(dict.fromkeys(names()))


def _shown(value: Any) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return " ".join(str(one.get("name", one)) if isinstance(one, Mapping) else str(one) for one in value)
    return str(value)


# -- what the design allows -----------------------------------------------------------------------------------------


MIN_HOSTS: Final = 4
"""Fewest hosts on each side for a word about hosts: 4 against 4 can be divided in 70 ways, 3 against 3 in 20."""


@dataclass(frozen=True, slots=True)
class RunDesign:
    """How a run was done, as far as it matters for the words."""

    order: str | None
    """``interleaved``, ``as-written`` or ``blocked``; None if nobody knows."""
    imported: bool = False
    """Whether the results were measured elsewhere."""
    noop: bool = False
    """Whether the jobs executed nothing."""
    split_rounds: int = 0
    """Rounds of which a part ran before an interruption and a part after it."""


@dataclass(frozen=True, slots=True)
class Design:
    """A grade, and why it is not a better one."""

    grade: Grade
    reasons: Sequence[str] = ()

    @property
    def allows_words(self) -> bool:
        """Whether any word may be said."""
        return self.grade != "D"


def grade_run(run: RunDesign) -> Design:
    """Return the grade of a run whose treatments ran on the same hosts."""
    if run.imported:
        return Design("D", ("the results were measured elsewhere, one treatment after the other",))
    if run.noop:
        return Design("D", ("a no-op run measures the harness",))
    if run.order == "blocked":
        return Design("D", ("not interleaved (order: blocked)",))
    if run.order not in ("interleaved", "as-written"):
        return Design("D", ("nobody knows the order of the trials",))
    reasons = []
    if run.order == "as-written":
        reasons.append("the order of the trials was not drawn (order: as-written)")
    if run.split_rounds:
        rounds = "round was" if run.split_rounds == 1 else "rounds were"
        reasons.append(f"{run.split_rounds} {rounds} split by an interruption and left out")
    return Design("B" if reasons else "A", tuple(reasons))


def grade_sides(run: Design, hosts_a: Sequence[str], hosts_b: Sequence[str]) -> Design:
    """Return the grade of a comparison whose sides ran on these hosts."""
    if set(hosts_a) == set(hosts_b) or not run.allows_words:
        return run
    fewest = min(len(set(hosts_a)), len(set(hosts_b)))
    if set(hosts_a) & set(hosts_b):
        return Design("D", (*run.reasons, "the sides share some of their hosts and not others"))
    if fewest < MIN_HOSTS:
        each = (
            "one host each" if len(set(hosts_a)) == len(set(hosts_b)) == 1 else f"only {fewest} of them on one side"
        )
        text = f"the sides ran on different hosts ({each}); at least {MIN_HOSTS} on each side can be compared"
        return Design("D", (*run.reasons, text))
    return Design("C", (*run.reasons, "the sides ran on different hosts: the words are about hosts"))
