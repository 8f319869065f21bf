"""Clients of the CRI that keep no record of anything, for ``life_cycles.py``.

The leanest writes its HTTP/2 frames to the socket by hand (``bare_containerd.py``); grpcio is gRPC's own library;
a shell loop of ``crictl`` is what administrators use. Unless CONTAINER_RUNTIME_ENDPOINT names a runtime or one serves
the CRI here, a private containerd with its CRI plugin is started for the time of the benchmark; Weighbridge uses it,
too. Containers are in the host's network, since any other takes plugins.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import docker
import requests
from bare_containerd import CALL_S, COMMAND, LABEL, Call, Connection, grpcio_calls, has_grpcio

from bench_common.errors import WeighbridgeError
from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import Container, OperationFailed
from bench_worker.engines.containerd.api import ContainerdApi
from bench_worker.engines.containerd.images import import_archive, qualified_name
from bench_worker.engines.cri import messages_pb2 as messages
from bench_worker.engines.cri.engine import CriEngine, container_config, pod_config
from bench_worker.engines.cri.images import PACKAGE, VARIABLE, CriImages, address
from bench_worker.engines.grpc import CallSequence, GrpcChannel

SERVICES: Final = f"{PACKAGE}."
RUNTIME: Final = "RuntimeService/"
START_S: Final = 20.0
"""How long the private containerd may take to start."""
CONFIG: Final = """
version = 2
root = "{home}/root"
state = "{home}/state"
[grpc]
  address = "{home}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/{pause}"
  restrict_oom_score_adj = true
