"""Retention: stats files go, and what the index has of their runs stays, also after a rebuild."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from msgspec import Struct

from bench_common.errors import NotAStatsFileError
from bench_features.archive.archive import Archive
from bench_features.archive.contents import packed
from bench_features.archive.extract import contents_of
from bench_features.archive.objects import SUMMARY_SUFFIX, hash_of
from bench_features.archive.queries import run_names
from bench_features.archive.schema import ANNOTATION, RUN, TAG
from bench_features.archive.types import ID_CHARS

GONE: Final = (
    "single jobs (report-scenario --format csv, jsonl, outputs)",
    "charts over time and heat maps, and percentiles other than p50, p95 and p99",
    "compare and --baseline with this run's file, and --resume of it",
)
"""What can no longer be asked of a run whose stats file was removed."""
KEPT: Final = "lists, series and trends, the summary of each treatment and the values of each trial"
"""What can still be asked."""


class Rule(Struct, frozen=True):
    """Which runs lose their files: those that nothing here keeps."""

    keep_last: int | None = None
    """The newest ones of each scenario stay."""
    keep_tagged: bool = False
    """Those with a tag, a name or as a baseline stay."""
    older_s: float | None = None
    """Those that are younger stay."""


class Candidate(Struct, frozen=True):
    """A run whose file goes."""

    sha256: str
    scenario: str | None
    created: float | None
    bytes: int

    @property
    def id(self) -> str:
        """The run's id."""
        return self.sha256[:ID_CHARS]


def find_candidates(archive: Archive, rule: Rule, now_s: float | None = None) -> list[Candidate]:
    """Return the runs whose files go by a rule, the oldest first; one that nobody knows the time of stays."""
    limit = None if rule.older_s is None else (time.time() if now_s is None else now_s) - rule.older_s
    with archive.locked(), archive.database.reading() as connection:
        query = sa.select(RUN.c.sha256, RUN.c.scenario, RUN.c.created, RUN.c.bytes)
        rows = connection.execute(query.order_by(RUN.c.created.desc().nulls_first(), RUN.c.id.desc())).all()
        kept: set[str] = set()
        if rule.keep_tagged:
            baselines = sa.select(ANNOTATION.c.run).where(ANNOTATION.c.key == "baseline")
            kept = {*connection.scalars(sa.select(TAG.c.run)), *run_names(connection), *connection.scalars(baselines)}
    return list(_falling(archive, rows, rule, limit, kept))[::-1]


def _falling(archive: Archive, rows: Any, rule: Rule, limit: float | None, kept: set[str]) -> Iterator[Candidate]:
    seen: Counter[str | None] = Counter()
    for row in rows:
        if archive.objects.find(row.sha256) is None:
            continue
        seen[row.scenario] += 1
        if rule.keep_last is not None and seen[row.scenario] <= rule.keep_last:
            continue
        if row.sha256 in kept or row.created is None or (limit is not None and row.created >= limit):
            continue
        yield Candidate(row.sha256, row.scenario, row.created, row.bytes)


def remove_file(archive: Archive, run: Candidate) -> str | None:
    """Remove the file of a run after what the index has of it was saved; return why it stays, or None.

    Killed at any instant, the run has its file or what was saved of it, and a second call does the rest.
    """
    path = archive.objects.path(run.sha256)
    try:
        if hash_of(path) != run.sha256:
            return f"{path}: its content has changed since it was added; add the original file again, then prune"
        contents = contents_of(path, run.sha256, path.stat().st_size)
    except FileNotFoundError:
        return None
    except (OSError, NotAStatsFileError) as error:
        return f"{path}: {error}"
    # Whoever adds this run meanwhile finds it with its file, or without and noted: never between the two.
    with archive.holding_objects("alone"):
        if not path.exists():
            return None  # another prune was first
        at_s = time.time()
        archive.objects.write(run.sha256, SUMMARY_SUFFIX, packed(msgspec.structs.replace(contents, pruned_at=at_s)))
        with archive.locked():
            with archive.database.writing() as connection:
                connection.execute(RUN.update().where(RUN.c.sha256 == run.sha256).values(pruned_at=at_s))
            archive.objects.remove(run.sha256)  # a rebuild takes a run with a file for one that is not pruned
    return None
