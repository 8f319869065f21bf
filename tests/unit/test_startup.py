"""What a program does first: one heap for all threads, no docker-py."""

import json
import subprocess
import sys

import pytest
from deadlines import END_S

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
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=END_S)
    before, after = map(int, ended.stdout.split())
    assert after <= before


HEAVY = {"docker", "requests", "paramiko", "numpy"}


@pytest.mark.parametrize("engine", ["docker", "docker-cli", "podman", "containerd", "runc", "native"])
def test_an_engine_is_loaded_without_what_few_runs_need(engine):
    """docker-py, which takes paramiko along, is loaded by who pulls, copies or removes an image."""
    program = (
        "import json, sys, bench_worker.cli, bench_worker.agent, bench_worker.load_process\n"
        "from bench_worker.engines.registry import BrokenEngine, engine_classes\n"
        f"assert not isinstance(engine_classes(['{engine}'])['{engine}'], BrokenEngine)\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=END_S)
    assert HEAVY & set(json.loads(ended.stdout)) == set()


def test_a_worker_that_serves_loads_no_query():
    """Each query has a module of its own, which the others do without."""
    program = (
        "import sys\n"
        "from bench_worker.cli import build_parser\n"
        "arguments = build_parser(['--once', '--engines=native', '-c', '2', 'w']).parse_args(['--once', 'w'])\n"
        "assert arguments.query is None and arguments.once\n"
        "assert not [name for name in sys.modules if name.startswith('bench_worker.queries.')]\n"
        "assert build_parser(['--list-engines']).parse_args(['--list-engines']).query.FLAG == '--list-engines'"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=END_S)


NOT_ON_THE_FIRST_DAY = {
    *HEAVY - {"numpy"},
    *{"google.protobuf", "hpack", "jinja2", "markupsafe", "psutil", "regex", "rich", "setproctitle"},
    *{"pandas", "polars", "pyinstrument", "pymysql", "shtab"},
    *{"bench_features.clusters", "bench_features.compat", "bench_features.formats", "sqlite3"},
}
"""What engines with a protocol of their own, pages, fleets, terminals, workers and extras need."""


def test_a_first_weigh_loads_only_what_it_uses(tmp_path):
    """Plain processes against each other, with their report: the master loads no client, no page and no fleet."""
    program = (
        "import json, sys, bench_master.__main__ as program\n"
        "try:\n    program.main()\nexcept SystemExit as end:\n    print(end.code, json.dumps(sorted(sys.modules)))"
    )
    words = ["weigh", "-r", "1", "-w", "0", "-s", tmp_path / "run.stats.gz", "true", "false; true"]
    ended = subprocess.run(
        [sys.executable, "-c", program, *words, "--shell"], capture_output=True, text=True, check=True, timeout=END_S
    )
    status, _, loaded = ended.stdout.splitlines()[-1].partition(" ")
    assert status == "0", ended.stderr
    assert NOT_ON_THE_FIRST_DAY & set(json.loads(loaded)) == set()
