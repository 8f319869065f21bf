"""Writes the contents of runs into the index: each run in one transaction, and once, whoever adds it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection

from bench_features.archive.contents import HostContents, RunContents, TreatmentContents
from bench_features.archive.facts import class_of, fingerprint_hash
from bench_features.archive.schema import FACT, HOST, QUANTILE, RUN, SUMMARY, TREATMENT, TRIAL, VALUE

_json: Final = msgspec.json.Encoder().encode


def insert_if_absent(connection: Connection, table: sa.Table) -> Any:
    """Return an INSERT that leaves a row with the same key as it is, in the database's own words."""
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return postgresql.insert(table).on_conflict_do_nothing()


def add_run(connection: Connection, run: RunContents) -> bool:
    """Add a run with all that belongs to it; return False where it is in the index already."""
    place = ", ".join(run.host_names)
    fingerprints = {host.label: fingerprint_hash(host.facts) for host in run.hosts}
    statement = insert_if_absent(connection, RUN).returning(RUN.c.id)
    number = connection.scalar(
        statement,
        {
            "sha256": run.sha256,
            "run_id": plain(run.run_id),
            "created": run.created,
            "ended": run.ended,
            "duration_s": run.duration_s,
            "status": plain(run.status),
            "state": run.state,
            "problem": plain(run.problem),
            "scenario": plain(run.scenario),
            "scenario_hash": run.scenario_hash,
            "seed": run.seed,
            "noop": run.noop,
            "imported": run.imported,
            "version": plain(run.version),
            "versions": text_of(run.versions),
            "argv": text_of(run.argv),
            "hosts": text_of(run.host_names),
            "place": plain(place),
            "machine": text_of(sorted(fingerprints.items())),
            "treatments": len(run.treatments),
            "done": sum(one.done for one in run.treatments),
            "failed": sum(one.failed for one in run.treatments),
            "bytes": run.bytes,
            "pruned_at": run.pruned_at,
        },
    )
    if number is None:
        return False
    _add_hosts(connection, number, run.hosts, fingerprints)
    for treatment in run.treatments:
        _add_treatment(connection, number, treatment, series_key(treatment.key_hash, place))
    return True


def series_key(key_hash: str, place: str) -> str:
    """Return the key of a series: a treatment's identity on hosts of these names."""
    return hashlib.sha256(f"{key_hash} {place}".encode()).hexdigest()[:16]


def _add_hosts(
    connection: Connection, run: int, hosts: Sequence[HostContents], fingerprints: Mapping[str, str]
) -> None:
    _insert(
        connection,
        HOST.insert(),
        [
            {
                "run": run,
                "label": plain(host.label),
                "environment": plain(host.environment),
                "fp_hash": fingerprints[host.label],
                "engines": text_of(host.engines),
                "noise": text_of(host.noise),
                "speed_ns": host.speed_ns,
            }
            for host in hosts
        ],
    )
    # In order: two that add at the same time must not wait for each other.
    facts = {fingerprints[host.label]: host.facts for host in hosts}
    rows = [
        {"fp_hash": fingerprint, "key": plain(key), "value": plain(value), "class": class_of(key)}
        for fingerprint, found in sorted(facts.items())
        for key, value in sorted(found.items())
    ]
    _insert(connection, insert_if_absent(connection, FACT), rows)


def _add_treatment(connection: Connection, run: int, one: TreatmentContents, series: str) -> None:
    statement = TREATMENT.insert().returning(TREATMENT.c.id)
    number = connection.scalar(
        statement,
        {
            "run": run,
            "position": one.position,
            "title": plain(one.title),
            "labels": text_of(one.labels),
            "engine": plain(one.engine),
            "engine_version": plain(one.engine_version),
            "key_hash": one.key_hash,
            "series": series,
            "done": one.done,
            "failed": one.failed,
        },
    )
    trials = [{"treatment": number, **msgspec.structs.asdict(trial)} for trial in one.trials]
    _insert(connection, TRIAL.insert(), trials)
    values = [
        {
            "treatment": number,
            "kind": value.kind,
            "name": plain(value.name),
            "unit": plain(value.unit),
            "direction": plain(value.direction),
            "level": value.level,
            "trials": text_of(value.trials),
        }
        for value in one.values
    ]
    _insert(connection, insert_if_absent(connection, VALUE), values)
    _insert(connection, SUMMARY.insert(), [{"treatment": number, "document": text_of(one.summary)}])
    points = [
        {"treatment": number, "operation": plain(operation), "points": text_of(found)}
        for operation, found in one.quantiles.items()
    ]
    _insert(connection, QUANTILE.insert(), points)


def _insert(connection: Connection, statement: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        connection.execute(statement, list(rows))


def plain(text: str | None) -> str | None:
    """Return a text as a database keeps it: PostgreSQL has no NUL in texts."""
    return None if text is None else text.replace("\0", "�")


def text_of(value: Any) -> str:
    """Return a value as JSON."""
    return _json(value).decode()
