"""Clients of containerd's API that keep no record of anything, for ``life_cycles.py``.

The leanest writes its HTTP/2 frames to the socket by hand, and a reply is done when its stream ends; grpcio is the
library that gRPC offers for Python; a shell loop of ``ctr`` is what comes with containerd. All use the
specification and the image that Weighbridge uses, and make the same calls, one after the other.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any, Final

from google.protobuf.any_pb2 import Any as TypedValue
from google.protobuf.message import Message

from bench_common.errors import WeighbridgeError
from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import Container, OperationFailed
from bench_worker.engines.containerd import messages_pb2 as messages
from bench_worker.engines.containerd.api import NAMESPACE, SNAPSHOTTER, ContainerdApi, address
from bench_worker.engines.containerd.engine import ContainerdEngine, container_spec
from bench_worker.engines.containerd.images import ContainerdImages
from bench_worker.engines.http2 import encode_headers
from bench_worker.engines.oci.cgroups import Cgroups
from bench_worker.engines.oci.spec import User

LABEL: Final = "weighbridge.benchmark"
COMMAND: Final = ("sleep", "600")
CALL_S: Final = 60
SERVICES: Final = "containerd.services."
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_TABLE: Final = b"\0\1\0\0\0\0"
"""A setting: no table of headers, so that a block of headers can be read by itself."""
DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 4, 6, 7, 8
ROOM: Final = ((1 << 31) - 1 - 65535).to_bytes(4)
"""For replies, on the connection as a whole: without it the service stops after 64 KiB, some thirty life cycles."""
SHELL_LOOP: Final = """
set -e
for number in $(seq "$1"); do
    name=bare-$$-$number
    $CTR run -d --null-io --label "$LABEL" "$IMAGE" "$name" sleep 600
    $CTR tasks rm -f "$name" >/dev/null 2>&1; $CTR containers rm "$name" >/dev/null
done
"""
"""``tasks rm -f`` kills (SIGKILL), waits until it is dead, deletes the task, and warns of its exit code."""

Call = Callable[[str, Message], bytes]
"""Calls a method, such as ``tasks.v1.Tasks/Start``, and returns the reply."""


class Connection:
    """gRPC on one connection: each call is one write, and as many reads as it takes until its stream ends."""

    def __init__(self, path: str, services: str, metadata: dict[str, str]) -> None:
        self._socket = socket(AF_UNIX, SOCK_STREAM)
        self._socket.settimeout(CALL_S)
        self._socket.connect(path)
        self._socket.sendall(PREFACE + frame(SETTINGS, 0, 0, NO_TABLE) + frame(WINDOW_UPDATE, 0, 0, ROOM))
        self._services = services
        self._metadata = metadata
        self._headers: dict[str, bytes] = {}
        self._stream = -1

    def call(self, method: str, request: Message) -> bytes:
        """Return the bytes of a reply that is no refusal."""
        self._stream += 2
        headers = self._headers.get(method)
        if headers is None:
            headers = self._headers[method] = encode_headers(self._headers_of(method))
        body = request.SerializeToString()
        sent = frame(HEADERS, 4, self._stream, headers)
        sent += frame(DATA, 1, self._stream, b"\0" + len(body).to_bytes(4) + body)
        self._socket.sendall(sent)
        return self._reply(method)[5:]

    def _headers_of(self, method: str) -> list[tuple[str, str]]:
        path = f"/{self._services}{method}"
        fixed = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost", "te": "trailers"}
        return list({**fixed, "content-type": "application/grpc", **self._metadata}.items())

    def _reply(self, method: str) -> bytes:
        reply, rest, blocks = b"", b"", 0
        while True:
            more = self._socket.recv(65536)
            if not more:
                raise ConnectionError("the service closed the connection")
            rest += more
            while len(rest) >= 9 and len(rest) >= 9 + int.from_bytes(rest[:3]):
                size, kind, flags = int.from_bytes(rest[:3]), rest[3], rest[4]
                payload, rest = rest[9 : 9 + size], rest[9 + size :]
                if kind == DATA:
                    reply += payload
                elif kind == HEADERS:
                    blocks += 1
                    if flags & 1:
                        # One block of headers and no body: gRPC's short form of a refusal.
                        if blocks == 1:
                            raise RuntimeError(f"{method} was refused: {payload!r}")
                        return reply
                elif kind in (SETTINGS, PING) and not flags & 1:
                    self._socket.sendall(frame(kind, 1, 0, payload if kind == PING else b""))
                elif kind == GOAWAY:
                    raise ConnectionError("the service ended the connection")


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame of HTTP/2."""
    return len(payload).to_bytes(3) + bytes((kind, flags)) + stream.to_bytes(4) + payload


def grpcio_calls(path: str, services: str, metadata: dict[str, str]) -> Call:
    """Return what calls through a channel of grpcio."""
    import grpc

    channel = grpc.insecure_channel(f"unix://{path}")
    methods: dict[str, Any] = {}
    headers = tuple(metadata.items())

    def call(method: str, request: Message) -> bytes:
        found = methods.get(method)
        if found is None:
            found = methods[method] = channel.unary_unary(f"/{services}{method}")
        return bytes(found(request.SerializeToString(), metadata=headers, timeout=CALL_S))

    return call


