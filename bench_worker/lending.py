"""Services that run here for jobs of other workers: started, looked at, stopped and removed as the master says.

They are those of treatments that the master has defined, placed here by the scenario. The acts on one service are
done one after the other, each with its own deadline; its removal does not wait for a start that is under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any, Final, TypeVar

import gevent
from gevent.lock import RLock
from greenlet import greenlet

from bench_common.errors import ProtocolError, WeighbridgeError
from bench_common.placement import ACTS, KIND, LOOK, REMOVE, START, STOP, STREAM_LIMIT, Supplied
from bench_common.records import ATTEMPT_SHIFT, JOB_ID
from bench_common.treatment import Guest, Treatment
from bench_worker.engines.base import Engine
from bench_worker.performer import MESSAGE_LIMIT
from bench_worker.services import Output, ServiceFailed, ServiceSet
from bench_worker.slots import JobAborted
from workloads.registry import workload

log = logging.getLogger(__name__)

Waited = TypeVar("Waited")

CALLED_OFF: Final = "it was called off before it was ready"


class Lender:
    """The services that this worker lends. `engine_of` gives a treatment's engine, `tell` gets what came of an act.

    `address` is where other hosts reach this one (an IP address). With `keep` none is removed.
    """

    def __init__(
        self,
        treatments: Mapping[int, Treatment],
        engine_of: Callable[[Treatment], Engine],
        tell: Callable[[dict[str, Any]], None],
        *,
        prefix: str,
        address: str,
        keep: bool,
    ) -> None:
        self._treatments = treatments
        self._engine_of = engine_of
        self._tell = tell
        self._prefix = prefix
        self._address = address
        self._keep = keep
        self._lent: dict[tuple[int, str], _Lent] = {}

    def serve(self, treatment: int, service: str, ticket: int, act: str) -> None:
        """Begin an act on a service; `tell` gets what came of it. Raises `ProtocolError` on what was not agreed."""
        known = self._treatments.get(treatment)
        if known is None or service not in known.places or act not in ACTS or not isinstance(known.job, Guest):
            raise ProtocolError(f"{act!r} for the service {service!r} of treatment {treatment}, which is not placed")
        key = (ticket, service)
        if act == START and key not in self._lent:
            self._lent[key] = _Lent(partial(self._make, known, service, ticket))
        errand = {"treatment": treatment, "service": service, "ticket": ticket, "act": act}
        gevent.spawn(self._serve, errand, self._lent.get(key))

    def release(self) -> None:
        """Remove all that is lent: nobody will ask for it any more."""
        lent, self._lent = list(self._lent.values()), {}
        for one in lent:
            if not self._keep:
                one.call_off()
                self._done(one, REMOVE)

    def _serve(self, errand: dict[str, Any], lent: _Lent | None) -> None:
        act = errand["act"]
        if act == REMOVE:
            self._lent.pop((errand["ticket"], errand["service"]), None)
            if lent is not None:
                lent.call_off()
        if lent is None:
            supplied = Supplied() if act == REMOVE else Supplied(kind=KIND, problem="was never started here")
        elif act == REMOVE and self._keep:
            supplied = Supplied()
        else:
            supplied = self._done(lent, act)
        self._tell({**errand, **asdict(supplied)})

    def _done(self, lent: _Lent, act: str) -> Supplied:
        try:
            return lent.do(act)
        except WeighbridgeError as error:
            return Supplied(kind=KIND, problem=str(error)[:MESSAGE_LIMIT])
        except Exception as error:  # a worker must outlive what an engine does; what was caught is reported
            log.exception("a service that is lent broke its engine")
            return Supplied(kind="internal", problem=f"{type(error).__name__}: {error}"[:MESSAGE_LIMIT])

    def _make(self, treatment: Treatment, name: str, ticket: int) -> ServiceSet:
        assert isinstance(treatment.job, Guest)
        guest = workload(treatment.job.workload)
        return ServiceSet(
            self._engine_of(treatment),
            treatment,
            guest,
            f"{self._prefix}{ticket & JOB_ID}-{ticket >> ATTEMPT_SHIFT}",
            ticket,
            services=[service for service in guest.services if service.name == name],
            outside=self._address,
        )


class _Lent:
    """One service, which `make` makes when it is started first."""

    def __init__(self, make: Callable[[], ServiceSet]) -> None:
        self._make = make
        self._set: ServiceSet | None = None
        self._turn = RLock()
        self._waiting: greenlet | None = None
        self._called_off = False

    def call_off(self) -> None:
        """End a start that is under way, if one only waits; the next act then has its turn."""
        self._called_off = True
        if self._waiting is not None:
            gevent.get_hub().loop.run_callback(self._interrupt, self._waiting)

    def do(self, act: str) -> Supplied:
        """Do an act, once those before it are done."""
        with self._turn:
            if act == START:
                return self._start()
            if self._set is None:
                return Supplied()
            if act == STOP:
                return _problem(self._set.stop())
            if act == REMOVE:
                return _problem(self._set.remove())
            assert act == LOOK
            (log_of,) = self._set.logs()
            kind, end = self._set.end_of(log_of[0]) or ("", "")
            return _with(log_of, Supplied(kind=kind, problem=end))

    def _start(self) -> Supplied:
        try:
            if self._called_off:
                raise JobAborted
            if self._set is None:
                self._set = self._make()
            (printed,) = self._set.start(self._wait)
        except JobAborted:
            return Supplied(kind=KIND, problem=CALLED_OFF)
        except ServiceFailed as failure:
            failed = Supplied(kind=failure.kind, problem=str(failure))
            return _with(failure.outputs[0], failed) if failure.outputs else failed
        host, port, _ = self._set.words.values()
        return _with(printed, Supplied(host, int(port)))

    def _wait(self, call: Callable[[], Waited]) -> Waited:
        if self._called_off:
            raise JobAborted
        self._waiting = gevent.getcurrent()
        try:
            return call()
        finally:
            self._waiting = None

    def _interrupt(self, waiting: greenlet) -> None:
        # It may have got on in the meantime, to what must not be interrupted.
        if waiting is self._waiting:
            waiting.throw(JobAborted)


def _problem(text: str | None) -> Supplied:
    return Supplied() if text is None else Supplied(kind=KIND, problem=text)


def _with(output: Output, supplied: Supplied) -> Supplied:
    """Return `supplied` with the beginning of what a service, or its check, printed."""
    _, stdout, stderr, _, truncated = output
    cut = len(stdout) > STREAM_LIMIT or len(stderr) > STREAM_LIMIT
    return Supplied(
        supplied.address,
        supplied.port,
        supplied.kind,
        supplied.problem,
        stdout[:STREAM_LIMIT],
        stderr[:STREAM_LIMIT],
        truncated or cut,
    )
