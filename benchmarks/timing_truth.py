"""Whether the times that are recorded are true: against programs and an engine that know how long they took.

First `native` jobs, 1, 8 and 64 at once, each of a program that notes on the monotonic clock when it began and
ended. A job's time from the start of its process to the end of it cannot be less; what it is more is the start of the
program itself, and whatever Weighbridge adds.

Then calls of Docker's API, some at once, against a stub that takes a known time and says with each answer how long
it really took: single calls, as most operations are, and pairs of them, as `exec` makes a command and runs it, the
latter on a connection of its own whose answer is read while it comes in; single calls over TCP, too. The baseline is
the plainest client there is: threads with a blocking socket each.

Beside each stands how late the end was stamped, and the bound on that which Weighbridge gives with the stamp. Of a
process the lateness includes what the kernel does from the program's last note to its end; no bound covers that.

    python benchmarks/timing_truth.py [--jobs N] [--concurrency N,N] [--calls N] [--nap-ms N] [--stub c|python]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from common import FOLDER, master_command, numbers, parser_of, print_ratio, script_results

SERVICES_MS = (20, 5)
AT_ONCE = (1, 8, 64)
JOBS_AT_ONE = 40
"""At most so many jobs for each one at once: with few at once they take long."""
START, WAIT = 1, 2
"""Their places among the operations of a job."""
PROMISED_SHARE = 0.001
"""The share of ends that may lie outside of their bound, as docs/methodology.rst promises."""
Pair = tuple[int, int, int, int, int, int]
"""How long a call took as recorded and by the stub, how late its end was stamped at most, the bound on that, how
late it was stamped at least (0: the stub has not said), and what the bound allowed for a wake-up beyond the least
that it always does; in nanoseconds."""

C_PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static long long now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}
int main(int argc, char **argv) {
    long long began = now();
    char path[4096], *ticket = getenv("WEIGHBRIDGE_TICKET");
    FILE *file;
    if (argc < 3 || !ticket) return 2;
    snprintf(path, sizeof path, "%s/%s", argv[1], ticket);
    file = fopen(path, "w");
    if (!file) return 3;
    usleep(1000 * atoi(argv[2]));
    fprintf(file, "%lld %lld\n", began, now());
    return 0;
}
"""
PYTHON_PROGRAM = """
import time
began = time.monotonic_ns()
import os, sys
file = open(f"{sys.argv[1]}/{os.environ['WEIGHBRIDGE_TICKET']}", "w")
time.sleep(int(sys.argv[2]) / 1000)
file.write(f"{began} {time.monotonic_ns()}")
"""


def truthful_program(directory: str) -> tuple[str, list[str]]:
    """Return what the program is made of, and its command."""
    compiler = shutil.which("cc")
    if compiler is None:
        return "Python (there is no C compiler)", [sys.executable, "-S", "-c", PYTHON_PROGRAM]
    source, program = Path(directory, "nap.c"), Path(directory, "nap")
    source.write_text(C_PROGRAM, "ascii")
    subprocess.run([compiler, "-O2", "-o", str(program), str(source)], check=True)
    return "C", [str(program)]


def native(jobs: int, concurrency: int, nap_ms: int) -> None:
    """Compare what is recorded of processes with what they noted themselves."""
    with tempfile.TemporaryDirectory() as directory:
        notes = Path(directory, "notes")
        notes.mkdir()
        language, command = truthful_program(directory)
        scenario = {
            "name": "truth",
            "engines": ["native"],
            "container": {"command": [*command, str(notes), str(nap_ms)]},
            "job": {"operations": ["create", "start", "wait", "remove"]},
        }
        words = ("--workers", 1, "-u", concurrency, "-o", min(jobs, JOBS_AT_ONE * concurrency))
        subprocess.run(master_command(directory, scenario, *map(str, words)), stdout=subprocess.DEVNULL, check=True)
        noted = {int(path.name): tuple(map(int, path.read_text("ascii").split())) for path in notes.iterdir()}
        recorded, late, bounds = end_stamps(Path(directory, "run.stats.gz"), noted)
    truth = [(ended - began) / 1e6 for began, ended in noted.values()]
    what = f"native, {concurrency} at once"
    ours, real = median(recorded), median(truth)
    print(f"{what}, {len(truth)} programs in {language}: {real:.3f} ms by their own notes")
    print(f"{what}, recorded from start to end of the process: {ours:.3f} ms, {(ours - real) * 1e3:+.0f} us")
    print_ratio(f"of the recorded median to the programs' own, {what}", ours, real)
    print_bounds(what, late, bounds)