[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"
"""
PAUSE: Final = "weighbridge-benchmark/pause:1"
"""The image of the process that holds a pod's namespaces: the benchmark's own, with a command that sleeps."""
SHELL_LOOP: Final = """
set -e
for number in $(seq "$1"); do
    sed "s/NAME/bare-$$-$number/" "$CONFIGS/pod.json" >"$CONFIGS/pod-$$.json"
    container=$(crictl run "$CONFIGS/container.json" "$CONFIGS/pod-$$.json")
    crictl stop --timeout 0 "$container" >/dev/null
    pod=$(crictl pods -q --name "bare-$$-$number\\$")
    crictl rmp -f "$pod" >/dev/null
done
"""

_private: tuple[subprocess.Popen[bytes], Path] | None = None


class LifeCycle:
    """Pods of one container, with what is the same for all of them made once."""

    def __init__(self, options: argparse.Namespace) -> None:
        settings = ContainerSettings(image=options.image, command=COMMAND, network="host")
        whose = Container("NAME", 1, settings)
        whose.labels[LABEL] = options.mark
        self.pod = pod_config(whose, Path("/tmp"))
        self.pod.log_directory = ""
        self.container = container_config(whose, options.image, Path("/"), allow_host_mounts=False)
        self.container.log_path = ""

    def run(self, call: Call) -> None:
        """Let a container live and die."""
        name = f"bare-{uuid.uuid4().hex[:16]}"
        pod = messages.PodSandboxConfig()
        pod.CopyFrom(self.pod)
        pod.metadata.name = pod.metadata.uid = name
        pod.linux.cgroup_parent = f"/weighbridge/{name}"
        made = call(f"{RUNTIME}RunPodSandbox", messages.RunPodSandboxRequest(config=pod))
        sandbox = messages.RunPodSandboxResponse.FromString(made).pod_sandbox_id
        wanted = messages.CreateContainerRequest(pod_sandbox_id=sandbox, config=self.container, sandbox_config=pod)
        made = call(f"{RUNTIME}CreateContainer", wanted)
        container = messages.CreateContainerResponse.FromString(made).container_id
        call(f"{RUNTIME}StartContainer", messages.StartContainerRequest(container_id=container))
        # Without a grace period: SIGKILL, until it is dead.
        call(f"{RUNTIME}StopContainer", messages.StopContainerRequest(container_id=container, timeout=0))
        call(f"{RUNTIME}StopPodSandbox", messages.PodSandboxRequest(pod_sandbox_id=sandbox))
        call(f"{RUNTIME}RemovePodSandbox", messages.PodSandboxRequest(pod_sandbox_id=sandbox))


def clients(_engine: str, options: argparse.Namespace) -> dict[str, Callable[[int], None]] | str:
    """Return the loops by the clients' names, the leanest first; or why there are none."""
    if not CriEngine.probe().usable and (reason := start_containerd()):
        return reason
    try:
        fetch_image(options.image)
    except (WeighbridgeError, OperationFailed) as error:
        return f"image {options.image} is not there ({error}); bench-master build-images"
    path, life = address(), LifeCycle(options)

    def by_hand(count: int) -> None:
        connection = Connection(path, SERVICES, {})
        for _ in range(count):
            life.run(connection.call)

    loops: dict[str, Callable[[int], None]] = {"the bare API": by_hand}
    if has_grpcio():
        calls = grpcio_calls(path, SERVICES, {})

        def through_grpcio(count: int) -> None:
            for _ in range(count):
                life.run(calls)

        loops["grpcio"] = through_grpcio
    if shutil.which("crictl"):

        def in_a_shell(count: int) -> None:
            with tempfile.TemporaryDirectory() as folder:
                write_configs(Path(folder), options)
                environment = {**os.environ, VARIABLE: f"unix://{path}", "CONFIGS": folder}
                subprocess.run(["bash", "-c", SHELL_LOOP, "loop", str(count)], env=environment, check=True)

        loops["crictl in a shell"] = in_a_shell
    return loops


def write_configs(folder: Path, options: argparse.Namespace) -> None:
    """Write what ``crictl`` makes a pod and a container from; network 2 is the host's."""
    labels = {LABEL: options.mark}
    host = {"security_context": {"namespace_options": {"network": 2}}}
    pod = {"metadata": {"name": "NAME", "uid": "NAME", "namespace": "weighbridge"}, "labels": labels, "linux": host}
    container = {
        "metadata": {"name": "main"},
        "image": {"image": options.image},
        "args": list(COMMAND),
        "linux": host,
    }
    (folder / "pod.json").write_text(json.dumps(pod), "utf-8")
    (folder / "container.json").write_text(json.dumps(container), "utf-8")


def fetch_image(image: str) -> None:
    """Have the image in the runtime, as Weighbridge has it there."""
    channel = GrpcChannel(address(), PACKAGE)
    try:
        with tempfile.TemporaryDirectory() as folder:
            CriImages(channel, Path(folder)).get(image)
    finally:
        channel.close()


def start_containerd() -> str:
    """Start a containerd that serves the CRI, and let CONTAINER_RUNTIME_ENDPOINT name it; return why not, if so."""
    global _private  # noqa: PLW0603  one for the time of the benchmark
    if shutil.which("containerd") is None or os.geteuid() != 0:
        return (
            "nothing serves the CRI, and a private containerd takes root and the program (script/engines containerd)"
        )
    home = Path(tempfile.mkdtemp(prefix="bare-cri-"))
    (home / "config.toml").write_text(CONFIG.format(home=home, pause=PAUSE), "utf-8")
    socket = home / "containerd.sock"
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            ["containerd", "--config", str(home / "config.toml")], stdout=log, stderr=log, start_new_session=True
        )
    _private = process, home
    deadline = time.monotonic() + START_S
    while not socket.exists():
        if time.monotonic() > deadline or process.poll() is not None:
            return f"a private containerd does not start: {(home / 'log').read_text('utf-8', 'replace')[-500:]}"
        time.sleep(0.05)
    os.environ[VARIABLE] = f"unix://{socket}"
    api = ContainerdApi(str(socket), "k8s.io")
    try:
        client = docker.APIClient(version="1.41", timeout=60)
        try:
            made = client.create_container("weighbridge/base", "true")["Id"]
            repository, _, tag = PAUSE.partition(":")
            client.commit(made, repository, tag, changes=['CMD ["/bin/sleep", "1000000"]'])
            client.remove_container(made)
            facts = client.inspect_image(PAUSE)
            import_archive(api, client.get_image(PAUSE), facts, home, qualified_name(PAUSE))
            client.remove_image(PAUSE)
        finally:
            client.close()
    except (docker.errors.DockerException, requests.RequestException, OperationFailed) as error:
        return f"there is no image for the pods of a private containerd: {error}"
    finally:
        api.close()
    return ""


def clean_up(_engine: str, options: argparse.Namespace) -> None:
    """Remove what a client that was interrupted left behind, and end the containerd that was started here."""
    global _private  # noqa: PLW0603
    channel = GrpcChannel(address(), PACKAGE)
    with suppress(OperationFailed):
        calls = CallSequence(channel, CALL_S)
        wanted = messages.PodSandboxFilter(label_selector={LABEL: options.mark})
        request = messages.ListPodSandboxRequest(filter=wanted)
        for pod in calls.call(f"{RUNTIME}ListPodSandbox", request, messages.ListPodSandboxResponse).items:
            for method in ("StopPodSandbox", "RemovePodSandbox"):
                with suppress(OperationFailed):
                    calls.do(f"{RUNTIME}{method}", messages.PodSandboxRequest(pod_sandbox_id=pod.id))
    channel.close()
    if _private is not None:
        process, home = _private
        _private = None
        process.terminate()
        process.wait(START_S)
        os.environ.pop(VARIABLE, None)
        shutil.rmtree(home, ignore_errors=True)
