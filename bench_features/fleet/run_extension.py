"""What a fleet adds to runs: an inventory, on whose hosts workers start before the run and stop after it.

Without an inventory nothing else of the fleet is loaded.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from bench_common.options import add_options
from bench_features.fleet.options import InventoryOptions, StartOptions, selected_inventory
from bench_master.plan_text import ExpectedWorker
from bench_master.run.started_workers import NO_WORKERS, StartedWorkers
from bench_master.run_extension import FIRST_PLACES, OptionGroups, RunExtension

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench_common.engine_traits import EngineLabel
    from bench_master.options.run import RunOptions


class FleetOptions(Struct, frozen=True):
    """The hosts of a run, and how workers start there."""

    hosts: InventoryOptions = InventoryOptions()
    """The hosts of an inventory."""
    start: StartOptions = StartOptions()


class FleetExtension(RunExtension):
    """Starts the workers of a run on the hosts of an inventory."""

    Options = FleetOptions

    def add_options(self, groups: OptionGroups) -> None:
        """Add the inventory, and how workers start; ``--only`` is an option of every run."""
        hosts = groups.named("workers on the hosts of an inventory (run-scenario starts and stops them)")
        add_options(hosts, FleetOptions, only=None)
        groups.show_first(FIRST_PLACES, "-i")

    def starts_workers(self, options: RunOptions) -> bool:
        """Return whether there is an inventory."""
        return options.extensions.of(FleetOptions).hosts.inventory is not None

    def takes_host_names(self, options: RunOptions) -> bool:
        """Return whether there is an inventory with hosts to name."""
        return self.starts_workers(options)

    def expected_workers(self, options: RunOptions) -> Sequence[ExpectedWorker]:
        """Return the workers that start if no host fails."""
        if not self.starts_workers(options):
            return ()
        hosts = selected_inventory(options.extensions.of(FleetOptions).hosts).hosts
        return [ExpectedWorker(name, host.environment or "") for host in hosts for name in host.worker_names]

    def engine_labels(self, options: RunOptions) -> Sequence[tuple[str, EngineLabel]]:
        """Return those in the inventory."""
        if not self.starts_workers(options):
            return ()
        hosts = selected_inventory(options.extensions.of(FleetOptions).hosts).hosts
        return [(f"host {host.name}", label) for host in hosts for label in host.engines]

    def bind_ip(self, options: RunOptions) -> str | None:
        """Return where the hosts reach the master."""
        if not self.starts_workers(options):
            return None
        from bench_features.fleet.fleet_run import bind_ip_for

        return bind_ip_for(options)

    def workers(self, options: RunOptions, environments: frozenset[str]) -> AbstractContextManager[StartedWorkers]:
        """Start the workers of the inventory, if there is one."""
        if not self.starts_workers(options):
            return nullcontext(NO_WORKERS)
        from bench_features.fleet.fleet_run import fleet_workers

        return fleet_workers(options, environments)


FLEET: Final = FleetExtension()
