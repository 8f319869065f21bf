"""An archive of ten thousand runs of a known truth: how long lists, runs and series take, on SQLite and PostgreSQL.

    python benchmarks/archive.py [--runs N] [--archive URL] [--keep FOLDER]

The runs are synthetic: two engines, six trials, 2 % noise from run to run, and a step of 6 % in one of the two series
of every second scenario, half-way. They go into the index as contents, without stats files. PostgreSQL is used where
Debian's server is installed or ``--archive`` names one.

Each question is asked five times; the median is compared with what the same rows take with a bare driver. The exit
code is 1 if a question takes 300 ms or more.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
from common import parser_of, print_ratio

from bench_features.archive.archive import Archive
from bench_features.archive.contents import HostContents, RunContents, TreatmentContents, TrialContents, ValueContents
from bench_features.archive.index import add_run
from bench_features.archive.types import RunFilter

LIMIT_S: Final = 0.3
SCENARIOS: Final = 2
TRIALS: Final = 6
STEP: Final = 1.06
SPREAD: Final = 0.02
BEGIN_S: Final = 1.6e9
HOUR_S: Final = 3600.0
BATCH: Final = 200
OPERATIONS: Final = ("create", "start", "exec", "remove", "job")
FACTS: Final = {"architecture": "x86_64", "cpu_model": "Synthetic CPU", "kernel": "6.1.0", "memory": str(2**34)}


def synthetic_run(number: int, runs: int, generator: np.random.Generator) -> RunContents:
    """Return one run of the known truth."""
    scenario = number % SCENARIOS
    created = BEGIN_S + number * HOUR_S
    treatments = []
    for place, engine in enumerate(("docker", "native")):
        stepped = scenario == 0 and engine == "docker" and number >= runs // 2
        level = (0.1 if engine == "docker" else 0.01) * (STEP if stepped else 1.0)
        level *= float(np.exp(SPREAD * generator.normal()))
        trials = (level * np.exp(0.01 * generator.normal(size=TRIALS))).tolist()
        values = [
            ValueContents(
                kind="operation", name=name, unit="s", direction="lower", level=float(np.median(trials)),
                trials=dict.fromkeys(("mean", "p50", "p95", "p99", "max"), trials),
            )
            for name in OPERATIONS
        ]  # fmt: skip
        primary = dict.fromkeys(("value", "low", "high"), trials)
        values.append(
            ValueContents(
                kind="primary",
                name="job.p50",
                unit="s",
                direction="lower",
                level=float(np.median(trials)),
                trials=primary,
            )
        )
        shares = np.linspace(0, 1, 60).tolist()
        treatments.append(
            TreatmentContents(
                position=place, title=f"engine={engine}", labels={"engine": engine, "environment": "lab"},
                engine=engine, engine_version="28.1", key_hash=f"{scenario}{engine}", done=TRIALS,
                trials=[TrialContents(number=n, block=n, begin_s=n, end_s=n + level, done=1) for n in range(TRIALS)],
                values=values, summary={"title": f"engine={engine}", "operations": {}},
                quantiles={"job": [shares, (level * np.exp(np.array(shares))).tolist()]},
            )
        )  # fmt: skip
    host = HostContents(label=f"blade{scenario}", environment="lab", facts=FACTS, engines={"docker": "28.1"})
    return RunContents(
        sha256=f"{generator.bytes(32).hex()}", state="complete", bytes=100_000, run_id=f"{number:012x}",
        created=created, ended=created + 60, duration_s=60.0, status="complete", scenario=f"scenario-{scenario}",
        seed=number, version="0.1.0", versions={"weighbridge": "0.1.0"}, argv=["bench-master"], hosts=[host],
        treatments=treatments,
    )  # fmt: skip


def fill(archive: Archive, runs: int) -> float:
    """Put the runs into the index; return how long that took."""
    generator = np.random.default_rng(20)
    began = time.perf_counter()
    for first in range(0, runs, BATCH):
        batch = [synthetic_run(number, runs, generator) for number in range(first, min(first + BATCH, runs))]
        with archive.locked(), archive.database.writing() as connection:
            for run in batch:
                add_run(connection, run)
    archive.annotate([(run.sha256, "tag", "nightly") for run in archive.runs(RunFilter(limit=50))])
    return time.perf_counter() - began


def questions(archive: Archive) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what a page or a command asks."""
    newest = archive.runs(RunFilter(limit=1))[0]
    series = archive.series()[0]
    yield "all runs", archive.runs
    yield "the newest 100", lambda: archive.runs(RunFilter(limit=100))
    yield "the newest 100 of a scenario and host", lambda: archive.runs(RunFilter("scenario-1", "blade1", limit=100))
    yield "runs with a tag", lambda: archive.runs(RunFilter(tag="nightly"))
    yield "count", archive.count
    yield "one run", lambda: archive.run(newest.id)
    yield "every series", archive.series
    yield f"the points of a series ({series.runs:,} runs)", lambda: archive.points(series.key)
    yield "the points of another measure", lambda: archive.points(series.key, "start.p95")


def bare(archive: Archive) -> float:
    """Return how long the driver alone takes to read every row of runs."""
    connection = archive.database.engine.raw_connection()
    try:
        began = time.perf_counter()
        cursor = connection.cursor()
        cursor.execute("SELECT * FROM run")
        cursor.fetchall()
        return time.perf_counter() - began
    finally:
        connection.close()


def measure(name: str, url: str, runs: int) -> bool:
    """Fill an archive and time the questions; return whether all of them are quick."""
    quick = True
    with Archive.open(url, create=True) as archive:
        took = fill(archive, runs)
        print(f"{name}: {runs:,} runs indexed in {took:.0f} s, {1000 * took / runs:.1f} ms each", flush=True)
        for question, ask in questions(archive):
            times = []
            for _ in range(5):
                began = time.perf_counter()
                ask()
                times.append(time.perf_counter() - began)
            print(f"{name}: {question}: {1000 * median(times):.0f} ms, at best {1000 * min(times):.0f}", flush=True)
            quick &= median(times) < LIMIT_S
            if question == "all runs":
                print_ratio(
                    f"{name}, all runs, to the bare driver", median(times), median(bare(archive) for _ in range(5))
                )
    return quick


def main() -> int:
    """Measure both databases."""
    parser = parser_of(__doc__)
    parser.add_argument("--runs", type=int, default=10_000, metavar="N")
    parser.add_argument("--archive", metavar="URL", help="PostgreSQL to use, with ?objects=/FOLDER")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="make SQLite's archive there and keep it")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        quick = measure("SQLite", str(options.keep or f"{folder}/sqlite"), options.runs)
        url = options.archive
        if url is None:
            sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
            from postgresql import PostgresqlServer, find_programs

            programs = find_programs()
            if programs is None:
                print("no PostgreSQL server: apt-get install postgresql, or name one with --archive")
                return int(not quick)
            url = stack.enter_context(PostgresqlServer(programs)).url(f"{folder}/files")
        quick &= measure("PostgreSQL", url, options.runs)
    return int(not quick)


if __name__ == "__main__":
    sys.exit(main())
