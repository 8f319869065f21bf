"""The agent: speaks for a host, and never runs its load.

It asks a master to be admitted, keeps the heartbeat and the clock comparison, sees to its samples, and owns the
load process: starts it, passes the welcome on, notices its death at once and tells the master, cleans up after it. A
master that is silent for longer than the lease is gone: what its run left here is removed.

How far a master's clock is ahead of ours: of the one that has our run, or else of the one that answers us.

Addresses between hosts: where others reach this one, and how an endpoint of its master is called from here.

Who is told what at first: a master of this worker and its host, the load process of its run.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from collections.abc import Callable
from functools import partial
from time import monotonic, monotonic_ns
from typing import Any, Final

import gevent
from gevent.event import Event

from bench_common.cli import strip_brackets
from bench_common.clock import ClockOffset, ClockOffsetEstimator
from bench_common.errors import ExitCode, ProtocolError
from bench_common.eventloop import LoopMeter, stall_s
from bench_common.messages import Message
from bench_common.requirements import Requirement
from bench_worker.cleanup import clean_up_dead_runs
from bench_worker.cli import AgentOptions
from bench_worker.control_channel import ControlChannel
from bench_worker.engines.registry import daemon_processes, open_engine
from bench_worker.host.daemons import engine_samplers
from bench_worker.preflight import EngineCatalog, PreflightChecker
from bench_worker.supervisor import LoadProcessHandle, LoadProcessSupervisor
from bench_worker.worker_run import WorkerRun

log = logging.getLogger(__name__)


OFFSET_MAX_AGE_S: Final = 5.0
"""How long a comparison with a master that holds no run is told."""


class MasterClock:
    """Compares clocks with every pulse. Instants are those of CLOCK_MONOTONIC, in ns."""

    def __init__(self) -> None:
        self._comparison = ClockOffsetEstimator()
        self._compared_ns = 0

    def forget(self) -> None:
        """Begin anew: from here on it may be another master."""
        self._comparison = ClockOffsetEstimator()

    def take(self, pulse: Message, now_ns: int, *, admitted: bool) -> None:
        """Take in a pulse that came at `now_ns`; outside of a run, one after a silence may be another master's."""
        if not admitted and not self._is_fresh(now_ns):
            self.forget()
        self._compared_ns = now_ns
        self._comparison.exchange(pulse["echo_ns"], pulse["received_ns"], pulse["sent_ns"], now_ns)

    def offset_at(self, now_ns: int) -> ClockOffset | None:
        """Return the best estimate for an instant; None before the first."""
        return self._comparison.best_offset(now_ns)

    def last_offset(self, now_ns: int) -> ClockOffset | None:
        """Return the estimate at the last pulse; None where that is so old that another master may answer now."""
        return self.offset_at(self._compared_ns) if self._is_fresh(now_ns) else None

    def _is_fresh(self, now_ns: int) -> bool:
        return now_ns - self._compared_ns < OFFSET_MAX_AGE_S * 1e9


_UNASSIGNED_ADDRESSES: Final = ("192.0.2.1", "2001:db8::1")
"""Addresses that nobody has (RFC 5737, RFC 3849): a route to them is the one to the world."""
_ANY_PORT: Final = 9


def local_address(control: str, given: str | None) -> str:
    """Return an IP address of this host; `control` is the endpoint at which it reaches its master.

    Where the master is reached without leaving the host (a local one, or a tunnel), it is the address that this host
    goes out into the world with; the loopback's, where it does not.
    """
    if given is not None:
        return given
    host = strip_brackets(_host_of(control)) if control.startswith("tcp://") else ""
    for other in (host, *_UNASSIGNED_ADDRESSES):
        address = _source_address(other) if other else None
        if address is not None and _is_routable(address):
            return address
    return "127.0.0.1"


def resolve_endpoint(endpoint: str, control: str) -> str:
    """Return an endpoint as seen from here: the master names a port, `control` says under which name we reach it."""
    if not endpoint.startswith("tcp://"):
        return endpoint
    return f"tcp://{_host_of(control)}:{endpoint.rpartition(':')[2]}"


def _host_of(control: str) -> str:
    return control.removeprefix("tcp://").rpartition(":")[0]


def _is_routable(text: str) -> bool:
    """Return whether an address means the same on other hosts: neither the loopback's nor an IPv6 one of a link."""
    address = ipaddress.ip_address(text)
    return not address.is_loopback and not (isinstance(address, ipaddress.IPv6Address) and address.is_link_local)


