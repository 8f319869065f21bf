"""What may explain a difference besides the treatment: properties of hosts, and the design of the run.

The parameters of treatments, which may explain it, too, are in `bench_master.analysis.parameters`.

Only rounds in drawn order on the same hosts make two treatments differ in nothing but themselves and chance. The
same test errs in 16 to 100 % of blocked runs under ordinary drift, and no statistics repairs that afterwards.

Each difference has a name, which ``--accept`` takes, and a consequence: some refuse every word, as nobody can tell
their effect from the treatment's, others are only mentioned.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from bench_common.host_info import (
    DIGEST_DETAIL,
    IMAGE_DETAIL,
    PROGRAM_DETAIL,
    SEVERAL,
    SIDE_DETAIL,
    short_digests,
)
from bench_common.stats.block_types import Header
from bench_master.verdicts.reasons import Code, Reason, because

Effect: TypeAlias = Literal["refusal", "warning"]
Grade: TypeAlias = Literal["A", "B", "C", "D"]
"""`A` allows all words, `B` all with a remark, `C` words about hosts or runs, `D` none."""

SIMILARITY_TOLERANCE: Final = 0.02
"""Relative difference up to which two numbers of bytes or Hz count as equal."""
PER_ENVIRONMENT_FACTS: Final = frozenset({"hypervisor", "container"})
"""Facts in which environments differ by definition: not a confounder between them."""
ABSENT: Final = "unknown"
"""How a value is shown that one side does not have."""

REFUSED_FACTS: Final = frozenset(
    {
        "architecture", "cpu_model", "cpus_allowed", "cpu_threads", "cpu_smt", "cpu_governor", "cpu_turbo",
        "mitigations", "hypervisor", "clocksource", "memory", "kernel", "kernel_hz", "rcu_expedited",
        "rcu_normal", "rcu_nocbs", "cgroup", "filesystem", "disk", "disk_rotational",
    }
)  # fmt: skip
"""Properties of a host that change what is measured on it by more than a margin."""
_WARNED_FACTS: Final = (
    "kernel_build", "kernel_options", "cpu_microcode", "swappiness", "dirty_ratio", "dirty_background_ratio",
    "huge_pages", "timer_slack", "numa_balancing", "libc_version", "python_version",
)  # fmt: skip
"""Properties that mostly change less than a margin; so do all that are in neither list."""
_OWN_FACTS: Final = frozenset({"hostname", "boot_id", "machine_id"})
"""Properties that tell hosts and boots apart, and explain nothing."""
_SKIPPED_PREFIX: Final = "package_"
"""Releases of the harness's own Python packages."""
_RUN_KEYS: Final = ("noop", "host", "machine_id", "speed", "weighbridge")
"""Further names: what whole runs can differ in, and the speed that hosts measured."""
KNOWN_NAMES: Final = (*sorted(REFUSED_FACTS), *_WARNED_FACTS, *_RUN_KEYS)
"""Names of differences that do not depend on the treatments."""


class Difference(Struct, frozen=True):
    """A property in which the two sides differ."""

    name: str
    """As ``--accept`` takes it."""
    a: str
    """Its value on the side of the baseline."""
    b: str
    """Its value on the other side."""
    effect: Effect


def as_data(differences: Iterable[Difference]) -> list[dict[str, Any]]:
    """Return differences as data of a reason."""
    return [{"name": one.name, "values": [one.a, one.b]} for one in differences]


def are_alike(one: Any, other: Any) -> bool:
    """Return whether two values count as equal: large numbers (bytes, Hz) within two per cent."""
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (one, other))
    if numbers and max(abs(one), abs(other)) > 1e6:  # noqa: PLR2004  bytes and Hz, not small counts and settings
        return bool(abs(one - other) <= SIMILARITY_TOLERANCE * max(abs(one), abs(other)))
    return bool(one == other)


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
        found.append(Difference(name, shown(a[name]), shown(b[name]), effect))
    return sorted(found, key=lambda difference: difference.effect != "refusal")


def engine_differences(
    a: Mapping[str, str], b: Mapping[str, str], engines: Collection[str] | None = None
) -> list[Difference]:
    """Return the engines of two hosts whose versions differ, of those that both sides use (`engines`; None: all)."""
    return [
        Difference(f"engine {name}", shown(a[name]), shown(b[name]), "refusal")
        for name in a
        if name in b and a[name] and b[name] and a[name] != b[name] and (engines is None or name in engines)
    ]


def program_differences(
    a: Mapping[str, Mapping[str, str]], b: Mapping[str, Mapping[str, str]], engines: Collection[str] | None = None
) -> list[Difference]:
    """Return in what the engines of two hosts differ that both sides use: program, storage driver, images.

    They refuse. A program that jobs run on the host itself is what is measured, and two builds of it are what people
    compare: that it is another one is only mentioned.
    """
    found = []
    for name in a:
        mine, theirs = a[name], b.get(name, {})
        for fact in mine:
            one, other = mine[fact], theirs.get(fact)
            if not (one and other and one != other and (engines is None or name in engines)):
                continue
            if fact.startswith(DIGEST_DETAIL):
                command = fact.removeprefix(DIGEST_DETAIL)
                what = f"{PROGRAM_DETAIL}{command} of {name}"
                found.append(Difference(what, _build(command, mine), _build(command, theirs), "warning"))
            elif fact in _ENGINE_FACTS or fact.startswith(IMAGE_DETAIL):
                what = f"{_ENGINE_FACTS.get(fact, fact)} of {name}"
                found.append(Difference(what, _short(fact, one), _short(fact, other), "refusal"))
    return found


