"""The no-op experiment: a commit against itself through the gate of a pull request, as often as a busy project would.

A gate of ``--comparisons`` benchmarks judges the same commit as base and as head, ``--times`` times. Nothing differs,
so each word of a difference is false, and each red gate is one that somebody would have to look into for nothing.

The first ``--measured`` gates are weighed, each comparison by ``script/compare-builds``: two checkouts, one command
of both in turns. The others are simulated: each of their comparisons is a weighed one, drawn at random, in whose
rounds a coin decides which trial is called base and which head; the product judges its stats file again.

A comparison is called different in at most 5 % of cases, half of them slower; the interval is the exact binomial one
(Clopper and Pearson). The exit code is 1 if false words are more than that, beyond the interval.

    python benchmarks/noop_gate.py [--times N] [--measured N] [--comparisons N] [--runs N] [--command COMMAND]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from aa import UNDECIDED, line
from common import FOLDER, parser_of

from bench_common.errors import ExitCode
from bench_common.stats.reader import StatsFile
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.reports import ReportSource
from bench_master.verdicts.decision import ALPHA
from bench_master.verdicts.student import binomial_interval

SCRIPT: Final = FOLDER.parent / "script" / "compare-builds"
CONDITION: Final = "slower"
"""What makes a gate red, as the script has it."""
LIMIT_S: Final = 600.0
JUDGED: Final = (ExitCode.OK, ExitCode.THRESHOLD, ExitCode.INCONCLUSIVE)
"""What a comparison ends with; anything else is a failure of this experiment."""
SEED: Final = 7
PROGRAM: Final = "total = 0\nfor number in range(300_000):\n    total += number * number\nprint(total)\n"
"""What is compared unless --command names something else: tens of milliseconds of a Python."""

Outcome = tuple[str, ExitCode]
"""The verdict of a comparison, and the exit code of its gate."""


def project(folder: Path) -> None:
    """Make a repository of one commit, with the program in it."""
    (folder / "program.py").write_text(PROGRAM)
    git = ["git", "-C", str(folder), "-c", "user.name=noop", "-c", "user.email=noop@example.org"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "The only commit"]):
        subprocess.run([*git, *words], check=True, timeout=LIMIT_S)


def weighbridge(folder: Path) -> Path:
    """Write a program that is the Weighbridge of this folder, as the script calls one."""
    path = folder / "weighbridge"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m bench_master "$@"\n')
    path.chmod(0o755)
    return path


def judged(stats: Path, coin: np.random.Generator | None = None) -> Outcome:
    """Judge a comparison; with a coin, which decides in each round anew which trial is called base."""
    source = ReportSource(StatsFile(stats), options=VerdictOptions(fail_on=(CONDITION,)))
    if coin is not None:
        header = source.stats.header
        turned = coin.integers(2, size=1 + max(block for _, block, _ in header.trials))
        header.trials = [(side ^ int(turned[block]), block, warmup) for side, block, warmup in header.trials]
    assert source.document.verdicts is not None
    (comparison,) = source.document.verdicts.comparisons
    return comparison.verdict, source.exit_code()


def weighed(repository: Path, program: Path, command: str, runs: int, stats: Path) -> Outcome:
    """Weigh the commit against itself, as the script does; keep the stats file."""
    out = repository.with_name("out")
    words = ["--runs", str(runs), "--fail-on", CONDITION, "--out", str(out), "HEAD", "HEAD", command]
    done = subprocess.run(
        [str(SCRIPT), *words],
        cwd=repository,
        env={**os.environ, "WEIGHBRIDGE": str(program), "PYTHONPATH": str(FOLDER.parent)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode not in JUDGED:
        print(done.stdout + done.stderr, file=sys.stderr)
        raise SystemExit(int(ExitCode.INFRASTRUCTURE))
    (out / "run.stats.gz").rename(stats)
    verdict, code = judged(stats)
    assert code == done.returncode, f"the script ended with {done.returncode}, its stats file says {code}"
    return verdict, code


def told(what: str, gates: Iterator[list[Outcome]], size: str) -> bool:
    """Print the shares of some gates; return whether they have more false words than allowed, beyond doubt."""
    began, found = time.monotonic(), []
    for number, own in enumerate(gates, 1):
        found.append(own)
        counted = Counter(verdict for verdict, _ in own)
        print(f"{what} gate {number}: {', '.join(f'{word} {times}' for word, times in counted.items())}", flush=True)
    if not found:
        return False
    every = [outcome for own in found for outcome in own]
    false = sum(verdict not in UNDECIDED for verdict, _ in every)
    print(f"\n{what}: {len(found)} times {size}, {time.monotonic() - began:.0f} s")
    print(line("false words", false, len(every)))
    for meaning, code in (("red comparisons", ExitCode.THRESHOLD), ("not judged", ExitCode.INCONCLUSIVE)):
        print(line(f"{meaning} (exit code {int(code)})", sum(own == code for _, own in every), len(every)))
    red = sum(any(code == ExitCode.THRESHOLD for _, code in own) for own in found)
    print(line("gates with a red comparison", red, len(found)) + "\n", flush=True)
    return binomial_interval(false, len(every))[0] > ALPHA


def main() -> int:
    """Print a line for each gate, then the shares."""
    parser = parser_of(__doc__)
    parser.add_argument("--times", type=int, default=20, metavar="N", help="gates (default: 20)")
    parser.add_argument("--measured", type=int, default=4, metavar="N", help="how many are weighed (default: 4)")
    parser.add_argument("--comparisons", type=int, default=25, metavar="N", help="comparisons of each (default: 25)")
    parser.add_argument("--runs", type=int, default=10, metavar="N", help="rounds of each (default: 10)")
    loop = f"{sys.executable} program.py"
    parser.add_argument("--command", default=loop, metavar="COMMAND", help="what is weighed (default: a loop)")
    options = parser.parse_args()
    if not 1 <= options.measured <= options.times:
        parser.error("--measured: expected 1 or more, and no more than --times")
    each = range(options.comparisons)
    with tempfile.TemporaryDirectory(prefix="weighbridge-noop-") as name:
        repository, files = Path(name, "project"), Path(name, "files")
        repository.mkdir()
        files.mkdir()
        project(repository)
        program, coin = weighbridge(Path(name)), np.random.default_rng(SEED)
        kept = [[files / f"{gate}-{number}.stats.gz" for number in each] for gate in range(options.measured)]
        drawn = [path for own in kept for path in own]
        weighs = ([weighed(repository, program, options.command, options.runs, path) for path in own] for own in kept)
        simulations = (
            [judged(drawn[coin.integers(len(drawn))], coin) for _ in each]
            for _ in range(options.times - options.measured)
        )
        size = f"{options.comparisons} comparisons of {options.runs} rounds"
        return int(any([told("weighed", weighs, size), told("simulated", simulations, size)]))


if __name__ == "__main__":
    sys.exit(main())
