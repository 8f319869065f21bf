"""The fleet as a whole: loads each host's launcher, which starts, stops or queries the host's workers.

`differences` lists how hosts differ, since a difference in results may be due to that. It is pure: reports of hosts
in, differences out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Self

from msgspec import Struct, field

from bench_common import load_entry, registered
from bench_common.errors import InfrastructureError, ScenarioError, UsageError, did_you_mean
from bench_features.fleet.hosts import FleetHost, Inventory
from bench_features.fleet.inventory import LAUNCHERS_GROUP
from bench_features.fleet.launchers.base import (
    RUNNING,
    STARTED,
    HostProgress,
    Launcher,
    LaunchSpec,
    QueryResults,
    WorkerOutcome,
)
from bench_master.verdicts.confounds import PER_ENVIRONMENT_FACTS, are_alike


class Fleet:
    """The hosts of an inventory and their launchers. Its context closes connections at the end; workers go on.

    Raises `UsageError` for a launcher that cannot be loaded, and for unknown settings of a launcher.
    """

    def __init__(self, inventory: Inventory, launch_spec: LaunchSpec, progress: HostProgress) -> None:
        self.inventory = inventory
        self._progress = progress
        self._launchers: dict[str, Launcher] = {}
        problems = []
        for host in inventory.hosts:
            if host.launcher not in self._launchers:
                self._launchers[host.launcher] = launcher_class(host.launcher)(launch_spec)
            known = self._launchers[host.launcher].settings
            problems += [
                host.place.problem(
                    f"launcher '{host.launcher}' has no setting '{name}'{did_you_mean(name, known)}; "
                    f"known settings: {', '.join(known) or 'none'}"
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

    def start(self) -> list[WorkerOutcome]:
        """Start every worker that is not running yet."""
        return self._run(lambda launcher, hosts: launcher.start(hosts, self._progress))

    def stop(self, only: Collection[FleetHost] | None = None, *, purge: bool = False) -> list[WorkerOutcome]:
        """Stop every worker, or those of some hosts."""
        return self._run(lambda launcher, hosts: launcher.stop(hosts, self._progress, purge=purge), only)

    def explain_end(self, worker: str) -> str | None:
        """Return what its launcher knows of the end of a worker; may raise `InfrastructureError`."""
        host = next(host for host in self.inventory.hosts if worker in host.worker_names)
        return self._launchers[host.launcher].explain_end(host, worker)

    def logs(self) -> dict[str, str | InfrastructureError]:
        """Return every worker's log, or the error that prevents it."""
        found: dict[str, str | InfrastructureError] = {}
        with self._progress.watching():
            for name, launcher in self._launchers.items():
                found |= launcher.logs(self._hosts_of(name), self._progress)
        return {name: found[name] for name in self.inventory.worker_names}

    def query(self, queries: Sequence[Sequence[str]]) -> dict[str, QueryResults | InfrastructureError]:
        """Return what ``bench-worker`` prints for each of several queries (its flags), by host, or its error."""
        found: dict[str, QueryResults | InfrastructureError] = {}
        with self._progress.watching():
            for name, launcher in self._launchers.items():
                found |= launcher.query(self._hosts_of(name), self._progress, queries)
        return found

    def _hosts_of(self, name: str) -> list[FleetHost]:
        return [host for host in self.inventory.hosts if host.launcher == name]

    def _run(
        self,
        action: Callable[[Launcher, Sequence[FleetHost]], list[WorkerOutcome]],
        only: Collection[FleetHost] | None = None,
    ) -> list[WorkerOutcome]:
        names = {host.name for host in (self.inventory.hosts if only is None else only)}
        found: dict[str, WorkerOutcome] = {}
        with self._progress.watching():
            for name, launcher in self._launchers.items():
                hosts = [host for host in self._hosts_of(name) if host.name in names]
                if hosts:
                    found |= {outcome.worker: outcome for outcome in action(launcher, hosts)}
        return [found[name] for name in self.inventory.worker_names if name in found]


def launcher_class(name: str) -> type[Launcher]:
    """Return the launcher that is registered under a name; raise `UsageError` if it cannot be loaded."""
    for entry in registered(LAUNCHERS_GROUP):
        if entry.name == name:
            try:
                found = load_entry(entry)
            except Exception as error:
                raise UsageError(f"launcher {name} cannot be loaded ({entry.value}): {error}") from error
            if not (isinstance(found, type) and issubclass(found, Launcher)):
                raise UsageError(f"launcher {name}: {entry.value} is not a subclass of Launcher")
            return found
    raise UsageError(f"unknown launcher {name}")


