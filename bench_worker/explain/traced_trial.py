"""Runs the traced trial of a treatment: a few jobs, one at a time, with the sampler of threads beside them.

It is no part of any measured trial: it runs when those are over, in a process of its own, with the executor that runs
measured jobs, so that the operations are the same.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import struct
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import gevent
import msgspec
from msgspec.structs import replace

from bench_common.errors import InfrastructureError, WeighbridgeError
from bench_common.messages import RESULTS, Results, ResultsPart
from bench_common.records import RESULT_FIELDS, Outcome, job_id_of, result_word_count
from bench_worker.cleanup import clean_up_run
from bench_worker.engines.registry import daemon_processes, open_engine
from bench_worker.explain import thread_sampler
from bench_worker.explain.attribution import Recording, Span, explain
from bench_worker.host.daemons import DaemonSampler
from bench_worker.job_executor import JobExecutor
from bench_worker.leases import RunLease
from bench_worker.outbox import Outbox
from bench_worker.pipe_channel import RunContext
from bench_worker.timing.processes import WaitTimeout, spawn
from bench_workloads.script import job_limit_s, job_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench_common.treatment import Treatment

JOBS: Final = 5
"""Jobs that are traced of each treatment."""
LONGEST_S: Final = 30.0
"""No further job begins after so long."""
INTERVAL_S: Final = 0.001
"""How often the sampler looks at the threads, at most."""
RUNTIMES: Final = ("runc", "crun", "youki", "runsc", "exe", "conmon", "containerd-shim")
"""How the processes are called that a runtime has within the PID namespace of a container."""
_SAMPLER_S: Final = 20.0
"""How long the sampler may take to begin, and to tell what it saw, in seconds."""
_POLL_S: Final = 0.005
_READY: Final = b"ready\n"
_WORKER: Final = "explain"


def unfit_reason(treatment: Treatment) -> str:
    """Return why the jobs of a treatment are not traced; empty where they are."""
    if not treatment.job.uses_engine:
        return "its jobs run without an engine"
    if treatment.placement:
        return "its services run on other hosts"
    if treatment.is_packing:
        return "its jobs fill a host with containers, and wait for each other"
    return ""


class _Sampler:
    """The sampler of threads, as a process that writes to a file in `folder`."""

    def __init__(self, engine: str, folder: Path) -> None:
        side = daemon_processes(engine)
        watch = {
            "worker": os.getpid(),
            # Who has no socket is a child of this process, and others of that name are somebody else's.
            "daemons": sorted(DaemonSampler(replace(side, roots=())).pids) if side else [],
            "shims": sorted(side.shims) if side else [],
            "runtimes": [*RUNTIMES],
            "interval_s": INTERVAL_S,
        }
        self._printed, self._complaints = folder / "threads", folder / "complaints"
        self._process = spawn(
            [sys.executable, "-I", "-S", thread_sampler.__file__, json.dumps(watch)],
            env=os.environ,
            cwd="/",
            stdout_path=str(self._printed),
            stderr_path=str(self._complaints),
        )

    def begin(self) -> None:
        """Wait until it looks; raise `InfrastructureError` where it does not."""
        deadline = monotonic() + _SAMPLER_S
        while not self._printed.read_bytes().startswith(_READY):
            if self._process.exit is not None or monotonic() > deadline:
                raise InfrastructureError(f"the sampler of threads did not begin: {self._why()}")
            gevent.sleep(_POLL_S)

    def recording(self) -> Recording:
        """End it; return what it saw. Raises `InfrastructureError` where it does not tell."""
        self._process.signal_group(signal.SIGTERM)
        try:
            self._process.wait(_SAMPLER_S)
            return msgspec.json.decode(self._printed.read_bytes().removeprefix(_READY), type=Recording)
        except (WaitTimeout, msgspec.MsgspecError) as error:
            raise InfrastructureError(f"the sampler of threads did not tell what it saw: {self._why()}") from error

    def kill(self) -> None:
        """Have it end, whatever it does."""
        self._process.signal_group(signal.SIGKILL)

    def _why(self) -> str:
        lines = self._complaints.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it gave no reason"


class TracedTrial:
    """Traces one treatment; `context` has what this worker allows."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._rows: list[bytes] = []
        self._errors: list[str] = []
        self._outbox = Outbox(1, self._collect)
        self._executor = JobExecutor(context, self._outbox, open_engine)

    def _collect(self, frame: bytes) -> bool:
        message = RESULTS.decode(frame)
        if isinstance(message, ResultsPart):  # of outputs, which nobody reads here
            return True
        assert isinstance(message, Results)
        self._outbox.acknowledge([message.sequence])
        self._rows.append(message.rows)
        self._errors += [f"{one.operation}: {one.message}" for one in message.errors]
        return True

    def trace(self, treatment: Treatment) -> dict[str, Any]:
        """Return where the time of a treatment's operations goes, see `attribution.explain`.

        Raises `InfrastructureError` where a job fails or no sampler runs.
        """
        one_by_one = replace(treatment, concurrency=1, open_load=None, optional=False)
        self._executor.define(one_by_one)
        # The first prepares the treatment, and starts the engine's service where it has one of its own.
        self._run(one_by_one, 0)
        began = monotonic()
        spans: list[Span] = []
        with tempfile.TemporaryDirectory(prefix="weighbridge-threads-") as folder:
            sampler = _Sampler(treatment.engine, Path(folder))
            try:
                sampler.begin()
                for ticket in range(1, JOBS + 1):
                    spans += self._run(one_by_one, ticket)
                    if monotonic() - began > LONGEST_S:
                        break
                recording = sampler.recording()
            finally:
                sampler.kill()
        return {"jobs": len({span.job for span in spans}), **explain(recording, spans)}

    def _run(self, treatment: Treatment, ticket: int) -> list[Span]:
        """Run one job; return its operations."""
        self._rows.clear()
        self._errors.clear()
        self._executor.take(treatment.index, treatment.index, [(ticket, 0, 0)], concurrency=1, batch=1)
        deadline = monotonic() + job_limit_s(treatment)
        while not (self._executor.idle and self._rows):
            if monotonic() > deadline:
                raise InfrastructureError(f"a traced job did not end within {job_limit_s(treatment):g} s")
            gevent.sleep(_POLL_S)
        operations = job_script(treatment)
        row = struct.unpack(f"<{result_word_count(len(operations))}q", b"".join(self._rows))
        if row[1] != Outcome.DONE:
            raise InfrastructureError(f"a traced job failed: {self._errors[0] if self._errors else 'aborted'}")
        stamps = row[len(RESULT_FIELDS) :]
        return [
            Span(job_id_of(row[0]), one.name, start, start + duration)
            for one, start, duration in zip(operations, stamps[::2], stamps[1::2], strict=True)
            if duration >= 0
        ]

    def close(self) -> None:
        """Abort what runs, and remove what the jobs made."""
        self._executor.abort()
        deadline = monotonic() + _SAMPLER_S
        while not self._executor.idle and monotonic() < deadline:
            gevent.sleep(_POLL_S)
        self._executor.close()


def trace_all(treatments: Sequence[Treatment], allowed: partial[RunContext]) -> Iterator[dict[str, Any]]:
    """Yield where the time of each treatment's operations goes, or under ``problem`` why that is unknown.

    `allowed` makes the context of the jobs, with what this worker allows.
    """
    run_id = secrets.token_hex(6)
    context = allowed(run_id=run_id, worker_id=_WORKER, slots=1, noop=False, keep=False)
    with RunLease(run_id):
        try:
            for treatment in treatments:
                yield {"treatment": treatment.index, **_traced(treatment, context)}
        finally:
            clean_up_run(run_id)


def _traced(treatment: Treatment, context: RunContext) -> dict[str, Any]:
    """Return what is found of a treatment, or the ``problem``."""
    if problem := unfit_reason(treatment):
        return {"problem": problem}
    # One for each: the processes of another treatment's engine are closed with it, and not watched.
    trial = TracedTrial(context)
    try:
        return {"problem": "", **trial.trace(treatment)}
    except WeighbridgeError as error:
        return {"problem": str(error)}
    finally:
        trial.close()
