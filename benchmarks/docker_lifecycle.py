"""Life cycles of real containers through Weighbridge, against a bare docker-py loop and a shell loop of `docker`.

A life cycle is: run a container that sleeps, kill (or stop) it, wait until it is dead, remove it. Most of the time
is the engine's own, whoever asks; the ratio says whether a harness with stamps and records gets less done.

    python benchmarks/docker_lifecycle.py [--jobs N] [--in-flight 1,4] [--end kill|stop] [--image NAME] [--repeats N]

Needs a Docker Engine that answers (``script/docker-engine start --yes``) and the image (``bench-master
build-images``); exit code 3 without.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import subprocess
import sys
import threading
import time
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


def through_docker_py(options: argparse.Namespace, in_flight: int) -> float:
    """Return life cycles per second of a loop in each of so many threads."""
    each = max(1, options.jobs // in_flight)
    errors: list[Exception] = []

    def loop() -> None:
        client = docker.APIClient(version="auto", timeout=60, **kwargs_from_env())
        settings = client.create_host_config(network_mode="none", init=True)
        try:
            for _ in range(each):
                made = client.create_container(
                    options.image, COMMAND, host_config=settings, labels={LABEL: options.mark}
                )["Id"]
                client.start(made)
                getattr(client, options.end)(made)
                client.wait(made)
                client.remove_container(made, v=True, force=True)
        except (docker.errors.DockerException, requests.RequestException) as error:
            errors.append(error)
        finally:
            client.close()

    threads = [threading.Thread(target=loop, daemon=True) for _ in range(in_flight)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    if errors:
        raise errors[0]
    return each * in_flight / seconds


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
    parser.add_argument("--in-flight", type=numbers, default="1,4")
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
    if shutil.which("docker"):
        ways["docker in a shell"] = through_the_shell
    else:
        print("there is no `docker` command here: no shell loop")
    ways["weighbridge"] = through_weighbridge
    try:
        for in_flight in options.in_flight:
            print(f"life cycles with {in_flight} in flight, ended by {options.end}:")
            measures = {name: lambda way=way, n=in_flight: 100 * way(options, n) for name, way in ways.items()}
            figures = {name: median(each) for name, each in in_turn(options.repeats, measures, "in 100 s").items()}
            ours = figures.pop("weighbridge")
            for name, baseline in figures.items():
                print_ratio(f"to {name}, {in_flight} in flight", ours, baseline)
    finally:
        for left in client.containers(all=True, filters={"label": f"{LABEL}={options.mark}"}):
            client.remove_container(left["Id"], v=True, force=True)
        client.close()


if __name__ == "__main__":
    main()
