"""What ``run-scenario --dry-run`` prints: the plan, for the workers that the command line and inventory promise."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from bench_common.errors import ExitCode
from bench_master.commands.fleet_options import inventory_of
from bench_master.plan_text import render_plan
from bench_master.prospects import Prospect, environments_of
from bench_master.run.local_workers import local_id

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from bench_master.plan import Plan
    from bench_master.scenario.model import Scenario


def show_plan(scenario: Scenario, plan: Plan, arguments: argparse.Namespace) -> int:
    """Print a plan and touch nothing; return the exit code."""
    if arguments.noop:
        # Nothing is started in a run that does nothing, services of others included.
        plan = replace(plan, treatments=tuple(replace(one, places={}) for one in plan.treatments))
    workers = list(_prospects(plan, arguments)) or [Prospect()]
    sys.stdout.write(render_plan(scenario, plan, workers, look_ahead=arguments.look_ahead))
    return int(ExitCode.OK)


def _prospects(plan: Plan, arguments: argparse.Namespace) -> Iterator[Prospect]:
    named = environments_of(plan.treatments)
    # Workers of this machine are of one environment, which a plan that names several does not tell.
    here = arguments.environment or ("" if len(named) > 1 else next(iter(named), "local"))
    for place in range(arguments.workers):
        yield Prospect(local_id(place), here)
    if arguments.inventory is not None:
        for host in inventory_of(arguments).hosts:
            for name in host.worker_names:
                yield Prospect(name, host.environment or "")
    for _ in range(arguments.expect or 0):
        yield Prospect()
