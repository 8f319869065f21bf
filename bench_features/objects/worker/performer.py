"""Runs the jobs of a treatment on an object store: each one operation on one object, by the seed of its assignment.

The counterpart of `operation_runner` for jobs that have no container. It has a slot of the store for each user, so a
user keeps its connections; the catalogue says which object is free. A result that the store calls a success is one
only if the content is right, too.
"""

from __future__ import annotations

from collections import deque
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Any, Final

import gevent
from gevent.event import Event

from bench_common.records import FIRST_BYTE, MAX_UNCERTAINTY_NS, UNCERTAINTY_GRAIN_NS, JobReport, Outcome
from bench_features.objects.common.access import Access, find_access
from bench_features.objects.common.rules import objects_job
from bench_features.objects.worker.base import Store, StoreAnswer, StoreOptions, StoreSlot
from bench_features.objects.worker.catalogue import Catalogue, NoObject, StoredObject, Task
from bench_features.objects.worker.choice import FOR_ENDPOINT, FOR_RANGE, draw
from bench_features.objects.worker.content import DIGEST_BYTES, Checker, content_md5, content_of, is_md5
from bench_features.objects.worker.noop import NoopStore
from bench_features.objects.worker.registry import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_common.treatment import Treatment

NO_OBJECT: Final = "no-object"
"""The kind of the failure of a job for which no object is left."""
ABORTED: Final = "aborted"
REFUSED: Final = frozenset({"refused", "dns", "unreachable"})
"""Failures that come at once, and would come again at once."""
REFUSED_PAUSE_S: Final = 0.05
"""How long a user pauses after one of them, in seconds: a store that is gone is not asked in a tight loop."""


def open_treatment_store(treatment: Treatment, *, noop: bool) -> Store:
    """Return the store of a treatment, opened; with `noop` the one that does nothing.

    Raises `StoreUnavailable` and `UsageError`.
    """
    job = objects_job(treatment)
    options = StoreOptions(
        slots=treatment.concurrency,
        timeout_s=treatment.timeout_s,
        retries=job.retries,
        retry_pause_s=job.retry_pause_s,
        policy=job.policy,
        delete_after_s=job.delete_after_s,
        multipart_above_bytes=job.multipart_above_bytes,
        part_bytes=job.part_bytes,
        block_bytes=job.block_bytes,
        new_connections=job.connections == "new",
    )
    if noop or treatment.engine == NoopStore.name:
        return NoopStore(Access(NoopStore.name).at(job.endpoints), options)
    return open_store(find_access(treatment.engine, job.profile).at(job.endpoints), options)