def _source_address(other: str) -> str | None:
    """Return the address from which a host is reached, of IPv4 where it has both.

    Connecting a UDP socket sends nothing (connect(2)).
    """
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((other, _ANY_PORT))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return None


def hello_fields(
    options: AgentOptions, info: dict[str, Any], offset: ClockOffset | None, sent_ns: int
) -> dict[str, Any]:
    """Return the fields of a hello. `info` says what the host is, `offset` how far the master's clock is ahead."""
    present: dict[str, Any] = {"load": os.getloadavg()[0]}
    if offset is not None:
        present["clock"] = {"offset_ns": offset.offset_ns, "bound_ns": offset.bound_ns}
    return {
        "worker_id": options.worker_id,
        "environment": options.environment,
        "slots": options.slots,
        "sent_ns": sent_ns,
        "info": {
            **info,
            **present,
            "labels": options.labels,
            "allow_host_mounts": options.allow_host_mounts,
            "allow_swapoff": options.allow_swapoff,
        },
    }


def load_process_start_fields(options: AgentOptions, welcome: Message) -> dict[str, Any]:
    """Return what the load process has to know of the run that a welcome is to."""
    key = options.key
    return {
        "run_id": welcome["run_id"],
        "worker_id": options.worker_id,
        "epoch": welcome.epoch,
        "slots": options.slots,
        "lane": resolve_endpoint(welcome["lane"], options.control),
        "results": resolve_endpoint(welcome["results"], options.control),
        "noop": welcome["noop"],
        "keep": welcome["keep"],
        "profile": welcome["profile"],
        "allow_host_mounts": options.allow_host_mounts,
        "allow_swapoff": options.allow_swapoff,
        "address": local_address(options.control, options.address),
        "keys": None if key is None else (key.keys.public, key.keys.secret, key.master_public),
    }


HELLO_INTERVAL_S: Final = 0.5
"""How often a worker that has no master asks to be admitted."""
LOOP_SAMPLE_UNITS: Final = {**LoopMeter.UNITS, "running_mean": "jobs", "waiting_mean": "jobs"}
"""What a load process tells of itself: how busy its loop was, and how many jobs were under way or due."""
MAX_REASON_CHARS: Final = 1000
"""So many letters of a reason are told to a master."""


