"""What is asked of the index: runs that meet a filter, one run with all that is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from bench_common.errors import UsageError, closest_match
from bench_common.safe_text import one_line
from bench_features.archive.contents import TreatmentContents, TrialContents, ValueContents
from bench_features.archive.schema import ANNOTATION, FACT, HOST, QUANTILE, RUN, SUMMARY, TAG, TREATMENT, TRIAL, VALUE
from bench_features.archive.types import (
    ID_CHARS,
    PRIMARY,
    Annotation,
    HostRow,
    RunFilter,
    RunRow,
)

MIN_PREFIX: Final = 4
"""The shortest beginning of an id that is taken for one."""
_MOST_SHOWN: Final = 5
_load: Final = msgspec.json.decode

_LATER: Final = RUN.alias("later")


def superseded() -> sa.ColumnElement[bool]:
    """Return whether a run is in the index as a later state of its file, too: whole ones first, then by size."""
    whole, later_whole = RUN.c.state == "complete", _LATER.c.state == "complete"
    return sa.exists().where(
        _LATER.c.run_id == RUN.c.run_id,
        _LATER.c.sha256 != RUN.c.sha256,
        sa.or_(
            sa.and_(later_whole, ~whole),
            sa.and_(
                later_whole == whole,
                sa.or_(
                    _LATER.c.bytes > RUN.c.bytes,
                    sa.and_(_LATER.c.bytes == RUN.c.bytes, _LATER.c.sha256 > RUN.c.sha256),
                ),
            ),
        ),
    )


def conditions(wanted: RunFilter) -> list[sa.ColumnElement[bool]]:
    """Return a filter as conditions on runs."""
    found: list[sa.ColumnElement[bool]] = []
    if wanted.scenario is not None:
        found.append(RUN.c.scenario == wanted.scenario)
    if wanted.host is not None:
        found.append(RUN.c.id.in_(sa.select(HOST.c.run).where(HOST.c.label == wanted.host)))
    if wanted.since_s is not None:
        found.append(RUN.c.created >= wanted.since_s)
    if wanted.until_s is not None:
        found.append(RUN.c.created < wanted.until_s)
    if wanted.sha256 is not None:
        found.append(RUN.c.sha256 == wanted.sha256)
    if wanted.tag is not None:
        found.append(RUN.c.sha256.in_(sa.select(TAG.c.run).where(TAG.c.tag == wanted.tag)))
    return found


def find_runs(connection: Connection, wanted: RunFilter) -> list[RunRow]:
    """Return the runs that meet a filter, the newest first."""
    query = (
        sa.select(*(RUN.c[name] for name in _SHOWN), superseded().label("superseded"))
        .where(*conditions(wanted))
        .order_by(RUN.c.created.desc().nulls_last(), RUN.c.id.desc())
        .limit(wanted.limit)
    )
    rows = connection.execute(query).all()
    only = [row[0] for row in rows] if wanted.limit is not None else None
    tags, names = _tags(connection, only), run_names(connection, only)
    hosts = {text: tuple(_load(text)) for text in {row[-3] for row in rows}}
    values = _values(connection, wanted, only)
    return [_run_row(row, hosts, tags, names, values) for row in rows]


def count_runs(connection: Connection, wanted: RunFilter) -> int:
    """Return how many runs meet a filter, whatever its limit."""
    return int(connection.scalar(sa.select(sa.func.count()).select_from(RUN).where(*conditions(wanted))) or 0)


MAX_NAME_CHARS: Final = 1000
"""The longest name that a filter may ask for."""
_SHOWN_CHARS: Final = 40


def check_filter(connection: Connection, wanted: RunFilter) -> None:
    """Raise `UsageError` for a scenario, host or tag that no run has, with the nearest that one has."""
    for what, value, column in (
        ("--scenario", wanted.scenario, RUN.c.scenario),
        ("--host", wanted.host, HOST.c.label),
        ("--tag", wanted.tag, TAG.c.tag),
    ):
        if value is not None and len(value) > MAX_NAME_CHARS:
            raise UsageError(
                f"{what} {one_line(value[:_SHOWN_CHARS])}...: a name of {len(value):,} characters; "
                f"at most {MAX_NAME_CHARS:,} expected"
            )
        if value is None or connection.scalar(sa.select(sa.literal(1)).where(column == value).limit(1)):
            continue
        known = [text for text in connection.scalars(sa.select(column).distinct()) if text]
        near = closest_match(value, known)
        hint = f"; did you mean {one_line(near)!r}?" if near else f"; known: {_few(sorted(known))}" if known else ""
        raise UsageError(f"{what} {one_line(value)}: no run in the archive has it{hint}")


def _few(words: Sequence[str]) -> str:
    more = f" and {len(words) - _MOST_SHOWN} more" if len(words) > _MOST_SHOWN else ""
    return ", ".join(map(one_line, words[:_MOST_SHOWN])) + more


def _values(
    connection: Connection, wanted: RunFilter, only: Sequence[str] | None
) -> dict[str, tuple[str, str, float | None]]:
    """Return name, unit and level of the primary measure of each run that has a single treatment."""
    query = (
        sa.select(RUN.c.sha256, VALUE.c.name, VALUE.c.unit, VALUE.c.level)
        .join(TREATMENT, TREATMENT.c.run == RUN.c.id)
        .join(VALUE, VALUE.c.treatment == TREATMENT.c.id)
        .where(RUN.c.treatments == 1, VALUE.c.kind == PRIMARY)
    )
    query = query.where(*conditions(wanted)) if only is None else query.where(RUN.c.sha256.in_(only))
    return {sha256: (name, unit, level) for sha256, name, unit, level in connection.execute(query)}


def _tags(connection: Connection, only: Sequence[str] | None) -> dict[str, list[str]]:
    query = sa.select(TAG).order_by(TAG.c.tag)
    if only is not None:
        query = query.where(TAG.c.run.in_(only))
    found: dict[str, list[str]] = {}
    for row in connection.execute(query):
        found.setdefault(row.run, []).append(row.tag)
    return found


def run_names(connection: Connection, only: Iterable[str] | None = None) -> dict[str, str]:
    """Return the names that people gave, by run; the last one counts, and an empty one removes it."""
    query = sa.select(ANNOTATION.c.run, ANNOTATION.c.value).where(ANNOTATION.c.key == "name")
    if only is not None:
        query = query.where(ANNOTATION.c.run.in_(list(only)))
    found = {row.run: row.value for row in connection.execute(query.order_by(ANNOTATION.c.id))}
    return {run: name for run, name in found.items() if name}


_SHOWN: Final = (
    *("sha256", "run_id", "created", "duration_s", "state", "problem", "scenario", "noop", "imported", "version"),
    *("treatments", "done", "failed", "bytes", "hosts", "pruned_at"),
)
"""What a list needs of a run, in this order: to ask rows by name would take longer than the database does."""


def _run_row(
    row: Any,
    hosts: Mapping[str, tuple[str, ...]],
    tags: Mapping[str, list[str]],
    names: Mapping[str, str],
    values: Mapping[str, tuple[str, str, float | None]],
) -> RunRow:
    sha256, run_id, created, duration_s, state, problem, scenario, noop, imported, version, *more = row
    treatments, done, failed, size, where, pruned_at, is_superseded = more
    measure, unit, value = values.get(sha256, ("", "", None))
    return RunRow(
        id=sha256[:ID_CHARS],
        sha256=sha256,
        run_id=run_id,
        created=created,
        duration_s=duration_s,
        state=state,
        problem=problem,
        scenario=scenario,
        noop=noop,
        imported=imported,
        version=version,
        hosts=hosts[where],
        treatments=treatments,
        done=done,
        failed=failed,
        bytes=size,
        pruned=pruned_at is not None,
        superseded=bool(is_superseded),
        name=names.get(sha256),
        tags=tuple(tags.get(sha256, ())),
        measure=measure,
        unit=unit,
        value=value,
    )


def find_hash(connection: Connection, word: str) -> str:
    """Return the hash of the run that a word names: a unique beginning of its id or of its run id, or its name.

    Raises `UsageError` with the nearest names where it is none, or several.
    """
    named = [run for run, name in run_names(connection).items() if name == word]
    if len(named) == 1:
        return named[0]
    prefix = word.lower()
    found: list[str] = []
    if len(prefix) >= MIN_PREFIX:
        starts = [
            column.startswith(prefix if column is RUN.c.sha256 else word, autoescape=True)
            for column in (RUN.c.sha256, RUN.c.run_id)
        ]
        query = sa.select(RUN.c.sha256, RUN.c.run_id).where(sa.or_(*starts)).order_by(RUN.c.bytes.desc())
        rows = connection.execute(query.limit(2 * ID_CHARS)).all()
        # Files of one run, which was resumed, are one run: the last one.
        runs = {row.run_id or row.sha256: row.sha256 for row in reversed(rows) if row.sha256.startswith(prefix)}
        runs = runs or {row.run_id or row.sha256: row.sha256 for row in reversed(rows)}
        exact = [row.sha256 for row in rows if row.sha256 == prefix]
        found = exact or list(runs.values())
    if len(found) == 1:
        return found[0]
    if found or named:
        several = ", ".join(sha256[:ID_CHARS] for sha256 in (found or named)[:_MOST_SHOWN])
        raise UsageError(f"{one_line(word)}: names several runs: {several}; give more of the id")
    raise UsageError(f"{one_line(word)}: no run of the archive{_nearest(connection, word)}")


def _nearest(connection: Connection, word: str) -> str:
    if len(word) < MIN_PREFIX:
        return f" (an id has {MIN_PREFIX} characters or more)"
    ids = [sha256[:ID_CHARS] for sha256 in connection.scalars(sa.select(RUN.c.sha256).limit(100_000))]
    known = [*run_names(connection).values(), *ids]
    near = closest_match(word if len(word) <= ID_CHARS else word[:ID_CHARS], known)
    return f" (did you mean '{one_line(near)}'?)" if near else "; bench-master archive list shows all"


def hosts_of(connection: Connection, run: int) -> tuple[HostRow, ...]:
    """Return the hosts of a run."""
    rows = connection.execute(sa.select(HOST).where(HOST.c.run == run).order_by(HOST.c.id)).all()
    facts: dict[str, dict[str, str]] = {}
    query = sa.select(FACT).where(FACT.c.fp_hash.in_([row.fp_hash for row in rows])).order_by(FACT.c.key)
    for fact in connection.execute(query):
        facts.setdefault(fact.fp_hash, {})[fact.key] = fact.value
    return tuple(
        HostRow(row.label, row.environment, facts.get(row.fp_hash, {}), _load(row.noise), _load(row.engines))
        for row in rows
    )


def treatments_of(connection: Connection, run: int) -> tuple[TreatmentContents, ...]:
    """Return the treatments of a run with their trials and values, in order."""
    rows = connection.execute(
        sa.select(TREATMENT, SUMMARY.c.document)
        .join(SUMMARY, SUMMARY.c.treatment == TREATMENT.c.id, isouter=True)
        .where(TREATMENT.c.run == run)
        .order_by(TREATMENT.c.position)
    ).all()
    numbers = [row.id for row in rows]
    trials: dict[int, list[TrialContents]] = {}
    for row in connection.execute(sa.select(TRIAL).where(TRIAL.c.treatment.in_(numbers)).order_by(TRIAL.c.number)):
        trial = TrialContents(
            number=row.number,
            block=row.block,
            begin_s=row.begin_s,
            end_s=row.end_s,
            warmup=row.warmup,
            done=row.done,
            failed=row.failed,
        )
        trials.setdefault(row.treatment, []).append(trial)
    values: dict[int, list[ValueContents]] = {}
    for row in connection.execute(
        sa.select(VALUE).where(VALUE.c.treatment.in_(numbers)).order_by(VALUE.c.kind, VALUE.c.name)
    ):
        one = ValueContents(
            kind=row.kind,
            name=row.name,
            unit=row.unit,
            direction=row.direction,
            level=row.level,
            trials=_load(row.trials),
        )
        values.setdefault(row.treatment, []).append(one)
    points: dict[int, dict[str, Any]] = {}
    for row in connection.execute(sa.select(QUANTILE).where(QUANTILE.c.treatment.in_(numbers))):
        points.setdefault(row.treatment, {})[row.operation] = _load(row.points)
    return tuple(
        TreatmentContents(
            position=row.position,
            title=row.title,
            labels=_load(row.labels),
            engine=row.engine,
            engine_version=row.engine_version,
            key_hash=row.key_hash,
            series=row.series,
            done=row.done,
            failed=row.failed,
            trials=trials.get(row.id, []),
            values=values.get(row.id, []),
            summary=_load(row.document or "{}"),
            quantiles=points.get(row.id, {}),
        )
        for row in rows
    )


def annotations_of(connection: Connection, sha256: str) -> tuple[Annotation, ...]:
    """Return what was typed about a run, in order."""
    query = sa.select(ANNOTATION).where(ANNOTATION.c.run == sha256).order_by(ANNOTATION.c.at, ANNOTATION.c.id)
    return tuple(Annotation(row.at, row.by, row.key, row.value, row.run) for row in connection.execute(query))
