"""Turns the frames that reach a master's sockets into checked messages, and counts what each connection sends.

The head of a frame says whether the rest is unpacked: its type, the size of that type, and the epoch of a worker that
takes part. What is not a message of the protocol is counted and dropped.
"""

from __future__ import annotations

import logging
from collections import Counter
from time import monotonic_ns
from typing import Final, Literal, Protocol, TypeAlias

import zmq

from bench_common.channel import Frames
from bench_common.errors import ProtocolError
from bench_common.fields import Lane, Message
from bench_common.messages import (
    FROM_WORKER,
    RESULTS,
    Heartbeat,
    Hello,
    PreflightResult,
    Results,
    ResultsPart,
    WorkerControlMessage,
)
from bench_master.run.connections import Traffic

log = logging.getLogger(__name__)

EpochState: TypeAlias = Literal["current", "ended", "unknown"]


class Receiver(Protocol):
    """Gets the messages of a master's sockets. It is called in the loop, so it must not block."""

    def epoch_state(self, epoch: int) -> EpochState:
        """Return whether an epoch is that of a worker that takes part, or was."""

    def on_broken(self, peer: bytes | None, identity: str | None, epoch: int, reason: str) -> None:
        """Note that a message in an epoch, or a hello (0), breaks the protocol; `peer` is None for results."""

    def on_control(self, peer: bytes, identity: str | None, message: WorkerControlMessage, received_ns: int) -> None:
        """Take a control message; raise `ProtocolError` on one that breaks the protocol."""

    def on_results(self, identity: str | None, message: Results) -> None:
        """Take a batch of results; raise `ProtocolError` on one that breaks the protocol."""


SRCFD: Final = int(zmq.SRCFD)
CURVE_BYTES: Final = 33
"""What CURVE adds to a frame (RFC 26): a command name, a nonce, a MAC, flags."""


class ResultsAssembly:
    """Joins the parts of results by epoch, each batch after the other. What is not complete is at most one batch."""

    def __init__(self) -> None:
        self._parts: dict[int, list[ResultsPart]] = {}

    def add(self, part: ResultsPart) -> Results | None:
        """Take the next part; return the results if it was the last. Raises `ProtocolError` on what they are not.

        Parts whose first ones were lost with a connection are dropped: the worker sends the batch again.
        """
        held = self._parts.setdefault(part.epoch, [])
        if part.part == 0:
            held.clear()
        if part.part != len(held) or (held and (held[0].sequence, held[0].parts) != (part.sequence, part.parts)):
            held.clear()
            return None
        held.append(part)
        if len(held) < part.parts:
            return None
        del self._parts[part.epoch]
        message = RESULTS.decode(b"".join([one.content for one in held]))
        if not isinstance(message, Results) or (message.epoch, message.sequence) != (part.epoch, part.sequence):
            raise ProtocolError("parts of results that are those of something else")
        return message

    def forget(self, epoch: int) -> None:
        """Drop the parts of an epoch."""
        self._parts.pop(epoch, None)


