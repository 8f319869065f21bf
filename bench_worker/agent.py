"""The agent: speaks for a host, and never runs its load.

It asks a master to be admitted, keeps the heartbeat and the clock comparison, samples the host, and owns the load
process: starts it, passes the welcome on, notices its death at once and tells the master, cleans up after it. A
master that is silent for longer than the lease is gone: what its run left here is removed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, monotonic_ns
from typing import Any, Final

import gevent
import zmq
from gevent.event import Event

from bench_common.channel import Channel, Frames, tune
from bench_common.clock import ClockComparison
from bench_common.errors import ExitCode, InfrastructureError, ProtocolError
from bench_common.loopmeter import LoopMeter
from bench_common.messages import Message, decode, encode
from bench_common.needs import Need
from bench_common.security import secure_client
from bench_worker.agent_options import AgentOptions
from bench_worker.child import LoadChild
from bench_worker.engines.base import Engine
from bench_worker.engines.registry import daemon_side, open_engine
from bench_worker.first_answer import FirstAnswer
from bench_worker.own_address import own_address
from bench_worker.reaper import RunLease, discard_noted
from bench_worker.sampler import UNITS, HostSampler
from bench_worker.stock import Offer, lacking
from bench_worker.watch import Watch

log = logging.getLogger(__name__)

HELLO_S: Final = 0.5
"""How often a worker that has no master asks to be admitted."""
FROZEN_S: Final = 10.0
"""A load process that says nothing for so long is taken for dead."""
LOOP_UNITS: Final = {**LoopMeter.UNITS, "running_mean": "jobs", "waiting_mean": "jobs"}
"""What a load process tells of itself: how busy its loop was, and how many jobs were under way or due."""
SAMPLES_EVERY_S: Final = 2.0
"""How often what was sampled is sent."""
COMPARED_S: Final = 5.0
"""How long a comparison with a master that holds no run is told."""
READY_S: Final = 300.0
"""How long a load process may take to start.

