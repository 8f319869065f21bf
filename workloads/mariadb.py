"""The service MariaDB: what the workloads that need a database declare, and how they reach it.

The server reads only the settings given here, so that a host's own settings make no difference between a container
and the host. To change them, write ``services.mariadb.files`` in the scenario, at `SETTINGS_PATH`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench_workloads.base import Parameter, Service

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import Scalar

NAME: Final = "mariadb"

SETTINGS_PATH: Final = "/etc/weighbridge/my.cnf"
"""Where the server's settings are, in a container or natively below its private directory."""

HOST: Final = f"{{{NAME}.host}}"
PORT: Final = f"{{{NAME}.port}}"
SOCKET: Final = f"{{{NAME}.socket}}"
"""Placeholders for the server's address in the commands of a workload."""

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
    package="mariadb-server",
    socket="/run/mariadb/mysqld.sock",
    # A server that crashed, or that was killed with a large buffer pool, recovers first.
    ready_s=120.0,
    stop_s=120.0,
)

PROGRAMS: Final = {"serve-mariadb": "mariadb/serve-mariadb", "ready-mariadb": "mariadb/ready-mariadb"}

EMPTY_BYTES: Final = 400_000_000
"""About what a server without tables of ours takes on disk, its logs included."""

BUFFER_POOL_SIZE: Final = Parameter(
    "buffer_pool_size",
    "size",
    128 * 2**20,
    "InnoDB's cache of data and indexes; the server's settings file says it",
    "B",
    minimum=5 * 2**20,
    maximum=2**46,
)

CONNECTION: Final = Parameter("connection", "choice", "tcp", "how the server is reached", choices=("tcp", "socket"))
"""By a Unix socket there is no network between the two, and they are on one host."""


def uses_socket(params: Mapping[str, Scalar]) -> bool:
    """Say whether the server is reached by its Unix socket."""
    return params[CONNECTION.name] == "socket"


def settings_file(buffer_pool_bytes: int) -> dict[str, str]:
    """Return the server's settings file by its path."""
    return {SETTINGS_PATH: f"[mariadbd]\ninnodb_buffer_pool_size = {buffer_pool_bytes}\n"}
