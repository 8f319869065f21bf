"""Sends messages to the workers of a run: to a worker's address on the control socket, or on its lane.

Jobs go out as packed rows, each with a random seed of its own; the seeds are drawn in blocks beforehand.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Mapping, Sequence
from hmac import compare_digest
from time import monotonic
from typing import Final

import numpy as np
from msgspec import Struct, field

from bench_common.messages import (
    Acknowledge,
    CancelJobs,
    Cleanup,
    Credentials,
    DefineTreatment,
    Dismiss,
    Jobs,
    MasterControlMessage,
    MasterWorkMessage,
    MeasureSpeed,
    Preflight,
    RunSpec,
    Stop,
    Welcome,
    clip,
)
from bench_common.ordered import OrderedSender
from bench_common.records import ASSIGNMENT_FIELDS, WORD_BYTES, job_id_of
from bench_common.secret import Secret
from bench_master.coordinator import messages as act
from bench_master.coordinator.roster import Member, Roster
from bench_master.plan import Plan
from bench_master.run.hosts import WorkerHosts
from bench_master.run.local_workers import LocalWorkers
from bench_master.run.profiles import Profiles
from bench_master.run.remote_services import LaneMessage
from bench_master.run.sockets import Sockets

log = logging.getLogger(__name__)

SEED_BLOCK_JOBS: Final = 1 << 13
"""How many seeds are drawn at once: enough to cost next to nothing per job, and few to keep."""
ROW_BYTES: Final = len(ASSIGNMENT_FIELDS) * WORD_BYTES


class JobBatches:
    """Makes the rows of `records.ASSIGNMENT_FIELDS` for tickets.

    A job's seed follows from its id and the run's `seed` alone, so a retried job has the seed that it had.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._block = -1
        self._rows = b""
        self._arrival_ns: dict[int, int] = {}
        """When each job that is out arrives, in an open system: ns of our clock, by job id."""

    def arriving(self, tickets: range, intended_ns: Sequence[int], offset_ns: int) -> bytes:
        """Return the rows of first attempts that arrive at instants of our clock, `offset_ns` behind the worker's."""
        self._arrival_ns.update(zip(tickets, intended_ns, strict=True))
        return _with_arrivals(self.fresh(tickets), intended_ns, offset_ns)

    def take_arrival_times(self, tickets: Iterable[int]) -> list[int]:
        """Remove and return the arrival times of finished jobs (0: unknown)."""
        return [self._arrival_ns.pop(job_id_of(ticket), 0) for ticket in tickets]

    def fresh(self, tickets: range) -> bytes:
        """Return the rows of first attempts, whose tickets are their job ids."""
        parts = []
        first = tickets.start
        while first < tickets.stop:
            block, place = divmod(first, SEED_BLOCK_JOBS)
            if block != self._block:
                self._block, self._rows = block, self._drawn(block * SEED_BLOCK_JOBS, SEED_BLOCK_JOBS)
            last = min(place + tickets.stop - first, SEED_BLOCK_JOBS)
            parts.append(self._rows[place * ROW_BYTES : last * ROW_BYTES])
            first += last - place
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def retries(self, tickets: Sequence[int], offset_ns: int) -> bytes:
        """Return the rows of further attempts; the arrival time of a job stays."""
        rows = np.concatenate([np.frombuffer(self._drawn(job_id_of(ticket), 1), "<i8") for ticket in tickets])
        rows = rows.reshape(-1, len(ASSIGNMENT_FIELDS))
        rows[:, ASSIGNMENT_FIELDS.index("ticket")] = tickets
        intended = [self._arrival_ns.get(job_id_of(ticket), 0) for ticket in tickets]
        return _with_arrivals(rows.tobytes(), intended, offset_ns) if any(intended) else rows.tobytes()

    def _drawn(self, first: int, count: int) -> bytes:
        rows = np.zeros((count, len(ASSIGNMENT_FIELDS)), "<i8")
        rows[:, ASSIGNMENT_FIELDS.index("ticket")] = np.arange(first, first + count)
        seeds = np.random.PCG64(self._seed).advance(first).random_raw(count)
        rows[:, ASSIGNMENT_FIELDS.index("seed")] = seeds >> np.uint64(1)
        return rows.tobytes()