_ENGINE_FACTS: Final = {"sha256": "program", "storage_driver": "storage driver"}
"""What is compared of an engine beside its version and its images, and how a difference is called."""


_VARIABLE: Final = "variable "
_UNSET: Final = "unset"
_OWN_DIRECTORY: Final = "a directory of its own"
"""Where a plain process begins unless the scenario says it."""


def surrounding_differences(
    a: Mapping[str, str], b: Mapping[str, str], same: Collection[str] = ()
) -> Iterator[Difference]:
    """Yield in what surrounds the jobs of plain processes and of containers, and in which file these run.

    The sides are details of their engines; `same` are variables that both sides are given. A detail that several
    images, or PATHs, have says nothing, and neither does one that a side does not know.
    """
    mine, theirs = _surroundings(a), _surroundings(b)
    if not (mine and theirs):
        return
    for name in dict.fromkeys((*mine, *theirs)):
        absent = _UNSET if name.startswith(_VARIABLE) else _OWN_DIRECTORY if name == "directory" else ""
        one, other = mine.get(name, absent), theirs.get(name, absent)
        is_clear = one and other and not any(SEVERAL in value for value in (one, other))
        if is_clear and one != other and name.removeprefix(_VARIABLE) not in same:
            yield Difference(name, one, other, "warning")
    for fact in a:
        if fact.startswith(DIGEST_DETAIL) and fact in b and a[fact] != b[fact] and SEVERAL not in a[fact] + b[fact]:
            command = fact.removeprefix(DIGEST_DETAIL)
            yield Difference(f"{PROGRAM_DETAIL}{command}", _build(command, a), _build(command, b), "warning")


def _surroundings(facts: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(SIDE_DETAIL): value for name, value in facts.items() if name.startswith(SIDE_DETAIL)}


def _build(command: str, facts: Mapping[str, str]) -> str:
    """Return which file a command is as reports show it: ``/opt/mytool (sha256 0123456789ab)``."""
    place, short = (
        facts.get(f"{PROGRAM_DETAIL}{command}", ""),
        f"sha256 {short_digests(facts[DIGEST_DETAIL + command])}",
    )
    return short if place in ("", command) else f"{place} ({short})"


def _short(fact: str, value: str) -> str:
    return value if fact == "storage_driver" else short_digests(value)


def same_machine(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool | None:
    """Return whether two fingerprints are of one machine; None where they do not say."""
    if a.get("machine_id") and b.get("machine_id"):
        return bool(a["machine_id"] == b["machine_id"])
    return None


def shown(value: Any) -> str:
    """Return a value as reports print it."""
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


class Design(Struct, frozen=True):
    """A grade, and why it is not a better one."""

    grade: Grade
    reasons: Sequence[Reason] = ()

    @property
    def allows_words(self) -> bool:
        """Whether any word may be said."""
        return self.grade != "D"


def grade_run(header: Header, split_rounds: int = 0, *, knows_position_effect: bool = False) -> Design:
    """Return the grade of a run whose treatments ran on the same hosts.

    Of `split_rounds` a part ran before an interruption and a part after it. A position effect is known where a
    treatment that ran twice in each round bounds what a place in a round does.
    """
    order = "imported" if header.imported else header.order
    if header.noop:
        return Design("D", (because(Code.NOOP),))
    if order != "interleaved" and not (order == "as-written" and knows_position_effect):
        kind = order if order in ("as-written", "blocked", "imported") else "unknown"
        return Design("D", (because(Code.NOT_INTERLEAVED, kind=kind),))
    reasons = [because(Code.ORDER_NOT_DRAWN, order=order)] if order == "as-written" else []
    if split_rounds:
        reasons.append(because(Code.SPLIT_ROUNDS, rounds=split_rounds))
    return Design("B" if reasons else "A", tuple(reasons))


def grade_sides(run: Design, hosts_a: Sequence[str], hosts_b: Sequence[str]) -> Design:
    """Return the grade of a comparison whose sides ran on these hosts."""
    if set(hosts_a) == set(hosts_b) or not run.allows_words:
        return run
    fewest = min(len(set(hosts_a)), len(set(hosts_b)))
    kind = "shared" if set(hosts_a) & set(hosts_b) else "few" if fewest < MIN_HOSTS else None
    if kind is None:
        return Design("C", (*run.reasons, because(Code.UNIT, kind="hosts")))
    return Design("D", (*run.reasons, because(Code.DIFFERENT_HOSTS, kind=kind, fewest=fewest, needed=MIN_HOSTS)))
