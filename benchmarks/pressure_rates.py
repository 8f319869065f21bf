"""How often a trial is marked as held up: on a quiet host, which is false, and beside a neighbour, which is right.

Four parts. Noise of known shape goes through the rule of the product, far above the least excess that counts: the
worst case. Then real runs of three jobs of plain processes, in turn: short life cycles, writes that are synced, and
computing on every CPU; quiet first, and then each beside a neighbour that comes and goes by a clock of its own: it is
there for ``--on`` of every ``--every`` seconds. A trial counts as beside it if it was there for half of the trial,
and as quiet if it was not there at all. Last, so many trials as runs have are drawn from the quiet ones again and
again, and judged together.

The neighbours are a busy loop on half of the CPUs (so the host has idle CPU) and two on each, a writer that syncs
each MiB, and a reader of a file that is larger than the memory that its control group allows (as root).

Of the host's own quiet nothing is known but the load average, which is printed: what others do on it at that time is
told as false marks. ``--replay`` takes quiet trials from stats files of earlier runs instead.

    python benchmarks/pressure_rates.py [--rounds N] [--seconds S] [--replay FILE ...]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from aa import line
from common import master_command, parser_of

from bench_common.stats.reader import StatsFile
from bench_master.run_data.measured import MeasuredRun, SamplesLook
from bench_master.run_data.pressure import KINDS, MEASURES, MIN_TRIALS, stands_out
from bench_worker.host.pressure import PressureSampler

SIZES: Final = (MIN_TRIALS, 10, 20, 40)
"""Trials of a treatment, in the simulation and the draws."""
DRAWS: Final = 2_000
NOISES: Final = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
}
MOST_FALSE: Final = 0.01
"""The share of quiet trials that may be marked."""
BESIDE: Final = 0.5
"""A trial is beside a neighbour that was there for this share of it."""
NO_IDLE_CPU: Final = "no-idle-cpu"
NEIGHBOURS: Final = ("half of the CPUs", "all CPUs", "synced writes", "little memory")
MIB: Final = 1 << 20
READINGS: Final = 500
GROUP_BYTES: Final = 32 * MIB
FILE_BYTES: Final = 4 * GROUP_BYTES

BUSY: Final = "while True: pass"
WRITER: Final = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
while True:
    os.pwrite(file, bytes(1 << 20), 0)
    os.fsync(file)
"""
READER: Final = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
open(sys.argv[2], "w").write(str(os.getpid()))
while True:
    place = 0
    while os.pread(file, 1 << 20, place):
        place += 1 << 20
"""


def scenario(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the jobs: short life cycles, writes that are synced, computing."""
    write = f"dd if=/dev/zero of={folder}/own.$$ bs=256k count=4 conv=fsync 2>/dev/null; rm {folder}/own.$$"
    compute = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"
    commands: dict[str, list[str]] = {
        "life-cycles": ["true"],
        "writes": ["sh", "-c", write],
        "computing": ["sh", "-c", compute],
    }
    jobs: dict[str, dict[str, Any]] = {
        name: {"operations": ["run", "wait", "remove"], "container": {"command": command}}
        for name, command in commands.items()
    }
    jobs["computing"]["concurrency"] = os.cpu_count() or 1
    return {
        "name": "pressure",
        "engines": ["native"],
        "repeats": options.rounds,
        "warmup": 1,
        "run_seconds": f"{options.seconds:g}s",
        "jobs": jobs,
    }


def program(text: str, *words: str) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own: the kernel divides the CPUs between sessions first."""
    return subprocess.Popen([sys.executable, "-c", text, *words], start_new_session=True)


def busy(count: int) -> list[subprocess.Popen[bytes]]:
    """Start busy loops."""
    return [program(BUSY) for _ in range(count)]


class Neighbour:
    """Comes and goes, until `end`; `times` are when it was there, in ns of CLOCK_MONOTONIC."""

    def __init__(self, start: Any, on_s: float, every_s: float) -> None:
        self.times: list[tuple[int, int]] = []
        self._start, self._on_s, self._off_s = start, on_s, every_s - on_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._come_and_go)
        self._thread.start()

    def _come_and_go(self) -> None:
        while not self._over.wait(self._off_s):
            programs, began_ns = self._start(), time.monotonic_ns()
            self._over.wait(self._on_s)
            for each in programs:
                each.kill()
                each.wait()
            self.times.append((began_ns, time.monotonic_ns()))

    def end(self) -> None:
        """Let it go for good."""
        self._over.set()
        self._thread.join()

    def share(self, begin_ns: int, end_ns: int) -> float:
        """Return for how much of a time it was there."""
        there = sum(max(0, min(end, end_ns) - max(begin, begin_ns)) for begin, end in self.times)
        return there / (end_ns - begin_ns)


@contextmanager
def memory_group() -> Iterator[tuple[Path, Path] | None]:
    """Make a control group of little memory; give its folder and the file that takes a process in; None without."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        folder = Path(root, f"weighbridge-neighbour-{os.getpid()}")
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            Path(folder, limit).write_text(str(GROUP_BYTES))
            yield folder, Path(folder, "cgroup.procs")
        except OSError:
            yield None
        finally:
            folder.rmdir()
        return
    yield None


