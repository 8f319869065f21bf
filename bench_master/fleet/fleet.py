"""The fleet as one: each host's launcher is found, and all of them do what is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from importlib.metadata import entry_points
from typing import Self

from bench_common.errors import InfrastructureError, ScenarioError, UsageError, did_you_mean
from bench_master.fleet.hosts import FleetHost, Inventory
from bench_master.fleet.inventory import LAUNCHERS_GROUP
from bench_master.fleet.launchers.base import RUNNING, STARTED, Answers, Errand, Launcher, Outcome, Told


class Fleet:
    """The hosts of an inventory and their launchers. Leaving it as a context closes connections; workers go on.

    Raises `UsageError` for a launcher that cannot be loaded, and for settings that a launcher does not know.
    """

    def __init__(self, inventory: Inventory, errand: Errand, told: Told) -> None:
        self.inventory = inventory
        self._told = told
        self._launchers: dict[str, Launcher] = {}
        problems = []
        for host in inventory.hosts:
            if host.launcher not in self._launchers:
                self._launchers[host.launcher] = launcher_class(host.launcher)(errand)
            known = self._launchers[host.launcher].settings
            problems += [
                host.place.problem(
                    f"launcher '{host.launcher}' has no setting '{name}'{did_you_mean(name, known)}; "
                    f"it has: {', '.join(known) or 'none'}"
                )
                for name in host.settings
                if name not in known
            ]
        if problems:
            raise ScenarioError(problems)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for launcher in self._launchers.values():
            launcher.close()

    def start(self) -> list[Outcome]:
        """Start every worker that does not run already."""
        return self._each(lambda launcher, hosts: launcher.start(hosts, self._told))

    def stop(self, only: Collection[FleetHost] | None = None, *, purge: bool = False) -> list[Outcome]:
        """End every worker, or those of some hosts."""
        return self._each(lambda launcher, hosts: launcher.stop(hosts, self._told, purge=purge), only)

    def logs(self) -> dict[str, str | InfrastructureError]:
        """Return every worker's log, or why there is none."""
        found: dict[str, str | InfrastructureError] = {}
        for name, launcher in self._launchers.items():
            found |= launcher.logs(self._of(name), self._told)
        return {name: found[name] for name in self.inventory.worker_names}

    def ask(self, questions: Sequence[Sequence[str]]) -> dict[str, Answers | InfrastructureError]:
        """Return what ``bench-worker`` answers to each of some questions (its flags), by host; or why it cannot."""
        found: dict[str, Answers | InfrastructureError] = {}
        for name, launcher in self._launchers.items():
            found |= launcher.ask(self._of(name), self._told, questions)
        return found

    def _of(self, name: str) -> list[FleetHost]:
        return [host for host in self.inventory.hosts if host.launcher == name]

    def _each(
        self,
        deed: Callable[[Launcher, Sequence[FleetHost]], list[Outcome]],
        only: Collection[FleetHost] | None = None,
    ) -> list[Outcome]:
        names = {host.name for host in (self.inventory.hosts if only is None else only)}
        found: dict[str, Outcome] = {}
        for name, launcher in self._launchers.items():
            hosts = [host for host in self._of(name) if host.name in names]
            if hosts:
                found |= {outcome.worker: outcome for outcome in deed(launcher, hosts)}
        return [found[name] for name in self.inventory.worker_names if name in found]


def launcher_class(name: str) -> type[Launcher]:
    """Return the launcher that is registered under a name; raise `UsageError` where it cannot be loaded."""
    for entry in entry_points(group=LAUNCHERS_GROUP):
        if entry.name == name:
            try:
                found = entry.load()
            except Exception as error:
                raise UsageError(f"launcher {name} cannot be loaded ({entry.value}): {error}") from error
            if not (isinstance(found, type) and issubclass(found, Launcher)):
                raise UsageError(f"launcher {name}: {entry.value} is no Launcher")
            return found
    raise UsageError(f"there is no launcher {name}")


def running(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the workers that there are to expect."""
    return [outcome for outcome in outcomes if outcome.state in (STARTED, RUNNING)]
