"""One heap: threads that allocate do not each keep memory of their own."""

from pathlib import Path

from gevent.monkey import get_original

from bench_common.startup import limit_malloc_arenas

HEAP_BYTES = 64 << 20
"""glibc puts each further heap at a multiple of this (malloc/arena.c, HEAP_MAX_SIZE on 64 bits)."""


def heaps():
    """Return how many heaps of threads this process has: each is a readable part of a reserved range."""
    count = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, _, rest = line.partition("-")
        count += not int(start, 16) % HEAP_BYTES and rest.split()[1] == "rw-p" and len(rest.split()) == 5
    return count


def test_threads_share_the_heap():
    """However many threads allocate at once, there are no more heaps than before."""
    start, make = get_original("_thread", "start_new_thread"), get_original("_thread", "allocate_lock")
    limit_malloc_arenas()
    before = heaps()
    gate, ended = make(), [make() for _ in range(8)]
    gate.acquire()

    def allocate(done):
        kept = [bytes(5000) for _ in range(10)]
        with gate:
            done.release()
        del kept

    for lock in ended:
        lock.acquire()
        start(allocate, (lock,))
    gate.release()
    for lock in ended:
        lock.acquire()
    assert heaps() <= before
