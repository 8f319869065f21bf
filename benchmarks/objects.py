"""The client of object stores: processor time of a request beside other clients, and how true its stamps are.

Everything is measured against `stub_store.c`, a server in C that answers at once, or after a known time, and says
when it sent what. Clients take turns; each makes the same requests, and what counts is the processor time of its
process, system calls included: wrk (C), hey (Go) and geventhttpclient where they are installed, the standard
library's `http.client` under gevent always.

Then the protocols: an operation of Swift and one of S3, which signs each request, against the stub; and of S3 against
versitygw, a server that keeps objects as files, where somebody has built it:
`GOBIN=~/.cache/weighbridge/bin go install github.com/versity/versitygw/cmd/versitygw@latest` (some minutes).

Then whole jobs: the processor time of a run, master and worker together, for each job, beside the client alone; and
how many jobs a second the same path does without any store (`--noop`).

Then stamps: answers come in two parts after known times, while the loop is kept busy. The baseline is the instant at
which the loop read the last byte.

Then what a full comparison of the content costs, and whether large objects need more memory than small ones.

    python benchmarks/objects.py [--requests N] [--in-flight N] [--turns N] [--stamped N] [--gigabytes X]
                                 [--only PART ...]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import monotonic_ns
from typing import Any

from common import ONE_OPERATION, noop_scenario, parser_of, print_ratio, script_results, treatment_of
from stub_store import ACCOUNT, AUTH_PATH, CANNOT_BUILD, TOKEN, StubStore, build

PARTS = ("cpu", "protocols", "jobs", "stamps", "verify", "memory")
VERSITY = Path.home() / ".cache" / "weighbridge" / "bin" / "versitygw"
S3_USER, S3_SECRET = "weigh", "weighsecret"
SIZE = 4096
BUSY_US = 200
AT_ONCE = (1, 8, 64)
DEADLINE_NS = 60_000_000_000
HEADERS = f"X-Auth-Token: {TOKEN}\r\nUser-Agent: weighbridge\r\n".encode()
Results = dict[str, Any]


def cpu_s() -> float:
    """Return the processor time of this process, with that of the kernel for it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def together(count: int, one: Callable[[], None]) -> None:
    """Run so many greenlets to their end."""
    import gevent

    gevent.joinall([gevent.spawn(one) for _ in range(count)], raise_error=True)