def end_stamps(stats: Path, noted: dict[int, tuple[int, ...]]) -> tuple[list[float], list[float], list[float]]:
    """Return of each job how long its process took (ms), how late its end was stamped, and the bound on that (us)."""
    import numpy as np

    from bench_common.stats.reader import StatsFile

    rows = np.concatenate([block.body for block in StatsFile(stats).blocks({"operations"})])
    starts, waits = (
        {int(row["ticket"]): row for row in rows[rows["operation"] == operation]} for operation in (START, WAIT)
    )
    recorded, late, bounds = [], [], []
    for job in np.concatenate(list(StatsFile(stats).iter_jobs())):
        ticket = int(job["ticket"])
        end_ns = int(waits[ticket]["start_ns"] + waits[ticket]["duration_ns"])
        recorded.append((end_ns - int(starts[ticket]["start_ns"])) / 1e6)
        late.append((end_ns - noted[ticket][1]) / 1e3)
        bounds.append(int(job["uncertainty_ns"]) / 1e3)
    return recorded, late, bounds


def print_bounds(what: str, late: list[float], bounds: list[float]) -> None:
    """Print how late ends were stamped (us), and the bounds that came with the stamps."""
    middle, p99 = ([at(values, share) for values in (bounds, late)] for share in (0.5, 0.99))
    print(f"{what}, bound of an end: {middle[0]:.0f} us p50, {p99[0]:.0f} us p99", end="; ")
    print(f"stamped late by {middle[1]:.0f} us p50, {p99[1]:.0f} us p99")
    print_ratio(f"bound to truth, p50, {what}", middle[0], middle[1])
    print_ratio(f"bound to truth, p99, {what}", p99[0], p99[1])


def at(values: list[float], share: float) -> float:
    """Return the value below which this share of them lies."""
    return sorted(values)[int(len(values) * share)]


def calls_of_the_engine(path: str, calls: int, at_once: int, way: str) -> list[Pair]:
    """Return the pairs of calls through the engine module: its stamps against the stub's."""
    from gevent import monkey

    monkey.patch_all()
    import gevent

    from bench_common.eventloop import LoopMeter
    from bench_worker.engines.docker import http as docker_http
    from bench_worker.engines.docker.errors import docker_operation
    from bench_worker.timing.wake_up_witness import WakeUpWitness
    from bench_worker.timing.wake_ups import LEAST_ALLOWANCE_NS, WAKE_UPS

    sys.setswitchinterval(0.0005)  # as in a worker's load process
    os.environ["DOCKER_HOST"] = f"tcp://127.0.0.1:{path}" if path.isdecimal() else f"unix://{path}"
    meter = LoopMeter()
    meter.start()
    WakeUpWitness().start()  # as in a worker's load process
    engine = docker_http.connect(10.0)

    def started(timed: docker_http.TimedRequest) -> list[int]:
        took_ns, ended_ns, last_ended_ns, last_sent_ns = timed.post("containers", "x", "start")
        sent_ns[last_ended_ns] = last_sent_ns
        return [took_ns, ended_ns]

    def executed(timed: docker_http.TimedRequest) -> list[int]:
        create_ns, *_ = timed.post("containers", "x", "exec", body={"Cmd": ["true"]})
        timed.exclude_gap()
        with timed.stream("POST", "exec", "x", "start", body={"Detach": False}) as answer:
            took_ns, ended_ns, *_ = json.loads(answer.read())
        return [create_ns + took_ns, ended_ns]

    call = {"start": started, "exec": executed}[way]
    pairs: list[Pair] = []
    sent_ns: dict[int, int] = {}

    def call_on() -> None:
        first = True
        while len(pairs) < calls:
            with docker_operation(engine, 10.0) as timed:
                took_ns, ended_ns = call(timed)
            if not first:  # the stub had to accept the connection
                taken_ns = timed.end_ns - timed.start_ns
                allowed_ns = WAKE_UPS.allowance_ns - LEAST_ALLOWANCE_NS
                pairs.append((taken_ns, took_ns, timed.end_ns, timed.end_uncertainty_ns, ended_ns, allowed_ns))
            first = False

    gevent.joinall([gevent.spawn(call_on) for _ in range(at_once)], raise_error=True)
    return [
        (taken_ns, took_ns, end_ns - ended_ns, bound_ns, end_ns - sent_ns.get(ended_ns, end_ns), allowed_ns)
        for taken_ns, took_ns, end_ns, bound_ns, ended_ns, allowed_ns in pairs
    ]


