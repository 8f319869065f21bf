"""Clients of Docker's API and of Podman's that keep no record of anything, for ``life_cycles.py``.

The leanest writes its requests to the engine's socket by hand and reads the answers; docker-py is what most people
use in Python; a shell loop of ``docker`` or ``podman`` is what everybody does first. Podman gets a service for the
time of the benchmark, unless CONTAINER_HOST names one; Weighbridge uses it, too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any, Final

import docker
import requests

from bench_worker.engines.docker.podman import is_listening, private_runtime, running_address, service_limits

LABEL: Final = "weighbridge.benchmark"
COMMAND: Final = ["sleep", "600"]
SERVICE_S: Final = 20.0
"""How long the service of Podman's API may take to start."""
SHELL_LOOP: Final = """
set -e
for _ in $(seq "$1"); do
    id=$($ENGINE run -d --network none --label "$LABEL" $LIMITS "$IMAGE" sleep 600)
    $ENGINE kill "$id" >/dev/null; $ENGINE wait "$id" >/dev/null; $ENGINE rm -f -v "$id" >/dev/null
done
"""

_service: subprocess.Popen[bytes] | None = None


class Socket:
    """The engine's API on one connection: each call is one write and as many reads as its answer needs."""

    def __init__(self, path: str) -> None:
        self._socket = socket(AF_UNIX, SOCK_STREAM)
        self._socket.settimeout(60)
        self._socket.connect(path)

    def call(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Return the body of an answer that is no refusal."""
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


def settings(address: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a container is made of; no more than the limits that the engine's own process has."""
    limits = [{"Name": name, "Soft": most, "Hard": most} for name, most in limits_of(address).items()]
    host = {"NetworkMode": "none", **({"Ulimits": limits} if limits else {})}
    return {"Image": options.image, "Cmd": COMMAND, "Labels": {LABEL: options.mark}, "HostConfig": host}


def limits_of(address: str) -> dict[str, int]:
    """Return the hard limits that a service of Podman cannot raise, so that its containers get them; else none."""
    return {} if "podman" not in address else dict(service_limits(address).ulimits)


def through_the_bare_api(address: str, options: argparse.Namespace) -> Callable[[int], None]:
    """Return the loop of the leanest client: a connection of its own."""
    body = json.dumps(settings(address, options)).encode()

    def loop(count: int) -> None:
        engine = Socket(address.removeprefix("unix://"))
        for _ in range(count):
            made = json.loads(engine.call("POST", "/containers/create", body))["Id"]
            engine.call("POST", f"/containers/{made}/start")
            engine.call("POST", f"/containers/{made}/kill")
            engine.call("POST", f"/containers/{made}/wait")
            engine.call("DELETE", f"/containers/{made}?v=1&force=1")

    return loop


def through_docker_py(address: str, options: argparse.Namespace) -> Callable[[int], None]:
    """Return the loop of docker-py."""
    body = settings(address, options)

    def loop(count: int) -> None:
        client = docker.APIClient(base_url=address, version="1.41", timeout=60)
        try:
            for _ in range(count):
                made = client.create_container_from_config(body)["Id"]
                client.start(made)
                client.kill(made)
                client.wait(made)
                client.remove_container(made, v=True, force=True)
        finally:
            client.close()

    return loop


def through_the_shell(engine: str, address: str, options: argparse.Namespace) -> Callable[[int], None]:
    """Return the loop of the engine's command, in a shell."""
    ours = engine == "podman" and _service is not None
    runtime = private_runtime() if ours else None
    names = {
        "ENGINE": f"podman --runtime {runtime}" if runtime else engine,
        "LABEL": f"{LABEL}={options.mark}",
        "IMAGE": options.image,
        "LIMITS": " ".join(f"--ulimit {name}={most}:{most}" for name, most in limits_of(address).items()),
    }

    environment = {**os.environ, **names}
    if ours:
        del environment["CONTAINER_HOST"]  # without a service, as one types it

    def loop(count: int) -> None:
        subprocess.run(["bash", "-c", SHELL_LOOP, "loop", str(count)], env=environment, check=True)

    return loop


def clients(engine: str, options: argparse.Namespace) -> dict[str, Callable[[int], None]] | str:
    """Return the loops by the clients' names, the leanest first; or why there are none."""
    address = podman_address() if engine == "podman" else os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not address.startswith("unix://"):
        return address if " " in address else f"{address} is no Unix socket, which the bare client needs"
    client = docker.APIClient(base_url=address, version="1.41", timeout=10)
    try:
        images = client.images(options.image)
    except (docker.errors.DockerException, requests.RequestException) as error:
        return f"no engine answers ({error}); script/docker-engine start --yes"
    finally:
        client.close()
    if engine == "docker" and not images:
        return f"image {options.image} is not there; bench-master build-images"
    loops = {"the bare API": through_the_bare_api(address, options), "docker-py": through_docker_py(address, options)}
    if shutil.which(engine):
        loops[f"{engine} in a shell"] = through_the_shell(engine, address, options)
    return loops


def podman_address() -> str:
    """Return where Podman's API answers, if need be by a service that is started now; or why it does not."""
    global _service  # noqa: PLW0603  one service for the time of the benchmark
    running = running_address()
    if running:
        return running
    if not shutil.which("podman"):
        return "there is no `podman` here (apt-get install podman)"
    runtime = private_runtime()
    address = f"unix://{tempfile.mkdtemp(prefix='bare-podman-')}/podman.sock"
    words = [*(["--runtime", runtime] if runtime else []), "system", "service", "--time", "0", address]
    _service = subprocess.Popen(["podman", *words], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + SERVICE_S
    while not is_listening(address):
        if time.monotonic() > deadline or _service.poll() is not None:
            return "`podman system service` does not answer"
        time.sleep(0.05)
    os.environ["CONTAINER_HOST"] = address
    return address


def clean_up(engine: str, options: argparse.Namespace) -> None:
    """Remove what a client that was interrupted left behind, and end the service that was started here."""
    global _service  # noqa: PLW0603
    address = os.environ.get("DOCKER_HOST") if engine == "docker" else running_address()
    try:
        client = docker.APIClient(base_url=address, version="1.41", timeout=60)
        for left in client.containers(all=True, filters={"label": f"{LABEL}={options.mark}"}):
            client.remove_container(left["Id"], v=True, force=True)
        client.close()
    except (docker.errors.DockerException, requests.RequestException):
        pass  # no engine, no containers
    if engine == "podman" and _service is not None:
        _service.terminate()
        _service.wait(SERVICE_S)
        _service = None
        shutil.rmtree(Path(os.environ.pop("CONTAINER_HOST").removeprefix("unix://")).parent, ignore_errors=True)
