"""What a host's properties mean for its history (identity, setting or noise), and the history of hosts.

A series breaks where identity or a setting changes: these are the properties whose difference also refuses a word
between two runs (`confounds`). All others are noise here: they are kept with the run, and split no history.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final, Literal, TypeAlias

import msgspec
import sqlalchemy as sa
from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.engine import Connection

from bench_common.errors import UsageError, did_you_mean
from bench_common.safe_text import one_line
from bench_features.archive.schema import FACT, HOST, RUN
from bench_features.archive.trend_types import FactChange
from bench_features.archive.types import ID_CHARS
from bench_master.verdicts.confounds import REFUSED_FACTS, are_alike

FactClass: TypeAlias = Literal["identity", "setting", "noise"]

IDENTITY: Final = frozenset(
    {
        "architecture",
        "cpu_model",
        "cpu_threads",
        "disk",
        "disk_rotational",
        "hypervisor",
        "machine_id",
        "memory",
    }
)
"""What the machine is."""
SETTINGS: Final = REFUSED_FACTS - IDENTITY
"""How it is set up, such as its kernel; an upgrade or an administrator changes it."""


def class_of(name: str) -> FactClass:
    """Return the class of a property."""
    return "identity" if name in IDENTITY else "setting" if name in SETTINGS else "noise"


def split_facts(fingerprint: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties that make up the machine, and those that are noise, as texts."""
    kept: dict[str, str] = {}
    noise: dict[str, str] = {}
    for name in sorted(fingerprint):
        value = fingerprint[name]
        if value is not None:
            (noise if class_of(name) == "noise" else kept)[name] = _text(value)
    return kept, noise


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def fingerprint_hash(facts: Mapping[str, str]) -> str:
    """Return the hash under which equal sets of facts are kept once."""
    return hashlib.sha256(msgspec.json.encode(sorted(facts.items()))).hexdigest()[:32]


def steadied(before: Mapping[str, str], facts: Mapping[str, str]) -> dict[str, str]:
    """Return facts in which numbers that count as equal to those `before` have the same text.

    Kernels reserve some more or less memory at each boot: within two per cent it is the same machine.
    """
    return {name: before[name] if _alike(before.get(name), value) else value for name, value in facts.items()}


def _alike(before: str | None, value: str) -> bool:
    if before is None or before == value or not (before.isdigit() and value.isdigit()):
        return before == value
    return are_alike(int(before), int(value))


# -- hosts of an archive --------------------------------------------------------------------------------------------

_load: Final = msgspec.json.decode
ENGINE: Final = "engine "
"""What stands before an engine's name where its version is shown among the facts of a host."""


class HostState(Struct, frozen=True):
    """A host as it was in successive runs: one state ends where a fact changes."""

    host: str
    """Its name."""
    environment: str | None
    """The environment that it stood for in the last of the runs."""
    first_s: float | None
    """When the first of the runs began (Unix, seconds)."""
    last_s: float | None
    """When the last one began."""
    runs: int
    """How many runs there are."""
    newest: str
    """The id of the last one."""
    facts: Mapping[str, str]
    """What identifies it and how it is set."""
    engines: Mapping[str, str]
    """The versions of its engines."""
    changed: Sequence[FactChange] = ()
    """What differs from the state before."""


class FactPair(Struct, frozen=True):
    """A fact of two hosts."""

    name: str
    kind: FactClass
    """What the fact means."""
    a: str | None
    """Its value on the first host; None where it is unknown."""
    b: str | None
    """Its value on the second one."""

    @property
    def differs(self) -> bool:
        """Whether both are known and not the same."""
        return self.a is not None and self.b is not None and self.a != self.b


