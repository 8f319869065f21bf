"""Limits of this process that leave too little to work with (``ulimit``, cgroups), found before they break something.

libzmq, libev and OpenBLAS abort the whole process where they get no thread, file or memory. So what is needed is
tried out first, whatever sets the limit: threads are started, address space is reserved, each for a moment. This
module is loaded before almost all others, so it imports next to nothing.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
import sys

# Bound before gevent replaces them: native threads are what is counted.
from _thread import allocate_lock, stack_size, start_new_thread
from contextlib import suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _thread import LockType

MIB: Final = 1 << 20
LOAD_TASKS: Final = 4
"""Threads beside the main one that any command may start."""
LOAD_BYTES: Final = 192 * MIB
"""Address space that a program takes by the time it has loaded (bytes)."""
LOAD_FILES: Final = 64
"""Open files of any command."""
RUN_TASKS: Final = 8
"""Threads of a master beside the main one: those of zmq, the journal, the pool of the event loop."""
WORKER_TASKS: Final = 14
"""Threads and processes of a worker, which is two processes, without those of its jobs."""
RUN_BYTES: Final = 192 * MIB
"""Address space that a run, or a worker, takes beyond `LOAD_BYTES` (bytes)."""
RUN_FILE_BYTES: Final = 2048
"""What the beginning of any stats file takes (bytes); how large the whole is depends on the run."""
_PROBE_STACK: Final = 64 << 10
_END_S: Final = 5.0

ADVICE: Final = {
    errno.EAGAIN: "too many processes or threads: raise `ulimit -u`, or pids.max of the cgroup",
    errno.ENOMEM: "out of memory: raise `ulimit -v`, or free some",
    errno.EMFILE: "too many open files: raise `ulimit -n`",
    errno.EFBIG: "larger than files may be: raise `ulimit -f`",
}
"""What to do about errors of the system that come from such limits."""


def missing(*, tasks: int = 0, address_bytes: int = 0, files: int = 0, file_bytes: int = 0) -> str | None:
    """Return which of these this process cannot have, and what to do; None if it can have them all.

    `tasks` are threads or processes at the same time, `address_bytes` address space, `files` open files (the soft
    limit is raised if it has to be), `file_bytes` the size of one file.
    """
    soft, hard = _limits(resource.RLIMIT_NOFILE)
    if soft < files <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    elif soft < files:
        return f"this process may have {hard:g} open files and needs {files}: raise the limit (ulimit -n)"
    if _limits(resource.RLIMIT_FSIZE)[0] < file_bytes:
        return (
            f"files may have {_limits(resource.RLIMIT_FSIZE)[0]:g} bytes, and a stats file is larger: raise the "
            "limit (ulimit -f)"
        )
    try:
        if address_bytes:
            mmap.mmap(-1, address_bytes).close()
    except OSError:
        return (
            f"this process needs {address_bytes // MIB} MiB more of address space and cannot have them: raise the "
            "limit (ulimit -v, or LimitAS of the service)"
        )
    started = _count_threads(tasks)
    if started < tasks:
        return (
            f"this process can start {started} threads and needs {tasks}: raise the limit of processes (ulimit -u, "
            "which counts the threads of all processes of this user, or pids.max of the cgroup)"
        )
    return None


def require_to_load(program: str) -> None:
    """End the process with exit code 3 and one line where a program could not even load.

    OpenBLAS, which NumPy loads and which nothing here uses, would start a thread and take 40 MiB of address space for
    each CPU.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    reason = missing(tasks=LOAD_TASKS, address_bytes=LOAD_BYTES, files=LOAD_FILES)
    if reason is not None:
        with suppress(OSError, AttributeError):
            sys.stderr.write(f"{program}: {reason}\n")
        sys.exit(3)


def _limits(kind: int) -> tuple[float, float]:
    soft, hard = (float("inf") if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(kind))
    return soft, hard


def _count_threads(wanted: int) -> int:
    """Start up to so many threads that exist at the same time; return how many could be started."""
    gate, ended = allocate_lock(), []
    before = stack_size(_PROBE_STACK)

    def wait(done: LockType) -> None:
        with gate:
            pass
        done.release()

    try:
        with gate:
            for _ in range(wanted):
                done = allocate_lock()
                done.acquire()
                start_new_thread(wait, (done,))
                ended.append(done)
    except RuntimeError:
        pass  # "can't start new thread"
    finally:
        stack_size(before)
        for done in ended:
            done.acquire(timeout=_END_S)
    return len(ended)
