"""A command of the user's own: the scenario gives the commands, and says where in their output the metrics are.

It is configured by keys of the job, not by parameters, as no two users have the same: `OwnCommand` carries them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from bench_common.errors import UsageError
from bench_common.treatment import OWN_COMMAND, START_COST_STEP
from bench_workloads.base import Metric, Parameter, Service, Step, Workload
from bench_workloads.registry import workload_classes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import Guest, OwnCommand, OwnService, Scalar

_EXAMPLE: Final = r"""It has no parameters: the commands and metrics are keys of the job.

  job:
    workload: command
    command: [mytool, --threads, "4"]
    setup: [mytool, download]     # once, before the first job (optional)
    prepare: [mytool, warm]       # before each job, untimed (optional)
    cleanup: [mytool, clean]      # after each job, untimed (optional)
    metrics:
      score: {regex: 'score: ([\d.]+)', unit: 1/s, better: higher}
      p95: {json: $.latency.p95, unit: ms, better: lower}     # where the output is JSON
    container: {image: my/image}
"""
RUN_STEP: Final = "run"
"""The step that is measured."""


class Command(Workload):
    """A command of the user's own, whose metrics the scenario defines."""

    name: ClassVar[str] = OWN_COMMAND
    summary: ClassVar[str] = "a command of your own, with metrics that the scenario defines"
    image: ClassVar[str] = ""
    binary: ClassVar[str] = ""
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    metrics: ClassVar[tuple[Metric, ...]] = ()
    description: ClassVar[str] = _EXAMPLE

    def __init__(self, own: OwnCommand | None = None) -> None:
        self._own = own
        if own is not None:
            # Other workloads declare these for all of their jobs; this one has them from the job.
            metrics = tuple(Metric(one.name, one.unit, one.better, "") for one in own.metrics)
            owners = {one.name: owner for one in own.services if (owner := _owner(one)) is not None}
            programs = {name: file for owner in owners.values() for name, file in owner.programs.items()}
            services = tuple(_service(one, owners.get(one.name)) for one in own.services)
            shown = tuple(one.name for one in metrics)
            vars(self).update(
                metrics=metrics, primary_metrics=shown, services=services, programs=programs, _owners=owners
            )

    def for_job(self, job: Guest) -> Workload:
        """Return the workload with the commands and metrics of `job`."""
        return Command(job.own)

    def steps(self, params: Mapping[str, Scalar]) -> tuple[Step, ...]:
        """Return the commands that the job has, in order."""
        del params
        own = self._own
        if own is None:
            raise UsageError("workload command has its commands from the scenario: set 'command'")
        steps = (
            Step("setup", own.setup, timed=False, parse=False, once=True),
            Step("prepare", own.prepare, timed=False, parse=False),
            Step(START_COST_STEP, own.start_cost, timed=False, parse=False),
            Step(RUN_STEP, own.command, parse=False, metrics=own.metrics),
            Step("cleanup", own.cleanup, timed=False, parse=False),
        )
        return tuple(step for step in steps if step.argv)

    def service_files(self, params: Mapping[str, Scalar]) -> dict[str, dict[str, str]]:
        """Return the files of those services that other workloads declare, as their defaults make them."""
        del params
        owners: Mapping[str, type[Workload]] = vars(self).get("_owners", {})
        return {
            name: files
            for name, owner in owners.items()
            if (files := owner().service_files(owner().defaults()).get(name)) is not None
        }

    def parse(self, text: str) -> dict[str, float]:
        """Raise `UsageError`: only a scenario says which metrics an output has."""
        del text
        raise UsageError("the metrics of workload command are defined in a scenario; an output alone has none")


def _owner(own: OwnService) -> type[Workload] | None:
    """Return the workload that declares a service; None for one of the user's own."""
    if own.command:
        return None
    owners = (one for one in workload_classes().values() if any(each.name == own.name for each in one.services))
    found = next(owners, None)
    if found is None:
        raise UsageError(f"service {own.name!r} is none of an installed workload, and has no command of its own")
    return found


def _service(own: OwnService, owner: type[Workload] | None) -> Service:
    if owner is not None:
        return next(one for one in owner.services if one.name == own.name)
    return Service(own.name, "", own.command, own.port, own.ready, "")
