"""What the commands for a fleet print: what each host is at while they work, and a table of outcomes at the end."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final

import gevent
from msgspec import Struct

from bench_common.errors import ExitCode
from bench_common.streams import draw_line, program_name, redraws, tell
from bench_features.fleet.launchers.base import STARTED, HostProgress, WorkerOutcome
from bench_master.formatting import align_table, plural, tab_separated

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench_features.fleet.fleet import Fleet
    from bench_features.fleet.hosts import Inventory
    from bench_features.fleet.known_hosts import KnownHosts

log = logging.getLogger(__name__)

TITLES: Final = ("HOST", "WORKER", "STATE", "DETAIL")

SILENCE_S: Final = 1.5
"""After so long without a line it is said again what the hosts are at, in seconds."""
LOG_SILENCE_S: Final = 10.0
"""The same where each line stays, as in a log."""
MAX_HOST_LINES: Final = 4
"""How many hosts have a line of their own then; more are summed up."""


class HostActivity(Struct):
    """What is being done on a host."""

    doing: str
    since: float
    """When that began, in seconds of a monotonic clock."""
    sent_bytes: int = 0
    total_bytes: int = 0
    """How much is sent in all; 0 where nothing is."""

    def text(self, now: float) -> str:
        """Return it with the bytes sent and the time to go, or with how long it has taken."""
        if not self.total_bytes:
            return f"{self.doing}, for {now - self.since:.0f} s"
        if self.sent_bytes >= self.total_bytes:
            return f"{self.total_bytes / 1e6:.1f} MB sent, installing with pip, for {now - self.since:.0f} s in all"
        return _transfer(self.sent_bytes, self.total_bytes, now - self.since)


def _transfer(sent_bytes: int, total_bytes: int, seconds: float) -> str:
    left_s = seconds * (total_bytes - sent_bytes) / sent_bytes if sent_bytes else None
    to_go = "" if left_s is None else f", {left_s:.0f} s to go"
    return f"{sent_bytes / 1e6:.1f} of {total_bytes / 1e6:.1f} MB sent{to_go}"


def describe_activities(hosts: Mapping[str, HostActivity], now: float) -> list[tuple[str, str]]:
    """Return what hosts are at, by name: each, or all together where they are many."""
    if len(hosts) <= MAX_HOST_LINES:
        return [(name, host.text(now)) for name, host in hosts.items()]
    sending = [host for host in hosts.values() if host.sent_bytes < host.total_bytes]
    texts = [f"{len(hosts)} hosts at work"]
    if sending:
        sent, total = sum(host.sent_bytes for host in sending), sum(host.total_bytes for host in sending)
        rest = _transfer(sent, total, now - min(host.since for host in sending))
        texts.append(f"installing on {len(sending)}: {rest}")
    others = Counter(host.doing.partition(" (")[0] for host in hosts.values() if host not in sending)
    texts += [f"{doing}: {count}" for doing, count in others.most_common(3)]
    return [("", "; ".join(texts))]


class FleetProgress(HostProgress):
    """Prints what happens on which host to stderr, with the time since the start; nothing if `quiet`.

    On a terminal that is one line, which is drawn again and removed at the end: a report stands below it. With log
    records between the lines, and elsewhere, each has its own.
    """

    def __init__(self, inventory: Inventory, *, quiet: bool) -> None:
        self._started_at = self._told_at = monotonic()
        self._quiet = quiet
        self._redraws = redraws(sys.stderr) and not log.isEnabledFor(logging.INFO)
        self._silence_s = SILENCE_S if self._redraws or sys.stderr.isatty() else LOG_SILENCE_S
        self._is_watched = False
        self._width = max((len(host.name) for host in inventory.hosts), default=0)
        self._hosts: dict[str, HostActivity] = {}

    def __call__(self, host: str, doing: str) -> None:
        """Print what is being done on a host."""
        self._hosts[host] = HostActivity(doing, monotonic())
        self._tell(host, doing)

    def sent(self, host: str, sent_bytes: int, total_bytes: int) -> None:
        """Note how much was sent to a host."""
        activity = self._hosts[host]
        activity.sent_bytes, activity.total_bytes = sent_bytes, total_bytes

    def ended(self, host: str) -> None:
        """Note that nothing more is done on a host."""
        self._hosts.pop(host, None)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Print what the hosts are at whenever nothing else was printed for a while."""
        self._told_at = monotonic()
        self._is_watched = True
        repeater = gevent.spawn(self._repeat)
        try:
            yield
        finally:
            repeater.kill()
            self._is_watched = False
            if self._redraws and not self._quiet:
                draw_line("", sys.stderr)

    def _repeat(self) -> None:
        while True:
            gevent.sleep(SILENCE_S / 6)
            now = monotonic()
            if now - self._told_at >= self._silence_s:
                told = describe_activities(self._hosts, now)
                for host, text in told[:1] if self._redraws else told:
                    self._tell(host, text)

    def _tell(self, host: str, text: str) -> None:
        self._told_at = monotonic()
        if self._quiet:
            return
        passed = f"{self._told_at - self._started_at:6.1f} s  "
        if self._redraws and self._is_watched:
            at_work = "; ".join(
                f"{name} {one}".strip() for name, one in describe_activities(self._hosts, self._told_at)
            )
            draw_line(passed + at_work, sys.stderr)
        else:
            tell(f"{passed}{host:<{self._width}}  {text}")
            sys.stderr.flush()


def print_outcomes(outcomes: Sequence[WorkerOutcome]) -> None:
    """Print the outcome of each worker: aligned on a terminal, tab-separated elsewhere."""
    rows = [(outcome.host, outcome.worker, outcome.state, outcome.detail) for outcome in outcomes]
    lines = align_table(TITLES, rows) if sys.stdout.isatty() else tab_separated([TITLES, *rows])
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def exit_code_for(outcomes: Sequence[WorkerOutcome]) -> int:
    """Return the exit code for the outcomes; print how many hosts failed."""
    failed = [outcome for outcome in outcomes if outcome.failed]
    if failed:
        hosts = len({outcome.host for outcome in failed})
        tell(f"{program_name()}: {plural(hosts, 'host')} failed; the reasons are in the table")
        return int(ExitCode.INFRASTRUCTURE)
    return int(ExitCode.OK)


def report_new_host_keys(fleet_hosts: KnownHosts, *, quiet: bool) -> None:
    """Print which host keys were added."""
    if not quiet:
        for line in fleet_hosts.added_hosts:
            tell(line)


def stop_all(fleet: Fleet, outcomes: Sequence[WorkerOutcome]) -> list[WorkerOutcome]:
    """Stop the workers that were just started, because others failed; return the new outcomes."""
    names = {outcome.host for outcome in outcomes if outcome.state == STARTED}
    hosts = [host for host in fleet.inventory.hosts if host.name in names]
    ended = {outcome.worker: outcome for outcome in fleet.stop(hosts)}
    return [outcome if outcome.failed else ended.get(outcome.worker, outcome) for outcome in outcomes]
