"""The tables of the index, for SQLite and PostgreSQL alike. docs/archive.rst explains them for SQL users.

Per-job rows are not in it: they are in the stats files. Values of trials are lists (JSON) in one row for each measure
of a treatment, so that a series of ten thousand runs is ten thousand rows.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

SCHEMA_VERSION: Final = 1
"""An index of another version is not read: ``archive rebuild`` makes it anew from the stats files."""

METADATA: Final = MetaData()

META: Final = Table(
    "meta",
    METADATA,
    Column("key", Text, primary_key=True),  # schema_version, folder_id, annotation_bytes
    Column("value", Text, nullable=False),
)

RUN: Final = Table(
    "run",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("sha256", Text, nullable=False, unique=True),  # of the stats file's content
    Column("run_id", Text, index=True),  # what the run calls itself; a resumed run keeps it
    Column("created", Float),  # Unix seconds; NULL where the file does not say
    Column("ended", Float),
    Column("duration_s", Float),
    Column("status", Text),  # complete, interrupted, ... as the footer says; NULL without a footer
    Column("state", Text, nullable=False),  # complete, incomplete, damaged
    Column("problem", Text, nullable=False),  # why it enters no trend; empty if it does
    Column("scenario", Text),
    Column("scenario_hash", Text),  # of the scenario's document
    Column("seed", BigInteger),
    Column("noop", Boolean, nullable=False),
    Column("imported", Boolean, nullable=False),
    Column("version", Text, nullable=False),  # of Weighbridge
    Column("versions", Text, nullable=False),  # JSON
    Column("argv", Text, nullable=False),  # JSON
    Column("hosts", Text, nullable=False),  # names, JSON
    Column("place", Text, nullable=False),  # the names as one text: half of a series' identity
    Column("machine", Text, nullable=False),  # [name, fp_hash] of each host, JSON
    Column("treatments", Integer, nullable=False),
    Column("done", BigInteger, nullable=False),  # measured jobs
    Column("failed", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),  # of the stats file
    Column("pruned_at", Float),  # when the stats file was removed
    Index("run_by_time", "created"),
    Index("run_by_scenario", "scenario", "created"),
)

HOST: Final = Table(
    "host",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run", ForeignKey("run.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("label", Text, nullable=False),  # its name
    Column("environment", Text),
    Column("fp_hash", Text, nullable=False),  # of its facts
    Column("engines", Text, nullable=False),  # name -> version, JSON
    Column("noise", Text, nullable=False),  # facts that change by themselves, JSON
    Column("speed_ns", Float),  # how long a fixed amount of work took on it, median
    Index("host_by_label", "label"),
)

FACT: Final = Table(
    "fact",
    METADATA,
    Column("fp_hash", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
    Column("class", Text, nullable=False),  # identity, setting
)

TREATMENT: Final = Table(
    "treatment",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run", ForeignKey("run.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("position", Integer, nullable=False),
    Column("title", Text, nullable=False),
    Column("labels", Text, nullable=False),  # JSON
    Column("engine", Text, nullable=False),
    Column("engine_version", Text, nullable=False),
    Column("key_hash", Text, nullable=False),  # scenario, labels, parameters and primary measure: not repeats or seed
    Column("done", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("series", Text, nullable=False),  # of key_hash and the run's place
    Index("treatment_by_key", "key_hash"),
    Index("treatment_by_series", "series", "run"),
)

TRIAL: Final = Table(
    "trial",
    METADATA,
    Column("treatment", ForeignKey("treatment.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("block", Integer, nullable=False),
    Column("begin_s", Float),  # since the run began
    Column("end_s", Float),
    Column("warmup", Boolean, nullable=False),
    Column("done", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
)

VALUE: Final = Table(
    "value",
    METADATA,
    Column("treatment", ForeignKey("treatment.id", ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, primary_key=True),  # primary, operation, metric
    Column("name", Text, primary_key=True),
    Column("unit", Text, nullable=False),
    Column("direction", Text),
    Column("level", Float),  # median of the trials' values (of an operation: of their medians)
    Column("trials", Text, nullable=False),  # statistic -> a list with one value for each measured trial, JSON
)

SUMMARY: Final = Table(
    "summary",
    METADATA,
    Column("treatment", ForeignKey("treatment.id", ondelete="CASCADE"), primary_key=True),
    Column("document", Text, nullable=False),  # the treatment in the JSON report
)

QUANTILE: Final = Table(
    "quantile",
    METADATA,
    Column("treatment", ForeignKey("treatment.id", ondelete="CASCADE"), primary_key=True),
    Column("operation", Text, primary_key=True),
    Column("points", Text, nullable=False),  # [shares, seconds], up to 120 each, JSON
)

ANNOTATION: Final = Table(
    "annotation",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("uid", Text, nullable=False),
    Column("run", Text, nullable=False, index=True),  # the run's sha256; of the series' last run before a change
    Column("key", Text, nullable=False),
    Column("value", Text, nullable=False),
    Column("at", Text, nullable=False),
    Column("by", Text, nullable=False),
    UniqueConstraint("uid"),
)

TAG: Final = Table(
    "tag",
    METADATA,
    Column("run", Text, primary_key=True),  # the run's sha256
    Column("tag", Text, primary_key=True),
    Index("run_by_tag", "tag"),
)
