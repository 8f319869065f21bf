"""The page cache of this host, dropped: what is read next comes from the disk.

The whole cache goes, as sync(1) and ``/proc/sys/vm/drop_caches`` do it, with directory entries and inodes: what a
start of a container reads (the runtime and its libraries, metadata of engine and file system, layers of the image) is
no list of files that posix_fadvise(2) could be given. What is in use stays: pages that are mapped or dirty, entries
that are open, and the caches of disks and hypervisors, which no kernel here can see.
"""

from __future__ import annotations

import os
from typing import Final

import gevent

from bench_common.errors import InfrastructureError


class PageCacheError(InfrastructureError):
    """The page cache of this host cannot be dropped."""


DROP_CACHES: Final = "/proc/sys/vm/drop_caches"
PAGES_ENTRIES_AND_INODES: Final = b"3"
"""1 drops pages, 2 directory entries and inodes (Documentation/admin-guide/sysctl/vm.rst)."""


def unusable_reason() -> str:
    """Return why this process cannot drop the page cache; empty where it can."""
    try:
        os.close(os.open(DROP_CACHES, os.O_WRONLY | os.O_CLOEXEC))
    except OSError as error:
        root = "" if os.geteuid() == 0 else "; run the worker as root"
        return f"the page cache cannot be dropped: {DROP_CACHES}: {error.strerror}{root}"
    return ""


def drop_page_cache() -> None:
    """Write what is dirty, then drop what is clean; other greenlets run on. Raises `PageCacheError`."""
    gevent.get_hub().threadpool.apply(_drop)


def _drop() -> None:
    # Dirty pages cannot be dropped.
    os.sync()
    try:
        file = os.open(DROP_CACHES, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(file, PAGES_ENTRIES_AND_INODES)
        finally:
            os.close(file)
    except OSError as error:
        raise PageCacheError(f"the page cache was not dropped: {DROP_CACHES}: {error.strerror}") from error
