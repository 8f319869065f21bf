"""The service MariaDB: what the workloads that need a database declare, and how they reach it.

The server reads no settings but those given here, so that a host's own do not make a difference between a container
and the host. Whoever wants others writes ``services.mariadb.files`` in the scenario, at `SETTINGS_PATH`.
"""

from __future__ import annotations

from typing import Final

from workloads.base import Parameter, Service

NAME: Final = "mariadb"

SETTINGS_PATH: Final = "/etc/weighbridge/my.cnf"
"""Where the server's settings are, in a container or natively below its private directory."""

HOST: Final = f"{{{NAME}.host}}"
PORT: Final = f"{{{NAME}.port}}"
"""What stands for where the server is, in the commands of a workload."""

USER: Final = "bench"
PASSWORD: Final = "bench"  # noqa: S105  of a server that lives as long as a run, and on the host is bound to loopback
DATABASE: Final = "bench"

MARIADB: Final = Service(
    NAME,
    image="weighbridge/mariadb",
    command=("serve-mariadb",),
    port=3306,
    ready=("ready-mariadb",),
    binary="mariadbd",
    # A server that crashed, or that was killed with a large buffer pool, recovers first.
    ready_s=120.0,
    stop_s=120.0,
)

PROGRAMS: Final = {"serve-mariadb": "mariadb/serve-mariadb", "ready-mariadb": "mariadb/ready-mariadb"}

BUFFER_POOL_SIZE: Final = Parameter(
    "buffer_pool_size",
    "size",
    128 * 2**20,
    "InnoDB's cache of data and indexes; the server's settings file says it",
    "B",
    minimum=5 * 2**20,
    maximum=2**46,
)


def settings_file(buffer_pool_bytes: int) -> dict[str, str]:
    """Return the server's settings file by its path."""
    return {SETTINGS_PATH: f"[mariadbd]\ninnodb_buffer_pool_size = {buffer_pool_bytes}\n"}
