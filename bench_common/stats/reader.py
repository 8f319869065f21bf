"""Reads a stats file, in bounded memory: every whole block before a cut or damaged byte.

A whole block with content that its kind does not have is skipped, and named in `StatsFile.damage`.

A trial that was incomplete when its run was resumed runs again. Its first results stay in the file and count in no
measure; the event ``resumed`` names these trials and the first job after it. `docs/stats-file.rst` describes the
format.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from msgspec import Struct

from bench_common.errors import NotAStatsFileError, StatsFileError, closest_match
from bench_common.files import STDIN, descriptor_path, open_regular, spool_stdin
from bench_common.records import JOB_ID, job_id_of
from bench_common.safe_text import shorten
from bench_common.stats.account import ACCOUNTED_KINDS, Account
from bench_common.stats.block_types import Header, StoredTrial
from bench_common.stats.blocks import KINDS, Body
from bench_common.stats.frame import (
    Chain,
    FrameError,
    FrameReader,
    NotABlockError,
    OddBlockError,
    TruncatedError,
    last_block,
)
from bench_common.stats.rows import Rows, unpack, unpack_by_column
from bench_common.stats.writer import StatsWriter

SUFFIX: Final = ".stats.gz"
RESUMED: Final = "resumed"
TRIAL_EVENTS: Final = frozenset({"trial-begin", "trial-end", "trial-skipped", "packed"})
ROW_KINDS: Final = frozenset({"jobs", "operations", "transfers"})
RECORD_KINDS: Final = frozenset({"metrics", "errors", "outputs", "transactions"})


class SupersededTrials:
    """Results that do not count, and trials that were added, from the ``resumed`` events of a file."""

    def __init__(self) -> None:
        self.more_trials: list[StoredTrial] = []
        """Trials that follow those of the header, as the header has them."""
        self._limits: dict[int, tuple[int, int]] = {}
        """For each repeated trial: the first job and the instant (ns) from which its results count."""
        self._first_jobs = np.zeros(1, "<u8")

    def __bool__(self) -> bool:
        return bool(self._limits)

    def note(self, event: Mapping[str, Any]) -> None:
        """Add an event; all but ``resumed`` are ignored, and so is a malformed one."""
        if event.get("kind") != RESUMED:
            return
        self.more_trials += [
            (treatment, block, warmup) for treatment, block, warmup in event.get("more_trials") or ()
        ]
        rerun, first_job, at_ns = event.get("rerun_trials"), event.get("first_job"), event.get("at_ns")
        if not isinstance(rerun, list) or not isinstance(first_job, int) or not isinstance(at_ns, int):
            return
        self._limits.update({trial: (first_job, at_ns) for trial in rerun if isinstance(trial, int) and trial >= 0})
        # One more entry than trials, for all trials that follow.
        self._first_jobs = np.zeros(max(self._limits, default=-1) + 2, "<u8")
        for trial, (first, _) in self._limits.items():
            self._first_jobs[trial] = first

    def counting(self, kind: str, body: Any) -> Any:
        """Return the part of a block's body that counts; None if nothing does."""
        if not self._limits:
            return body
        if kind in ROW_KINDS:
            firsts = self._first_jobs[np.minimum(body["trial"], len(self._first_jobs) - 1)]
            keep = (body["ticket"] & np.uint64(JOB_ID)) >= firsts
            if keep.all():
                return body
            return body[keep] if keep.any() else None
        if kind in RECORD_KINDS:
            records = [record for record in body if job_id_of(record.ticket) >= self._first_job_of(record.trial)]
            return records or None
        if kind == "event" and body.get("kind") in TRIAL_EVENTS:
            _, since_ns = self._limits.get(body.get("trial", -1), (0, None))
            at_ns = body.get("at_ns")
            if since_ns is not None and isinstance(at_ns, int) and at_ns < since_ns:
                return None
        return body

    def _first_job_of(self, trial: int) -> int:
        return self._limits.get(trial, (0, 0))[0]


def has_times(header: Header) -> bool:
    """Whether the stamps in a stats file are times: not in imported results, unless the tool kept them."""
    imported = header.imported
    return not imported or bool(imported.get("timed"))


__all__ = ["FORMAT", "VERSION", "Block", "StatsFile", "StatsWriter"]

FORMAT: Final = "weighbridge-stats"
VERSION: Final = 2
MAX_STDIN_BYTES: Final = 4 << 30
"""How much is read from a pipe, and kept in a temporary file meanwhile."""
MAX_ODD_SHOWN: Final = 5
"""How many odd blocks are named; the others are counted."""
MAX_REASON_CHARS: Final = 300
MAX_USELESS_BYTES: Final = 64 << 20
"""How much of a file may be odd blocks and blocks of unknown kinds, as payloads, before the rest is not read."""


