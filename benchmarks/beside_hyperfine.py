"""Beside hyperfine: how often each calls a program right that takes 3 % longer, on a machine that slowly changes.

Both weigh the same two commands with as many executions. The commands are one program that computes for ``--ms``
(drifting_program.c); the second computes longer by the true difference. Each execution of either is longer than the
one before by a fixed share, so that the last of a comparison takes longer than the first by the drift: a machine
that becomes hot. What else happens on this machine happens to both tools.

Of Weighbridge the verdict of ``weigh -r N`` is judged. hyperfine prints no verdict: its line "A ran 1.03 +- 0.01
times faster than B" is taken as a difference where the ratio is further from 1 than the +- says. With no true
difference, a tool is right that claims none.

    python benchmarks/beside_hyperfine.py [--times N] [--runs N] [--ms N]
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from common import FOLDER, parser_of

from bench_common.errors import ExitCode

CASES: Final = ((0.03, 0.0), (0.03, 0.1), (0.03, -0.1), (0.0, 0.0), (0.0, 0.1))
"""True difference, and the drift over a comparison."""
LIMIT_S: Final = 300.0
WORDS: Final = ("right", "no word", "wrong")


def build(folder: Path) -> tuple[Path, Path]:
    """Compile the program under two names of one length; exit with code 3 if there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        print("the program is in C: apt-get install gcc libc6-dev", file=sys.stderr)
        raise SystemExit(int(ExitCode.INFRASTRUCTURE))
    program, copy = folder / "first-program", folder / "other-program"
    source = FOLDER / "drifting_program.c"
    subprocess.run([compiler, "-O1", "-o", str(program), str(source)], check=True, timeout=LIMIT_S)
    shutil.copy2(program, copy)
    return program, copy


def iterations_of(program: Path, folder: Path, seconds: float) -> int:
    """Return how many steps take so long: the fastest of five trials of the program."""
    steps = 10_000_000
    times = []
    for _ in range(5):
        began = time.perf_counter()
        subprocess.run([program, folder / "calibration", str(steps), "0"], check=True, timeout=LIMIT_S)
        times.append(time.perf_counter() - began)
    return round(steps * seconds / min(times))


def commands(
    programs: Sequence[Path], counter: Path, steps: int, case: tuple[float, float], executions: int
) -> list[str]:
    """Return the two command lines; both count their executions in `counter`, which is made anew."""
    counter.unlink(missing_ok=True)
    truth, drift = case
    return [
        f"{program} {counter} {round(steps * (1 + more))} {drift / executions:.9f}"
        for program, more in zip(programs, (0.0, truth), strict=True)
    ]


def weighed(pair: Sequence[str], runs: int, folder: Path) -> str:
    """Return the verdict on the second of two commands."""
    words = ["-q", "weigh", "-r", str(runs), "-s", str(folder / "run.stats.gz"), "--format", "json", *pair]
    (folder / "run.stats.gz").unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "bench_master", *words], capture_output=True, text=True, timeout=LIMIT_S, check=True
    )
    (comparison,) = json.loads(done.stdout)["verdicts"]["comparisons"]
    return str(comparison["verdict"])


def hyperfined(pair: Sequence[str], runs: int, folder: Path) -> str:
    """Return what hyperfine's line says of the second of two commands: slower, faster or nothing."""
    report = folder / "hyperfine.json"
    words = ["hyperfine", "-N", "--warmup", "1", "--runs", str(runs), "--export-json", str(report), *pair]
    subprocess.run(words, capture_output=True, timeout=LIMIT_S, check=True)
    first, second = json.loads(report.read_text())["results"]
    ratio = second["mean"] / first["mean"]
    sigma = ratio * math.hypot(first["stddev"] / first["mean"], second["stddev"] / second["mean"])
    return "slower" if ratio - sigma > 1 else "faster" if ratio + sigma < 1 else "none"


def judged(word: str, truth: float) -> str:
    """Say whether a word is right about a second command that takes longer by `truth`."""
    if word in {"slower", "faster"}:
        return "right" if truth > 0 and word == "slower" else "wrong"
    return "no word" if truth > 0 else "right"


def main() -> None:
    """Print a row for each case and tool, and the ratio of right calls over all cases."""
    parser = parser_of(__doc__)
    parser.add_argument("--times", type=int, default=20, metavar="N", help="comparisons of each case (default: 20)")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="executions of each command (default: 20)")
    parser.add_argument(
        "--ms", type=float, default=20.0, metavar="MS", help="how long the program takes (default: 20)"
    )
    options = parser.parse_args()
    if shutil.which("hyperfine") is None:
        print("hyperfine is missing: apt-get install hyperfine", file=sys.stderr)
        raise SystemExit(int(ExitCode.INFRASTRUCTURE))
    tools = {"weighbridge": weighed, "hyperfine": hyperfined}
    found = {(case, tool): Counter[str]() for case in CASES for tool in tools}
    with tempfile.TemporaryDirectory(prefix="weighbridge-beside-") as name:
        folder = Path(name)
        programs = build(folder)
        steps = iterations_of(programs[0], folder, options.ms / 1000)
        for _ in range(options.times):
            for case in CASES:
                for tool, ask in tools.items():
                    # One execution of each command warms up.
                    pair = commands(programs, folder / "counter", steps, case, 2 * (options.runs + 1))
                    found[case, tool][judged(ask(pair, options.runs, folder), case[0])] += 1
    print(f"{options.times} comparisons of each case, {options.runs} executions of {options.ms:g} ms of each command")
    print(f"{'true difference':<17}{'drift':<9}{'tool':<13}" + "".join(f"{word:>9}" for word in WORDS))
    for ((truth, drift), tool), counts in found.items():
        numbers = "".join(f"{counts[word]:>9}" for word in WORDS)
        print(f"{100 * truth:<+17.0f}{100 * drift:<+9.0f}{tool:<13}{numbers}")
    right = {tool: sum(found[case, tool]["right"] for case in CASES) for tool in tools}
    wrong = {tool: sum(found[case, tool]["wrong"] for case in CASES) for tool in tools}
    total = options.times * len(CASES)
    for tool in tools:
        print(f"{tool}: right in {right[tool]} of {total}, wrong in {wrong[tool]}")


if __name__ == "__main__":
    main()