class Agent:
    """One worker's agent. `describe()` gives what the master is told of this host; it is asked once, by `serve`.

    `child` is its first load process, where one was started already; `offer` the engines that `describe` tells of.
    """

    def __init__(
        self,
        options: AgentOptions,
        describe: Callable[[], dict[str, Any]],
        child: LoadProcessHandle | None = None,
        offer: EngineCatalog | None = None,
    ) -> None:
        self._options = options
        self._describe = describe
        self._engine_catalog = offer or EngineCatalog(options.engines)
        self._info: dict[str, Any] = {}
        self._line = ControlChannel(options.control, options.key, pulse=self._on_heartbeat_ack, obey=self._on_message)
        self._clock = MasterClock()
        self._preflight = PreflightChecker(options.worker_id, open_engine)
        self._load = LoadProcessSupervisor(options.engines, self._on_load_process_message, child)
        self._run: WorkerRun | None = None
        self._running = 0
        self._over = Event()
        self._wake_up = Event()
        """Something happened that the main loop has to look at before its time."""
        self._status = ExitCode.OK

    # -- life ---------------------------------------------------------------------------------------------------

    def serve(self) -> int:
        """Serve masters until told to stop; return the exit code."""
        self._info = self._describe()
        for leftover in clean_up_dead_runs().removed:
            log.warning("removed %s %s, left by run %s", leftover.what, leftover.name, leftover.run_id)
        alone_since = monotonic()
        try:
            while not self._over.is_set():
                self._check_load_process()
                if self._run is not None:
                    alone_since = monotonic()
                    self._beat(self._run)
                else:
                    self._seek_admission(monotonic() - alone_since)
                self._rest(HELLO_INTERVAL_S if self._run is None else self._run.heartbeat_s)
        finally:
            self._shut_down()
        return int(self._status)

    def stop(self, status: ExitCode = ExitCode.OK) -> None:
        """End: abort what runs, clean up, leave. Safe to call from a signal handler."""
        self._status = status
        self._over.set()
        self._wake_up.set()

    def _seek_admission(self, alone_s: float) -> None:
        if self._load.ready:
            self._send_hello()
            self._line.check_reachability()
        master_timeout_s = self._options.master_timeout_s
        if master_timeout_s is not None and alone_s > master_timeout_s:
            log.warning("no master answered at %s for %g s", self._options.control, master_timeout_s)
            self.stop(ExitCode.INFRASTRUCTURE)

    def _rest(self, most_s: float) -> None:
        # The wait alone: with what comes before it others may go on, and the master is heard.
        since = monotonic()
        self._wake_up.wait(most_s)
        self._wake_up.clear()
        absent = stall_s(since, most_s)
        if absent and self._run is not None:
            log.warning("this process did not run for %.1f s: the machine stood still, or had no processor", absent)
            self._run.absent(absent)

    def _shut_down(self) -> None:
        self._line.stop_handling()
        run, self._run = self._run, None
        self._load.end()
        if run is not None:
            if self._status is not ExitCode.OK:
                self._report_worker_died(run, "it was told to stop")
            run.discard()
            run.end()
        self._preflight.close()
        self._line.close()

    # -- what the master is told --------------------------------------------------------------------------------

    def _send_hello(self) -> None:
        """Ask to be admitted. An introduction that no message can carry stays so: trying again is of no use."""
        now_ns = monotonic_ns()
        hello = hello_fields(self._options, self._info, self._clock.last_offset(now_ns), now_ns)
        try:
            self._line.send("hello", 0, **hello)
        except ProtocolError as error:
            log.error("this worker cannot introduce itself to a master: %s", error)  # noqa: TRY400  no traceback helps
            self.stop(ExitCode.INFRASTRUCTURE)

    def _beat(self, run: WorkerRun) -> None:
        if run.master_lost:
            log.warning("the master has been silent for %g s; its run is given up", run.lease_s)
            self._leave_run(discard=True)
            if self._options.once:
                self.stop(ExitCode.INFRASTRUCTURE)
            return
        now_ns = monotonic_ns()
        offset = self._clock.offset_at(now_ns)
        self._line.send_or_log(
            "beat",
            run.epoch,
            sent_ns=now_ns,
            running=self._running,
            offset_ns=offset.offset_ns if offset is not None else 0,
            bound_ns=offset.bound_ns if offset is not None else -1,
        )

    def _report_worker_died(self, run: WorkerRun, reason: str) -> None:
        """Tell the master that what this worker holds will never be reported."""
        self._line.send_or_log("gone", run.epoch, worker_id=self._options.worker_id, reason=reason[:MAX_REASON_CHARS])

    # -- what the master says -----------------------------------------------------------------------------------

    def _on_heartbeat_ack(self, message: Message, now_ns: int) -> None:
        run = self._run
        if message.epoch != (run.epoch if run is not None else 0):
            return
        if run is not None:
            run.on_heartbeat_ack()
        self._clock.take(message, now_ns, admitted=run is not None)

    def _on_message(self, message: Message) -> None:
        run = self._run
        if message.type == "welcome":
            self._welcome(message)
        elif message.type == "dismiss" and (run is None or message.epoch in (0, run.epoch)):
            self._on_dismiss(message)
        elif message.type == "ask" and run is None and message.epoch == 0:
            gevent.spawn(self._run_preflight, message["needs"], message["engines"])
        elif message.type == "stop" and run is None and message.epoch == 0:
            # A master that holds no run, and tells whoever waits for one to go home.
            self.stop()
        elif run is None or message.epoch != run.epoch:
            log.info("a message %r of another epoch was ignored", message.type)
        elif message.type == "sweep":
            self._on_cleanup(run)
        elif message.type == "stop":
            self._leave_run()
            if message["exit"] or self._options.once:
                self.stop()

    def _run_preflight(self, wire: list[Any], named: list[Any]) -> None:
        """Tell the master what containers would lack here; it may take as long as fetching an image does."""
        engines = self._engine_catalog.refresh(name for name in named if isinstance(name, str))
        # Those of a master that went away; whatever they were connected to may have changed since.
        self._preflight.close()
        try:
            # What cannot be used cannot be asked either: its status says why.
            needs = [need for need in map(Requirement.from_wire, wire) if engines.get(need.engine, {}).get("usable")]
            reasons, unusable = self._preflight.find_missing(needs)
        except ProtocolError as error:
            reasons, unusable = [f"it does not understand what is needed: {error}"], True
        told = [reason[:MAX_REASON_CHARS] for reason in reasons[:100]]
        self._line.send_or_log("lacks", 0, reasons=told, unusable=unusable, engines=engines)

    def _welcome(self, message: Message) -> None:
        if self._run is not None or not self._load.ready:
            return
        self._clock.forget()
        self._run = run = WorkerRun(message, self._options.worker_id, partial(self._send_samples, message.epoch))
        try:
            run.begin()
        except Exception as error:
            log.exception("this worker cannot work for a run")
            self._report_worker_died(run, f"it cannot begin: {error}")
            self._leave_run()
            self.stop(ExitCode.INFRASTRUCTURE)
            return
        self._watch_engines(run, message["overhead"])
        if self._run is run:  # not given up meanwhile: what had to be cleaned up takes its time
            self._load.start(load_process_start_fields(self._options, message))

    def _on_dismiss(self, message: Message) -> None:
        if self._run is not None:
            log.warning("dismissed by the master: %s", message["reason"])
            self._leave_run()
        else:
            log.info("not admitted: %s", message["reason"])
        if message["final"]:
            log.error("refused by the master: %s", message["reason"])
            self.stop(ExitCode.INFRASTRUCTURE)

    def _on_cleanup(self, run: WorkerRun) -> None:
        """Remove what the run left on this host. Results that are still on their way are not disturbed."""
        if run.profile:
            content = self._load.profile()
            if content and self._run is run:
                self._line.send_or_log("profile", run.epoch, content=content)
        if not run.keep:
            self._load.release()
        run.sampling.flush()
        removed, failed = run.sweep()
        # With this the run may end: all else has been said.
        self._line.send_or_log("swept", run.epoch, removed=removed, failed=failed[:100])

    def _leave_run(self, *, discard: bool = False) -> None:
        """Drop the run: its load process ends and a fresh one gets ready for the next."""
        run, self._run = self._run, None
        self._clock.forget()
        self._load.end()
        self._wake_up.set()
        if run is None:
            return
        try:
            if discard:
                run.discard()
        finally:
            run.end()
            self._preflight.close()

    # -- the load process ---------------------------------------------------------------------------------------

    def _check_load_process(self) -> None:
        reason = self._load.look()
        if reason is None:
            return
        run, self._run = self._run, None
        self._load.end()
        if run is not None:
            self._report_worker_died(run, f"its load process {reason}")
            run.discard()
            run.end()
            self._wake_up.set()
        elif self._load.cannot_start:
            log.error("the load process does not start; see the messages above")
            self.stop(ExitCode.INFRASTRUCTURE)

    def _on_load_process_message(self, message: dict[str, Any]) -> None:
        if message.get("ready"):
            self._wake_up.set()
        status, run = message.get("status"), self._run
        if status is not None:
            self._running = status["running"]
        if run is None:
            return  # waiting for a master, for days perhaps: nobody wants to know
        if status is not None and "time_ns" in status:
            run.sampling.add("loop", {name: status[name] for name in LOOP_SAMPLE_UNITS}, LOOP_SAMPLE_UNITS)
        if "packed" in message:
            packed = message["packed"]
            self._line.send_or_log("packed", run.epoch, **{**packed, "reason": packed["reason"][:MAX_REASON_CHARS]})
        if "progress" in message:
            self._line.send_or_log("progress", run.epoch, text=message["progress"])
        for name in ("want", "served"):
            if name in message:
                self._line.send_or_log(name, run.epoch, **message[name])

    # -- samples ------------------------------------------------------------------------------------------------

    def _send_samples(
        self, epoch: int, source: str, columns: dict[str, list[int | float]], units: dict[str, str]
    ) -> None:
        self._line.send_or_log("samples", epoch, source=source, columns=columns, units=units)

    def _watch_engines(self, run: WorkerRun, overhead: dict[str, Any]) -> None:
        """Watch the engines that the master wants watched: from now on, before any container of the run is there."""

        def complain(text: str) -> None:
            self._line.send_or_log("remark", run.epoch, text=text[:MAX_REASON_CHARS])

        engines = overhead.get("engines")
        if isinstance(engines, dict) and engines:
            samplers = engine_samplers(engines, daemon_processes, complain)
            run.sampling.start_sampling(samplers, float(overhead["interval_s"]))