def find_hosts(connection: Connection, host: str | None = None) -> list[HostState]:
    """Return each host, or one, as it was in its newest run, with the number of all of its runs, by name."""
    only = [] if host is None else [HOST.c.label == host]
    place = sa.func.row_number().over(
        partition_by=HOST.c.label, order_by=(RUN.c.created.desc().nulls_last(), HOST.c.id.desc())
    )
    rows = (
        sa.select(
            *(HOST.c[name] for name in ("label", "environment", "fp_hash", "engines")),
            RUN.c.sha256,
            RUN.c.created,
            place.label("place"),
            sa.func.count().over(partition_by=HOST.c.label).label("runs"),
            sa.func.min(RUN.c.created).over(partition_by=HOST.c.label).label("first"),
        )
        .join(RUN, RUN.c.id == HOST.c.run)
        .where(*only)
        .subquery()
    )
    newest = connection.execute(sa.select(rows).where(rows.c.place == 1).order_by(rows.c.label)).all()
    facts = _facts(connection, {row.fp_hash for row in newest})
    return [
        HostState(
            host=row.label,
            environment=row.environment,
            first_s=row.first,
            last_s=row.created,
            runs=row.runs,
            newest=row.sha256[:ID_CHARS],
            facts=facts.get(row.fp_hash, {}),
            engines=_engines(row.engines),
        )
        for row in newest
    ]


def host_states(connection: Connection, host: str) -> list[HostState]:
    """Return what a host was over time, the newest state first; raise `UsageError` for one that is in no run."""
    rows = connection.execute(
        sa.select(HOST.c.environment, HOST.c.fp_hash, HOST.c.engines, RUN.c.sha256, RUN.c.created)
        .join(RUN, RUN.c.id == HOST.c.run)
        .where(HOST.c.label == host)
        .order_by(RUN.c.created.nulls_first(), RUN.c.id)
    ).all()
    if not rows:
        known = [name for name in connection.scalars(sa.select(HOST.c.label).distinct()) if name]
        raise UsageError(f"host {one_line(host)}: in no run of the archive{did_you_mean(host, known)}")
    facts = _facts(connection, {row.fp_hash for row in rows})
    found: list[HostState] = []
    for _, same in groupby(rows, key=lambda row: (row.fp_hash, row.engines)):
        group = list(same)
        row = group[-1]
        found = _extended(found, host, row, facts.get(row.fp_hash, {}))
        last = found[-1]
        first_s = group[0].created if last.first_s is None else last.first_s
        found[-1] = replace(
            last,
            environment=row.environment,
            first_s=first_s,
            last_s=row.created,
            runs=last.runs + len(group),
            newest=row.sha256[:ID_CHARS],
        )
    return found[::-1]


def _extended(states: list[HostState], host: str, row: Any, facts: Mapping[str, str]) -> list[HostState]:
    """Return the states with a new one where a known fact has changed; an unknown one says nothing."""
    engines = _engines(row.engines)
    if not states:
        return [HostState(host, row.environment, None, None, 0, "", facts, engines)]
    last = states[-1]
    facts = steadied(last.facts, facts)
    before, after = ({**one, **_named(versions)} for one, versions in ((last.facts, last.engines), (facts, engines)))
    changed = [
        FactChange(name, before[name], after[name])
        for name in sorted(before.keys() & after.keys())
        if before[name] != after[name]
    ]
    if changed:
        return [*states, HostState(host, row.environment, None, None, 0, "", facts, engines, changed)]
    known = replace(last, facts={**last.facts, **facts}, engines={**last.engines, **engines})
    return [*states[:-1], known]


def compare_hosts(a: HostState, b: HostState) -> list[FactPair]:
    """Return every fact of two hosts, versions of engines among them; those that differ come first."""
    first, second = ({**one.facts, **_named(one.engines)} for one in (a, b))
    second = steadied(first, second)
    pairs = [FactPair(name, class_of(name), first.get(name), second.get(name)) for name in {**first, **second}]
    return sorted(pairs, key=lambda pair: (not pair.differs, pair.name))


def _named(engines: Mapping[str, str]) -> dict[str, str]:
    return {f"{ENGINE}{name}": version for name, version in engines.items()}


def _engines(text: str) -> dict[str, str]:
    return {name: str(version) for name, version in _load(text).items() if version}


def _facts(connection: Connection, wanted: set[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for row in connection.execute(sa.select(FACT).where(FACT.c.fp_hash.in_(wanted)).order_by(FACT.c.key)):
        found.setdefault(row.fp_hash, {})[row.key] = row.value
    return found