class ObjectPerformer:
    """Runs the jobs of one treatment. `interruptibly` runs a call that only waits, so that it can be interrupted."""

    def __init__(
        self,
        treatment: Treatment,
        store: Store,
        catalogue: Catalogue,
        *,
        slots: int,
        interruptibly: Callable[[Callable[[], Any]], Any],
    ) -> None:
        job = objects_job(treatment)
        self._job = job
        self._store = store
        self._catalogue = catalogue
        self._interruptibly = interruptibly
        self._names = job.operation_names()
        self._endpoints = len(store.endpoints)
        self._by_seed = job.endpoint_choice == "seed" and self._endpoints > 1
        self._checks = not isinstance(store, NoopStore)
        self._waiting: deque[Event] = deque()
        """The jobs that wait for an object that others have."""
        self._slowest: dict[str, int] = {}
        self._trial = -1
        self._slots = 0
        self._idle: deque[StoreSlot] = deque()
        """The slots that no job has; the one idle for longest is taken next."""
        self._idle.extend(self._open_slot() for _ in range(slots))
        if job.connections == "keep":
            gevent.joinall([gevent.spawn(self._connect, slot) for slot in self._idle])

    def _open_slot(self) -> StoreSlot:
        """Return one more slot: a trial may have more users than the first one had."""
        slot = self._store.slot(self._slots)
        slot.endpoint = self._slots % self._endpoints
        self._slots += 1
        return slot

    def _connect(self, slot: StoreSlot) -> None:
        """Open the connections of a slot, which are in no operation's time; what fails here fails again there."""
        own = slot.endpoint
        for endpoint in range(self._endpoints) if self._by_seed else (own,):
            slot.endpoint = endpoint
            slot.connect()
        slot.endpoint = own

    def run(self, seed: int, trial: int) -> JobReport:
        """Run the job of a seed."""
        if trial != self._trial:
            self._trial, self._slowest = trial, {}
        redraws = self._catalogue.redraws
        try:
            task = self._take(seed)
        except NoObject as error:
            return _failed_before(NO_OBJECT, str(error))
        redrawn = self._catalogue.redraws - redraws
        slot = self._idle.popleft() if self._idle else self._open_slot()
        if self._by_seed:
            slot.endpoint = draw(seed, FOR_ENDPOINT) % self._endpoints
        sent_s, own = monotonic(), slot.endpoint
        try:
            answer = self._interruptibly(lambda: self._perform(slot, task, seed))
        except BaseException:
            # Called off within the operation: what it did is not known, and its connection has half an answer.
            slot.close()
            self._done(task, ABORTED, "", 2, sent_s)
            raise
        finally:
            slot.endpoint = own  # retries may have gone to others
            self._idle.append(slot)
        self._done(task, answer.kind, answer.etag, answer.retries + 1, sent_s)
        report = self._report(task, answer, redrawn)
        if answer.kind in REFUSED:
            gevent.sleep(REFUSED_PAUSE_S)
        return report

    def _take(self, seed: int) -> Task:
        """Return what a job does; wait while other jobs have every object that it could use."""
        while (task := self._catalogue.draw(seed, monotonic())) is None:
            given_back = Event()
            self._waiting.append(given_back)
            self._interruptibly(given_back.wait)
        return task

    def _done(self, task: Task, kind: str | None, etag: str, tries: int, sent_s: float) -> None:
        self._catalogue.done(task, kind, etag=etag, tries=tries, now_s=sent_s)
        if self._waiting:
            self._waiting.popleft().set()

    # -- the operations -----------------------------------------------------------------------------------------

    def _perform(self, slot: StoreSlot, task: Task, seed: int) -> StoreAnswer:
        one = task.object
        match task.cell.operation:
            case "list":
                prefix = self._job.classes[task.cell.size_class].name
                answer = slot.list_objects(task.container, prefix=f"{prefix}_", limit=self._job.list_limit)
                answer.length = 0  # names are no content
                return answer
            case "read":
                assert one is not None
                return self._read(slot, one, seed)
            case "head":
                assert one is not None
                return self._head(slot, one)
            case "delete":
                assert one is not None
                return slot.delete(
                    one.container, one.name, in_parts=one.may_be_in_parts(self._job.multipart_above_bytes)
                )
        assert one is not None
        return self._write(slot, one, task)

    def _write(self, slot: StoreSlot, one: StoredObject, task: Task) -> StoreAnswer:
        body = content_of(one.path, task.generation, task.size)
        answer = slot.put(one.container, one.name, body, update=task.cell.operation == "update")
        if (
            self._job.verify == "full"
            and answer.ok
            and task.size <= DIGEST_BYTES
            and is_md5(answer.etag)
            and answer.etag != content_md5(one.path, task.generation, task.size)
        ):
            answer.kind = "wrong-etag"
            answer.message = f"the store's ETag {answer.etag} is not the MD5 of the {task.size} bytes sent"
        return answer

    def _read(self, slot: StoreSlot, one: StoredObject, seed: int) -> StoreAnswer:
        begin, length, byte_range = 0, None, None
        asked = self._job.range_bytes
        if asked is not None and one.size > asked:
            begin, length = draw(seed, FOR_RANGE) % (one.size - asked + 1), asked
            byte_range = (begin, begin + asked - 1)
        if not (self._checks and one.certain):
            return slot.get(one.container, one.name, byte_range=byte_range)
        checker = Checker(self._job.verify, one.path, one.generation, one.size, begin=begin, length=length)
        etag = one.etag
        answer = slot.get(one.container, one.name, checker, byte_range=byte_range, restart=checker.restart)
        if answer.ok:
            wrong = checker.verdict()
            if wrong is not None:
                answer.kind, answer.message = wrong
            elif is_md5(etag) and is_md5(answer.etag) and answer.etag != etag:
                answer.kind = "wrong-etag"
                answer.message = f"the store's ETag was {etag} when the object was written, and is {answer.etag} now"
        return answer

    def _head(self, slot: StoreSlot, one: StoredObject) -> StoreAnswer:
        size, certain = one.size, one.certain
        answer = slot.head(one.container, one.name)
        if self._checks and certain and answer.ok and answer.length != size:
            answer.kind = "wrong-length"
            answer.message = f"the store tells {answer.length} bytes of an object of {size}"
        answer.length = 0  # no content came
        return answer

    # -- the result ---------------------------------------------------------------------------------------------

    def _report(self, task: Task, answer: StoreAnswer, redrawn: int) -> JobReport:
        position, start_ns = task.cell.alternative, answer.start_ns
        duration_ns = answer.last_ns - start_ns
        report = JobReport()
        report.stamps = [start_ns, duration_ns]
        report.single_words = (
            position,
            answer.first_ns - start_ns if answer.first_ns else -1,
            answer.first_uncertainty_ns,
            answer.try_start_ns - start_ns,
            answer.length,
            answer.endpoint,
            answer.retries,
            1 if redrawn else 0,
        )
        if answer.last_uncertainty_ns:
            report.uncertainty_ns = min(answer.last_uncertainty_ns | UNCERTAINTY_GRAIN_NS, MAX_UNCERTAINTY_NS)
        name = self._names[position]
        if answer.kind is not None:
            named = f" (transaction {answer.transaction_id})" if answer.transaction_id else ""
            where = f"{task.object.path}: " if task.object is not None else ""
            report.outcome, report.error = Outcome.FAILED, (name, answer.kind, f"{where}{answer.message}{named}")
        elif answer.transaction_id:
            if duration_ns > self._slowest.get(name, -1):
                self._slowest[name] = duration_ns
                report.transactions = [(name, answer.transaction_id)]
            if task.cell.operation == "read" and answer.first_ns - start_ns > self._slowest.get(f"{name}.", -1):
                self._slowest[f"{name}."] = answer.first_ns - start_ns
                report.transactions = [*report.transactions, (f"{name}{FIRST_BYTE}", answer.transaction_id)]
        return report


def _failed_before(kind: str, message: str) -> JobReport:
    """Return the report of a job that tried no operation."""
    now = monotonic_ns()
    return JobReport.ended(Outcome.FAILED, (now, now), error=("worker", kind, message))
