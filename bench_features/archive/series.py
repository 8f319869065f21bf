"""Series of runs: the same treatment, with the same parameters, on hosts of the same names; and their points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from bench_common.errors import UsageError, did_you_mean
from bench_common.safe_text import one_line
from bench_features.archive.facts import steadied
from bench_features.archive.queries import conditions, superseded
from bench_features.archive.schema import FACT, RUN, TREATMENT, VALUE
from bench_features.archive.types import (
    ID_CHARS,
    METRIC,
    OPERATION,
    PRIMARY,
    STATISTICS,
    RunFilter,
    Series,
    TrendPoint,
)

_load: Final = msgspec.json.decode
_lists: Final = msgspec.json.Decoder(dict[str, list[float | None]]).decode


def counts() -> sa.ColumnElement[bool]:
    """Return whether a run enters trends: it is whole, measured here, and no earlier state of another file."""
    return sa.and_(RUN.c.problem == "", RUN.c.state == "complete", RUN.c.created.is_not(None), ~superseded())


def find_series(connection: Connection, wanted: RunFilter, key: str | None = None) -> list[Series]:
    """Return every series that runs of a filter belong to, by scenario and title; with `key` only that one."""
    only = [] if key is None else [TREATMENT.c.series == key]
    newest_first = [RUN.c.created.desc(), RUN.c.sha256.desc(), TREATMENT.c.id]
    members = (
        sa.select(
            TREATMENT.c.series,
            TREATMENT.c.id,
            sa.func.count().over(partition_by=TREATMENT.c.series).label("runs"),
            sa.func.row_number().over(partition_by=TREATMENT.c.series, order_by=newest_first).label("age"),
        )
        .join(RUN, RUN.c.id == TREATMENT.c.run)
        .where(counts(), *conditions(wanted), *only)
        .subquery()
    )
    query = (
        sa.select(
            members.c.series,
            members.c.runs,
            RUN.c.created.label("newest"),
            TREATMENT.c.title,
            TREATMENT.c.labels,
            RUN.c.scenario,
            RUN.c.place,
            VALUE.c.name,
            VALUE.c.unit,
            VALUE.c.direction,
        )
        .join(TREATMENT, TREATMENT.c.id == members.c.id)
        .join(RUN, RUN.c.id == TREATMENT.c.run)
        .join(VALUE, sa.and_(VALUE.c.treatment == TREATMENT.c.id, VALUE.c.kind == PRIMARY))
        .where(members.c.age == 1)
        .order_by(RUN.c.scenario, TREATMENT.c.title, RUN.c.place)
    )
    return [
        Series(
            key=row.series,
            scenario=str(row.scenario or ""),
            title=row.title,
            labels=_load(row.labels),
            measure=row.name,
            unit=row.unit,
            direction=row.direction,
            hosts=row.place,
            runs=row.runs,
            newest=row.newest,
        )
        for row in connection.execute(query)
    ]


def find_points(
    connection: Connection, series: str, wanted: RunFilter, measure: str | None = None, newest: int | None = None
) -> list[TrendPoint]:
    """Return the points of a series, the oldest first: those of runs of a filter, and the `newest` of them.

    `measure` None is its primary one. Another one is ``OPERATION.STATISTIC``, such as ``start.p95``, or the name of a
    metric. Raises `UsageError` for a measure that no run of the series has.
    """
    kind, name, statistic = _measure(connection, series, measure)
    query = (
        sa.select(
            RUN.c.sha256,
            RUN.c.created,
            RUN.c.machine,
            RUN.c.version,
            TREATMENT.c.engine_version,
            VALUE.c.trials,
        )
        .join(TREATMENT, TREATMENT.c.run == RUN.c.id)
        .join(VALUE, VALUE.c.treatment == TREATMENT.c.id)
        .where(TREATMENT.c.series == series, VALUE.c.kind == kind, VALUE.c.name == name, counts())
        .where(*conditions(wanted))
        .order_by(RUN.c.created.desc(), RUN.c.sha256.desc())
        .limit(newest)
    )
    rows = connection.execute(query).all()[::-1]
    machines = _machines(connection, {row[2] for row in rows})
    found: list[TrendPoint] = []
    steady: dict[tuple[str, int], Mapping[str, str]] = {}
    machine: Mapping[str, str] = {}
    for sha256, created, where, version, engine_version, values in rows:
        trials = tuple(value for value in _lists(values).get(statistic, ()) if value is not None)
        if not trials:
            continue
        key = (where, id(machine))
        if key not in steady:
            steady[key] = steadied(machine, machines[where])
            if steady[key] == machine:
                steady[key] = machine
        machine = steady[key]
        found.append(
            TrendPoint(
                run_id=sha256[:ID_CHARS],
                created=created,
                version=engine_version or version,
                value=_median(trials),
                trials=trials,
                machine=machine,
                complete=True,
            )
        )
    return found


def _median(values: tuple[float, ...]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0


def _machines(connection: Connection, wanted: set[str]) -> dict[str, dict[str, str]]:
    """Return the facts of each combination of hosts; those of several hosts have the host's name before them."""
    pairs: dict[str, list[tuple[str, str]]] = {text: [(name, key) for name, key in _load(text)] for text in wanted}
    fingerprints = {key for hosts in pairs.values() for _, key in hosts}
    facts: dict[str, dict[str, str]] = {}
    for row in connection.execute(sa.select(FACT).where(FACT.c.fp_hash.in_(fingerprints))):
        facts.setdefault(row.fp_hash, {})[row.key] = row.value
    found = {}
    for text, hosts in pairs.items():
        alone = len(hosts) == 1
        found[text] = {
            key if alone else f"{name}: {key}": value
            for name, fingerprint in hosts
            for key, value in facts.get(fingerprint, {}).items()
        }
    return found


def _measure(connection: Connection, series: str, measure: str | None) -> tuple[str, str, str]:
    """Return kind, name and statistic of a measure."""
    last = sa.select(sa.func.max(TREATMENT.c.id)).where(TREATMENT.c.series == series).scalar_subquery()
    rows: list[Any] = list(
        connection.execute(sa.select(VALUE.c.kind, VALUE.c.name).where(VALUE.c.treatment == last)).all()
    )
    if not rows:
        keys = list(connection.scalars(sa.select(TREATMENT.c.series).distinct().limit(100_000)))
        raise UsageError(f"{one_line(series)}: no series of the archive{did_you_mean(series, keys)}")
    known = {row.name: (PRIMARY, row.name, "value") for row in rows if row.kind == PRIMARY}
    if measure is None:
        return next(iter(known.values()), (PRIMARY, "", "value"))
    for row in rows:
        if row.kind == METRIC:
            known.setdefault(row.name, (METRIC, row.name, "mean"))
        elif row.kind == OPERATION:
            for statistic in STATISTICS:
                known.setdefault(f"{row.name}.{statistic}", (OPERATION, row.name, statistic))
    if measure not in known:
        names = ", ".join(map(one_line, sorted(known)[:12]))
        raise UsageError(
            f"measure {one_line(measure)}: not in this series{did_you_mean(measure, known)}; it has {names}"
        )
    return known[measure]
