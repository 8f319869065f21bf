"""The options that say where a master listens, and with which keys."""

from __future__ import annotations

import argparse
from pathlib import Path

from msgspec import Struct

from bench_common.argument_types import CONTROL_PORT, RESULTS_PORT, WORK_PORT, bind_address, port
from bench_master.run.endpoints import Ports


class NetworkOptions(Struct, frozen=True):
    """Where the master listens, and with which keys."""

    bind_ip: str | None = None
    """The address to listen on; None: the command's default."""
    control_port: int = CONTROL_PORT
    """The port for control messages."""
    results_port: int = RESULTS_PORT
    work_port: int = WORK_PORT
    """The first of the ports for work, one for each worker."""
    key_dir: Path | None = None
    """Where the keys are; None: where ``keygen`` puts them."""
    insecure: bool = False
    """Listen on TCP without keys."""

    @property
    def ports(self) -> Ports:
        """The three ports together."""
        return Ports(self.control_port, self.results_port, self.work_port)


def add_port_options(parser: argparse._ActionsContainer, *, work: bool) -> None:
    """Add the ports of `NetworkOptions`; with `work` also the one for work."""
    parser.add_argument(
        "--zmq-control-port",
        dest="control_port",
        type=port,
        default=CONTROL_PORT,
        metavar="PORT",
        help="the master's TCP port for control messages (default: %(default)s)",
    )
    parser.add_argument(
        "--zmq-results-port",
        dest="results_port",
        type=port,
        default=RESULTS_PORT,
        metavar="PORT",
        help="the master's TCP port for results (default: %(default)s)",
    )
    if work:
        parser.add_argument(
            "--zmq-work-port",
            dest="work_port",
            type=port,
            default=WORK_PORT,
            metavar="PORT",
            help="first of the master's TCP ports for work, one for each worker (default: %(default)s)",
        )


def add_listen_options(parser: argparse._ActionsContainer, *, default_ip: str, work: bool) -> None:
    """Add all options of `NetworkOptions`, the port for work only with `work`."""
    parser.add_argument(
        "--zmq-bind-ip",
        dest="bind_ip",
        type=bind_address,
        metavar="IP",
        help=f"IP address to listen on (default: {default_ip})",
    )
    add_port_options(parser, work=work)
    add_key_dir_option(parser)
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="listen on TCP without keys: anyone who reaches the ports can take part",
    )


def add_key_dir_option(parser: argparse._ActionsContainer) -> None:
    """Add ``--key-dir``."""
    parser.add_argument(
        "--key-dir", type=Path, metavar="DIR", help="directory of the keys (default: the one that keygen uses)"
    )
