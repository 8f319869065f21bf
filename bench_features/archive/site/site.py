"""What all pages of the archive have: their addresses, what they are made of, and what takes a processor for long.

The whole state of a page is in its address, so that whoever gets it sees the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import gevent
from gevent.threadpool import ThreadPool
from msgspec import Struct

from bench_common.errors import InfrastructureError, UsageError, did_you_mean
from bench_common.safe_text import one_line, shorten
from bench_common.stats.reader import StatsFile
from bench_features.archive.archive import Archive
from bench_master.analysis.verdict_types import VerdictsReport
from bench_master.reports import ReportSource
from bench_master.reports.html import report_fragment
from bench_master.reports.html_tables import Cell

LONGEST_VALUE: Final = 500
"""Characters of a value in an address."""


class BadAddress(UsageError):
    """An address that no page has: a parameter's name or value is wrong."""


class NoLongerHere(UsageError):
    """What an address asks for was there, and was removed."""


def link(path: str, **parameters: object) -> str:
    """Return the address of a page; parameters without a value are left out, and a name may end in ``_``."""
    given = {
        name.rstrip("_"): value if isinstance(value, str) else str(value)
        for name, value in parameters.items()
        if value not in (None, "")
    }
    query = urlencode(given, errors="replace")
    return quote(path, errors="replace") + (f"?{query}" if query else "")


def read_parameters(given: Iterable[tuple[str, str]], known: Collection[str]) -> dict[str, str]:
    """Return the parameters of an address; empty ones, which forms send, count as not given.

    Raises `BadAddress` for one that is unknown, given twice or too long.
    """
    found: dict[str, str] = {}
    for name, value in given:
        shown = shorten(one_line(name), 60)
        if name not in known:
            has = f"; it has {', '.join(known)}" if known else "; it has none"
            raise BadAddress(f"{shown}: this page has no such parameter{did_you_mean(name, known)}{has}")
        if len(value) > LONGEST_VALUE or "\0" in value:
            raise BadAddress(f"{shown}: longer than {LONGEST_VALUE} characters, or not text")
        if found.get(name, value) != value:
            raise BadAddress(f"{shown}: given twice; leave one of them")
        if value.strip():
            found[name] = value.strip()
    return found


def read_choice(given: dict[str, str], name: str, known: Collection[str], default: str) -> str:
    """Return the value of a parameter that must be one of `known`."""
    value = given.get(name, default)
    if value not in known:
        near = did_you_mean(value, known)
        raise BadAddress(f"{name}={shorten(one_line(value), 60)}: unknown{near}; one of: {', '.join(known)}")
    return value


def read_number(given: dict[str, str], name: str, default: int, high: int) -> int:
    """Return the value of a parameter that must be a whole number from 1 to `high`."""
    text = given.get(name, str(default))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(high)) and 1 <= int(text) <= high):
        raise BadAddress(f"{name}={shorten(one_line(text), 60)}: expected a whole number from 1 to {high:,}")
    return int(text)


T = TypeVar("T")
MOST_WAITING: Final = 12
"""Further ones are refused: readers would wait in vain."""
TIMEOUT_S: Final = 60.0
"""How long a reader waits; the work goes on, and its result is kept for the next one."""


class Busy(InfrastructureError):
    """There is more to do than the server can do at once, or it takes too long for a page."""


class BackgroundThread:
    """One thread, which does one work after the other."""

    def __init__(self) -> None:
        self._pool = ThreadPool(1)
        self.waiting = 0
        """How many works there are that are not done."""

    def run(self, work: Callable[[], T], *, timeout_s: float = TIMEOUT_S) -> T:
        """Return what the work returns, or raise what it raises. Raises `Busy` where that takes too long."""
        if self.waiting >= MOST_WAITING:
            raise Busy(f"{MOST_WAITING} other pages are being made: reload this one in a minute")
        self.waiting += 1
        # An error that left the thread by itself would be printed there, too.
        done: Any = self._pool.spawn(_caught, work)
        done.rawlink(self._end)
        try:
            found, error = done.get(timeout=timeout_s)
        except gevent.Timeout:
            raise Busy(
                f"not ready after {timeout_s:.0f} s: reload the page in a minute, it goes on being made"
            ) from None
        if error is not None:
            raise error
        result: T = found
        return result

    def _end(self, _done: object) -> None:
        self.waiting -= 1

    def close(self) -> None:
        """End the thread; what it is at is not waited for."""
        self._pool.size = 0


