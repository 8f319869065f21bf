"""The run that a worker takes part in: its settings, its samples, and its leftovers on this host."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING

from bench_common.eventloop import STALL_THRESHOLD_S
from bench_common.ordered import OrderedSender
from bench_worker.cleanup import clean_up_run, forget_run
from bench_worker.host.contention import ContentionWatch, HostLeader
from bench_worker.host.pressure import SOURCE, PressureSampler
from bench_worker.host.sampler import Sampling
from bench_worker.leases import RunLease

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from bench_common.messages import Welcome
    from bench_worker.host.contention import BusyPeriod
    from bench_worker.host.procfs import ProcessStat
    from bench_worker.host.sampler import SendSamples

log = logging.getLogger(__name__)


class WorkerRun:
    """The run of a welcome, from `begin` to `end`. `send(source, columns, units)` gets the samples of this host.

    `run_file` says meanwhile whom this worker serves, to those who may end it.
    """

    def __init__(self, welcome: Welcome, worker_id: str, send: SendSamples, run_file: Path | None = None) -> None:
        self._run_file = run_file
        self.spec = welcome.spec
        self.epoch = welcome.epoch
        self.sampling = Sampling(send)
        self.token = welcome.token
        self.taken = 0
        """The last message of the lane that the load process took."""
        self.reports = OrderedSender()
        """What was reported to the master and not confirmed."""
        self.cleanup_begun = False
        """Whether the master has asked for the clean-up at the end."""
        self.contention: ContentionWatch | None = None
        """Finds out who takes the CPU of the host, if it was started."""
        self._pressure: PressureSampler | None = None
        self._leader = HostLeader(self.spec.run_id)
        self._worker_id = worker_id
        self._lease = RunLease(self.spec.run_id)
        self._left_nothing = False
        """Whether the clean-up at the end of the run found nothing that it could not remove."""
        self._silent_s = 0.0
        self._checked_at = monotonic()

    def begin(self) -> None:
        """Sample the host, acquire the run's lease, and remove the leftovers of an earlier process of this worker.

        Raises `InfrastructureError` without the lease: clean-up would take our containers for leftovers.
        """
        self.sampling.start_host_sampling(self.spec.sampling_s)
        self._write_run_file()
        self._lease.acquire()
        self.discard()

    def watch_contention(
        self,
        family: int,
        engines: frozenset[str],
        servers: frozenset[int],
        report: Callable[[BusyPeriod], None],
        processes: Mapping[int, ProcessStat],
    ) -> None:
        """Report from now on when this host has no idle CPU, and who takes it; see `ContentionWatch`."""
        self.contention = ContentionWatch(
            family, engines, report, leads=self._leader.holds, servers=servers, processes=processes
        )
        self.sampling.on_host_row = self.contention.add

    def watch_pressure(self, load_pid: Callable[[], int | None]) -> None:
        """Record from now on how much the work of this host is held up; see `PressureSampler`."""
        self._pressure = PressureSampler(load_pid)
        self.sampling.start_sampling({SOURCE: self._pressure}, self.spec.sampling_s)

    def read_pressure(self) -> None:
        """Take a reading now, so that what is before and what comes are apart."""
        if self._pressure is not None:
            self.sampling.add(SOURCE, self._pressure.sample(), self._pressure.units)

    def leads_host(self) -> bool:
        """Return whether this worker speaks for its host in the run: one of its workers does."""
        return self._leader.holds()

    def on_heartbeat_ack(self) -> None:
        """Record that the master is alive."""
        self._silent_s = 0.0

    def is_master_lost(self) -> bool:
        """Return whether the master has been silent for longer than the lease; ask with each heartbeat.

        Time in which this process did not run, be it suspended or starved of CPU, is no silence of the master: of
        the time since the last question only as much counts as there usually is.
        """
        now = monotonic()
        self._silent_s += min(now - self._checked_at, self.spec.heartbeat_s + STALL_THRESHOLD_S)
        self._checked_at = now
        return self._silent_s > self.spec.lease_s

    def discard(self) -> None:
        """Remove this worker's leftovers of the run, unless `keep` is set; log those that cannot be removed."""
        if self.spec.keep:
            return
        for problem in clean_up_run(self.spec.run_id, self._worker_id).failed:
            log.warning("run %s: not removed: %s", self.spec.run_id, problem)

    def clean_up(self) -> tuple[int, list[str]]:
        """Remove the run's leftovers on this host, unless `keep` is set; return how many, and the failures."""
        if self.spec.keep:
            return 0, []
        result = clean_up_run(self.spec.run_id)
        self._left_nothing = not result.failed
        return len(result.removed), [str(problem) for problem in result.failed]

    def end(self) -> None:
        """Stop sampling and release the lease: clean-up may remove what is left. The load process has ended."""
        self.sampling.end()
        self._leader.close()
        if self._left_nothing:
            forget_run(self.spec.run_id)
        self._lease.release()
        if self._run_file is not None:
            self._run_file.unlink(missing_ok=True)

    def _write_run_file(self) -> None:
        if self._run_file is None:
            return
        since = datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps({"run": self.spec.run_id, "master": self.spec.master, "since": since})
        temporary = self._run_file.with_suffix(".new")
        try:
            temporary.write_text(text, "utf-8")
            temporary.replace(self._run_file)
        except OSError as error:
            log.warning("%s: not written: %s; another master may take this worker for free", self._run_file, error)
