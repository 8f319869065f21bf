"""What a store's server is on a recorded host: who listens where requests go, its children, and Swift's programs."""

from __future__ import annotations

import os

import pytest
from recorded_host import Machine, RecordedHostFiles

from bench_common.errors import WeighbridgeError
from bench_common.requirements import KindNeed
from bench_features.objects.worker.s3 import S3Store
from bench_features.objects.worker.server_cost import ServerSampler
from bench_worker.host_part import KindsOfRun

TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")
HERE = "http://127.0.0.1:9"
PORTS = {9000: 10, 7070: 20, 8080: 30, 8180: 40}
"""Who listens where."""


class StoreMachine(Machine):
    """A host with stores; who listens where is in `ports`."""

    def __init__(self) -> None:
        super().__init__()
        self.links: dict[str, str] = {}

    def listen(self, ports: dict[int, int]) -> None:
        """Let processes listen, each at a port, by a socket whose number is that of the port."""
        rows = [f"0: 0100007F:{port:04X} 00000000:0000 0A 0:0 00:0 0 0 0 {port}" for port in ports]
        self.texts["/proc/net/tcp"] = "\n".join(["sl local_address", *rows])
        self.links = {f"/proc/{pid}/fd/3": f"socket:[{port}]" for port, pid in ports.items()}

    def names(self, path: str) -> tuple[str, ...]:
        return RecordedHostFiles(self.texts, self.links).names(path)

    def target(self, path: str) -> str | None:
        return self.links.get(path)

    def server(self, pid: int, name: str, parent: int = 1, *, group: str = "0::/", **more: int) -> None:
        """Let a process of a store be there."""
        self.process(pid, name, parent, **more)
        self.texts[f"/proc/{pid}/cgroup"] = group

    def costs(self, *urls: str) -> ServerSampler:
        """Begin to sample the server at these URLs."""
        return ServerSampler(urls, S3Store.server_processes, self, clock=self.clock)


@pytest.fixture
def machine() -> StoreMachine:
    """Two S3 stores of one program each, one of which has a child, and two Swifts, one of them in a container."""
    machine = StoreMachine()
    machine.server(10, "minio", own=100, rss=20)
    machine.server(11, "minio", 10, own=10, rss=2)
    machine.server(20, "versitygw", own=100, rss=30)
    for first, group in ((30, "0::/"), (40, "0::/docker/1")):
        for number, name in enumerate(("swift-proxy-ser", "swift-object-se", "memcached")):
            machine.server(first + number, name, group=group, rss=first)
    machine.listen(PORTS)
    return machine


@pytest.mark.parametrize(
    ("url", "pids"),
    [
        ("http://127.0.0.1:9000", {10, 11}),
        ("http://localhost:7070/", {20}),
        ("http://127.0.0.1:8080", {30, 31, 32}),
        ("http://127.0.0.1:8180", {40, 41, 42}),
    ],
)
def test_a_server_is_who_listens_and_what_belongs_to_it(machine: StoreMachine, url: str, pids: set[int]) -> None:
    """Not the other stores of the host, nor another Swift's programs in a control group of their own."""
    assert machine.costs(url).pids == pids


def test_what_it_used_is_read_and_a_server_that_starts_again_is_found(machine: StoreMachine) -> None:
    """The same rows as of an engine's daemon."""
    sampler = machine.costs("http://127.0.0.1:7070")
    machine.now_ns += 10**9
    machine.server(20, "versitygw", own=150, rss=40)
    row = sampler.sample()
    assert row is not None
    assert (row["cpu_ns"], row["processes"]) == (50 * TICK_NS, 1)
    machine.end(20)
    assert sampler.sample() is None
    machine.server(21, "versitygw", own=1, rss=40, started=200)
    machine.listen({7070: 21})
    assert sampler.sample() is not None
    assert sampler.pids == {21}


@pytest.mark.parametrize(
    "url", ["http://192.0.2.1:9000", "http://127.0.0.1:9999", "http://no-such-host.invalid", "http://127.0.0.1:5000"]
)
def test_a_server_that_is_elsewhere_or_behind_a_forwarder_is_told(machine: StoreMachine, url: str) -> None:
    machine.server(50, "docker-proxy")
    machine.listen({**PORTS, 5000: 50})
    with pytest.raises(WeighbridgeError, match=r"does not listen on this host.*overhead\.cgroups"):
        machine.costs(url)


def test_a_need_that_cannot_be_sampled_is_told_once_and_others_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the master names is sampled, each by its place."""
    kinds, told = KindsOfRun(), list[str]()
    job = {"kind": "objects", "classes": []}
    needs = [KindNeed("s3", {**job, "endpoints": places}) for places in ([HERE], [HERE], [])]
    monkeypatch.setattr(kinds, "_needs", needs)
    variables = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    assert kinds.cost_samplers([f"s3@{HERE}", "docker"], variables, told.append) == {f"s3@{HERE}": None}
    (reason,) = told
    assert reason.startswith("the overhead of s3 is unknown: its server does not listen on this host, or not as")