def _caught(work: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001  raised again where the work was asked for
        return None, error


LIMIT_BYTES: Final = 256 << 20
"""What all of them may take on the disk."""
SUFFIX: Final = ".html"


def cache_folder() -> Path | None:
    """Return where they are kept: ``weighbridge/reports`` in the XDG cache directory; None for a user without one."""
    given = os.environ.get("XDG_CACHE_HOME") or ""
    try:
        base = Path(given) if given.startswith("/") else Path.home() / ".cache"
    except RuntimeError:
        return None
    return base / "weighbridge" / "reports"


@cache
def program_key() -> str:
    """Return what changes whenever a file of this program does."""
    found = hashlib.sha256()
    for package in ("bench_common", "bench_features", "bench_master"):
        root = Path(str(files(package)))
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".j2"):
                about = path.stat()
                found.update(f"{path}\0{about.st_size}\0{about.st_mtime_ns}\0".encode())
    return found.hexdigest()[:16]


class ReportCache:
    """Makes reports, and keeps them. Where there is no folder, or it cannot be written, each is made again."""

    def __init__(self, folder: Path | None, limit_bytes: int = LIMIT_BYTES) -> None:
        self._folder = folder
        self._limit = limit_bytes

    def get(self, sha256: str) -> str | None:
        """Return the report that is kept; None if there is none."""
        if self._folder is None:
            return None
        path = self._folder / _file_name(sha256)
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return text

    def make(self, sha256: str, file: Path) -> str:
        """Return a new report of a stats file, and keep it; raise `StatsFileError` where there is none to make."""
        text = report_fragment(ReportSource(StatsFile(file)))
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._keep(self._folder, sha256, text)
        return text

    def _keep(self, folder: Path, sha256: str, text: str) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = folder / f"{secrets.token_hex(8)}.part"
        try:
            part.touch(0o600, exist_ok=False)
            part.write_text(text, "utf-8")
            part.replace(folder / _file_name(sha256))
        finally:
            part.unlink(missing_ok=True)
        self._make_room(folder)

    def _make_room(self, folder: Path) -> None:
        """Remove those that nobody has asked for longest."""
        about = []
        for path in folder.glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):
                found = path.stat()
                about.append((found.st_mtime_ns, found.st_size, path))
        total = sum(size for _, size, _ in about)
        for _, size, path in sorted(about):
            if total <= self._limit:
                break
            path.unlink(missing_ok=True)
            total -= size


def _file_name(sha256: str) -> str:
    return f"{sha256}-{program_key()}{SUFFIX}"


PAGE_ROWS: Final = 50
"""Rows of a list on one page."""
LONGEST_CELL: Final = 80
"""Characters of a text in a list."""
MAX_PAGE: Final = 1_000_000


@dataclass(frozen=True)
class Site:
    """What the pages are made of."""

    archive: Archive
    reports: ReportCache
    background: BackgroundThread
    compared: OrderedDict[tuple[str, str], VerdictsReport] = field(default_factory=OrderedDict)
    """The last comparisons, by the hashes of both runs, which never change."""


class View(Struct, frozen=True):
    """What one address shows."""

    title: str
    data: Mapping[str, Any]
    """What its JSON has, and its template, too."""
    more: Callable[[], Mapping[str, Any]] = dict
    """Returns what the template needs besides: tables, charts, links."""


class Page(Struct, frozen=True):
    """A kind of page: where it is, and what makes it."""

    path: str
    """Of the page; of its JSON it is ``/api`` + path + ``.json``."""
    template: str
    show: Callable[..., View]
    """Called with the site, the parameters and what is in the path."""
    parameters: Sequence[str] = ()
    """Names of the parameters that the address may have."""


def when(seconds: float | None) -> str:
    """Return a time as pages show it: in UTC, as readers of one site may be anywhere."""
    return "-" if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def word_cell(text: str, to: str = "") -> Cell:
    """Return a cell of a list: the middle of a long text is left out."""
    return Cell(shorten(one_line(text), LONGEST_CELL), left=True, link=to)


def run_cell(run: str, text: str | None = None) -> Cell:
    """Return a cell that leads to a run."""
    return Cell(shorten(one_line(text or run), LONGEST_CELL), left=True, link=link(f"/runs/{run}"))


def page_links(path: str, parameters: Mapping[str, str], page: int, count: int) -> dict[str, Any]:
    """Return where the pages of a list before and after this one are, and how many rows and pages there are."""
    pages = max(1, -(-count // PAGE_ROWS))
    others = {name: value for name, value in parameters.items() if name != "page"}

    def to(number: int) -> str:
        return link(path, **others, page=number if number > 1 else "")

    return {
        "count": count,
        "page": page,
        "pages": pages,
        "earlier": to(page - 1) if 1 < page <= pages else "",
        "later": to(page + 1) if page < pages else "",
        "first": to(1),
        "last": to(pages),
    }