class Incoming:
    """Hands the messages of a master's sockets to its receiver; counts those that are `dropped`, by where and why.

    With `keyed` each frame must prove its sender, with `tokens` results that arrive by TCP must prove their epoch.
    """

    def __init__(
        self,
        receiver: Receiver,
        dropped: Counter[str],
        *,
        keyed: bool,
        tokens: bool = False,
    ) -> None:
        self._dropped = dropped
        self.traffic: dict[Lane, Traffic] = {lane: Traffic() for lane in ("control", "results", "work")}
        self._receiver = receiver
        self._keyed = keyed
        self._tokens = tokens
        self._overhead = CURVE_BYTES if keyed else 0
        self._assembly = ResultsAssembly()

    def _account(self, lane: Lane, frame: zmq.Frame) -> int | None:
        """Note that a frame was read; return its connection, or None if that was cut off."""
        try:
            fd: int = frame.get(SRCFD)
        except zmq.ZMQError:  # a frame of a test has no connection
            fd = -1
        size = len(frame) + self._overhead
        traffic = self.traffic[lane]
        traffic.consumed[fd] = traffic.consumed.get(fd, 0) + size + (2 if size < 256 else 9)  # noqa: PLR2004  RFC 23
        return None if fd in traffic.cut else fd

    def on_control_frames(self, batch: list[Frames]) -> None:
        """Handle messages of the control socket."""
        now_ns = monotonic_ns()
        for frames in batch:
            identity = None
            frame = frames[-1]
            fd = self._account("control", frame)
            if fd is None:
                self._dropped["cut off"] += 1
                continue
            try:
                if len(frames) != 2:  # noqa: PLR2004  the peer's address and one frame
                    raise ProtocolError(f"{len(frames)} frames on the control socket")
                identity = self._identity(frame)
                self._take_control(frames[0].bytes, identity, frame.bytes, fd, now_ns)
            except ProtocolError as error:
                drop(self._dropped, "control", str(error), identity)
            except Exception as error:  # noqa: BLE001  the boundary: what breaks our code must not end the listener
                drop(self._dropped, "control: internal error", str(error), identity, error)

    def _take_control(self, peer: bytes, identity: str | None, content: bytes, fd: int, now_ns: int) -> None:
        kind, epoch = FROM_WORKER.peek(content)
        try:
            if not _is_heard(kind, epoch, self._receiver):
                return
            self._receiver.on_control(peer, identity, FROM_WORKER.decode(content), now_ns)
        except ProtocolError as error:
            if epoch or kind is Hello:
                self._receiver.on_broken(peer, identity, epoch, str(error))
            raise
        if epoch and fd not in self.traffic["control"].workers:
            self._note_worker("control", fd, epoch, identity)

    def on_result_frames(self, batch: list[Frames]) -> None:
        """Handle messages of the results socket."""
        for frames in batch:
            identity = None
            frame = frames[-1]
            fd = self._account("results", frame)
            if fd is None:
                self._dropped["cut off"] += 1
                continue
            try:
                if len(frames) != 1:
                    raise ProtocolError(f"{len(frames)} frames on the results socket")
                identity = self._identity(frame)
                self._take_results(identity, frame, fd)
            except ProtocolError as error:
                drop(self._dropped, "results", str(error), identity)
            except Exception as error:  # noqa: BLE001  the boundary, as above
                drop(self._dropped, "results: internal error", str(error), identity, error)

    def _take_results(self, identity: str | None, frame: zmq.Frame, fd: int) -> None:
        content = frame.bytes
        _, epoch = RESULTS.peek(content)
        if self._tokens:
            _check_token(frame, epoch)
        state = self._receiver.epoch_state(epoch)
        if state == "unknown":
            return
        try:
            message: Results | ResultsPart | None = RESULTS.decode(content)
            if isinstance(message, ResultsPart):
                message = self._join(message, state)
            if message is not None:
                self._receiver.on_results(identity, message)
        except ProtocolError as error:
            self._receiver.on_broken(None, identity, epoch, str(error))
            raise
        if fd not in self.traffic["results"].workers:
            self._note_worker("results", fd, epoch, identity)

    def _join(self, part: ResultsPart, state: EpochState) -> Results | None:
        if state == "current":
            return self._assembly.add(part)
        self._assembly.forget(part.epoch)
        return None

    def _note_worker(self, lane: Lane, fd: int, epoch: int, identity: str | None) -> None:
        """Note that a connection is that of a worker, if it takes part."""
        if self._receiver.epoch_state(epoch) == "current":
            self.traffic[lane].workers.add(fd)
            if identity is not None:
                self.traffic[lane].names[fd] = f"worker {identity}"

    def _identity(self, frame: zmq.Frame) -> str | None:
        if not self._keyed:
            return None
        try:
            identity = frame.get("User-Id")
        except zmq.ZMQError:  # so zmq says that there is no such property
            identity = None
        if not isinstance(identity, str) or not identity:
            raise ProtocolError("a frame without a proven sender")
        return identity


def _check_token(frame: zmq.Frame, epoch: int) -> None:
    """Raise `ProtocolError` for results in an epoch whose token their connection did not show."""
    try:
        proven = frame.get("User-Id")
    except zmq.ZMQError:
        return  # from the private directory
    if proven != str(epoch):
        raise ProtocolError("results in the epoch of another worker")


def _is_heard(kind: type[Message], epoch: int, receiver: Receiver) -> bool:
    """Return whether a control message of this type and epoch is unpacked at all."""
    if kind in (Hello, PreflightResult):
        if epoch:
            raise ProtocolError("a worker that joins has no epoch")
        return True
    # Whoever sends a heartbeat in an epoch that has ended is told so.
    return kind is Heartbeat or receiver.epoch_state(epoch) == "current"


def drop(
    dropped: Counter[str], where: str, why: str, identity: str | None = None, error: Exception | None = None
) -> None:
    """Count a message that is dropped, and log some of them, with whose key they came: it can be revoked."""
    dropped[where] += 1
    count = dropped[where]
    if count & (count - 1) == 0:  # the 1st, 2nd, 4th, 8th ...: a flood must not fill the log
        whose = f" from worker {identity}" if identity is not None else ""
        log.warning("dropped a message on %s%s (%d so far): %s", where, whose, count, why, exc_info=error)
