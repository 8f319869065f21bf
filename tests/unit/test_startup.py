"""One heap: threads that allocate do not each keep memory of their own."""

import subprocess
import sys

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