def measured(requests: int, in_flight: int, one: Callable[[int], None]) -> Results:
    """Return processor time for each request, in microseconds, and requests a second, after some to warm up."""
    each = max(1, requests // in_flight)
    together(in_flight, partial(one, max(1, each // 10)))
    began_s, began = cpu_s(), time.perf_counter()
    together(in_flight, partial(one, each))
    done = each * in_flight
    return {"us": (cpu_s() - began_s) / done * 1e6, "rate": done / (time.perf_counter() - began)}


def our_requests(url: str, method: str, requests: int, in_flight: int) -> Results:
    """Measure the client of this repository, with the loop's meter as in a load process."""
    from bench_common.eventloop import LoopMeter
    from bench_features.objects.worker.wire import Connection, Request, Wire

    LoopMeter().start()
    wire = Wire(url)
    idle: list[Connection] = [wire.connection() for _ in range(in_flight)]
    body = [memoryview(bytes(SIZE))] if method == "PUT" else ()
    latencies: list[int] = []

    def one(count: int) -> None:
        connection = idle.pop()
        for _ in range(count):
            request = Request(method, f"/fixed/{SIZE}", HEADERS, body, ignore)
            answer = connection.exchange(request, monotonic_ns() + DEADLINE_NS)
            assert answer.status // 100 == 2
            latencies.append(answer.last_ns - answer.start_ns)
        idle.append(connection)

    results = measured(requests, in_flight, one)
    return {**results, "p50_us": median(latencies) / 1e3}


def ignore(piece: memoryview) -> None:
    """Look at nothing."""


def library_requests(url: str, method: str, requests: int, in_flight: int) -> Results:
    """Measure the standard library's client under gevent."""
    from gevent import monkey

    monkey.patch_all()
    import http.client

    place = url.removeprefix("http://")
    idle = [http.client.HTTPConnection(place, timeout=60) for _ in range(in_flight)]

    def one(count: int) -> None:
        connection = idle.pop()
        for _ in range(count):
            body = bytes(SIZE) if method == "PUT" else None
            connection.request(method, f"/fixed/{SIZE}", body, {"X-Auth-Token": TOKEN})
            answer = connection.getresponse()
            answer.read()
            assert answer.status // 100 == 2
        idle.append(connection)

    return measured(requests, in_flight, one)


def geventhttpclient_requests(url: str, method: str, requests: int, in_flight: int) -> Results:
    """Measure geventhttpclient, whose parser is in C."""
    from geventhttpclient import HTTPClient

    client = HTTPClient.from_url(url, concurrency=in_flight)

    def one(count: int) -> None:
        for _ in range(count):
            body = bytes(SIZE) if method == "PUT" else b""
            answer = client.request(method, f"/fixed/{SIZE}", body, {"X-Auth-Token": TOKEN})
            answer.read()
            assert answer.status_code // 100 == 2

    return measured(requests, in_flight, one)


CLIENTS = {"ours": our_requests, "http.client": library_requests, "geventhttpclient": geventhttpclient_requests}


def program_requests(words: list[str], done: str, requests: int) -> Results:
    """Measure a program from its start to its end; `done` finds how many requests it made in what it prints."""
    began = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    found = re.search(done, printed)
    count = int(found[1]) if found else requests
    return {"us": (used.ru_utime + used.ru_stime) / count * 1e6, "rate": count / (time.perf_counter() - began)}


def programs(url: str, requests: int, in_flight: int) -> dict[str, Callable[[], Results]]:
    """Return the clients that are programs, where they are installed."""
    target = f"{url}/fixed/{SIZE}"
    found: dict[str, Callable[[], Results]] = {}
    if wrk := shutil.which("wrk"):
        words = [wrk, "-t1", f"-c{in_flight}", f"-d{max(1, requests // 20_000)}s", target]
        found["wrk GET"] = partial(program_requests, words, r"(\d+) requests in", requests)
    if hey := shutil.which("hey"):
        words = [hey, "-n", str(requests // in_flight * in_flight), "-c", str(in_flight)]
        status = r"\[2\d\d\]\s+(\d+) responses"
        found["hey GET"] = partial(program_requests, [*words, target], status, requests)
        with_body = [*words, "-m", "PUT", "-d", "x" * SIZE, target]
        found["hey PUT"] = partial(program_requests, with_body, status, requests)
    return found


def cpu(stub: StubStore, requests: int, in_flight: int, turns: int) -> None:
    """Compare the processor time of a request."""
    clients = ["ours", "http.client"] + ["geventhttpclient"] * (find_spec("geventhttpclient") is not None)
    sizes = ("--requests", str(requests), "--in-flight", str(in_flight))
    measures: dict[str, Callable[[], Results]] = {
        f"{client} {method}": partial(script_results, "objects.py", "--client", client, method, stub.url, *sizes)
        for client in clients
        for method in ("GET", "PUT")
    }
    measures |= programs(stub.url, requests, in_flight)
    results: dict[str, list[Results]] = {name: [] for name in measures}
    for turn in range(1, turns + 1):
        for name, measure in measures.items():
            results[name].append(measure())
        told = "   ".join(f"{name} {each[-1]['us']:.1f}" for name, each in results.items())
        print(f"turn {turn}: {told}  us of CPU a request", flush=True)
    for name, each in results.items():
        rate = median(one["rate"] for one in each)
        print(
            f"{name}, {SIZE} bytes, {in_flight} in flight: {median(one['us'] for one in each):.1f} us, {rate:,.0f}/s"
        )
    print(f"ours PUT, from send to answer, median: {median(one['p50_us'] for one in results['ours PUT']):.0f} us")
    for name, each in results.items():
        client, method = name.split()
        if client != "ours":
            # The ratio of each turn: the machine may be faster in another one.
            pairs = zip(results[f"ours {method}"], each, strict=True)
            ratio = median(mine["us"] / other["us"] for mine, other in pairs)
            print_ratio(f"of our CPU for a {method} to that of {client}", ratio, 1)


def slot_requests(url: str, protocol: str, method: str, requests: int, in_flight: int) -> Results:
    """Measure the operations of a store's slots, logins and signatures included."""
    from bench_common.eventloop import LoopMeter
    from bench_common.secret import Secret
    from bench_features.objects.common.access import Access
    from bench_features.objects.worker.base import StoreOptions
    from bench_features.objects.worker.registry import open_store

    LoopMeter().start()
    access = Access("s3", "the benchmark", (url,), region="us-east-1", user=S3_USER, key=Secret(S3_SECRET))
    if protocol == "swift":
        access = Access(
            "swift", "the benchmark", auth_version="1", auth_url=url + AUTH_PATH, user="u", key=Secret("k")
        )
    store = open_store(access, StoreOptions(slots=in_flight, timeout_s=60))
    idle = [store.slot(number) for number in range(in_flight)]
    body = [memoryview(bytes(SIZE))]
    assert idle[0].make_container("bench").ok
    assert idle[0].put("bench", "object", body).ok

    def one(count: int) -> None:
        slot = idle.pop()
        for _ in range(count):
            answer = slot.get("bench", "object") if method == "GET" else slot.put("bench", f"object-{id(slot)}", body)
            assert answer.ok, answer.message
        idle.append(slot)

    return measured(requests, in_flight, one)


def protocols(stub: StubStore, requests: int, in_flight: int, turns: int) -> None:
    """Compare what Swift and S3 cost; and say how fast a real server of S3 is."""
    sizes = ("--requests", str(requests), "--in-flight", str(in_flight))
    for method in ("GET", "PUT"):
        ratios, us = [], {"swift": 0.0, "s3": 0.0}
        for _ in range(turns):
            us = {
                name: script_results("objects.py", "--client", name, method, stub.url, *sizes)["us"]
                for name in ("swift", "s3")
            }
            ratios.append(us["s3"] / us["swift"])
        print(f"{method}, {in_flight} in flight: Swift {us['swift']:.1f} us of CPU, S3, signed, {us['s3']:.1f} us")
        print_ratio(f"of S3's CPU to Swift's, {method}", median(ratios), 1)
    if VERSITY.exists():
        with tempfile.TemporaryDirectory() as directory, versitygw(directory) as url:
            few = ("--requests", str(max(in_flight, requests // 10)), "--in-flight", str(in_flight))
            for method in ("GET", "PUT"):
                found = script_results("objects.py", "--client", "s3", method, url, *few)
                print(f"versitygw, {method}: {found['rate']:,.0f}/s, {found['us']:.1f} us of our CPU", flush=True)


@contextlib.contextmanager
def versitygw(directory: str) -> Iterator[str]:
    """Run versitygw; give its URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name in ("meta", "data"):
        Path(directory, name).mkdir()
    # Without --keep-alive it closes the connection after each answer.
    words = [
        str(VERSITY),
        "--port",
        f"127.0.0.1:{port}",
        "--quiet",
        "--keep-alive",
        "posix",
        "--sidecar",
        f"{directory}/meta",
    ]
    variables = {"ROOT_ACCESS_KEY": S3_USER, "ROOT_SECRET_KEY": S3_SECRET, "HOME": directory}
    none = subprocess.DEVNULL
    process = subprocess.Popen(
        [*words, f"{directory}/data"], cwd=directory, env=variables, stdin=none, stdout=none, stderr=none
    )
    try:
        for _ in range(600):
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(30)


def scenario_of(mix: dict[str, int], in_flight: int) -> Results:
    """Return a scenario of one operation on small objects."""
    job = {"objects": {"sizes": SIZE, "population": 100, "mix": mix}}
    return {"name": "objects", "engines": ["swift"], "job": job, "concurrency": in_flight}


def run_cpu_s(stub: StubStore, scenario: Results, jobs: int) -> tuple[float, Results]:
    """Run a scenario against the stub; return the processor time of all its processes, and its treatment's report."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = treatment_of(scenario, "--workers", "1", "-o", str(jobs), "-A", stub.auth_url, "-U", "u", "-K", "k")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, report


def jobs(stub: StubStore, count: int, in_flight: int, turns: int) -> None:
    """Compare whole jobs with the client alone."""
    sizes = ("--requests", str(count), "--in-flight", str(in_flight))
    for operation, method in (("read", "GET"), ("create", "PUT")):
        ratios, whole_us, rate = [], 0.0, 0.0
        for _ in range(turns):
            scenario = scenario_of({operation: 1}, in_flight)
            alone = script_results("objects.py", "--client", "ours", method, stub.url, *sizes)["us"]
            few_s, _ = run_cpu_s(stub, scenario, max(1, count // 10))
            many_s, report = run_cpu_s(stub, scenario, count)
            # What is left is the jobs': starting and ending a run costs the same in both.
            whole_us = (many_s - few_s) / (count - max(1, count // 10)) * 1e6
            rate = report["jobs_per_s"]
            ratios.append(max(0.001, whole_us / alone))
        print(
            f"{operation}, {in_flight} in flight: {whole_us:.1f} us of CPU a job in all processes, {rate:,.0f} jobs/s"
        )
        print_ratio(f"of a whole job's CPU to the client's alone, {operation}", median(ratios), 1)
    objects = treatment_of(scenario_of({"read": 1}, in_flight), "--noop", "--workers", "1", "-o", str(count * 10))
    plain = treatment_of(
        noop_scenario(ONE_OPERATION), "--noop", "--workers", "1", "-u", str(in_flight), "-o", str(count * 10)
    )
    print(f"no-op jobs on objects: {objects['jobs_per_s']:,.0f}/s; on containers: {plain['jobs_per_s']:,.0f}/s")
    print_ratio(
        "of no-op jobs a second on objects to those on containers", objects["jobs_per_s"], plain["jobs_per_s"]
    )


def stamped_requests(url: str, in_flight: int, requests: int, busy_us: int) -> Results:
    """Return how late stamps of first and last byte are, in ns, and those of the loop; with their bounds."""
    from bench_common.eventloop import LoopMeter
    from bench_features.objects.worker.wire import Request, Wire

    LoopMeter().start()
    sys.setswitchinterval(0.0005)  # as in a worker's load process
    wire, source = Wire(url), random.Random(1)
    found: Results = {"first": [], "last": [], "loop": [], "bounded": []}

    def one() -> None:
        connection, end, body = wire.connection(), 0, b""

        def read(piece: memoryview) -> None:
            nonlocal end, body
            end, body = monotonic_ns(), bytes(piece[-20:])

        for _ in range(max(1, requests // in_flight)):
            waits = f"first_us={source.randint(500, 3000)}&last_us={source.randint(500, 3000)}"
            request = Request("GET", f"/fixed/{SIZE}?{waits}", HEADERS, sink=read)
            answer = connection.exchange(request, monotonic_ns() + DEADLINE_NS)
            first_ns, last_ns = int(answer.headers[b"x-sent-ns"]), int(body)
            found["first"].append(answer.first_ns - first_ns)
            found["last"].append(answer.last_ns - last_ns)
            found["loop"].append(end - last_ns)
            found["bounded"].append(answer.first_ns - answer.first_uncertainty_ns <= first_ns + 200_000)
            busy_end = monotonic_ns() + busy_us * 1000
            while monotonic_ns() < busy_end:
                pass

    together(in_flight, one)
    return found


def stamps(stub: StubStore, requests: int) -> None:
    """Compare stamps with what the stub says."""
    for in_flight in AT_ONCE:
        sizes = ("--in-flight", str(in_flight), "--requests", str(max(requests, in_flight)))
        found = script_results("objects.py", "--client", "stamps", "GET", stub.url, *sizes)
        told = {}
        for name in ("first", "last", "loop"):
            late = sorted(found[name])
            told[name] = [late[min(len(late) - 1, int(len(late) * rank))] / 1e3 for rank in (0.5, 0.99)]
        bounded = sum(found["bounded"]) / len(found["bounded"])
        print(
            f"{in_flight} in flight, the loop busy for {BUSY_US} us an answer, late by (median, p99): "
            + ", ".join(f"{name} byte {p50:,.0f} and {p99:,.0f} us" for name, (p50, p99) in told.items())
            + f"; {bounded:.2%} of first bytes within their bounds",
            flush=True,
        )
        print_ratio(f"of the last byte's p99 to the loop's, {in_flight} in flight", told["last"][1], told["loop"][1])


def verified_requests(url: str, level: str, size: int, requests: int) -> Results:
    """Measure reading objects with their content compared."""
    from bench_features.objects.worker.content import Checker, content_of
    from bench_features.objects.worker.wire import Request, Wire

    connection, path = Wire(url).connection(), "verified/object"
    for target, body in ((f"{ACCOUNT}/verified", ()), (f"{ACCOUNT}/{path}-{size}", content_of(path, 1, size))):
        connection.exchange(Request("PUT", target, HEADERS, body), monotonic_ns() + DEADLINE_NS)

    def one(count: int) -> None:
        for _ in range(count):
            checker = Checker(level, path, 1, size)  # type: ignore[arg-type]
            request = Request("GET", f"{ACCOUNT}/{path}-{size}", HEADERS, sink=checker)
            connection.exchange(request, monotonic_ns() + DEADLINE_NS)
            assert checker.verdict() is None, checker.verdict()

    return measured(requests, 1, one)


def verify(stub: StubStore, requests: int, turns: int) -> None:
    """Compare reading with and without a full comparison of the content."""
    for size, count in ((4096, requests), (1 << 20, max(1, requests // 100))):
        ratios, full = [], 0.0
        for _ in range(turns):
            sizes = (str(size), "--requests", str(count))
            plain, full = (
                script_results("objects.py", "--client", level, "GET", stub.url, "--size", *sizes)["us"]
                for level in ("length", "full")
            )
            ratios.append(full / plain)
        print(
            f"{size} bytes, content compared: {full:,.1f} us of CPU a GET, {size / full / 1e3:.2f} GB a second of it"
        )
        print_ratio(f"of a GET's CPU with full verification to that without, {size} bytes", median(ratios), 1)


def peak_mib() -> float:
    """Return the largest resident memory that this process had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def large_objects(url: str, gigabytes: float) -> Results:
    """Return the peak of memory after small objects and after one large one each way, in MiB."""
    from bench_features.objects.worker.content import Checker, content_of
    from bench_features.objects.worker.wire import Request, Wire

    connection = Wire(url).connection()

    def move(size: int) -> float:
        began_s = cpu_s()
        checker = Checker("length", "a/b", 1, size)
        deadline_ns = monotonic_ns() + 20 * DEADLINE_NS
        connection.exchange(Request("PUT", f"/fixed/{size}", HEADERS, content_of("a/b", 1, size)), deadline_ns)
        connection.exchange(Request("GET", f"/fixed/{size}", HEADERS, sink=checker), deadline_ns)
        assert checker.verdict() is None
        return cpu_s() - began_s

    for _ in range(100):
        move(1 << 20)
    before = peak_mib()
    used_s = move(int(gigabytes * 1e9))
    return {"before": before, "after": peak_mib(), "cpu_s": used_s}


def memory(stub: StubStore, gigabytes: float) -> None:
    """Compare the memory for large objects with that for small ones."""
    sizes = ("--gigabytes", str(gigabytes))
    found = script_results("objects.py", "--client", "large", "GET", stub.url, *sizes)
    print(f"{gigabytes:g} GB there and back: {found['before']:.1f} MiB before, {found['after']:.1f} after, ", end="")
    print(f"{found['cpu_s'] / gigabytes:.2f} s of CPU for a GB each way")
    print_ratio("of the peak of memory with a large object to that with small ones", found["after"], found["before"])


def results_of(options: argparse.Namespace) -> Results:
    """Measure one client in this process, which is another for each."""
    client, method, url = options.client
    if client == "stamps":
        return stamped_requests(url, options.in_flight, options.requests, BUSY_US)
    if client == "large":
        return large_objects(url, options.gigabytes)
    if client in {"swift", "s3"}:
        return slot_requests(url, client, method, options.requests, options.in_flight)
    if client in CLIENTS:
        return CLIENTS[client](url, method, options.requests, options.in_flight)
    return verified_requests(url, client, options.size, options.requests)


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--requests", type=int, default=20_000, help="of each client in each turn")
    parser.add_argument("--in-flight", type=int, default=8, help="requests at once, for processor time")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--stamped", type=int, default=1280, help="requests whose stamps are compared")
    parser.add_argument("--gigabytes", type=float, default=5, help="size of the large object")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="which parts to measure")
    parser.add_argument("--size", type=int, default=SIZE, help=argparse.SUPPRESS)
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.client:
        print(json.dumps(results_of(options)))
        return 0
    program = build()
    if program is None:
        print(CANNOT_BUILD, file=sys.stderr)
        return 3
    with StubStore(program) as stub:
        if "cpu" in options.only:
            cpu(stub, options.requests, options.in_flight, options.turns)
        if "protocols" in options.only:
            protocols(stub, options.requests, options.in_flight, options.turns)
        if "jobs" in options.only:
            jobs(stub, options.requests, options.in_flight, options.turns)
        if "stamps" in options.only:
            stamps(stub, options.stamped)
        if "verify" in options.only:
            verify(stub, options.requests, options.turns)
        if "memory" in options.only:
            memory(stub, options.gigabytes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
