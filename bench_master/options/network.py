"""The options that say where a master listens, and with which keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from msgspec import Struct

from bench_common.argument_types import CONTROL_PORT, RESULTS_PORT, WORK_PORT, bind_address, port
from bench_common.options import Option
from bench_master.run.endpoints import Ports


class NetworkOptions(Struct, frozen=True):
    """Where the master listens, and with which keys."""

    bind_ip: Annotated[
        str | None,
        Option(
            "--zmq-bind-ip IP",
            "IP address to listen on (default: none: workers of this user on this machine; with -i all)",
            type=bind_address,
        ),
    ] = None
    control_port: Annotated[
        int,
        Option(
            "--zmq-control-port PORT",
            "the master's TCP port for control messages (default: %(default)s)",
            type=port,
        ),
    ] = CONTROL_PORT
    results_port: Annotated[
        int, Option("--zmq-results-port PORT", "the master's TCP port for results (default: %(default)s)", type=port)
    ] = RESULTS_PORT
    work_port: Annotated[
        int,
        Option(
            "--zmq-work-port PORT",
            "first of the master's TCP ports for work, one for each worker (default: %(default)s)",
            type=port,
        ),
    ] = WORK_PORT
    key_dir: Annotated[
        Path | None, Option("--key-dir DIR", "directory of the keys (default: the one that keygen uses)")
    ] = None
    insecure: Annotated[
        bool, Option("--insecure", "listen on TCP without keys: anyone who reaches the ports can take part")
    ] = False

    @property
    def ports(self) -> Ports:
        """The three ports together."""
        return Ports(self.control_port, self.results_port, self.work_port)
