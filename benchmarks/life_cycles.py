"""Life cycles of containers through Weighbridge, against clients of the same engine that keep no record of anything.

A life cycle is: run a container that sleeps (without a network), kill it (SIGKILL), wait until it is dead, remove it.
Each engine's bare clients are in a module of their own, ``bare_docker.py`` and so on: the leanest is the first there,
followed by what people use, such as the engine's own command in a shell loop. All take turns, short ones, forwards
and backwards, and each ratio is the median of the ratios within one turn, since a machine changes from minute to
minute.

It prints for each engine and number in flight: the rate of each client, the CPU time of each per container, and the
ratios of Weighbridge to each client. CPU time is that of the client's process and of all that it waited for (of
Weighbridge: master, agent, load process, helpers), less that of a run of one job, which is the start of the programs.
Of a daemon none is counted. For a runtime without a daemon the baseline is the runtime's own: what the processes of
the leanest client took, the client itself left out.

    python benchmarks/life_cycles.py [--engine docker,podman,...] [--in-flight 1,2,4] [--jobs N] [--repeats N]

An engine that is not usable here, or whose bare clients say why they are not, is told as left out; exit code 3 if
that is all of them.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import resource
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any, Final

from common import numbers, parser_of, print_ratio, treatment_of

Loop = Callable[[int], None]
"""So many life cycles one after the other, in the thread that calls."""

UNAVAILABLE: Final = 3
US: Final = "weighbridge"
COMMAND: Final = ["sleep", "600"]
MODULES: Final = {
    "docker": "bare_docker",
    "podman": "bare_docker",
    "containerd": "bare_containerd",
    "cri": "bare_cri",
    "runc": "bare_oci",
    "crun": "bare_oci",
    "youki": "bare_oci",
    "native": "bare_native",
}
RUNTIMES: Final = frozenset({"runc", "crun", "youki"})
"""Engines that are a program without a daemon, whose own CPU time is that of the clients' processes."""


@dataclass
class Turns:
    """What one client did, turn by turn."""

    rates: list[float] = field(default_factory=list)
    """Life cycles per second."""
    cpu_ms: list[float] = field(default_factory=list)
    """CPU time of a life cycle, of the client and the processes that it waited for."""
    children_ms: list[float] = field(default_factory=list)
    """The part of it that those processes took."""


