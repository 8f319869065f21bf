"""Open files: a master of many workers needs more of them than a shell allows by default."""

from __future__ import annotations

import resource
from typing import Final

from bench_common.errors import InfrastructureError

FOR_ITSELF: Final = 256
"""What a master has open without any worker, with room to spare."""
FOR_A_WORKER: Final = 8
"""A lane that listens, its connections and zmq's own signals; measured, and rounded up."""


def make_room(workers: int) -> None:
    """Raise the soft limit of open files to what so many workers take, if it is lower.

    It is left alone where it suffices, since processes that are started inherit it. Raises `InfrastructureError`
    where the hard limit is too low.
    """
    needed = FOR_ITSELF + FOR_A_WORKER * workers
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise InfrastructureError(
            f"{workers} workers take {needed} open files, and this process may have {hard}: raise the hard limit "
            "(ulimit -Hn, limits.conf, or LimitNOFILE of the service)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