class Block(Struct, frozen=True):
    """One block: by `kind`, `body` is a row array, `Columns`, `SampleColumns`, a list of records or a mapping."""

    kind: str
    body: Any


MAX_KEPT_BYTES: Final = 8 << 20
"""How much of a file is kept for a second look; of a larger one a second look is a second walk."""
_BLOCK_BYTES: Final = 1 << 10
_RECORD_BYTES: Final = 200
"""About what a block, and a record in it, take in memory besides their columns."""


class KeptBlocks:
    """Blocks of some kinds as they are stored, for who must see them again when the whole file is known.

    Memory is bounded: of a file whose blocks take more than `most_bytes` (`MAX_KEPT_BYTES`) nothing is kept.
    """

    def __init__(self, kinds: Collection[str], most_bytes: int | None = None) -> None:
        self.kinds = frozenset(kinds)
        """The kinds that can be looked at again."""
        self.fits = True
        """Whether all of them are here."""
        self._stored_kinds = _stored_kinds(kinds)
        self._left = MAX_KEPT_BYTES if most_bytes is None else most_bytes
        self._blocks: list[tuple[str, Body]] = []

    def __iter__(self) -> Iterator[tuple[str, Body]]:
        return iter(self._blocks)

    def add(self, kind: str, body: Body) -> None:
        """Keep a block, if it is of one of the kinds and there is room for all of them so far."""
        if not self.fits or kind not in self._stored_kinds:
            return
        self._left -= _kept_bytes(body)
        if self._left < 0:
            self.fits = False
            self._blocks.clear()
        else:
            self._blocks.append((kind, body))


def _stored_kinds(kinds: Collection[str]) -> frozenset[str]:
    """Return the kinds of the blocks that hold something of the given kinds: jobs may hold operations."""
    return frozenset({*kinds, *(("jobs",) if "operations" in kinds else ())})


def _kept_bytes(body: Body) -> int:
    """Return about how much memory the body of a block takes."""
    if isinstance(body, Struct):
        return _BLOCK_BYTES
    rows = body.get("rows")
    columns = [column for name in ("columns", "operations") for column in (body.get(name) or {}).values()]
    return _BLOCK_BYTES + sum(map(len, columns)) + (_RECORD_BYTES * len(rows) if isinstance(rows, list) else 0)


