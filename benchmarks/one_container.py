"""What a start of Weighbridge costs: a run of one container, ``bench-master --help``, a worker that waits.

Each figure is CPU time, user and system, of a command and of all processes that it waited for; of a daemon none is
counted. All commands take turns, and each figure is the median of its turns. Modules are compiled beforehand, as they
are where Weighbridge is installed, whatever the environment says about bytecode.

The run is one life cycle of `life_cycles.py` under each engine that is usable here: run, kill and remove a container
that sleeps. Its baselines are the engine's own command for the same (the last client of the engine's bare clients),
and two interpreters that import zmq, gevent and numpy: a master and a worker cannot cost less. Then workers are
watched that have nothing to do, beside a loop of gevent that wakes up as often as they ask for a master: one
without a master, and one with a single job that sleeps, with its heartbeats and samples.

    python benchmarks/one_container.py [--engine native,docker,...] [--repeats N] [--idle SECONDS]
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
from common import FOLDER, master_command, parser_of, print_ratio, treatment_of
from life_cycles import MODULES, bare_module, cpu_ms, engines, scenario_of

PYTHON: Final = "an interpreter"
LIBRARIES: Final = "zmq, gevent and numpy"
HELP: Final = "bench-master --help"
WAKES_PER_S: Final = 2
"""How often a worker that waits asks for its master."""
LOOP: Final = f"import gevent\nwhile True: gevent.sleep({1 / WAKES_PER_S})"
WAITING: Final = "a worker that waits for a master"
IN_A_RUN: Final = "a worker whose one job sleeps"
WAKING: Final = "a loop that wakes as often"
START_S: Final = 60.0
"""How long programs may take to start."""
REST_S: Final = 2.0
BUSY_PERCENT: Final = 10.0
"""A program that takes more of a CPU than this is still starting."""


def run_quietly(*command: str) -> None:
    """Run a command to its end."""
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def run_one(engine: str, options: argparse.Namespace) -> None:
    """Run one container under an engine, through Weighbridge."""
    treatment_of(scenario_of(engine, options), "--workers", "1", "-u", "1", "-o", "1")


def cost_ms(measure: Callable[[], object]) -> float:
    """Return the CPU time of this process and of those that it waits for while `measure` runs."""
    before = sum(cpu_ms())
    measure()
    return sum(cpu_ms()) - before


def usable(engine: str, options: argparse.Namespace, own: dict[str, tuple[str, Callable[[], object]]]) -> bool:
    """Return whether an engine can run a container here; note its own command in `own`, if it has one."""
    try:
        run_one(engine, options)
    except subprocess.CalledProcessError as error:
        print(f"{engine} is left out: a run ended with exit code {error.returncode}", file=sys.stderr, flush=True)
        return False
    module = bare_module(engine)
    clients: Any = module if isinstance(module, str) else module.clients(engine, options)
    if isinstance(clients, str):
        print(f"{engine} has no command beside it: {clients}", file=sys.stderr, flush=True)
    else:
        name, loop = list(clients.items())[-1]
        own[engine] = (name, partial(loop, 1))
    return True


def measure_runs(names: list[str], options: argparse.Namespace) -> None:
    """Let all commands take turns, and print what each costs."""
    own: dict[str, tuple[str, Callable[[], object]]] = {}
    try:
        found = [engine for engine in names if usable(engine, options, own)]
        measures: dict[str, Callable[[], object]] = {
            PYTHON: partial(run_quietly, sys.executable, "-c", "pass"),
            LIBRARIES: partial(run_quietly, sys.executable, "-c", "import zmq, gevent, numpy"),
            HELP: partial(run_quietly, sys.executable, "-m", "bench_master", "--help"),
            **{f"a run under {engine}": partial(run_one, engine, options) for engine in found},
            **{f"{engine}: {name}": command for engine, (name, command) in own.items()},
        }
        turns: dict[str, list[float]] = {name: [] for name in measures}
        for turn in range(options.repeats):
            for name in list(measures) if turn % 2 == 0 else reversed(measures):
                turns[name].append(cost_ms(measures[name]))
    finally:
        for engine in own:
            bare_module(engine).clean_up(engine, options)
    middle = {name: median(each) for name, each in turns.items()}
    for name, each in turns.items():
        print(f"{name:<44} {middle[name]:8.1f} ms of CPU ({min(each):.0f} to {max(each):.0f})")
    print_ratio(f"{HELP} to {PYTHON}", middle[HELP], middle[PYTHON])
    for engine in found:
        ours = middle[f"a run under {engine}"]
        print_ratio(f"a run under {engine} to two interpreters with {LIBRARIES}", ours, 2 * middle[LIBRARIES])
        if engine in own:
            name = own[engine][0]
            print_ratio(f"a run under {engine} to {name}", ours, max(0.1, middle[f"{engine}: {name}"]))


def family(process: psutil.Process) -> list[psutil.Process]:
    """Return a process and all that came of it."""
    return [process, *process.children(recursive=True)]


def taken_ms(processes: list[psutil.Process]) -> float:
    """Return the CPU time so far of some processes, in milliseconds."""
    times = [each.cpu_times() for each in processes]
    return 1000 * sum(each.user + each.system for each in times)


def measure_idle(seconds: float, directory: str) -> None:
    """Print how much of a CPU a worker takes that has nothing to do, and how much a loop that does nothing."""
    nap_s = START_S + 2 * seconds
    scenario = {
        "name": "idle",
        "engines": ["native"],
        "timeout": f"{2 * nap_s:g}s",
        "job": {"operations": ["run", "wait"], "container": {"command": ["sleep", f"{nap_s:g}"]}},
    }
    waiting = [sys.executable, "-m", "bench_worker", "--zmq-host", "127.0.0.1", "--insecure", "--engines", "native"]
    waiting += ["--zmq-control-port", "1", "idle"]  # a port at which nobody listens
    with Path(directory, "idle.log").open("wb") as output:
        started = [
            psutil.Popen(command, stdout=output, stderr=output)
            for command in (
                master_command(directory, scenario, "--workers", "1", "-u", "1", "-o", "1"),
                waiting,
                [sys.executable, "-c", LOOP],
            )
        ]
        try:
            working, alone, loop = started
            await_nap(working)
            watched = {
                WAITING: family(alone),
                IN_A_RUN: family(working)[1:],
                "its master": [working],
                WAKING: [loop],
            }
            await_rest(watched)
            shares = shares_of(watched, seconds)
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(START_S)
    for name, percent in shares.items():
        print(f"{name:<44} {percent:8.2f} % of a CPU over {seconds:g} s")
    # /proc counts in ticks, and a loop that does nothing may have none.
    tick = 100 / os.sysconf("SC_CLK_TCK") / seconds
    for name in (WAITING, IN_A_RUN):
        print_ratio(f"{name} to {WAKING}", max(shares[name], tick), max(shares[WAKING], tick))


def shares_of(watched: dict[str, list[psutil.Process]], seconds: float) -> dict[str, float]:
    """Return the share of a CPU that some processes take together for so long, in percent."""
    before, began = {name: taken_ms(each) for name, each in watched.items()}, time.monotonic()
    time.sleep(seconds)
    lasted_s = time.monotonic() - began
    return {name: (taken_ms(each) - before[name]) / lasted_s / 10 for name, each in watched.items()}


def await_nap(master: psutil.Process) -> None:
    """Wait until the job of a run sleeps."""
    deadline = time.monotonic() + START_S
    while not any(each.name() == "sleep" for each in master.children(recursive=True)):
        if time.monotonic() > deadline:
            raise SystemExit(f"no job has begun within {START_S:g} s")
        time.sleep(0.1)


def await_rest(watched: dict[str, list[psutil.Process]]) -> None:
    """Wait until all have loaded what they need, and take next to nothing."""
    deadline = time.monotonic() + START_S
    while max(shares_of(watched, REST_S).values()) > BUSY_PERCENT:
        if time.monotonic() > deadline:
            raise SystemExit(f"the programs have not come to rest within {START_S:g} s")


def main() -> None:
    """Measure the starts, then what is idle."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", type=engines, default=",".join(MODULES))
    parser.add_argument("--repeats", type=int, default=7, help="how many turns each command has")
    parser.add_argument("--idle", type=float, default=20.0, help="how long to watch a worker that waits, in seconds")
    parser.add_argument("--image", default="weighbridge/base")
    parser.add_argument("--mark", default=secrets.token_hex(6), help="label of the clients' containers")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that containers are removed
    with tempfile.TemporaryDirectory() as directory:
        os.environ |= {"PYTHONPYCACHEPREFIX": directory, "PYTHONPATH": str(FOLDER.parent)}
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        run_quietly(sys.executable, "-m", "bench_master", "--help")
        run_quietly(sys.executable, "-c", "import zmq, gevent, numpy")
        measure_runs(options.engine, options)
        if options.idle:
            measure_idle(options.idle, directory)


if __name__ == "__main__":
    main()
