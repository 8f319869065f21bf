"""`bench-master kill-workers`: tell workers that were started by hand to end."""

from __future__ import annotations

import argparse
import sys

from bench_common.errors import ExitCode
from bench_master.commands.muster_options import add_muster_options, mustered

NAME = "kill-workers"
HELP = "tell the workers that are waiting for this master to end"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = "Listens at the ports of a run, so it cannot be used while one goes on there."
    add_muster_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Listen, tell whoever comes to end, and print who that was."""
    with mustered(arguments) as muster:
        present = muster.gather(arguments.wait)
        muster.send_home()
    for worker in present:
        sys.stdout.write(f"{worker.worker_id}\t{worker.info.get('host', 'unknown')}\ttold to end\n")
    if not present:
        sys.stderr.write(f"no worker called within {arguments.wait:g} s\n")
    return int(ExitCode.OK)
