"""Whether a command executed in a container was killed for want of memory: Docker tells in its events alone.

The container's own state says so of its first process, and of no other; the exit code is that of any SIGKILL.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Final

import gevent

from bench_worker.engines import docker_transport
from bench_worker.engines.docker_errors import check

if TYPE_CHECKING:
    import docker

    from bench_worker.engines.base import Container, Done

KILLED_CODE: Final = 137
NEWS_S: Final = 0.3
"""How long the news of an out-of-memory kill may come after that of the exit (containerd sends them apart)."""
POLL_S: Final = 0.02


def lacked_memory(client: docker.APIClient, container: Container, done: Done) -> bool:
    """Say whether a command with this end was killed by its container's memory limit."""
    if done.exit_code != KILLED_CODE or container.settings.memory_bytes is None:
        return False
    deadline = time.monotonic() + NEWS_S
    while not _told(client, str(container.handle)):
        if time.monotonic() >= deadline:
            return False
        gevent.sleep(POLL_S)
    return True


def _told(client: docker.APIClient, identity: str) -> bool:
    """Ask for the events of now and before: the answer ends at once, and is empty where there is none."""
    filters = json.dumps({"container": [identity], "event": ["oom"]})
    params = {"since": "0", "until": f"{time.time():.9f}", "filters": filters}
    with client.get(docker_transport.url(client, "events"), params=params) as response:
        check(response)
        return bool(response.content.strip())
