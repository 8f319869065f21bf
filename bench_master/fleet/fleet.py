"""The fleet as one: each host's launcher is found, and all of them do what is asked for.

Hosts side by side: which of their properties differ, so that a difference in results may be theirs.

Pure: what every host told of itself goes in, differences come out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Final, Self

from bench_common.errors import InfrastructureError, ScenarioError, UsageError, did_you_mean
from bench_master.fleet.hosts import FleetHost, Inventory
from bench_master.fleet.inventory import LAUNCHERS_GROUP
from bench_master.fleet.launchers.base import (
    RUNNING,
    STARTED,
    Launcher,
    LaunchSpec,
    ProgressCallback,
    QueryResults,
    WorkerOutcome,
)


class Fleet:
    """The hosts of an inventory and their launchers. Leaving it as a context closes connections; workers go on.

    Raises `UsageError` for a launcher that cannot be loaded, and for settings that a launcher does not know.
    """

    def __init__(self, inventory: Inventory, launch_spec: LaunchSpec, progress: ProgressCallback) -> None:
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

    def start(self) -> list[WorkerOutcome]:
        """Start every worker that does not run already."""
        return self._run(lambda launcher, hosts: launcher.start(hosts, self._progress))

    def stop(self, only: Collection[FleetHost] | None = None, *, purge: bool = False) -> list[WorkerOutcome]:
        """End every worker, or those of some hosts."""
        return self._run(lambda launcher, hosts: launcher.stop(hosts, self._progress, purge=purge), only)

    def logs(self) -> dict[str, str | InfrastructureError]:
        """Return every worker's log, or why there is none."""
        found: dict[str, str | InfrastructureError] = {}
        for name, launcher in self._launchers.items():
            found |= launcher.logs(self._hosts_of(name), self._progress)
        return {name: found[name] for name in self.inventory.worker_names}

    def query(self, queries: Sequence[Sequence[str]]) -> dict[str, QueryResults | InfrastructureError]:
        """Return what ``bench-worker`` answers to each of several queries (its flags), by host; or why it cannot."""
        found: dict[str, QueryResults | InfrastructureError] = {}
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
        for name, launcher in self._launchers.items():
            hosts = [host for host in self._hosts_of(name) if host.name in names]
            if hosts:
                found |= {outcome.worker: outcome for outcome in action(launcher, hosts)}
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


def started_workers(outcomes: Sequence[WorkerOutcome]) -> list[WorkerOutcome]:
    """Return the workers that there are to expect."""
    return [outcome for outcome in outcomes if outcome.state in (STARTED, RUNNING)]


SIMILARITY_TOLERANCE: Final = 0.02
"""Numbers of bytes or Hz this near to each other are the same, as a share."""
PER_ENVIRONMENT_FACTS: Final = frozenset({"hypervisor", "container"})
"""What environments differ in by definition: no confound between them."""


@dataclass(frozen=True, slots=True)
class HostReport:
    """What one host told: facts by name, each as a number or text and as a person reads it, engines, findings.

    `engines` are those that can be used, with their versions; `unusable` says of the others why not.
    """

    host: str
    environment: str
    facts: Mapping[str, Any]
    formatted: Mapping[str, str] = field(default_factory=dict)
    identity: frozenset[str] = frozenset()
    engines: Mapping[str, str] = field(default_factory=dict)
    findings: Sequence[Mapping[str, Any]] = ()
    unusable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """A property that is not the same everywhere: the hosts by value; `within` are environments that it divides.

    `partial`: an engine that can be used on some of the hosts only.
    """

    name: str
    values: Mapping[str, tuple[str, ...]]
    within: tuple[str, ...] = ()
    partial: bool = False

    @property
    def level(self) -> str:
        """How grave it is: ``note`` for what environments differ in by definition, else ``warning``."""
        return "note" if self.name in PER_ENVIRONMENT_FACTS and not self.within else "warning"

    @property
    def meaning(self) -> str:
        """What it does to a comparison."""
        if self.partial:
            return "not every host can use it: a run that wants it of all of them is refused"
        if self.within:
            return (
                f"the hosts of {' and of '.join(self.within)} are not alike: their trials differ for this reason, too"
            )
        if self.level == "note":
            return "it is what makes these environments"
        return "it goes with the environment: a difference between them may be due to this"


def differences(reports: Sequence[HostReport]) -> list[Difference]:
    """Return what differs between hosts, those within an environment first."""
    identity = frozenset[str]().union(*(report.identity for report in reports))
    found = []
    for name in dict.fromkeys(name for report in reports for name in report.facts):
        if name in identity:
            continue
        groups = _group_by_value([(report, report.facts.get(name), report.formatted.get(name)) for report in reports])
        found += _difference(name, groups)
    for name in dict.fromkeys(name for report in reports for name in report.engines):
        told = [(report, report.engines.get(name), _unusable_reason(report, name)) for report in reports]
        partial = any(version is None for _, version, _ in told)
        found += _difference(f"engine {name}", _group_by_value(told), partial=partial)
    return sorted(found, key=lambda difference: (not difference.within, difference.level != "warning"))


def _unusable_reason(report: HostReport, name: str) -> str | None:
    """Return why an engine cannot be used on a host; None where it can."""
    if name in report.engines:
        return None
    reason = report.unusable.get(name)
    return f"cannot be used: {reason}" if reason else "cannot be used"


def _group_by_value(told: Sequence[tuple[HostReport, Any, str | None]]) -> list[tuple[str, list[HostReport]]]:
    """Return the hosts by value; values that are as good as the same are one."""
    groups: list[tuple[Any, str, list[HostReport]]] = []
    for report, value, shown in told:
        for other, _, members in groups:
            if _similar(value, other):
                members.append(report)
                break
        else:
            groups.append((value, "not told" if value is None and not shown else str(shown or value), [report]))
    return [(text, members) for _, text, members in groups]


def _similar(one: Any, other: Any) -> bool:
    numbers = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in (one, other))
    if numbers and max(abs(one), abs(other)) > 1e6:  # noqa: PLR2004  bytes and Hz, no small counts and settings
        return bool(abs(one - other) <= SIMILARITY_TOLERANCE * max(abs(one), abs(other)))
    return bool(one == other)


def _difference(name: str, groups: list[tuple[str, list[HostReport]]], *, partial: bool = False) -> list[Difference]:
    if len(groups) < 2:  # noqa: PLR2004  all alike
        return []
    values: dict[str, tuple[str, ...]] = {}
    for text, members in groups:
        values[text] = values.get(text, ()) + tuple(report.host for report in members)
    kinds = [{report.environment for report in members} for _, members in groups]
    within = sorted(kind for kind in set().union(*kinds) if sum(kind in each for each in kinds) > 1)
    return [Difference(name, values, tuple(within), partial)]
