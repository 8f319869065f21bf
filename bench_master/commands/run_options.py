"""The command line of `run-scenario`: what may be said of workers, load, hand-out, results and network."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench_common.addresses import bare
from bench_common.arguments import MAX_SEED, file_name, name, port, whole_number
from bench_common.ports import CONTROL_PORT, RESULTS_PORT, WORK_PORT
from bench_common.treatment import ARRIVAL_PROCESSES
from bench_master.commands.definition_options import add_definition_options
from bench_master.commands.fleet_options import add_inventory, add_start
from bench_master.commands.patience_options import add_patience_options
from bench_master.commands.report_options import add_report_options
from bench_master.commands.resume_options import add_resume_option
from bench_master.commands.run_place import DEFAULT_DIRECTORY
from bench_master.coordinator.shares import MAX_AHEAD
from bench_master.progress.choice import MODES


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``run-scenario``."""
    parser.epilog = (
        "Ctrl-C once finishes the running jobs and saves; twice aborts them and cleans up. Either way the stats\n"
        "file is good. Exit codes: 0 ok, 1 a threshold failed, 2 scenario error, 3 run incomplete, 130 interrupted."
    )
    named = parser.add_argument(
        "-f", "--file", required=True, metavar="X.yaml", help="a scenario's file, or a ready-made one's name"
    )
    add_resume_option(parser, named)
    add_definition_options(parser)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override a key: --set jobs.cpu.params.time=5s",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and touch nothing")
    parser.add_argument(
        "--noop", action="store_true", help="the whole path with the execution free: the harness's own ceiling"
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0, MAX_SEED),
        metavar="N",
        help="seed of the order (default: the scenario's, else drawn and saved)",
    )

    who = parser.add_argument_group("workers")
    who.add_argument("--workers", type=whole_number(0), default=0, metavar="N", help="start N workers on this host")
    who.add_argument(
        "--expect",
        type=whole_number(0),
        metavar="N",
        help="wait for N workers started by hand with bench-worker (default: 0 with --workers, else 1)",
    )
    who.add_argument(
        "--worker-timeout", default="30s", metavar="TIME", help="how long to wait for them (default: 30s)"
    )
    who.add_argument(
        "--environment",
        type=name,
        metavar="LABEL",
        help="what local workers call their environment (default: the scenario's if it has one, else local)",
    )

    who.add_argument(
        "--allow-swapoff",
        action="store_true",
        help="let the scenario switch swap off on this host while a job runs; needs root",
    )

    fleet = parser.add_argument_group("workers on the hosts of an inventory: started, run and ended again")
    add_inventory(fleet, required=False)
    add_start(fleet)

    load = parser.add_argument_group("load, in place of what the scenario says")
    load.add_argument(
        "-u", "--user-count", type=whole_number(1), metavar="N", help="jobs in flight over all workers together"
    )
    size = load.add_mutually_exclusive_group()
    size.add_argument("-o", "--operation-count", type=whole_number(1), metavar="N", help="jobs in each trial")
    size.add_argument("-r", "--run-seconds", metavar="TIME", help="length of each trial, such as 90 or 15m")
    load.add_argument(
        "--rate",
        metavar="RATE",
        help="jobs that arrive each second over all workers, such as 200/s, whether earlier ones have ended or not; "
        "needs -o or -r where the scenario counts iterations",
    )
    load.add_argument(
        "--arrivals", choices=ARRIVAL_PROCESSES, help="how they are spaced (default: the scenario's, else constant)"
    )

    flow = parser.add_argument_group("hand-out")
    flow.add_argument(
        "--look-ahead",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="let some jobs wait at a worker beyond those that it runs, where they are fast and independent "
        "(default: yes)",
    )
    flow.add_argument(
        "--batch-size",
        type=whole_number(1, MAX_AHEAD),
        metavar="N",
        help="jobs and results that travel together (default: tuned to the pace)",
    )

    out = parser.add_argument_group("results")
    out.add_argument(
        "-s",
        "--stats-file",
        type=file_name,
        metavar="FILE",
        help=f"where to save the run (default: a new file in {DEFAULT_DIRECTORY}/)",
    )
    out.add_argument("-R", "--no-report", action="store_true", help="save only, print no report")
    add_report_options(out)
    out.add_argument(
        "--progress",
        choices=MODES,
        default="auto",
        help="what to show meanwhile, on stderr (default: live on a terminal, else chars)",
    )
    out.add_argument(
        "-k",
        "--keep",
        action="store_true",
        help="leave containers as the jobs left them; cleanup-containers removes them",
    )
    load.add_argument(
        "--skip-limit",
        action="store_true",
        help="leave out the machine's own limit, where the scenario's key asks for it",
    )
    out.add_argument(
        "--overhead",
        action="store_true",
        help="sample the memory and CPU time of the engines' own processes, as the scenario's key does",
    )
    out.add_argument(
        "--trace",
        action="store_true",
        help="save every operation on a time axis, for Perfetto's and Chrome's viewers, beside the stats file",
    )
    out.add_argument(
        "--profile",
        action="store_true",
        help="save where the master and the workers' load processes spend their time, beside the stats file",
    )

    net = parser.add_argument_group("network, for workers on other hosts")
    add_patience_options(net)
    net.add_argument(
        "--zmq-bind-ip",
        type=bare,
        metavar="IP",
        help="address to listen on (default: none with --workers alone, else 127.0.0.1)",
    )
    net.add_argument(
        "--zmq-control-port", type=port, default=CONTROL_PORT, metavar="PORT", help="(default: %(default)s)"
    )
    net.add_argument(
        "--zmq-results-port", type=port, default=RESULTS_PORT, metavar="PORT", help="(default: %(default)s)"
    )
    net.add_argument(
        "--zmq-work-port",
        type=port,
        default=WORK_PORT,
        metavar="PORT",
        help="first of the lanes' ports, one a worker (default: %(default)s)",
    )
    net.add_argument("--key-dir", type=Path, metavar="DIR", help="where `bench-master keygen` put the keys")
    net.add_argument(
        "--insecure",
        action="store_true",
        help="listen beyond loopback without keys: whoever reaches the port can take part",
    )
