"""Whether the times that are recorded are true: against programs and an engine that know how long they took.

First many `native` jobs at once, each of a program that notes on the monotonic clock when it began and ended. A
job's time from the start of its process to the end of it cannot be less; what it is more is the start of the program
itself, and whatever Weighbridge adds.

Then calls of Docker's API, some at once, against a stub that takes a known time and says with each answer how long
it really took: single calls, as most operations are, and pairs of them, as `exec` makes a command and runs it, the
latter on a connection of its own whose answer is read while it comes in. The baseline is the plainest client there
is: threads with a blocking socket each.

    python benchmarks/timing_truth.py [--jobs N] [--concurrency N] [--calls N] [--nap-ms N] [--stub c|python]
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from common import FOLDER, master_command, parser_of, print_ratio, script_figures

SERVICES_MS = (20, 5)
AT_ONCE = (1, 8, 64)

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
    char path[4096];
    FILE *file;
    if (argc < 3) return 2;
    snprintf(path, sizeof path, "%s/%d", argv[1], (int) getpid());
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
file = open(f"{sys.argv[1]}/{os.getpid()}", "w")
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
        words = ("--workers", 1, "-u", concurrency, "-o", jobs, "--format", "jsonl")
        told = subprocess.run(
            master_command(directory, scenario, *map(str, words)), stdout=subprocess.PIPE, check=True
        )
        recorded = []
        for line in told.stdout.splitlines()[1:]:  # the first is about the run
            parts = json.loads(line)["operations"]
            end_s = parts["wait"]["start_s"] + parts["wait"]["duration_s"]
            recorded.append((end_s - parts["start"]["start_s"]) * 1e3)
        pairs = [path.read_text("ascii").split() for path in notes.iterdir()]
    truth = [(int(ended) - int(began)) / 1e6 for began, ended in pairs]
    ours, real = median(recorded), median(truth)
    print(f"native, {concurrency} at once, {len(truth)} programs in {language}: {real:.3f} ms by their own notes")
    print(f"native, recorded from start to end of the process: {ours:.3f} ms, {(ours - real) * 1e3:+.0f} us")
    print_ratio("of the recorded median to the programs' own", ours, real)


def calls_of_the_engine(path: str, calls: int, at_once: int, way: str) -> list[tuple[int, int]]:
    """Return of each call what the engine module's stamps say and what the stub says, in nanoseconds."""
    from gevent import monkey

    monkey.patch_all()
    import gevent

    from bench_worker.engines.docker import http as docker_http
    from bench_worker.engines.docker.errors import docker_operation

    sys.setswitchinterval(0.0005)  # as in a worker's load process
    os.environ["DOCKER_HOST"] = f"unix://{path}"
    engine = docker_http.connect(10.0)

    def started(timed: docker_http.TimedRequest) -> int:
        return int(timed.post("containers", "x", "start"))

    def executed(timed: docker_http.TimedRequest) -> int:
        create_ns = int(timed.post("containers", "x", "exec", body={"Cmd": ["true"]}))
        timed.exclude_gap()
        with timed.stream("POST", "exec", "x", "start", body={"Detach": False}) as answer:
            return create_ns + int(answer.read())

    call, pairs = {"start": started, "exec": executed}[way], []

    def call_on() -> None:
        first = True
        while len(pairs) < calls:
            with docker_operation(engine, 10.0) as timed:
                took_ns = call(timed)
            if not first:  # the stub had to accept the connection
                pairs.append((timed.end_ns - timed.start_ns, took_ns))
            first = False

    gevent.joinall([gevent.spawn(call_on) for _ in range(at_once)], raise_error=True)
    return pairs


def calls_of_threads(path: str, calls: int, at_once: int) -> list[tuple[int, int]]:
    """Return the same of threads that block."""
    import socket

    pairs: list[tuple[int, int]] = []

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
                    pairs.append((end_ns - start_ns, int(answer.split()[-1])))
                first = False

    threads = [threading.Thread(target=call_on) for _ in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return pairs


CLIENTS: dict[str, Callable[[str, int, int], list[tuple[int, int]]]] = {
    "weighbridge": partial(calls_of_the_engine, way="start"),
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


def docker(calls: int, language: str) -> None:
    """Compare the clients at each service time and concurrency."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        made_of, command = stub_engine(directory, language)
        print(f"docker API: the stub is in {made_of}")
        for service_ms in SERVICES_MS:
            path = f"{directory}/engine-{service_ms}.sock"
            stub = subprocess.Popen([*command, path, str(service_ms / 1e3)])
            try:
                while not Path(path).exists():
                    if stub.poll() is not None:
                        raise SystemExit(f"the stub engine ended with exit code {stub.returncode}")
                    time.sleep(0.01)
                for at_once in AT_ONCE:
                    compare(path, calls, at_once, service_ms)
            finally:
                stub.kill()
                stub.wait()


def compare(path: str, calls: int, at_once: int, service_ms: int) -> None:
    """Print by how much each client exceeds the truth, and the ratios of the medians."""
    recorded, truth = {}, {}
    what = f"docker API, {service_ms} ms, {at_once} at once"
    for name in CLIENTS:
        words = ("--client", name, path, calls, at_once)
        pairs = script_figures("timing_truth.py", *map(str, words))
        excess = sorted((ours - real) / 1e3 for ours, real in pairs)
        recorded[name], truth[name] = median(ours for ours, _ in pairs), median(real for _, real in pairs)
        p95 = excess[int(len(excess) * 0.95)]
        print(f"{what}, {name}: {median(excess):+.0f} us in the median, {p95:+.0f} us at p95")
    for name in CLIENTS:
        if name != "threads":
            print_ratio(f"of the recorded median to the stub's own, {what}, {name}", recorded[name], truth[name])
    print_ratio(f"of the recorded median to threads, {what}", recorded["weighbridge"], recorded["threads"])


def main() -> None:
    """Measure both, and print them."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=640)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--nap-ms", type=int, default=50, help="how long a program sleeps")
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--stub", choices=("c", "python"), default="c", help="in Python where there is no compiler")
    parser.add_argument("--client", nargs=4, metavar="X", help="be a client (this script starts them itself)")
    options = parser.parse_args()
    if options.client:
        name, path, calls, at_once = options.client
        print(json.dumps(CLIENTS[name](path, int(calls), int(at_once))))
        return
    native(options.jobs, options.concurrency, options.nap_ms)
    docker(options.calls, options.stub)


if __name__ == "__main__":
    main()
