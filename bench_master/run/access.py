"""The keys of a master whose sockets are open to other hosts."""

from __future__ import annotations

import sys
from pathlib import Path

from bench_common.allow_list import AllowList
from bench_common.curve import insecure_warning
from bench_common.errors import UsageError
from bench_common.keys import ALLOW_LIST_FILE, MASTER_FILE, KeyPair, default_directory, read_master_key
from bench_master.run.endpoints import Endpoints


def load_keys(
    endpoints: Endpoints, key_dir: Path | None, *, insecure: bool
) -> tuple[KeyPair | None, AllowList | None]:
    """Return the master's key and its allow-list where `endpoints` need them, else None and None.

    With `insecure` the warning goes to stderr. Raises `UsageError` where keys are needed and there are none.
    """
    if insecure and endpoints.bind_ip is not None:
        sys.stderr.write(insecure_warning(endpoints.bind_ip))
    if not endpoints.curve:
        return None, None
    directory = key_dir or default_directory()
    if not (directory / MASTER_FILE).exists():
        raise UsageError(
            f"{directory / MASTER_FILE}: not found; listening on {endpoints.bind_ip} needs keys: "
            "make them with `bench-master keygen --worker NAME` (docs/security.rst explains)"
        )
    return read_master_key(directory / MASTER_FILE), AllowList(directory / ALLOW_LIST_FILE)