def _with_arrivals(rows: bytes, intended_ns: Sequence[int], offset_ns: int) -> bytes:
    table = np.frombuffer(rows, "<i8").reshape(-1, len(ASSIGNMENT_FIELDS)).copy()
    table[:, ASSIGNMENT_FIELDS.index("intended_ns")] = np.asarray(intended_ns, np.int64) + offset_ns
    return table.tobytes()


ACK_SEQUENCES: Final = 4096
"""How many batches one message acknowledges, so that it never grows too large to be sent."""

WorkerAction = (
    act.AssignJobs
    | act.DefineTreatment
    | act.CancelJobs
    | act.WelcomeWorker
    | act.DismissWorker
    | act.MeasureSpeed
    | act.StartCleanup
    | act.EndRun
)
"""The actions that are carried out by a message to a worker."""


class _Lane(Struct):
    """The lane of a member in one epoch."""

    epoch: int
    endpoint: str
    token: str
    """The secret of the epoch."""
    orders: OrderedSender = field(default_factory=OrderedSender)
    """What was sent on it and not confirmed."""


class Dispatcher:
    """Sends messages to the workers of a run. `spec` is part of each welcome.

    `store_variables` are how what the jobs use is reached, for workers that do not inherit it; see `Credentials`.
    """

    def __init__(
        self,
        plan: Plan,
        roster: Roster,
        hosts: WorkerHosts,
        sockets: Sockets,
        local_workers: LocalWorkers,
        profiles: Profiles | None,
        spec: RunSpec,
        store_variables: Mapping[str, Secret],
    ) -> None:
        self._plan = plan
        self._roster = roster
        self._hosts = hosts
        self._sockets = sockets
        self._local_workers = local_workers
        self._profiles = profiles
        self._spec = spec
        self._store_variables = store_variables
        self._orders = JobBatches(plan.seed)
        self._lanes: dict[int, _Lane] = {}

    def deliver(self, action: WorkerAction) -> None:
        """Carry an action out."""
        match action:
            case act.AssignJobs():
                self._assign_jobs(action)
            case act.DefineTreatment():
                treatment = self._plan.treatments[action.treatment]
                epoch, part = self._epoch(action.number), (action.part, action.parts)
                message = DefineTreatment(epoch=epoch, treatment=treatment, part=part[0], parts=part[1])
                self._send_on_lane(action.number, message)
            case act.CancelJobs():
                self._send_on_lane(action.number, CancelJobs(epoch=self._epoch(action.number)))
            case act.WelcomeWorker():
                self._welcome(action)
            case act.DismissWorker():
                self.send(action.peer, Dismiss(epoch=0, reason=clip(action.reason), final=action.final))
            case act.MeasureSpeed():
                member = self._roster[action.number]
                self.send(member.peer, MeasureSpeed(epoch=member.epoch, trial=action.trial))
            case act.StartCleanup():
                member = self._roster[action.number]
                self.send(member.peer, Cleanup(epoch=member.epoch, run_id=self._spec.run_id))
            case act.EndRun():
                self._end_run(action.number)

    def send(self, peer: bytes, message: MasterControlMessage) -> None:
        """Send a control message to an address."""
        self._sockets.send(peer, message)

    def ask(self, peer: bytes, message: Preflight) -> None:
        """Ask a worker, which first gets what it needs for an answer."""
        self._share_credentials(peer)
        self.send(peer, message)

    def _share_credentials(self, peer: bytes) -> None:
        variables = {name: value.reveal() for name, value in self._store_variables.items()}
        if variables:
            self.send(peer, Credentials(epoch=0, run_id=self._spec.run_id, variables=variables))

    def acknowledge(self, number: int, epoch: int, sequences: Sequence[int]) -> None:
        """Tell a member that batches of its results are in the journal."""
        if self._epoch(number) == epoch:
            for first in range(0, len(sequences), ACK_SEQUENCES):
                batch = list(sequences[first : first + ACK_SEQUENCES])
                self._send_on_lane(number, Acknowledge(epoch=epoch, sequences=batch))

    def send_on_lanes(self, messages: Iterable[LaneMessage]) -> None:
        """Send messages on the lanes of members."""
        for one in messages:
            self._send_on_lane(one.number, one.message)

    def release_all(self) -> None:
        """End the run for every member of the roster."""
        for member in self._roster:
            self._end_run(member.number)

    def take_arrival_times(self, treatment: int, tickets: Sequence[int]) -> list[int] | None:
        """Return when jobs of a treatment arrived; None in the closed model."""
        return (
            None if self._plan.treatments[treatment].open_load is None else self._orders.take_arrival_times(tickets)
        )

    def _end_run(self, number: int) -> None:
        member = self._roster[number]
        self.send(member.peer, Stop(epoch=member.epoch, exit=False))

    def _epoch(self, number: int) -> int:
        return self._roster[number].epoch

    def proves(self, member: Member, token: str) -> bool:
        """Return whether a token is that of a member's present epoch."""
        lane = self._lanes.get(member.number)
        return lane is not None and lane.epoch == member.epoch and compare_digest(lane.token, token)

    def confirm_orders(self, member: Member, taken: int) -> None:
        """Note that a member's load process took the messages of its lane up to a number."""
        lane = self._lanes.get(member.number)
        if lane is not None:
            lane.orders.confirm(taken)

    def repeat_orders(self, member: Member) -> None:
        """Send the messages of a member's lane again that it has not confirmed in time."""
        lane = self._lanes.get(member.number)
        if lane is not None:
            frames = lane.orders.overdue(monotonic())
            if frames:
                log.info("worker %s has not confirmed %d messages: sent again", member.worker_id, len(frames))
                self._sockets.send_again_on_lane(member.number, frames)

    def _send_on_lane(self, number: int, message: MasterWorkMessage) -> None:
        lane = self._lanes.get(number)
        if lane is not None:
            message.number = lane.orders.last + 1
            lane.orders.keep(self._sockets.send_on_lane(number, message), monotonic())

    def _welcome(self, action: act.WelcomeWorker) -> None:
        local = action.worker_id in self._local_workers.ids
        # A worker that asked twice is welcomed twice: to the lane that it has, where its first jobs may be already.
        lane = self._lanes.get(action.number)
        if lane is None or lane.epoch != action.epoch:
            token = secrets.token_hex(16)
            place = (action.number, action.worker_id, action.epoch, token)
            lane = _Lane(action.epoch, self._sockets.open_lane(*place, local=local), token)
            self._lanes[action.number] = lane
        self._share_credentials(action.peer)
        self.send(
            action.peer,
            Welcome(
                epoch=action.epoch,
                spec=self._spec,
                number=action.number,
                lane_endpoint=lane.endpoint,
                token=lane.token,
                results_endpoint=self._sockets.results_endpoint(local=local),
            ),
        )
        if self._profiles is not None:
            self._profiles.expect(action.worker_id)

    def _assign_jobs(self, action: act.AssignJobs) -> None:
        tickets, offset_ns = action.tickets, self._hosts[action.number].offset_ns
        if not isinstance(tickets, range):
            rows = self._orders.retries(tickets, offset_ns)
        elif action.intended_ns:
            rows = self._orders.arriving(tickets, action.intended_ns, offset_ns)
        else:
            rows = self._orders.fresh(tickets)
        self._send_on_lane(
            action.number,
            Jobs(
                epoch=self._epoch(action.number),
                treatment=action.treatment,
                trial=action.trial,
                concurrency=action.concurrency,
                batch=action.batch,
                rows=rows,
            ),
        )
