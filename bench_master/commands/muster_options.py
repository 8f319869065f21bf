"""What `list-workers` and `kill-workers` share: where to listen, for how long, with which keys."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench_common.addresses import bare
from bench_common.arguments import port, seconds
from bench_common.ports import CONTROL_PORT, RESULTS_PORT, WORK_PORT
from bench_master.run.access import load_keys
from bench_master.run.discovery import Muster
from bench_master.run.endpoints import Endpoints, Ports
from bench_master.run.sockets import Switchboard


def add_muster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of both commands."""
    parser.add_argument(
        "--wait", type=seconds, default=5.0, metavar="SECONDS", help="how long to listen (default: 5)"
    )
    parser.add_argument(
        "--zmq-bind-ip", type=bare, metavar="IP", help="address to listen on (default: 127.0.0.1; with -i all)"
    )
    parser.add_argument(
        "--zmq-control-port", type=port, default=CONTROL_PORT, metavar="PORT", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--zmq-results-port", type=port, default=RESULTS_PORT, metavar="PORT", help="(default: %(default)s)"
    )
    parser.add_argument("--key-dir", type=Path, metavar="DIR", help="where `bench-master keygen` put the keys")
    parser.add_argument("--insecure", action="store_true", help="listen beyond loopback without keys")


@contextmanager
def mustered(arguments: argparse.Namespace, *, asks: bool = False) -> Iterator[Muster]:
    """Give a muster whose sockets are open, and close them afterwards; `asks`: for engines as they are now."""
    ports = Ports(arguments.zmq_control_port, arguments.zmq_results_port, WORK_PORT)
    fleet = arguments.inventory is not None
    bind_ip = arguments.zmq_bind_ip or ("*" if fleet else "127.0.0.1")
    with Endpoints(bind_ip, ports, insecure=arguments.insecure, keys=fleet) as endpoints:
        key, allow_list = load_keys(endpoints, arguments.key_dir, insecure=arguments.insecure)
        muster = Muster(asks=asks)
        board = Switchboard(
            endpoints,
            on_control=muster.control_came,
            on_result=muster.result_came,
            master_key=key,
            allow_list=allow_list,
        )
        muster.board = board
        board.open()
        try:
            yield muster
        finally:
            board.close()
