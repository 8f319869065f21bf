"""What the live page costs a run: the no-op ceiling and the master's loop, with `--web` and without, in turn.

Three runs take turns: without a page; with a page that nobody looks at; with one reader, who reads all. Of each pair
of one turn the ratio is taken, so that what the machine does besides cancels; printed is the estimate of the ratio
(Hodges and Lehmann) with its interval (exact, by signed ranks, 95 %). With nobody looking it should contain 1.

    python benchmarks/web.py [--repeats N] [--jobs N] [--concurrency N] [--workers N]
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import tempfile
import threading
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import numpy as np
from common import ONE_OPERATION, master_command, noop_scenario, parser_of, print_ratio

from bench_common.stats.reader import StatsFile
from bench_master.verdicts.signed_rank import estimate, exact_interval

KINDS = {"without": (), "nobody looks": ("--web", "127.0.0.1:0"), "one reader": ("--web", "127.0.0.1:0")}


def read_stream(url: str) -> None:
    """Read the page's stream until the run ends."""
    parts = urlsplit(url)
    own = {"Host": parts.netloc, "Origin": f"http://{parts.netloc}", "Content-Type": "application/json"}
    with closing(HTTPConnection(parts.hostname or "", parts.port, timeout=60)) as connection:
        connection.request("POST", "/session", json.dumps({"token": parts.fragment.removeprefix("t=")}), own)
        answer = connection.getresponse()
        answer.read()
        cookie = answer.headers["Set-Cookie"].partition(";")[0]
    with closing(HTTPConnection(parts.hostname or "", parts.port, timeout=60)) as connection:
        connection.request("GET", "/events", headers={"Host": parts.netloc, "Cookie": cookie})
        stream = connection.getresponse()
        while stream.read1():
            pass


def run_once(options: argparse.Namespace, kind: str) -> dict[str, float]:
    """Run once; return jobs per second, and of the master's loop the busy share and the largest lag."""
    words = ["--noop", "--workers", str(options.workers), "-u", str(options.concurrency), "-o", str(options.jobs)]
    with tempfile.TemporaryDirectory() as directory:
        command = master_command(directory, noop_scenario(ONE_OPERATION), *words, *KINDS[kind], "--format", "json")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            told = []
            readers = []
            for line in process.stderr if kind != "without" else ():
                told.append(line)
                found = re.match(r"live page: (http://\S+)", line)
                if found:
                    if kind == "one reader":
                        readers.append(threading.Thread(target=read_stream, args=(found[1],)))
                        readers[-1].start()
                    break
            out, rest = process.communicate()
            for reader in readers:
                reader.join(60)
            if process.returncode:
                raise SystemExit(f"the run failed: {''.join(told)}{rest}")
        loops = [
            block.body
            for block in StatsFile(Path(directory, "run.stats.gz")).blocks({"samples"})
            if block.body.worker == -1 and block.body.source == "loop"
        ]
    return {
        "jobs/s": float(json.loads(out)["treatments"][0]["jobs_per_s"]),
        "busy share of the master's loop": median(float(x) for each in loops for x in each.columns["busy_share"]),
        "largest lag of the master's loop": max(float(x) for each in loops for x in each.columns["lag_max_ns"]) / 1e6,
    }


def main() -> None:
    """Measure in turn, and print the ratios."""
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--concurrency", type=int, default=24)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    for turn in range(options.repeats):
        # The order rotates: none always follows the same one.
        kinds = list(KINDS)[turn % 3 :] + list(KINDS)[: turn % 3]
        for kind in kinds:
            found[kind].append(run_once(options, kind))
        told = "   ".join(f"{kind} {runs[-1]['jobs/s']:,.0f}" for kind, runs in found.items())
        print(f"turn {turn + 1}: {told}  jobs/s", flush=True)
    for measure in found["without"][0]:
        base = [each[measure] for each in found["without"]]
        print(f"{measure}: {median(base):,.4g} without a page (median)")
        for kind in list(KINDS)[1:]:
            logs = [
                math.log(one[measure] / other)
                for one, other in zip(found[kind], base, strict=True)
                if one[measure] and other
            ]
            print_interval(f"of {measure}, {kind}, to none", logs)


def print_interval(what: str, logs: list[float]) -> None:
    """Print the estimate of a ratio and its interval, which is infinite with less than six turns."""
    values = np.array(logs)
    if len(values):
        interval = exact_interval(values, values, 0.05)
        low, high = (math.exp(end) for end in (interval.low, interval.high))
        print_ratio(f"{what} (95 % interval {low:.4g} to {high:.4g})", math.exp(estimate(values)), 1.0)


if __name__ == "__main__":
    main()