class Rates:
    """The marks of one run."""

    def __init__(self, stats: Path, neighbour: Neighbour | None) -> None:
        run = MeasuredRun(StatsFile(stats))
        run.prepare({SamplesLook})
        marks: dict[int, set[str]] = {}
        for own in run.sums.disturbances.found.values():
            for one in own:
                marks.setdefault(one.trial, set()).add(one.kind)
        self.titles = [str(one.labels.get("job")) for one in run.sums.treatments]
        self.quiet: Counter[int] = Counter()
        self.false: Counter[int] = Counter()
        self.kinds: Counter[str] = Counter()
        self.beside: Counter[int] = Counter()
        self.found: Counter[int] = Counter()
        self.full: Counter[int] = Counter()
        """Trials beside a neighbour in which the host had no idle CPU, which is told instead of waits for a CPU."""
        self.by: dict[int, Counter[str]] = defaultdict(Counter)
        """The kinds of marks beside a neighbour, by treatment."""
        self.values: dict[str, list[list[float]]] = {}
        """The readings of quiet trials by measure, a list for each treatment and place."""
        quiet = set()
        for span in run.spans:
            kinds = marks.get(span.trial, set())
            share = neighbour.share(span.begin_ns, span.end_ns) if neighbour is not None else 0.0
            if share >= BESIDE:
                self.beside[span.treatment] += 1
                self.found[span.treatment] += bool(kinds & KINDS.keys())
                self.by[span.treatment].update(kinds & KINDS.keys())
                self.full[span.treatment] += NO_IDLE_CPU in kinds
            elif not share:
                quiet.add(span.trial)
                self.quiet[span.treatment] += 1
                self.false[span.treatment] += bool(kinds & KINDS.keys())
                self.kinds.update(kinds & KINDS.keys())
        for places in run.sums.disturbances.pressure.readings.values():
            for (name, _), readings in places.items():
                own_values = [one.share for one in readings if one.span.trial in quiet]
                self.values.setdefault(name, []).append(own_values)


def run_beside(options: argparse.Namespace, start: Any) -> Rates:
    """Make a run, beside a neighbour if `start` starts one, and return its marks."""
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        folder = Path(directory)
        command = master_command(directory, scenario(options, folder), "--workers", "1")
        neighbour = None if start is None else Neighbour(start, options.on, options.every)
        try:
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        finally:
            if neighbour is not None:
                neighbour.end()
        return Rates(folder / "run.stats.gz", neighbour)


def share(what: str, found: int, of: int) -> str:
    """Return one row: draws share trials, so there is no interval."""
    return f"{what:<44} {found:>6} of {of:<7} {100 * found / of:>6.2f} %"


def simulate() -> float:
    """Print how often a trial stands out by noise alone, of a spread far above the least excess; return the most."""
    rng = np.random.default_rng(1)
    print("noise alone, of a spread far above the least excess; share of trials that stand out:")
    worst = 0.0
    for name, noise in NOISES.items():
        for size in SIZES:
            drawn = noise(rng, (DRAWS * 10, size))
            found = sum(int(stands_out(one, 0.0).sum()) for one in drawn)
            print(share(f"{name}, {size} trials", found, drawn.size))
            worst = max(worst, found / drawn.size)
    return worst


def print_values(quiet: Sequence[Rates]) -> None:
    """Print what quiet trials read, and the least excess that counts."""
    print("\nreadings of quiet trials above their treatment's median, in points of a percent:")
    heads = ("readings", "median", "above: p95", "p99", "max", "least that counts")
    print(f"{'':<16} {'  '.join(heads)}")
    for measure in MEASURES:
        series = [np.array(own) for one in quiet for own in one.values.get(measure.name, []) if own]
        if not series:
            print(f"{measure.name:<16} none")
            continue
        above = 100 * np.concatenate([own if measure.absolute else own - np.median(own) for own in series])
        middle = 100 * float(np.median(np.concatenate(series)))
        p95, p99 = np.quantile(above, [0.95, 0.99])
        least = f"{100 * measure.least:.0f}{' (of all)' if measure.absolute else ''}"
        cells = (f"{len(above)}", *(f"{each:.1f}" for each in (middle, p95, p99, above.max())), least)
        row = (cell.rjust(len(head)) for cell, head in zip(cells, heads, strict=True))
        print(f"{measure.name:<16} {'  '.join(row)}")


