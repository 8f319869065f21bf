"""What a program does first: one heap for all threads, methods that are compiled on demand, no transport over SSH."""

import dataclasses
import subprocess
import sys

import pytest

from bench_common import startup

PROGRAM = """
import _thread
from pathlib import Path
from bench_common.startup import limit_malloc_arenas

HEAP_BYTES = 64 << 20  # glibc puts each further heap at a multiple of this (malloc/arena.c, HEAP_MAX_SIZE on 64 bits)


def heaps():
    count = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, _, rest = line.partition("-")
        count += not int(start, 16) % HEAP_BYTES and rest.split()[1] == "rw-p" and len(rest.split()) == 5
    return count


limit_malloc_arenas()
before = heaps()
gate, ended = _thread.allocate_lock(), [_thread.allocate_lock() for _ in range(8)]
gate.acquire()


def allocate(done):
    kept = [bytes(5000) for _ in range(10)]
    with gate:
        done.release()
    del kept


for lock in ended:
    lock.acquire()
    _thread.start_new_thread(allocate, (lock,))
gate.release()
for lock in ended:
    lock.acquire()
print(before, heaps())
"""
"""Runs in a process of its own, since other tests have threads of theirs."""


def test_threads_share_the_heap():
    """However many threads allocate at once, there are no more heaps than before."""
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60)
    before, after = map(int, ended.stdout.split())
    assert after <= before


@pytest.mark.skipif(not hasattr(dataclasses, "_create_fn"), reason="this Python compiles all methods at once")
def test_methods_are_compiled_when_they_are_called(monkeypatch):
    """Until then a class has only `__init__`; then they do what those of any dataclass do."""
    compiled = []
    make = dataclasses._create_fn

    def recorded(name, *source, **scope):
        compiled.append(name)
        return make(name, *source, **scope)

    monkeypatch.setattr(dataclasses, "_create_fn", recorded)
    startup.compile_on_demand()

    @dataclasses.dataclass(frozen=True, slots=True, order=True)
    class Point:
        x: int
        y: int = dataclasses.field(default=2, compare=False)

    assert compiled == ["__init__"]
    one, other = Point(1), Point(1, y=3)
    assert one == other
    assert one != Point(2)
    assert one < Point(2)
    assert len({one, other}) == 1
    assert repr(one).endswith("Point(x=1, y=2)")
    assert dataclasses.replace(one, y=5).y == 5
    for change in (lambda: setattr(one, "x", 7), lambda: delattr(one, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert Point.__eq__.__qualname__ == f"{Point.__qualname__}.__eq__"
    assert one == other
    assert sorted(compiled) == sorted(set(compiled)), "compiled twice"


@pytest.mark.parametrize(("host", "skipped"), [("", True), ("unix:///run/x.sock", True), ("ssh://a", False)])
def test_docker_over_ssh_is_loaded_where_it_is_asked_for(monkeypatch, host, skipped):
    """Its transport takes longer to load than the rest of docker-py."""
    name = "docker.transport.sshconn"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("DOCKER_HOST", host)
    startup.skip_docker_ssh()
    assert (sys.modules.get(name, "absent") is None) == skipped
