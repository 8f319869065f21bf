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
TASKS: Final = 14
"""Threads and processes that a master, or a worker of two processes, has beside its main thread."""
ADDRESS_BYTES: Final = 384 * MIB
"""Address space that a program takes (bytes)."""
FILES: Final = 64
"""Open files of any command."""
_PROBE_STACK: Final = 64 << 10
_END_S: Final = 5.0

ADVICE: Final = {
    errno.EAGAIN: "too many processes or threads: raise `ulimit -u`, or pids.max of the cgroup",
    errno.ENOMEM: "out of memory: raise `ulimit -v`, or free some",
    errno.EMFILE: "too many open files: raise `ulimit -n`",
    errno.EFBIG: "larger than files may be: raise `ulimit -f`",
}
"""What to do about errors of the system that come from such limits."""


def require_to_load(program: str) -> None:
    """End the process with exit code 3 and one line where it lacks threads, address space or open files.

    OpenBLAS, which NumPy loads and which nothing here uses, would start a thread and take 40 MiB of address space for
    each CPU.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    reason = _missing()
    if reason is not None:
        with suppress(OSError, AttributeError):
            sys.stderr.write(f"{program}: {reason}\n")
        sys.exit(3)


def _missing() -> str | None:
    """Return what this process cannot have, and what to do; the soft limit of files is raised if it has to be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY not in (soft, hard) and hard < FILES:
        return f"this process may have {hard} open files and needs {FILES}: raise the limit (ulimit -n)"
    if soft != resource.RLIM_INFINITY and soft < FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))
    try:
        mmap.mmap(-1, ADDRESS_BYTES).close()
    except OSError:
        return (
            f"this process needs {ADDRESS_BYTES // MIB} MiB of address space and cannot have them: raise the limit "
            "(ulimit -v, or LimitAS of the service)"
        )
    started = _count_threads(TASKS)
    if started < TASKS:
        return (
            f"this process can start {started} threads and needs {TASKS}: raise the limit of processes (ulimit -u, "
            "which counts the threads of all processes of this user, or pids.max of the cgroup)"
        )
    return None


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