def started_workers(outcomes: Sequence[WorkerOutcome]) -> list[WorkerOutcome]:
    """Return the workers that are running now."""
    return [outcome for outcome in outcomes if outcome.state in (STARTED, RUNNING)]


class FleetHostReport(Struct, frozen=True):
    """What the doctor found out about one host."""

    host: str
    """Its name in the inventory."""
    environment: str
    facts: Mapping[str, Any]
    """Facts by name, as numbers or texts."""
    formatted: Mapping[str, str] = field(default_factory=dict)
    """The facts as texts for people."""
    identity: frozenset[str] = frozenset()
    """Names of the facts that only identify the host."""
    engines: Mapping[str, str] = field(default_factory=dict)
    """Versions of the usable engines."""
    findings: Sequence[Mapping[str, Any]] = ()
    unusable: Mapping[str, str] = field(default_factory=dict)
    """Why the other engines cannot be used."""


class Difference(Struct, frozen=True):
    """A property that is not the same on all hosts."""

    name: str
    values: Mapping[str, tuple[str, ...]]
    within: tuple[str, ...] = ()
    """Environments whose own hosts differ in it."""
    partial: bool = False
    """Whether it is an engine that only some of the hosts can use."""

    @property
    def level(self) -> str:
        """Severity: ``note`` if environments differ in it by definition, else ``warning``."""
        return "note" if self.name in PER_ENVIRONMENT_FACTS and not self.within else "warning"

    @property
    def meaning(self) -> str:
        """What it means for a comparison."""
        if self.partial:
            return "not every host can use it: a run that needs it on all of them is refused"
        if self.within:
            return f"the hosts of {' and of '.join(self.within)} differ, and so may their trials for this reason"
        if self.level == "note":
            return "environments differ in this by definition"
        return "it differs between environments: a difference in their results may be due to this"


def differences(reports: Sequence[FleetHostReport]) -> list[Difference]:
    """Return the differences between hosts, those within an environment first."""
    identity = frozenset[str]().union(*(report.identity for report in reports))
    found = []
    for name in dict.fromkeys(name for report in reports for name in report.facts):
        if name in identity:
            continue
        groups = _group_by_value([(report, report.facts.get(name), report.formatted.get(name)) for report in reports])
        found += _difference(name, groups)
    for name in dict.fromkeys(name for report in reports for name in report.engines):
        versions = [(report, report.engines.get(name), _unusable_reason(report, name)) for report in reports]
        partial = any(version is None for _, version, _ in versions)
        found += _difference(f"engine {name}", _group_by_value(versions), partial=partial)
    return sorted(found, key=lambda difference: (not difference.within, difference.level != "warning"))


def _unusable_reason(report: FleetHostReport, name: str) -> str | None:
    """Return why an engine cannot be used on a host; None if it can."""
    if name in report.engines:
        return None
    reason = report.unusable.get(name)
    return f"cannot be used: {reason}" if reason else "cannot be used"


def _group_by_value(
    values: Sequence[tuple[FleetHostReport, Any, str | None]],
) -> list[tuple[str, list[FleetHostReport]]]:
    """Return the hosts by value; values that are nearly equal are grouped."""
    groups: list[tuple[Any, str, list[FleetHostReport]]] = []
    for report, value, shown in values:
        for other, _, members in groups:
            if are_alike(value, other):
                members.append(report)
                break
        else:
            groups.append((value, "unknown" if value is None and not shown else str(shown or value), [report]))
    return [(text, members) for _, text, members in groups]


def _difference(
    name: str, groups: list[tuple[str, list[FleetHostReport]]], *, partial: bool = False
) -> list[Difference]:
    if len(groups) < 2:  # noqa: PLR2004  all alike
        return []
    values: dict[str, tuple[str, ...]] = {}
    for text, members in groups:
        values[text] = values.get(text, ()) + tuple(report.host for report in members)
    kinds = [{report.environment for report in members} for _, members in groups]
    within = sorted(kind for kind in set().union(*kinds) if sum(kind in each for each in kinds) > 1)
    return [Difference(name, values, tuple(within), partial)]
