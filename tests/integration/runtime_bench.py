"""An opened engine with its containers, whichever runtime is behind it: what the tests of runtimes share."""

import time
import uuid

import pytest

from bench_common.spec import ContainerSettings
from bench_worker.engines.base import Container, EngineOptions, OperationFailed
from bench_worker.lease import RunLease

FOREVER = ("sleep", "1000")


class RuntimeBench:
    """An opened engine for one run; what it made is gone at the end."""

    def __init__(self, engine, image, settings=None, **options):
        self.image = image
        self.settings = settings or {}
        self.run_id = f"test-{uuid.uuid4().hex[:12]}"
        self.engine = engine(EngineOptions(self.run_id, "w1", 20, **options))
        self.engine.open()
        self.lease = RunLease(self.run_id)
        self.lease.acquire()

    def container(self, *command, **settings):
        given = {"image": self.image, "command": command or None, **self.settings, **settings}
        return Container(f"wb-{uuid.uuid4().hex[:12]}", 1, ContainerSettings(**given))

    def running(self, *command, **settings):
        container = self.container(*command, **settings)
        self.engine.run(container, timeout_s=30)
        return container

    def close(self):
        for leftover in self.engine.leftovers(self.run_id):
            self.engine.discard(leftover)
        self.engine.close()
        self.lease.release()


def failure(verb, *arguments, **options):
    before_ns = time.monotonic_ns()
    with pytest.raises(OperationFailed) as caught:
        verb(*arguments, **{"timeout_s": 10, **options})
    assert before_ns <= caught.value.start_ns <= caught.value.end_ns <= time.monotonic_ns()
    assert str(caught.value)
    return caught.value


def kind_of(verb, *arguments, **options):
    return failure(verb, *arguments, **options).kind


def printed_by(engine, container):
    """What a command printed to either stream: containerd does not keep them apart."""
    printed = engine.logs(container, limit_bytes=99, timeout_s=5)
    return printed.stdout + printed.stderr


def until(condition):
    deadline = time.monotonic() + 20
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value
