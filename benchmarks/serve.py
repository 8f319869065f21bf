"""How long each page of `bench-master serve` takes over an archive of ten thousand runs, on SQLite and PostgreSQL.

    python benchmarks/serve.py [--runs N] [--times N] [--archive URL]

The archive is the synthetic one of ``benchmarks/archive.py``, and two small runs with stats files. Each page is asked
for through the guard and the whole application, without a socket; medians and 95th percentiles are printed, and for
the first page of runs the ratio to what the index takes alone. The exit code is 1 if the median of a page is 300 ms
or more. PostgreSQL is used where Debian's server is installed or ``--archive`` names one.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Final

import numpy as np
from archive import fill
from common import parser_of, print_ratio

from bench_features.archive.archive import Archive
from bench_features.archive.site.app import guarded
from bench_features.archive.site.site import PAGE_ROWS, BackgroundThread, ReportCache, Site
from bench_features.archive.types import RunFilter

PORT: Final = 8090


def pages(archive: Archive, real: list[str]) -> Iterator[tuple[str, str]]:
    """Yield what each page is, and its address."""
    newest = archive.runs(RunFilter(limit=1, scenario="scenario-0"))[0]
    series = max(archive.series(), key=lambda one: one.runs)
    yield "runs, the newest", "/runs"
    yield "runs, the last page", f"/runs?page={archive.count() // 50}"
    yield "runs of a scenario and host", "/runs?scenario=scenario-1&host=blade1"
    yield "runs with a tag", "/runs?tag=nightly"
    yield "runs by their failed jobs", "/runs?sort=-failed"
    yield "a run without its file", f"/runs/{newest.id}"
    yield "a run with its report", f"/runs/{real[0]}"
    yield "two runs compared", f"/compare?a={real[0]}&b={real[1]}"
    yield "runs to compare with", f"/compare?a={newest.id}"
    yield "every series", "/series"
    yield "every series of a host", "/series?host=blade1"
    yield "a series, newest 400 runs", f"/series/{series.key}"
    yield "a series, another measure", f"/series/{series.key}?measure=start.p95"
    yield "hosts", "/hosts"
    yield "a host", "/host?name=blade1"
    yield "two hosts", "/hosts/difference?a=blade0&b=blade1"
    yield "runs as JSON", "/api/runs.json"


def asked(archive: Archive) -> float:
    """Return how long the index alone takes for the first page of runs."""
    began = time.perf_counter()
    archive.runs(RunFilter(limit=PAGE_ROWS))
    archive.count()
    return time.perf_counter() - began


def measure(name: str, url: str, folder: Path, runs: int, times: int, limit_ms: float) -> bool:
    """Fill an archive and time its pages; return whether all of them are quick."""
    from archive_runs import a_run
    from werkzeug.test import Client

    quick = True
    with Archive.open(url, create=True) as archive:
        fill(archive, runs)
        real = [
            archive.add(a_run(folder / f"{name}{n}.stats.gz", n, times=(100, 101, 99, 100 + n))).id for n in (1, 2)
        ]
        site = Site(archive, ReportCache(folder / f"{name} reports"), BackgroundThread())
        client = Client(guarded(site, "127.0.0.1", PORT, None))
        for what, address in pages(archive, real):
            took = []
            for _ in range(times):
                began = time.perf_counter()
                answer = client.get(address, base_url=f"http://127.0.0.1:{PORT}")
                took.append(time.perf_counter() - began)
                assert answer.status_code == 200, (address, answer.text)
            first, middle, high = (1000 * each for each in (took[0], np.median(took), np.quantile(took, 0.95)))
            print(
                f"{name}: {what}: median {middle:.0f} ms, p95 {high:.0f} ms, first {first:.0f} ms",
                flush=True,
            )
            quick &= bool(middle < limit_ms)
            if address == "/runs":
                alone = median(asked(archive) for _ in range(times))
                print_ratio(f"{name}, {what}, to what the index answers alone", middle / 1000, alone)
        site.background.close()
    return quick


def main() -> int:
    """Measure both databases."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=10_000, metavar="N")
    parser.add_argument("--times", type=int, default=20, metavar="N", help="how often each page is asked for")
    parser.add_argument("--limit-ms", type=float, default=300, metavar="MS", help="the slowest median that passes")
    parser.add_argument("--archive", metavar="URL", help="PostgreSQL to use, with ?objects=/FOLDER")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        quick = measure("SQLite", str(folder / "sqlite"), folder, options.runs, options.times, options.limit_ms)
        url = options.archive
        if url is None:
            from postgresql import PostgresqlServer, find_programs

            programs = find_programs()
            if programs is None:
                print("no PostgreSQL server: apt-get install postgresql, or name one with --archive")
                return int(not quick)
            url = stack.enter_context(PostgresqlServer(programs)).url(folder / "files")
        quick &= measure("PostgreSQL", url, folder, options.runs, options.times, options.limit_ms)
    return int(not quick)


if __name__ == "__main__":
    sys.exit(main())