def draw(quiet: Sequence[Rates]) -> None:
    """Print how often a trial stands out among others drawn from the same treatment's quiet trials."""
    rng = np.random.default_rng(2)
    print(f"\ntrials drawn from the quiet ones of a treatment, {DRAWS} times each; share of trials that are marked:")
    for size in SIZES:
        marked = drawn = 0
        for one in quiet:
            for treatment in range(len(one.titles)):
                own = {
                    name: np.array(lists[treatment])
                    for name, lists in one.values.items()
                    if treatment < len(lists) and len(lists[treatment]) >= size
                }
                count = min((len(values) for values in own.values()), default=0)
                for _ in range(DRAWS if count else 0):
                    places = rng.permutation(count)[:size]
                    found = np.zeros(size, bool)
                    for name, values in own.items():
                        measure, part = KINDS[name], values[places]
                        found |= part > measure.least if measure.absolute else stands_out(part, measure.least)
                    marked, drawn = marked + int(found.sum()), drawn + size
        if drawn:
            print(share(f"{size} trials", marked, drawn))


def reading_us() -> float:
    """Return the CPU time of a reading, in microseconds."""
    sampler = PressureSampler(os.getpid)
    began = time.thread_time()
    for _ in range(READINGS):
        sampler.sample()
    return 1e6 * (time.thread_time() - began) / READINGS


def load() -> str:
    """Return the load average of a minute."""
    return f"load average {os.getloadavg()[0]:.2f}"


def print_quiet(rates: Rates, what: str) -> None:
    """Print the false marks of quiet trials."""
    for treatment, title in enumerate(rates.titles):
        if rates.quiet[treatment]:
            print(line(f"{what}: {title}", rates.false[treatment], rates.quiet[treatment]))
    told = ", ".join(f"{kind} {count}" for kind, count in rates.kinds.most_common())
    print(line(f"{what}: all", rates.false.total(), max(1, rates.quiet.total())), f" {told}".rstrip())


def print_beside(rates: Rates, what: str) -> None:
    """Print the marks of trials beside a neighbour."""
    for treatment, title in enumerate(rates.titles):
        if rates.beside[treatment]:
            row = line(f"{what}: {title}", rates.found[treatment], rates.beside[treatment])
            told = "".join(f", {kind}: {count}" for kind, count in rates.by[treatment].most_common())
            print(f"{row}  no idle CPU: {rates.full[treatment]}{told}")


def main() -> int:
    """Print all of it; return 1 if noise of a known shape has too many marks."""
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=30, metavar="N", help="trials of each job (default: 30)")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="of a trial (default: 1)")
    parser.add_argument("--on", type=float, default=3.0, metavar="S", help="how long a neighbour stays (default: 3)")
    parser.add_argument("--every", type=float, default=15.0, metavar="S", help="how often it comes (default: 15)")
    parser.add_argument("--beside", nargs="+", default=NEIGHBOURS, choices=NEIGHBOURS, help="which neighbours")
    parser.add_argument("--quiet-only", action="store_true", help="no neighbours")
    parser.add_argument("--replay", nargs="+", default=[], type=Path, metavar="FILE", help="quiet runs of earlier")
    parser.add_argument("--directory", default="/var/tmp", metavar="DIR", help="on the disk to write to")
    options = parser.parse_args()
    worst = simulate()
    cpus = os.cpu_count() or 1
    print(f"\na reading takes {reading_us():.0f} us of CPU time")
    print(f"{cpus} CPUs; {load()} before the runs")
    quiet = [Rates(path, None) for path in options.replay] or [run_beside(options, None)]
    print("\nquiet trials that are marked:")
    for one in quiet:
        print_quiet(one, "quiet")
    print_values(quiet)
    draw(quiet)
    if options.quiet_only:
        return int(worst > MOST_FALSE)
    with tempfile.TemporaryDirectory(dir=options.directory) as directory, memory_group() as group:
        neighbours: dict[str, Any] = {
            "half of the CPUs": lambda: busy(max(1, cpus // 2)),
            "all CPUs": lambda: busy(2 * cpus),
            "synced writes": lambda: [program(WRITER, f"{directory}/neighbour")],
        }
        if group is not None:
            big = Path(directory, "big")
            with big.open("wb") as file:
                for _ in range(FILE_BYTES // MIB):
                    file.write(bytes(MIB))
                os.fsync(file.fileno())
                # What is in memory already is charged to nobody who reads it.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            neighbours["little memory"] = lambda: [program(READER, str(big), str(group[1]))]
        print("\ntrials beside a neighbour that are marked, and in the same runs quiet ones that are:")
        for name, start in neighbours.items():
            if name not in options.beside:
                continue
            print(f"{load()}", flush=True)
            rates = run_beside(options, start)
            print_beside(rates, name)
            print_quiet(rates, "without it")
            quiet.append(rates)
    found, of = sum(one.false.total() for one in quiet), sum(one.quiet.total() for one in quiet)
    print(line("\nquiet trials of all runs", found, max(1, of)))
    return int(worst > MOST_FALSE)


if __name__ == "__main__":
    sys.exit(main())