Ended sooner, it would not get further the next time: where an emulated processor is shared with others, it took more
than 90 s for what it imports to be compiled, once. One that cannot start at all ends by itself.
"""
PROFILE_S: Final = 5.0
"""How long a load process may take to hand over its profile."""
RELEASE_S: Final = 20.0
"""How long a load process may take to remove the services that wait for another job; the sweep takes what is left."""


@dataclass(slots=True)
class Run:
    """The run that the agent was admitted to."""

    run_id: str
    number: int
    epoch: int
    heartbeat_s: float
    lease_s: float
    sampling_s: float
    heard_at: float
    lease: RunLease
    keep: bool
    profile: bool


class Agent:
    """One worker's agent. `describe()` gives what the master is told of this host; it is asked once, by `serve`.

    `child` is its first load process, where one was started already; `offer` the engines that `describe` tells of.
    """

    def __init__(
        self,
        options: AgentOptions,
        describe: Callable[[], dict[str, Any]],
        child: LoadChild | None = None,
        offer: Offer | None = None,
    ) -> None:
        self._options = options
        self._describe = describe
        self._offer = offer or Offer(options.engines)
        self._info: dict[str, Any] = {}
        self._context: zmq.Context[Any] = zmq.Context()
        control: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        tune(control)
        if options.key is not None:
            secure_client(control, options.key.keys, options.key.master_public)
        control.connect(options.control)
        self._control = Channel(control, self._on_control)
        self._first_answer = FirstAnswer(options.control)
        self._clock = ClockComparison()
        self._compared_at, self._compared_ns = 0.0, 0
        self._run: Run | None = None
        self._child = child
        if child is not None:
            child.said = self._child_said
        self._child_failures = 0
        self._over = Event()
        self._stirred = Event()
        """Something happened that the main loop has to look at before its time."""
        self._status = ExitCode.OK
        self._inbox: list[Message] = []
        self._arrived = Event()
        self._loop_rows: dict[str, list[float]] = {name: [] for name in LOOP_UNITS}
        self._running = 0
        self._dropped = 0
        # Those of the run, or of the one that is to come: held open, so that clean-up and the load process find them.
        self._engines: dict[str, Engine] = {}

    # -- life ---------------------------------------------------------------------------------------------------

    def serve(self) -> int:
        """Serve masters until told to stop; return the exit code."""
        self._info = self._describe()
        _reap()
        helpers = [gevent.spawn(self._read_inbox), gevent.spawn(self._sample)]
        alone_since = monotonic()
        try:
            while not self._over.is_set():
                if self._run is None:
                    self._look_after_child()
                    if self._child is not None and self._child.ready:
                        self._say_hello()
                        self._first_answer.look()
                    patience_s = self._options.patience_s
                    if patience_s is not None and monotonic() - alone_since > patience_s:
                        log.warning("no master answered at %s for %g s", self._options.control, patience_s)
                        self._end(ExitCode.INFRASTRUCTURE)
                    self._rest(HELLO_S)
                else:
                    alone_since = monotonic()
                    self._beat(self._run)
                    self._look_after_child()
                    if self._run is not None:
                        self._rest(self._run.heartbeat_s)
        finally:
            gevent.killall(helpers)
            self._wind_up()
        return int(self._status)

    def stop(self, status: ExitCode = ExitCode.OK) -> None:
        """End: abort what runs, clean up, leave. Safe to call from a signal handler."""
        self._end(status)

    def _end(self, status: ExitCode) -> None:
        self._status = status
        self._over.set()
        self._stirred.set()

    def _rest(self, most_s: float) -> None:
        self._stirred.wait(most_s)
        self._stirred.clear()

    def _wind_up(self) -> None:
        run, self._run = self._run, None
        if self._child is not None:
            self._child.end()
        if run is not None:
            if self._status is not ExitCode.OK:
                self._send("gone", run.epoch, worker_id=self._options.worker_id, reason="it was told to stop")
            if not run.keep:
                self._discard(run)
            run.lease.release()
        self._close_engines()
        self._control.close(linger_ms=500)
        self._context.term()

    # -- the master ---------------------------------------------------------------------------------------------

    def _introduction(self) -> dict[str, Any]:
        options = self._options
        present: dict[str, Any] = {"load": os.getloadavg()[0]}
        best = self._clock.best_at(self._compared_ns)
        if best is not None and monotonic() - self._compared_at < COMPARED_S:
            present["clock"] = {"offset_ns": best.offset_ns, "bound_ns": best.bound_ns}
        return {
            "worker_id": options.worker_id,
            "environment": options.environment,
            "slots": options.slots,
            "sent_ns": monotonic_ns(),
            "info": {
                **self._info,
                **present,
                "labels": options.labels,
                "allow_host_mounts": options.allow_host_mounts,
                "allow_swapoff": options.allow_swapoff,
            },
        }

    def _say_hello(self) -> None:
        """Ask to be admitted. An introduction that no message can carry stays so: trying again is of no use."""
        try:
            hello = encode("hello", 0, **self._introduction())
        except ProtocolError as error:
            log.error("this worker cannot introduce itself to a master: %s", error)  # noqa: TRY400  no traceback helps
            self._end(ExitCode.INFRASTRUCTURE)
        else:
            self._control.send(hello)

    def _send(self, name: str, epoch: int, **fields: Any) -> None:
        try:
            self._control.send(encode(name, epoch, **fields))
        except ProtocolError:
            log.exception("a message %r could not be made", name)

    def _on_control(self, batch: list[Frames]) -> None:
        now_ns = monotonic_ns()
        self._first_answer.came()
        for frames in batch:
            try:
                message = decode(frames[-1].bytes, sender="master", lane="control")
            except ProtocolError as error:
                self._dropped += 1
                if self._dropped & (self._dropped - 1) == 0:
                    log.warning("a message of the master was dropped (%d so far): %s", self._dropped, error)
                continue
            if message.type == "pulse":
                self._pulse(message, now_ns)
            else:
                # What may take time is done in a greenlet; here we are in the loop itself.
                self._inbox.append(message)
                self._arrived.set()

    def _pulse(self, message: Message, now_ns: int) -> None:
        run = self._run
        if run is not None and message.epoch == run.epoch:
            run.heard_at = monotonic()
        elif run is not None or message.epoch:
            return
        elif monotonic() - self._compared_at > COMPARED_S:
            self._clock = ClockComparison()  # the last comparison may have been with another master
        self._compared_at, self._compared_ns = monotonic(), now_ns
        self._clock.exchange(message["echo_ns"], message["received_ns"], message["sent_ns"], now_ns)

    def _read_inbox(self) -> None:
        while True:
            self._arrived.wait()
            self._arrived.clear()
            messages, self._inbox = self._inbox, []
            for message in messages:
                try:
                    self._obey(message)
                except Exception:  # the agent outlives whatever one message does
                    log.exception("the message %r could not be obeyed", message.type)

    def _obey(self, message: Message) -> None:
        run = self._run
        if message.type == "welcome":
            self._welcome(message)
        elif message.type == "dismiss" and (run is None or message.epoch in (0, run.epoch)):
            self._dismissed(message)
        elif message.type == "ask" and run is None and message.epoch == 0:
            gevent.spawn(self._take_stock, message["needs"], message["engines"])
        elif message.type == "stop" and run is None and message.epoch == 0:
            # A master that holds no run, and tells whoever waits for one to go home.
            self._end(ExitCode.OK)
        elif run is None or message.epoch != run.epoch:
            log.info("a message %r of another epoch was ignored", message.type)
        elif message.type == "sweep":
            self._sweep(run)
        elif message.type == "stop":
            self._leave_run()
            if message["exit"] or self._options.once:
                self._end(ExitCode.OK)

    def _welcome(self, message: Message) -> None:
        child = self._child
        if self._run is not None or child is None or not child.ready:
            return
        self._clock = ClockComparison()
        self._run = run = Run(
            run_id=message["run_id"],
            number=message["number"],
            epoch=message.epoch,
            heartbeat_s=float(message["heartbeat_s"]),
            lease_s=float(message["lease_s"]),
            sampling_s=float(message["sampling_s"]),
            heard_at=monotonic(),
            lease=RunLease(message["run_id"]),
            keep=message["keep"],
            profile=message["profile"],
        )
        try:
            run.lease.acquire()
            if not run.keep:
                # What an earlier life of this worker left in the same run would go on using the host.
                self._discard(run)
        except Exception as error:
            # Without a lease the clean-up of others would take our containers for leftovers.
            log.exception("this worker cannot work for a run")
            self._send(
                "gone", run.epoch, worker_id=self._options.worker_id, reason=f"it cannot begin: {error}"[:1000]
            )
            self._leave_run()
            self._end(ExitCode.INFRASTRUCTURE)
            return
        self._watch(run, message["overhead"])
        if self._run is not run or self._child is not child:
            return  # given up meanwhile: the clean-up takes its time
        key = self._options.key
        child.start(
            {
                "run_id": message["run_id"],
                "worker_id": self._options.worker_id,
                "epoch": message.epoch,
                "slots": self._options.slots,
                "lane": self._reachable(message["lane"]),
                "results": self._reachable(message["results"]),
                "noop": message["noop"],
                "keep": message["keep"],
                "profile": message["profile"],
                "allow_host_mounts": self._options.allow_host_mounts,
                "allow_swapoff": self._options.allow_swapoff,
                "address": own_address(self._options.control, self._options.address),
                "keys": None if key is None else (key.keys.public, key.keys.secret, key.master_public),
            }
        )

    def _take_stock(self, wire: list[Any], named: list[Any]) -> None:
        """Tell the master what containers would lack here; it may take as long as fetching an image does."""
        engines = self._offer.look_again(name for name in named if isinstance(name, str))
        # Those of a master that went away; whatever they were connected to may have changed since.
        self._close_engines()
        try:
            # What cannot be used cannot be asked either: its status says why.
            needs = [need for need in map(Need.from_wire, wire) if engines.get(need.engine, {}).get("usable")]
            reasons, unusable = lacking(needs, self._options.worker_id, open_engine, self._engines)
        except ProtocolError as error:
            reasons, unusable = [f"it does not understand what is needed: {error}"], True
        told = [reason[:1000] for reason in reasons[:100]]
        self._send("lacks", 0, reasons=told, unusable=unusable, engines=engines)

    def _reachable(self, endpoint: str) -> str:
        """Return an endpoint as seen from here: the master names a port, we know under which name we reach it."""
        if not endpoint.startswith("tcp://"):
            return endpoint
        host = self._options.control.removeprefix("tcp://").rpartition(":")[0]
        return f"tcp://{host}:{endpoint.rpartition(':')[2]}"

    def _dismissed(self, message: Message) -> None:
        if self._run is not None:
            log.warning("dismissed by the master: %s", message["reason"])
            self._leave_run()
        else:
            log.info("not admitted: %s", message["reason"])
        if message["final"]:
            log.error("refused by the master: %s", message["reason"])
            self._end(ExitCode.INFRASTRUCTURE)

    def _beat(self, run: Run) -> None:
        if monotonic() - run.heard_at > run.lease_s:
            log.warning("the master has been silent for %g s; its run is given up", run.lease_s)
            self._leave_run(sweep=True)
            if self._options.once:
                self._end(ExitCode.INFRASTRUCTURE)
            return
        now_ns = monotonic_ns()
        best = self._clock.best_at(now_ns)
        self._send(
            "beat",
            run.epoch,
            sent_ns=now_ns,
            running=self._running,
            offset_ns=best.offset_ns if best is not None else 0,
            bound_ns=best.bound_ns if best is not None else -1,
        )

    def _leave_run(self, *, sweep: bool = False) -> None:
        """Drop the run: its load process ends and a fresh one gets ready for the next."""
        run, self._run = self._run, None
        self._clock = ClockComparison()
        child, self._child = self._child, None
        if child is not None:
            child.end()
        if run is None:
            return
        try:
            if sweep and not run.keep:
                self._discard(run)
        finally:
            run.lease.release()
            self._close_engines()

    def _discard(self, run: Run) -> None:
        """Remove what this worker left of the run."""
        discard_noted(run_id=run.run_id, worker_id=self._options.worker_id)

    def _close_engines(self) -> None:
        engines, self._engines = self._engines, {}
        for engine in engines.values():
            engine.close()

    def _sweep(self, run: Run) -> None:
        """Remove what the run left on this host. Results that are still on their way are not disturbed."""
        if run.profile:
            self._send_profile(run)
        if self._child is not None and not run.keep and not self._child.release(RELEASE_S):
            log.warning("the load process did not remove its jobs' services within %g s", RELEASE_S)
        self._send_loop(run)
        removed, failed = (0, []) if run.keep else _swept(run.run_id)
        self._send("swept", run.epoch, removed=removed, failed=failed[:100])

    def _send_profile(self, run: Run) -> None:
        """Send where the load process spent its time: before the `swept` with which the run may end."""
        child = self._child
        content = child.profile(PROFILE_S) if child is not None else None
        if content is None:
            log.warning("the load process gave no profile within %g s", PROFILE_S)
        elif content and self._run is run:
            self._send("profile", run.epoch, content=content)

    # -- the load process ---------------------------------------------------------------------------------------

    def _look_after_child(self) -> None:
        child = self._child
        if child is None:
            self._child = LoadChild(self._options.engines)
            self._child.said = self._child_said
            return
        reason = child.death(frozen_s=FROZEN_S, ready_s=READY_S)
        if reason is None:
            return
        log.warning("the load process %s", reason)
        self._child = None
        run, self._run = self._run, None
        child.end()
        if run is None:
            self._child_failures += 1
            if self._child_failures >= 3:  # noqa: PLR2004  a machine on which it cannot start at all
                log.error("the load process does not start; see the messages above")
                self._end(ExitCode.INFRASTRUCTURE)
            return
        self._send("gone", run.epoch, worker_id=self._options.worker_id, reason=f"its load process {reason}")
        if not run.keep:
            self._discard(run)
        run.lease.release()

    def _child_said(self, message: dict[str, Any]) -> None:
        packed = message.get("packed")
        if packed is not None and self._run is not None:
            self._send("packed", self._run.epoch, **{**packed, "reason": packed["reason"][:1000]})
        if message.get("ready"):
            self._stirred.set()
        if "progress" in message and self._run is not None:
            self._send("progress", self._run.epoch, text=message["progress"])
        for name in ("want", "served"):
            if name in message and self._run is not None:
                self._send(name, self._run.epoch, **message[name])
        status = message.get("status")
        if status is not None:
            self._child_failures = 0
            self._running = status["running"]
            if self._run is None or "time_ns" not in status:
                return  # waiting for a master, for days perhaps, or for its welcome: nobody wants to know
            for name, values in self._loop_rows.items():
                values.append(status[name])

    # -- samples ------------------------------------------------------------------------------------------------

    def _sample(self) -> None:
        """Sample the host at the run's interval, on a schedule that does not drift; send what came together."""
        while True:
            run = self._run
            if run is None:
                gevent.sleep(0.05)
                continue
            try:
                self._sample_run(run)
            except InfrastructureError as error:
                log.error("this host cannot be sampled any more: %s", error)  # noqa: TRY400  it says where
                while self._run is run:
                    gevent.sleep(0.05)

    def _sample_run(self, run: Run) -> None:
        """Sample until the run is over. Raises `InfrastructureError` where the host's /proc is not readable."""
        sampler = HostSampler()
        self._loop_rows = {name: [] for name in self._loop_rows}
        rows: list[dict[str, float]] = []
        begun = sent_at = monotonic()
        count = 0
        while self._run is run:
            count += 1
            gevent.sleep(max(0.0, begun + count * run.sampling_s - monotonic()))
            count = max(count, int((monotonic() - begun) / run.sampling_s))
            rows.append(sampler.sample())
            if monotonic() - sent_at >= min(SAMPLES_EVERY_S, run.sampling_s):
                self._send_samples(run, rows)
                rows, sent_at = [], monotonic()

    def _watch(self, run: Run, overhead: dict[str, Any]) -> None:
        """Watch the engines that the master wants watched: from now on, before any container of the run is there."""

        def send(source: str, columns: dict[str, list[float]], units: dict[str, str]) -> None:
            if self._run is run:
                self._send("samples", run.epoch, source=source, columns=columns, units=units)

        def complain(text: str) -> None:
            self._send("remark", run.epoch, text=text[:1000])

        engines = overhead.get("engines")
        if isinstance(engines, dict) and engines:
            watch = Watch(engines, daemon_side, send=send, complain=complain)
            gevent.spawn(watch.keep_sampling, float(overhead["interval_s"]), lambda: self._run is run)

    def _send_samples(self, run: Run, rows: list[dict[str, float]]) -> None:
        if self._run is not run or not rows:
            return
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        self._send("samples", run.epoch, source="host", columns=columns, units=dict(UNITS))
        self._send_loop(run)

    def _send_loop(self, run: Run) -> None:
        """Send what the load process has told of itself since the last time."""
        loop, self._loop_rows = self._loop_rows, {name: [] for name in self._loop_rows}
        if loop["time_ns"]:
            self._send("samples", run.epoch, source="loop", columns=loop, units=LOOP_UNITS)


def _reap() -> None:
    """Remove what runs that are dead left on this host, before anything of ours is there."""
    for leftover in discard_noted().removed:
        log.warning("removed %s %s, left by run %s", leftover.what, leftover.name, leftover.run_id)


def _swept(run_id: str) -> tuple[int, list[str]]:
    result = discard_noted(run_id=run_id)
    return len(result.removed), [str(problem)[:500] for problem in result.failed]