def scenario_of(engine: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the scenario of a life cycle."""
    container: dict[str, Any] = {"command": COMMAND}
    if engine != "native":
        container |= {"image": options.image, "network": "host" if engine == "cri" else "none"}
    job = {"operations": ["run", "kill", "remove"]}
    return {"name": "life-cycle", "engines": [engine], "container": container, "job": job}


def through_weighbridge(engine: str, options: argparse.Namespace, jobs: int, in_flight: int) -> float:
    """Return life cycles per second of a run with one local worker; a job that fails ends the benchmark."""
    words = ("--workers", 1, "-u", in_flight, "-o", jobs)
    return float(treatment_of(scenario_of(engine, options), *map(str, words))["jobs_per_s"])


def in_threads(loop: Loop, jobs: int, in_flight: int) -> float:
    """Return life cycles per second of `loop` in each of so many threads."""
    each = max(1, jobs // in_flight)
    errors: list[Exception] = []

    def guarded() -> None:
        try:
            loop(each)
        except Exception as error:  # noqa: BLE001  the thread that asked tells of it
            errors.append(error)

    threads = [threading.Thread(target=guarded, daemon=True) for _ in range(in_flight)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if errors:
        raise errors[0]
    return each * in_flight / seconds


def cpu_ms() -> tuple[float, float]:
    """Return the CPU time so far of this process and of those that it waited for, in milliseconds."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return 1000 * (own.ru_utime + own.ru_stime), 1000 * (children.ru_utime + children.ru_stime)


def take_turn(turns: Turns, measure: Callable[[], float], jobs: int, start_ms: float) -> None:
    """Measure once; `start_ms` is what the start of the programs costs, which is not shared among the jobs."""
    before = cpu_ms()
    turns.rates.append(measure())
    own, children = (now - then for now, then in zip(cpu_ms(), before, strict=True))
    turns.cpu_ms.append((own + children - start_ms) / jobs)
    turns.children_ms.append(children / jobs)


def measure_engine(engine: str, clients: dict[str, Loop], options: argparse.Namespace, in_flight: int) -> None:
    """Let all take turns, and print what came of it."""
    jobs = max(2, in_flight, options.jobs // in_flight * in_flight)
    turns = {name: Turns() for name in (US, *clients)}
    for turn in range(options.repeats):
        for name in list(turns) if turn % 2 == 0 else reversed(turns):
            if name == US:
                before = sum(cpu_ms())
                through_weighbridge(engine, options, 1, 1)
                start_ms = sum(cpu_ms()) - before
                ours = functools.partial(through_weighbridge, engine, options, jobs, in_flight)
                take_turn(turns[US], ours, jobs - 1, start_ms)  # the start has one job of its own
            else:
                take_turn(turns[name], functools.partial(in_threads, clients[name], jobs, in_flight), jobs, 0.0)
    print(f"{engine}, {in_flight} in flight, {options.repeats} turns of {jobs} life cycles:")
    for name, taken in turns.items():
        print(f"    {name:<24} {spread(taken.rates)} a second, CPU {spread(taken.cpu_ms)} ms each")
    for name in clients:
        each = [ours / theirs for ours, theirs in zip(turns[US].rates, turns[name].rates, strict=True)]
        print_ratio(f"{engine}, {in_flight} in flight, rate to {name} ({quartiles(each)})", median(each), 1)
    leanest = turns[next(iter(clients))]
    if engine in RUNTIMES and min(leanest.children_ms) > 0:
        each = [ours / own for ours, own in zip(turns[US].cpu_ms, leanest.children_ms, strict=True)]
        print_ratio(f"{engine}, {in_flight} in flight, CPU to {engine}'s own ({quartiles(each)})", median(each), 1)


def spread(values: list[float]) -> str:
    """Tell the median of some figures, and between which ones half of them are."""
    return f"{median(values):6.2f} ({quartiles(values)})"


def quartiles(values: list[float]) -> str:
    """Tell between which figures the middle half of them is: all of them, if they are few."""
    low, high = min(values), max(values)
    if len(values) > 3:
        low, _, high = quantiles(values, method="inclusive")
    return f"{low:.3g} to {high:.3g}"


def bare_module(engine: str) -> Any:
    """Return the module of an engine's bare clients, or say why there is none."""
    name = MODULES[engine]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return f"there is no benchmarks/{name}.py"
        return f"benchmarks/{name}.py needs {error.name}"


def measure(engine: str, options: argparse.Namespace) -> str:
    """Measure an engine; return why it was left out, if it was."""
    module = bare_module(engine)
    if isinstance(module, str):
        return module
    try:
        clients = module.clients(engine, options)
        if isinstance(clients, str):
            return clients
        try:
            through_weighbridge(engine, options, 1, 1)  # copies images to where they are missing, as any first run
        except subprocess.CalledProcessError as error:
            return f"a run of one job ended with exit code {error.returncode}, for the reason above"
        for in_flight in options.in_flight:
            measure_engine(engine, clients, options, in_flight)
    finally:
        module.clean_up(engine, options)
    return ""


def engines(text: str) -> list[str]:
    """Read a list of engines."""
    names = text.split(",")
    for name in names:
        if name not in MODULES:
            raise argparse.ArgumentTypeError(f"unknown engine {name!r}; choose from {', '.join(MODULES)}")
    return names


def main() -> None:
    """Measure each engine at each number in flight."""
    parser = parser_of(__doc__)
    parser.add_argument("--engine", type=engines, default="docker,podman,containerd,cri,runc,crun,native")
    parser.add_argument("--in-flight", type=numbers, default="1,2,4")
    parser.add_argument("--jobs", type=int, default=20, help="life cycles in each turn of a client")
    parser.add_argument("--repeats", type=int, default=8, help="how many turns each client has")
    parser.add_argument("--image", default="weighbridge/base")
    parser.add_argument("--mark", default=secrets.token_hex(6), help="label of the clients' containers")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that containers are removed
    left_out = {}
    for engine in options.engine:
        if reason := measure(engine, options):
            left_out[engine] = reason
            print(f"{engine} is left out: {reason}", file=sys.stderr, flush=True)
    if len(left_out) == len(options.engine):
        raise SystemExit(UNAVAILABLE)


if __name__ == "__main__":
    main()
