"""The no-op experiment: a commit against itself through the gate of a pull request, as often as a busy project would.

A gate of ``--comparisons`` benchmarks judges the same commit as base and as head, ``--times`` times, each with
``script/compare-builds``: two checkouts, two builds, one command of both in turns. Nothing differs, so each word
of a difference is false, and each red gate is one that somebody would have to look into for nothing.

A comparison is called different in at most 5 % of cases, half of them slower; the interval is the exact binomial one
(Clopper and Pearson). The exit code is 1 if false words are more than that, beyond the interval.

    python benchmarks/noop_gate.py [--times N] [--comparisons N] [--runs N] [--command COMMAND]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from aa import UNDECIDED, line
from common import FOLDER, parser_of

from bench_common.errors import ExitCode
from bench_master.verdicts.decision import ALPHA
from bench_master.verdicts.student import binomial_interval

SCRIPT: Final = FOLDER.parent / "script" / "compare-builds"
LIMIT_S: Final = 600.0
HOLDS: Final = 0
FAILS: Final = 1
UNJUDGED: Final = 4
"""Exit codes of the script."""
PROGRAM: Final = "total = 0\nfor number in range(300_000):\n    total += number * number\nprint(total)\n"
"""What is compared unless --command names something else: tens of milliseconds of a Python."""


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


def gate(repository: Path, program: Path, command: str, runs: int) -> tuple[str, int]:
    """Weigh the commit against itself; return the verdict and the script's exit code."""
    out = repository.with_name("out")
    report = out / "run.json"
    words = ["--runs", str(runs), "--out", str(out), "HEAD", "HEAD", command, "--", "--export", "json", str(report)]
    done = subprocess.run(
        [str(SCRIPT), *words],
        cwd=repository,
        env={**os.environ, "WEIGHBRIDGE": str(program), "PYTHONPATH": str(FOLDER.parent)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode not in (HOLDS, FAILS, UNJUDGED):
        print(done.stdout + done.stderr, file=sys.stderr)
        raise SystemExit(int(ExitCode.INFRASTRUCTURE))
    (comparison,) = json.loads(report.read_text())["verdicts"]["comparisons"]
    report.unlink()
    return str(comparison["verdict"]), done.returncode


def main() -> int:
    """Print a line for each time, then the shares."""
    parser = parser_of(__doc__)
    parser.add_argument("--times", type=int, default=20, metavar="N", help="gates (default: 20)")
    parser.add_argument("--comparisons", type=int, default=25, metavar="N", help="comparisons of each (default: 25)")
    parser.add_argument("--runs", type=int, default=10, metavar="N", help="rounds of each (default: 10)")
    loop = f"{sys.executable} program.py"
    parser.add_argument("--command", default=loop, metavar="COMMAND", help="what is weighed (default: a loop)")
    options = parser.parse_args()
    began = time.monotonic()
    verdicts: Counter[str] = Counter()
    codes: Counter[int] = Counter()
    red_gates = 0
    with tempfile.TemporaryDirectory(prefix="weighbridge-noop-") as name:
        repository = Path(name, "project")
        repository.mkdir()
        project(repository)
        program = weighbridge(Path(name))
        for number in range(1, options.times + 1):
            own = [gate(repository, program, options.command, options.runs) for _ in range(options.comparisons)]
            verdicts.update(word for word, _ in own)
            codes.update(code for _, code in own)
            red_gates += any(code == FAILS for _, code in own)
            counted = Counter(word for word, _ in own)
            print(f"gate {number}: {', '.join(f'{word} {times}' for word, times in counted.items())}", flush=True)
    total = options.times * options.comparisons
    false = sum(times for word, times in verdicts.items() if word not in UNDECIDED)
    size = f"{options.times} times {options.comparisons} comparisons of {options.runs} rounds"
    print(f"\na commit against itself: {size}, {time.monotonic() - began:.0f} s; verdicts: {dict(verdicts)}\n")
    print(line("false words", false, total))
    print(line("red comparisons (exit code 1)", codes[FAILS], total))
    print(line("comparisons without a judgement (exit code 4)", codes[UNJUDGED], total))
    print(line("gates with a red comparison", red_gates, options.times))
    return int(binomial_interval(false, total)[0] > ALPHA)


if __name__ == "__main__":
    sys.exit(main())