def calls_of_threads(path: str, calls: int, at_once: int) -> list[Pair]:
    """Return the same of threads that block, without a bound."""
    import socket

    pairs: list[Pair] = []

    def call_on() -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(path)
            first = True
            while len(pairs) < calls:
                start_ns = time.monotonic_ns()
                connection.sendall(b"POST /v1.41/containers/x/start HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
                answer = connection.recv(65536)
                end_ns = time.monotonic_ns()
                if not first:
                    took_ns, ended_ns, *_ = json.loads(answer.rpartition(b"\n")[2])
                    pairs.append((end_ns - start_ns, took_ns, end_ns - ended_ns, 0, 0, 0))
                first = False

    threads = [threading.Thread(target=call_on) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return pairs


CLIENTS: dict[str, Callable[[str, int, int], list[Pair]]] = {
    "weighbridge": partial(calls_of_the_engine, way="start"),
    "weighbridge over TCP": partial(calls_of_the_engine, way="start"),
    "weighbridge as exec": partial(calls_of_the_engine, way="exec"),
    "threads": calls_of_threads,
}


def stub_engine(directory: str, language: str) -> tuple[str, list[str]]:
    """Return what the stub is made of, and its command; in Python it takes the client's CPUs at 64 at once."""
    compiler = shutil.which("cc")
    if language == "python" or compiler is None:
        return "Python", [sys.executable, str(FOLDER / "stub_engine.py")]
    program = Path(directory, "stub_engine")
    subprocess.run([compiler, "-O2", "-pthread", "-o", str(program), str(FOLDER / "stub_engine.c")], check=True)
    return "C", [str(program)]


def docker(calls: int, concurrencies: Sequence[int], language: str) -> None:
    """Compare the clients at each service time and concurrency."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        seen: list[Pair] = []
        made_of, command = stub_engine(directory, language)
        print(f"docker API: the stub is in {made_of}")
        for service_ms in SERVICES_MS:
            path = f"{directory}/engine-{service_ms}.sock"
            port = free_port()
            stubs = [subprocess.Popen([*command, place, str(service_ms / 1e3)]) for place in (path, str(port))]
            try:
                while not listen(path, port):
                    if any(stub.poll() is not None for stub in stubs):
                        raise SystemExit(f"the stub engine cannot listen on {path} or on port {port}")
                    time.sleep(0.01)
                for at_once in concurrencies:
                    seen += compare(path, port, calls, at_once, service_ms)
            finally:
                for stub in stubs:
                    stub.kill()
                    stub.wait()
        print_outside(f"docker API, all calls (at most {PROMISED_SHARE:.1%} are promised)", seen)


def free_port() -> int:
    """Return a port of the loopback that nobody uses."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def listen(path: str, port: int) -> bool:
    """Say whether both stubs accept connections."""
    import socket

    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return Path(path).exists()


def print_outside(what: str, pairs: list[Pair]) -> None:
    """Print how many answers were sent earlier than the bound of their end says, as it is and without readings.

    A bound without readings of late wake-ups allows the same for each, so it is narrower.
    """
    known = [(least, bound, bound - allowed) for *_, bound, least, allowed in pairs if least]
    if not known:
        return
    outside, without = (
        sum(least > known_bound for least, known_bound in sides)
        for sides in ([(least, bound) for least, bound, _ in known], [(least, narrow) for least, _, narrow in known])
    )
    widths = [at([sides[side] / 1e3 for sides in known], 0.5) for side in (1, 2)]
    print(
        f"{what}: {outside} of {len(known)} ({outside / len(known):.2%}) were sent earlier than their bound says, "
        f"{without} ({without / len(known):.2%}) without readings of late wake-ups"
    )
    print_ratio(f"of the bound's width to that without readings, p50, {what}", *widths)


def compare(path: str, port: int, calls: int, at_once: int, service_ms: int) -> list[Pair]:
    """Print by how much each client exceeds the truth, and the ratios of the medians; return all of our calls."""
    recorded, truth = {}, {}
    seen: list[Pair] = []
    what = f"docker API, {service_ms} ms, {at_once} at once"
    for name in CLIENTS:
        words = ("--client", name, port if name.endswith("TCP") else path, calls, at_once)
        pairs = script_results("timing_truth.py", *map(str, words))
        recorded[name], truth[name] = (median(pair[which] for pair in pairs) for which in (0, 1))
        excess = [(ours - real) / 1e3 for ours, real, *_ in pairs]
        print(f"{what}, {name}: {median(excess):+.0f} us in the median, {at(excess, 0.95):+.0f} us at p95")
        if name != "threads":
            late, bounds = ([pair[which] / 1e3 for pair in pairs] for which in (2, 3))
            print_bounds(f"{what}, {name}", late, bounds)
            print_outside(f"{what}, {name}", pairs)
            seen += pairs
    for name in CLIENTS:
        if name != "threads":
            print_ratio(f"of the recorded median to the stub's own, {what}, {name}", recorded[name], truth[name])
    print_ratio(f"of the recorded median to threads, {what}", recorded["weighbridge"], recorded["threads"])
    return seen


def main() -> None:
    """Measure both, and print them."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=640)
    parser.add_argument(
        "--concurrency", type=numbers, default=AT_ONCE, help="how many programs or calls at once: 1,8,64"
    )
    parser.add_argument("--nap-ms", type=int, default=50, help="how long a program sleeps")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--stub", choices=("c", "python"), default="c", help="in Python where there is no compiler")
    parser.add_argument("--client", nargs=4, metavar="X", help="be a client (this script starts them itself)")
    options = parser.parse_args()
    if options.client:
        name, path, calls, at_once = options.client
        print(json.dumps(CLIENTS[name](path, int(calls), int(at_once))))
        return
    for concurrency in options.concurrency:
        native(options.jobs, concurrency, options.nap_ms)
    docker(options.calls, options.concurrency, options.stub)


if __name__ == "__main__":
    main()
