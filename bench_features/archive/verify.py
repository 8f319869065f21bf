"""Checks an archive: every file has the content that its name says, and index and files have the same runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from msgspec import Struct

from bench_common.errors import StatsFileError
from bench_common.safe_text import one_line
from bench_features.archive.archive import Archive
from bench_features.archive.contents import read_summary
from bench_features.archive.objects import SUMMARY_SUFFIX, hash_of
from bench_features.archive.schema import ANNOTATION, RUN, TREATMENT
from bench_features.archive.types import ID_CHARS

Progress = Callable[[int, int], None]
REBUILD_ADVICE = "bench-master archive rebuild makes the index anew"


class Fault(Struct, frozen=True):
    """Something that is wrong with an archive."""

    kind: str
    """Such as ``damaged-file``, ``missing-file``, ``missing-row``: docs/archive.rst lists them."""
    where: str
    """The run's id, or the file."""
    text: str
    """What is wrong, and what to do."""


def verify(archive: Archive, progress: Progress = lambda *_: None) -> Iterator[Fault]:
    """Yield what is wrong with an archive; reads every file."""
    yield from _index_faults(archive)
    with archive.locked(), archive.database.reading() as connection:
        parts = sa.select(sa.func.count()).where(TREATMENT.c.run == RUN.c.id).scalar_subquery()
        query = sa.select(RUN.c.sha256, RUN.c.pruned_at, RUN.c.bytes, RUN.c.treatments, parts.label("parts"))
        rows = {row.sha256: row for row in connection.execute(query)}
    here = list(archive.objects.all())
    for number, sha256 in enumerate(here, 1):
        yield from _file_faults(archive, sha256, rows.get(sha256))
        progress(number, len(here))
    yield from _row_faults(archive, rows, set(here))
    yield from _annotation_faults(archive)


def _file_faults(archive: Archive, sha256: str, row: Any) -> Iterator[Fault]:
    run, path = sha256[:ID_CHARS], archive.objects.path(sha256)
    try:
        found = hash_of(path)
    except OSError as error:
        yield Fault("damaged-file", run, f"{path}: cannot be read: {error.strerror}")
        return
    if found != sha256:
        yield Fault(
            "damaged-file",
            run,
            f"{path}: its content has changed since it was added (SHA-256 {found[:ID_CHARS]}...): the disk, or a "
            "program that wrote into it; add the original file again, which repairs it",
        )
    if row is None:
        yield Fault(
            "missing-row",
            run,
            f"{path}: is not in the index: adding it was cut short; add it again, or {REBUILD_ADVICE}",
        )
    elif row.pruned_at is not None:
        yield Fault(
            "unpruned", run, f"{path}: was pruned and is still there: archive prune was cut short; run it again"
        )


def _row_faults(archive: Archive, rows: dict[str, Any], here: set[str]) -> Iterator[Fault]:
    for sha256, row in rows.items():
        run = sha256[:ID_CHARS]
        if row.parts != row.treatments:
            yield Fault(
                "odd-row", run, f"{run}: the index has {row.parts} of {row.treatments} treatments; {REBUILD_ADVICE}"
            )
        if row.pruned_at is None:
            if sha256 not in here:
                path = archive.objects.path(sha256)
                yield Fault("missing-file", run, f"{path}: is missing; add the original file again, which repairs it")
            continue
        path = archive.objects.path(sha256, SUMMARY_SUFFIX)
        try:
            read_summary(path)
        except (OSError, StatsFileError) as error:
            text = f"{path}: what is kept of this pruned run: {one_line(str(error))}; a rebuild would lose the run"
            yield Fault("lost-summary", run, text)


def _index_faults(archive: Archive) -> Iterator[Fault]:
    if not archive.database.is_sqlite:
        return
    with archive.locked(), archive.database.reading() as connection:
        for (text,) in connection.exec_driver_sql("PRAGMA quick_check(5)"):
            if text != "ok":
                yield Fault("index", str(archive.address.database), f"{one_line(text)}; {REBUILD_ADVICE}")


def _annotation_faults(archive: Archive) -> Iterator[Fault]:
    path = archive.annotations.path
    lines = list(archive.annotations.read())
    odd = sum(entry is None for _, entry in lines)
    if odd:
        text = (
            f"{path}: {odd} of {len(lines)} lines are no annotations: writing them was cut short, or they were edited"
        )
        yield Fault("annotations", str(path), text)
    known = {entry.uid for _, entry in lines if entry is not None}
    with archive.locked(), archive.database.reading() as connection:
        indexed = set(connection.scalars(sa.select(ANNOTATION.c.uid)))
    if lost := indexed - known:
        text = (
            f"{path}: {len(lost)} annotations of the index are not in it: a rebuild would lose them; restore the file"
        )
        yield Fault("annotations", str(path), text)
    if known - indexed:
        text = f"{path}: {len(known - indexed)} annotations are not in the index; {REBUILD_ADVICE}"
        yield Fault("annotations", str(path), text)
