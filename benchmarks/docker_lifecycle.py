"""Life cycles of real containers through Weighbridge, against three clients that keep no record of anything.

They are the bare API (threads that write the requests to the engine's socket and read the answers, as lean as a
client can be), a docker-py loop, and a shell loop of `docker`. A life cycle is: run a container that sleeps,
kill (or stop) it, wait until it is dead, remove it. Most of the time is the engine's own, whoever asks; the
ratio says whether a harness with stamps and records gets less done. The CPU time of each client is printed per
container; of Weighbridge it is that of master and worker together, less that of a run of one job.

    python benchmarks/docker_lifecycle.py [--jobs N] [--in-flight 1,2,4] [--end kill|stop] [--image NAME]

Needs a Docker Engine that answers (``script/docker-engine start --yes``) and the image (``bench-master
build-images``); exit code 3 without.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import docker
import requests
from common import in_turn, numbers, parser_of, print_ratio, treatment_of
from docker.utils import kwargs_from_env

LABEL = "weighbridge.benchmark"
COMMAND = ["sleep", "600"]
UNAVAILABLE = 3
SHELL_LOOP = """
loop() {
    for _ in $(seq "$1"); do
        id=$(docker run -d --init --network none --label "$LABEL" "$IMAGE" sleep 600) || exit 1
        docker $END "$id" >/dev/null && docker wait "$id" >/dev/null && docker rm -f -v "$id" >/dev/null || exit 1
    done
}
workers=()
for _ in $(seq "$IN_FLIGHT"); do loop "$EACH" & workers+=($!); done
end() { kill "${workers[@]}" 2>/dev/null; exit 1; }
trap end INT TERM
for worker in "${workers[@]}"; do wait "$worker" || end; done
"""


def through_weighbridge(options: argparse.Namespace, in_flight: int) -> float:
    """Return life cycles per second of a run with one local worker."""
    scenario = {
        "name": "lifecycle",
        "engines": ["docker"],
        "container": {"image": options.image, "command": COMMAND, "network": "none", "init": True},
        "job": {"operations": ["run", options.end, "remove"]},
    }
    words = ("--workers", 1, "-u", in_flight, "-o", options.jobs)
    return float(treatment_of(scenario, *map(str, words))["jobs_per_s"])


def in_threads(loop: Callable[[int], None], options: argparse.Namespace, in_flight: int) -> float:
    """Return life cycles per second of `loop(how_many)` in each of so many threads."""
    each = max(1, options.jobs // in_flight)
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


class Socket:
    """The engine's API on one connection: each call is one write and as many reads as its answer needs."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(60)
        self._socket.connect(path)

    def call(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Return the body of an answer that is none of refusal."""
        head = f"{method} /v1.41{path} HTTP/1.1\r\nHost: d\r\nContent-Type: application/json\r\n"
        self._socket.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        told = b""
        while b"\r\n\r\n" not in told:
            told += self._read()
        head_told, _, rest = told.partition(b"\r\n\r\n")
        status = int(head_told[9:12])
        lower = head_told.lower()
        if b"transfer-encoding: chunked" in lower:
            while not rest.endswith(b"0\r\n\r\n"):
                rest += self._read()
        elif b"content-length: " in lower:
            length = int(lower.split(b"content-length: ")[1].split(b"\r\n")[0])
            while len(rest) < length:
                rest += self._read()
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {rest.decode()}")
        return rest

    def _read(self) -> bytes:
        more = self._socket.recv(65536)
        if not more:
            raise ConnectionError("the engine closed the connection")
        return more


def through_the_bare_api(options: argparse.Namespace, in_flight: int) -> float:
    """Return life cycles per second of the leanest client, a thread and a connection for each in flight."""
    settings = {"Image": options.image, "Cmd": COMMAND, "Labels": {LABEL: options.mark}}
    body = json.dumps(settings | {"HostConfig": {"NetworkMode": "none", "Init": True}}).encode()
    path = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")

    def loop(count: int) -> None:
        engine = Socket(path)
        for _ in range(count):
            made = json.loads(engine.call("POST", "/containers/create", body))["Id"]
            engine.call("POST", f"/containers/{made}/start")
            engine.call("POST", f"/containers/{made}/{options.end}")
            engine.call("POST", f"/containers/{made}/wait")
            engine.call("DELETE", f"/containers/{made}?v=1&force=1")

    return in_threads(loop, options, in_flight)


def through_docker_py(options: argparse.Namespace, in_flight: int) -> float:
    """Return life cycles per second of a loop in each of so many threads."""

    def loop(count: int) -> None:
        client = docker.APIClient(version="auto", timeout=60, **kwargs_from_env())
        settings = client.create_host_config(network_mode="none", init=True)
        try:
            for _ in range(count):
                made = client.create_container(
                    options.image, COMMAND, host_config=settings, labels={LABEL: options.mark}
                )["Id"]
                client.start(made)
                getattr(client, options.end)(made)
                client.wait(made)
                client.remove_container(made, v=True, force=True)
        finally:
            client.close()

    return in_threads(loop, options, in_flight)


def through_the_shell(options: argparse.Namespace, in_flight: int) -> float:
    """Return life cycles per second of so many shell loops."""
    each = max(1, options.jobs // in_flight)
    names = {
        "LABEL": f"{LABEL}={options.mark}",
        "IMAGE": options.image,
        "END": options.end,
        "IN_FLIGHT": in_flight,
        "EACH": each,
    }
    settings = [f"{name}={value}" for name, value in names.items()]
    began = time.perf_counter()
    subprocess.run(["env", *settings, "bash", "-c", SHELL_LOOP], check=True)
    return each * in_flight / (time.perf_counter() - began)


def cpu_s() -> float:
    """Return the CPU time of this process and of those that it waited for, in seconds."""
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in times)


def cpu_of_the_start(options: argparse.Namespace) -> float:
    """Return what a run of one job costs, in seconds of CPU: all but nothing of it is the start of the programs."""
    before = cpu_s()
    through_weighbridge(argparse.Namespace(**{**vars(options), "jobs": 1}), 1)
    return cpu_s() - before


def client_or_reason(image: str) -> Any:
    """Return a client of an engine that has the image, or say why there is none."""
    try:
        client = docker.APIClient(version="auto", timeout=60, **kwargs_from_env())
    except (docker.errors.DockerException, requests.RequestException) as error:
        return f"no Docker Engine answers ({error}); script/docker-engine start --yes"
    try:
        client.inspect_image(image)
    except docker.errors.ImageNotFound:
        client.close()
        return f"image {image} is not there; bench-master build-images"
    return client


def main() -> None:
    """Measure all three in turn, at each number in flight."""
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=100, help="life cycles in each measurement")
    parser.add_argument("--in-flight", type=numbers, default="1,2,4")
    parser.add_argument("--end", choices=("kill", "stop"), default="kill")
    parser.add_argument("--image", default="weighbridge/base")
    parser.add_argument("--mark", default=secrets.token_hex(6), help="what the loops' containers are labelled with")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    client = client_or_reason(options.image)
    if isinstance(client, str):
        print(f"docker_lifecycle.py: {client}", file=sys.stderr)
        raise SystemExit(UNAVAILABLE)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that containers are removed
    ways = {"docker-py": through_docker_py}
    if os.environ.get("DOCKER_HOST", "unix://").startswith("unix://"):
        ways = {"the bare API": through_the_bare_api, **ways}
    if shutil.which("docker"):
        ways["docker in a shell"] = through_the_shell
    else:
        print("there is no `docker` command here: no shell loop")
    ways["weighbridge"] = through_weighbridge
    try:
        for in_flight in options.in_flight:
            print(f"life cycles with {in_flight} in flight, ended by {options.end}:")
            started_s = cpu_of_the_start(options)
            spent: dict[str, list[float]] = {name: [] for name in ways}

            def measured(
                name: str, n: int = in_flight, spent: dict[str, list[float]] = spent, started_s: float = started_s
            ) -> float:
                before = cpu_s()
                rate = ways[name](options, n)
                beside = started_s if name == "weighbridge" else 0.0
                spent[name].append(1000 * (cpu_s() - before - beside) / options.jobs)
                return 100 * rate

            measures = {name: functools.partial(measured, name) for name in ways}
            figures = {name: median(each) for name, each in in_turn(options.repeats, measures, "in 100 s").items()}
            ours = figures.pop("weighbridge")
            for name, baseline in figures.items():
                print_ratio(f"to {name}, {in_flight} in flight", ours, baseline)
            told = ", ".join(f"{name} {median(each):.1f}" for name, each in spent.items())
            print(f"CPU of the client, ms a container: {told}", flush=True)
    finally:
        for left in client.containers(all=True, filters={"label": f"{LABEL}={options.mark}"}):
            client.remove_container(left["Id"], v=True, force=True)
        client.close()


if __name__ == "__main__":
    main()
