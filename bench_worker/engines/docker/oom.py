"""Whether a command executed in a container was killed for want of memory.

The container's own state says so of its first process, and of no other. Its cgroup counts; an engine on another host
tells in its events alone.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import gevent

from bench_worker.engines.docker import http as docker_http
from bench_worker.engines.docker.errors import raise_for_status
from bench_worker.engines.oci.cgroups import OomKillCounter, memory_directory

if TYPE_CHECKING:
    import docker

    from bench_worker.engines.base import Container, OperationResult

KILLED_CODE: Final = 137
EVENT_TIMEOUT_S: Final = 1.5
"""How long the news of an out-of-memory kill may come after that of the exit: containerd sends them apart."""
POLL_S: Final = 0.02
KERNEL_LOG: Final = "/dev/kmsg"
RECORD_BYTES: Final = 8192
"""No record of it is larger."""


def count_oom_kills(client: docker.APIClient, container: Container) -> OomKillCounter:
    """Begin to count what a container's memory limit kills, where it has one and its cgroup is on this host."""
    identity = container.handle
    asked = container.settings.memory_bytes is None or container.memory_directory is not None
    if isinstance(identity, str) and not asked:
        state = client.inspect_container(identity)["State"]
        container.memory_directory = memory_directory(int(state["Pid"]), identity)
    return OomKillCounter(container.memory_directory)


def was_oom_killed(
    client: docker.APIClient, container: Container, done: OperationResult, kills: OomKillCounter
) -> bool:
    """Say whether a command with this end was killed by its container's memory limit.

    Where the cgroup is another host's, Docker's events tell; Podman has none.
    """
    if kills.is_counted or done.exit_code != KILLED_CODE or container.settings.memory_bytes is None:
        return kills.explain(done)
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while not _events_have_oom(client, str(container.handle)):
        if time.monotonic() >= deadline:
            return False
        gevent.sleep(POLL_S)
    return True


def kernel_log_has_oom_kill(identity: str) -> bool:
    """Say whether the kernel's log has a kill by the memory limit of a container with this id.

    Docker itself never hears of one where the cgroup is gone before it looks. The log is that of this host, read
    without waiting (Documentation/ABI/testing/dev-kmsg); where it cannot be read nothing is known.
    """
    wanted = re.compile(rb"oom_memcg=[^,]*" + re.escape(identity.encode()))
    try:
        kernel_log = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        while True:
            with suppress(BrokenPipeError):  # records were lost meanwhile: it goes on with the oldest there is
                record = os.read(kernel_log, RECORD_BYTES)
                if not record or wanted.search(record):
                    return bool(record)
    except OSError:  # nothing more in it, as a rule
        return False
    finally:
        os.close(kernel_log)


def _events_have_oom(client: docker.APIClient, identity: str) -> bool:
    """Ask for the events of now and before: the answer ends at once, and is empty where there is none."""
    filters = json.dumps({"container": [identity], "event": ["oom"]})
    params = {"since": "0", "until": f"{time.time():.9f}", "filters": filters}
    with client.get(docker_http.url(client, "events"), params=params) as response:
        raise_for_status(response)
        return bool(response.content.strip())