class StatsFile:
    """Reads a stats file, any number of times, one block at a time; ``-`` is standard input.

    Raises `NotAStatsFileError` at once if the path cannot be read or is not a stats file, and `StatsFileError` if its
    format version is newer.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        """The file as the user named it."""
        self.intact_bytes = 0
        """Bytes before the first damaged or odd block of the last pass; all of them where there was none."""
        self.odd_blocks = 0
        """Whole blocks that the last pass skipped, because their content is not what their kind declares."""
        self.intact_chain = Chain()
        """What a block must follow that is written behind the intact bytes."""
        self._ended: str | None = None
        self.is_cut_short = False
        """Whether the last pass found that the file ends within a block, as that of a killed run may."""
        self._odd: list[tuple[int, str, str]] = []
        """Offset, kind and reason of the first of them."""
        self._contradiction: str | None = None
        """What the rows of the file contradict, once all of them were seen."""
        self._is_accounted = False
        self._header: Header | None = None
        self._is_timed = True
        self._superseded: SupersededTrials | None = None
        self._is_extended = False
        self._spooled: BinaryIO | None = None
        if str(path) == STDIN:
            self.path = Path("<stdin>")
            with self._naming_errors():
                self._spooled = spool_stdin(MAX_STDIN_BYTES)
            weakref.finalize(self, self._spooled.close)
        with contextlib.closing(self._intact_blocks(None)) as blocks:
            first = next(blocks, None)
        if self._odd and self._odd[0][0] == 0:
            self._refuse_first(*self._odd[0])
        if first is not None:
            self._header = self._checked(first)
            self._is_timed = has_times(self._header)

    @property
    def damage(self) -> str | None:
        """What is wrong with the file; None if it is whole.

        That is what the last pass could not read and why, with byte offsets, and, once a pass over the blocks that
        count came to its end, in what the file contradicts itself: see `bench_common.stats.account`.
        """
        shown = [f"byte {at}: {_block_name(kind)} is malformed and skipped: {why}" for at, kind, why in self._odd]
        if self.odd_blocks > len(shown):
            shown.append(f"{self.odd_blocks - len(shown)} more malformed blocks are skipped")
        text = "; ".join([*shown, *filter(None, (self._ended, self._contradiction))])
        return text or None

    @property
    def contradiction(self) -> str | None:
        """In what the file contradicts itself; None if it does not. The first time, this may be a pass through it."""
        if not self._is_accounted:
            for _ in self.blocks(()):
                pass
        return self._contradiction

    @property
    def header(self) -> Header:
        """Return the header, with the trials by which the run was extended.

        Raises `StatsFileError` if the file ends within it.
        """
        if self._header is None:
            empty = "the file is empty: its run ended before it began; delete the file, and run the scenario again"
            raise StatsFileError(f"{self.path}: nothing to read: {self.damage or empty}")
        if not self._is_extended:
            self._is_extended = True
            known = len(self._header.treatments)
            more = [trial for trial in self._superseded_trials().more_trials if trial[0] < known]
            if more:
                self._header.trials = [*self._header.trials, *more]
        return self._header

    @property
    def began_ns(self) -> int:
        """When the run began, on the clock of the file; 0 if unknown."""
        return self.header.clock.monotonic_ns

    def blocks(
        self,
        kinds: Collection[str] | None = None,
        *,
        everything: bool = False,
        by_column: bool = False,
        keep: KeptBlocks | None = None,
    ) -> Generator[Block, None, None]:
        """Yield every whole block in file order, or those of the given kinds.

        Superseded results of a resumed run are left out, unless `everything` is set. Jobs and operations are arrays,
        or `Columns` if `by_column`. What `keep` takes can be seen again by `blocks_again`. Never raises for a cut or
        damaged file: the pass skips whole blocks with odd content, ends before the first bad byte, and `damage` says
        why.
        """
        if everything:
            yield from self._intact_blocks(kinds, by_column=by_column, keep=keep)
            return
        aside = self._superseded_trials()
        if self._is_accounted:
            yield from _counting(self._intact_blocks(kinds, by_column=by_column, keep=keep), aside)
            return
        account = Account(self.header if self._header is not None else Header())
        read = None if kinds is None else ACCOUNTED_KINDS.union(kinds)
        wants_rows = kinds is None or not ROW_KINDS.isdisjoint(kinds)
        blocks = self._intact_blocks(read, by_column=by_column or not wants_rows, keep=keep)
        for block in _counting(blocks, aside):
            account.add(block.kind, block.body)
            if kinds is None or block.kind in kinds:
                yield block
        self._contradiction, self._is_accounted = account.contradiction, True

    def blocks_again(
        self, kept: KeptBlocks, kinds: Collection[str], *, by_column: bool = True
    ) -> Generator[Block, None, None]:
        """Yield the blocks of some of the kinds that an earlier pass kept; rows as in `blocks`.

        Where they did not fit, or a kind is none of those that were kept, this is another pass through the file.
        """
        if not kept.fits or not kept.kinds.issuperset(kinds):
            yield from self.blocks(kinds, by_column=by_column)
            return
        unpacker = unpack_by_column if by_column else unpack
        again = (Block(*pair) for kind, body in kept for pair in unpacker(kind, body, kinds))
        yield from _counting(again, self._superseded_trials())

    def _superseded_trials(self) -> SupersededTrials:
        """Return the superseded trials, from the footer or by one pass over the events."""
        if self._superseded is None:
            found = SupersededTrials()
            kind, footer = last_block(self._readable)
            if kind != "footer" or footer.resumes:
                for block in self._intact_blocks({"event"}):
                    if block.body.get("kind") == RESUMED:
                        found.note(block.body)
            self._superseded = found
        return self._superseded

    def _intact_blocks(
        self, kinds: Collection[str] | None, *, by_column: bool = False, keep: KeptBlocks | None = None
    ) -> Generator[Block, None, None]:
        unpacker = unpack_by_column if by_column else unpack
        stored_kinds = None if kinds is None else _stored_kinds(kinds)
        self._ended, self._odd, self.odd_blocks, self.intact_bytes = None, [], 0, 0
        self.is_cut_short = False
        self.intact_chain = Chain()
        useless = 0
        with self._naming_errors():
            file = open_regular(self._readable)
        with file:
            reader = FrameReader(file)
            while useless <= MAX_USELESS_BYTES:
                start, kind = reader.offset, ""
                found: list[Block] = []
                try:
                    pair = reader.read(stored_kinds)
                    if pair is None:
                        return
                    kind, body = pair
                    useless += 0 if kind in KINDS else reader.payload_bytes
                    if kind == "header" and start:
                        raise ValueError("a file has one header, at its start")
                    if body is not None:
                        found = [Block(name, rows) for name, rows in unpacker(kind, body, kinds)]
                        self._check_times(found)
                        if keep is not None:
                            keep.add(kind, body)
                except OddBlockError as error:
                    useless += reader.payload_bytes
                    self._skip(start, error.kind, error)
                except (OSError, FrameError) as error:
                    self._stop(start, error)
                    return
                except ValueError as error:
                    useless += reader.payload_bytes
                    self._skip(start, kind, error)
                if not self.odd_blocks:
                    self.intact_bytes, self.intact_chain = reader.offset, reader.chain.copy()
                yield from found
            self._stop(start, FrameError(f"more than {MAX_USELESS_BYTES >> 20} MiB are no results of any known kind"))

    def _check_times(self, blocks: Sequence[Block]) -> None:
        """Raise `ValueError` for readings without their times, in a file that has times."""
        for block in blocks:
            if block.kind == "samples" and self._is_timed and "time_ns" not in block.body.columns:
                raise ValueError("the readings have no column time_ns")

    @property
    def _readable(self) -> Path:
        """The path that opens the content."""
        return self.path if self._spooled is None else descriptor_path(self._spooled)

    @contextlib.contextmanager
    def _naming_errors(self) -> Iterator[None]:
        """Raise `NotAStatsFileError` for an `OSError`."""
        try:
            yield
        except OSError as error:
            hint = _similar_file_hint(self.path) if isinstance(error, FileNotFoundError) else ""
            raise NotAStatsFileError(
                f"{self.path}: {error.strerror}{hint}; a stats file expected (- reads standard input)"
            ) from error

    def iter_jobs(self) -> Iterator[Rows]:
        """Yield `JOB_ROW` arrays of at most 65,536 rows."""
        return (block.body for block in self.blocks({"jobs"}))

    def _skip(self, offset: int, kind: str, error: Exception) -> None:
        self.odd_blocks += 1
        if len(self._odd) < MAX_ODD_SHOWN:
            self._odd.append((offset, kind, shorten(str(error), MAX_REASON_CHARS)))

    def _stop(self, offset: int, error: OSError | FrameError) -> None:
        if isinstance(error, NotABlockError) and offset == 0:
            raise NotAStatsFileError(f"{self.path}: is not a stats file: {error}") from error
        if isinstance(error, TruncatedError):
            why = "the run was killed or is still running, or the file is truncated"
            self._ended = f"byte {offset}: {error} ({why})"
            self.is_cut_short = True
        else:
            self._ended = f"byte {offset}: {error}; the rest is not read"

    def _refuse_first(self, offset: int, kind: str, reason: str) -> None:
        if kind == "header":
            raise StatsFileError(f"{self.path}: its header, at byte {offset}, is malformed: {reason}")
        raise NotAStatsFileError(f"{self.path}: is not a stats file: its first block is not a {FORMAT} header")

    def _checked(self, block: Block) -> Header:
        header = block.body
        if block.kind != "header" or header.format != FORMAT:
            raise NotAStatsFileError(f"{self.path}: is not a stats file: its first block is not a {FORMAT} header")
        version = header.version
        if type(version) is not int or version < 1:
            raise StatsFileError(f"{self.path}: format version {version!r}: expected a number of at least 1")
        if version != VERSION:
            newer = ", or with a newer one" if version > VERSION else ""
            raise StatsFileError(
                f"{self.path}: has format version {version}; this program reads version {VERSION}; "
                f"read it with the Weighbridge that wrote it{newer}"
            )
        assert isinstance(header, Header)
        return header


def _counting(blocks: Iterator[Block], aside: SupersededTrials) -> Iterator[Block]:
    """Yield the parts of blocks that count."""
    for block in blocks:
        body = aside.counting(block.kind, block.body) if aside else block.body
        if body is not None:
            yield block if body is block.body else Block(block.kind, body)


def _block_name(kind: str) -> str:
    return f"the {kind[:40]} block" if kind else "a block"


def _similar_file_hint(path: Path) -> str:
    """Return a hint at the stats file beside `path` with the nearest name or the same start; else nothing."""
    names = sorted(each.name for each in path.parent.glob(f"*{SUFFIX}"))
    # Names are not alike by the ending that all of them have.
    near = closest_match(path.name.removesuffix(SUFFIX), [name.removesuffix(SUFFIX) for name in names])
    meant = [name for name in names if name.startswith(path.name if near is None else f"{near}{SUFFIX}")]
    return f" (did you mean '{meant[-1]}'?)" if meant else ""