def has_grpcio() -> bool:
    """Say whether grpcio can be imported."""
    return importlib.util.find_spec("grpc") is not None


class LifeCycle:
    """Containers of one image, with what is the same for all of them made once."""

    def __init__(self, options: argparse.Namespace) -> None:
        api = ContainerdApi(address())
        with tempfile.TemporaryDirectory() as folder:
            images = ContainerdImages(api, Path(folder))
            self.image = images.get(options.image)
            found = images.resolve(self.image)
        api.close()
        self._chain = found.chain
        settings = ContainerSettings(image=options.image, command=COMMAND, network="none")
        cgroups = Cgroups.detect(swap_limit=False)
        whose = Container("NAME", 1, settings)
        spec = container_spec(whose, found.config, User(), Path("/"), cgroups=cgroups, allow_host_mounts=False)
        self._spec = json.dumps(spec)
        self._labels = {LABEL: options.mark}

    def run(self, call: Call) -> None:
        """Let a container live and die."""
        name = f"bare-{uuid.uuid4().hex[:16]}"
        spec = self._spec.replace("NAME", name).encode()
        record = messages.Container(
            id=name,
            labels=self._labels,
            image=self.image,
            runtime=messages.Runtime(name="io.containerd.runc.v2"),
            spec=TypedValue(type_url="types.containerd.io/opencontainers/runtime-spec/1/Spec", value=spec),
            snapshotter=SNAPSHOTTER,
            snapshot_key=name,
        )
        snapshot = messages.SnapshotRequest(snapshotter=SNAPSHOTTER, key=name)
        process = messages.ProcessRequest(container_id=name)
        call("containers.v1.Containers/Create", messages.ContainerMessage(container=record))
        prepare = messages.PrepareSnapshotRequest(snapshotter=SNAPSHOTTER, key=name, parent=self._chain)
        mounts = messages.MountsResponse.FromString(call("snapshots.v1.Snapshots/Prepare", prepare)).mounts
        call("tasks.v1.Tasks/Create", messages.CreateTaskRequest(container_id=name, rootfs=mounts))
        call("tasks.v1.Tasks/Start", process)
        call("tasks.v1.Tasks/Kill", messages.KillRequest(container_id=name, signal=9))
        call("tasks.v1.Tasks/Wait", process)
        call("tasks.v1.Tasks/Delete", process)
        call("snapshots.v1.Snapshots/Remove", snapshot)
        call("containers.v1.Containers/Delete", messages.ContainerRequest(id=name))


def clients(_engine: str, options: argparse.Namespace) -> dict[str, Callable[[int], None]] | str:
    """Return the loops by the clients' names, the leanest first; or why there are none."""
    status = ContainerdEngine.probe()
    if not status.usable:
        return f"{status.reason}; {status.advice}"
    try:
        life = LifeCycle(options)
    except (WeighbridgeError, OperationFailed) as error:
        return f"image {options.image} is not there ({error}); bench-master build-images"
    path, metadata = address(), {"containerd-namespace": NAMESPACE}

    def by_hand(count: int) -> None:
        connection = Connection(path, SERVICES, metadata)
        for _ in range(count):
            life.run(connection.call)

    loops: dict[str, Callable[[int], None]] = {"the bare API": by_hand}
    if has_grpcio():
        calls = grpcio_calls(path, SERVICES, metadata)

        def through_grpcio(count: int) -> None:
            for _ in range(count):
                life.run(calls)

        loops["grpcio"] = through_grpcio
    if shutil.which("ctr"):
        environment = {
            **os.environ,
            "CTR": f"ctr --address {path} --namespace {NAMESPACE}",
            "LABEL": f"{LABEL}={options.mark}",
            "IMAGE": life.image,
        }

        def in_a_shell(count: int) -> None:
            subprocess.run(["bash", "-c", SHELL_LOOP, "loop", str(count)], env=environment, check=True)

        loops["ctr in a shell"] = in_a_shell
    return loops


def clean_up(_engine: str, options: argparse.Namespace) -> None:
    """Remove what a client that was interrupted left behind."""
    api = ContainerdApi(address())
    wanted = messages.ListRequest(filters=[f'labels."{LABEL}"=="{options.mark}"'])
    with suppress(OperationFailed):
        calls = api.calls(CALL_S)
        for left in calls.call("containers.v1.Containers/List", wanted, messages.ListContainersResponse).containers:
            process = messages.ProcessRequest(container_id=left.id)
            for method, request in (
                ("tasks.v1.Tasks/Kill", messages.KillRequest(container_id=left.id, signal=9)),
                ("tasks.v1.Tasks/Wait", process),
                ("tasks.v1.Tasks/Delete", process),
                ("snapshots.v1.Snapshots/Remove", messages.SnapshotRequest(snapshotter=SNAPSHOTTER, key=left.id)),
                ("containers.v1.Containers/Delete", messages.ContainerRequest(id=left.id)),
            ):
                with suppress(OperationFailed):
                    calls.do(method, request)
    api.close()
