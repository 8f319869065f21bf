"""Runs the operations of a job's script on one engine: the only place that maps operations to engine methods.

It fetches and parses a guest's raw output after its step and outside of its stamps. It reads the progress of a
workload from the engine's output so far, no more often than the workload reports, without touching the step. A
separate greenlet reads each stream of container statistics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from time import monotonic_ns
from typing import Any, Final, NamedTuple

import gevent
from gevent import sleep as gevent_sleep
from gevent.event import AsyncResult
from gevent.lock import BoundedSemaphore
from msgspec.structs import replace

from bench_common.errors import ParseError, WeighbridgeError
from bench_common.job_rules import CLEANUP_S, rules_of
from bench_common.lifecycle import COMMIT_BYTES, STATS_READINGS
from bench_common.long_output import OUTPUT_GAP, OUTPUT_LIMIT_BYTES, keep_ends
from bench_common.records import JobReport
from bench_common.safe_text import shorten
from bench_common.treatment import CONTAINER_PATH, ContainerSettings, MetricSource, Operation, Treatment
from bench_worker.engines.base import Container, Engine, OperationFailed, OperationResult
from bench_worker.host.page_cache import drop_page_cache
from bench_worker.job import Failure, Script
from bench_workloads.base import Workload
from bench_workloads.metric_sources import compile_patterns, read_metrics
from bench_workloads.script import (
    IDLE_COMMAND,
    fill_placeholders,
    job_script,
    native_argv,
    operation_limit_s,
)

MIN_INTERVAL_S: Final = 1.0
"""Shortest interval of progress reports, in seconds: nobody reads faster."""

OUTPUT_TIMEOUT_S: Final = 20.0
"""How long an engine may take to return the output so far, in seconds."""

MAX_PROGRESS_CHARS: Final = 300
"""Longest progress text, in characters."""
MAX_LINE_CHARS: Final = 500
"""How much of one line of a tool's output an error quotes, in characters."""
_ERROR_WORDS: Final = re.compile(
    r"fatal|error|panic|denied|can(?:no|')t\b|unable|failed|no such|not found|not permitted|no space", re.IGNORECASE
)
"""What a line that tells of an error is likely to say."""


class StepProgress:
    """Follows a workload's steps every `every_s` seconds; `on_progress` gets each text, ``""`` when a step ends."""

    def __init__(
        self, engine: Engine, workload: Workload, every_s: float, on_progress: Callable[[str], None]
    ) -> None:
        self._engine = engine
        self._workload = workload
        self._every_s = max(MIN_INTERVAL_S, every_s)
        self._on_progress = on_progress

    @contextmanager
    def follow(self, container: Container, step: str) -> Iterator[None]:
        """Report the progress of `step` in `container` while the context lasts."""
        active = True

        def report(text: str) -> None:
            # A greenlet that was killed may run once more before it ends.
            if active:
                self._on_progress(text)

        greenlet = gevent.spawn(self._follow, container, step, report)
        try:
            yield
        finally:
            active = False
            greenlet.kill(block=False)
            self._on_progress("")

    def _follow(self, container: Container, step: str, report: Callable[[str], None]) -> None:
        reported = ""
        while True:
            gevent.sleep(self._every_s)
            try:
                printed = self._engine.read_output(container, timeout_s=OUTPUT_TIMEOUT_S)
            except OperationFailed:
                return  # the step has ended, or this engine cannot return its output
            text = self._workload.progress(printed.decode("utf-8", "replace"))
            if text and text != reported:
                reported = text
                report(shorten(f"{step}: {text}", MAX_PROGRESS_CHARS))


PREPARATION_NOTICE_S: Final = 1.0
"""A preparation that lasts longer is reported, in seconds: most are over by then, and cost no message."""


class PreparationProgress:
    """Reports what is prepared for jobs, the latest of what is under way; ``""`` when nothing is."""

    def __init__(self, report: Callable[[str], None] | None) -> None:
        self._report = report
        self._under_way: list[str] = []

    @contextmanager
    def during(self, text: str) -> Iterator[None]:
        """Report `text` if what is done in the context takes long."""
        if self._report is None:
            yield
            return
        timer = gevent.spawn_later(PREPARATION_NOTICE_S, self._begin, text)
        try:
            yield
        finally:
            timer.kill(block=False)
            if text in self._under_way:
                self._under_way.remove(text)
                self._report(self._under_way[-1] if self._under_way else "")

    def _begin(self, text: str) -> None:
        assert self._report is not None
        self._under_way.append(text)
        self._report(text[:MAX_PROGRESS_CHARS])


CONTAINER_GONE: Final = frozenset({"not-found", "conflict"})
"""Failures of a stream that only mean that its container was removed, or is being removed."""


class StatsStream:
    """Reads a stream of statistics until `end`. It ends by itself when its container no longer exists."""

    def __init__(self, readings: Iterator[OperationResult]) -> None:
        self._readings = readings
        self._first: AsyncResult[OperationResult] = AsyncResult()
        self._count = 0
        self._failure: OperationFailed | None = None
        self._reader = gevent.spawn(self._read)

    def first(self, timeout_s: float) -> OperationResult:
        """Wait for the first reading and return it; raise `OperationFailed` if there is none within `timeout_s`."""
        start_ns = monotonic_ns()
        try:
            done = self._first.get(timeout=timeout_s)
        except gevent.Timeout:
            text = f"no reading within {timeout_s:g} s"
            raise OperationFailed("timeout", text, start_ns=start_ns, end_ns=monotonic_ns()) from None
        assert done is not None
        return done

    def end(self) -> tuple[int, OperationFailed | None]:
        """End the stream; return the number of readings, and the error that ended it early, if any."""
        self._reader.kill()
        return self._count, self._failure

    def _read(self) -> None:
        try:
            for done in self._readings:
                self._count += 1
                if self._count == 1:
                    self._first.set(done)
            if not self._count:
                now = monotonic_ns()
                raise OperationFailed("engine", "the stream ended at once", start_ns=now, end_ns=now)
        except OperationFailed as failure:
            if not self._count:
                self._first.set_exception(failure)
            elif failure.kind not in CONTAINER_GONE:
                self._failure = failure
        except Exception as error:  # noqa: BLE001  a fault of the engine, which the job reports
            now = monotonic_ns()
            text = f"{type(error).__name__}: {error}"
            self._failure = OperationFailed("internal", text, start_ns=now, end_ns=now)
            self._first.set_exception(self._failure)


FAILED_OUTPUT_BYTES: Final = 64 << 10
"""How much of each stream of a failed command of a life-cycle job is kept: there may be very many of them."""

MAX_MESSAGE_CHARS: Final = 2000
"""How much of the message of an engine or tool an error keeps, in characters."""

ENDED_BY_SIGNAL: Final = (130, 137, 143, -2, -9, -15)
"""Exit codes of a command that a signal ended: no failure once the script has stopped or killed the container."""

NOT_FOUND: Final = 127
"""The exit code of shells and runtimes for a command that does not exist (POSIX 2.8.2)."""

INTERRUPTIBLE: Final = ("exec", "logs", "sleep", "stats", "stop", "wait")
"""The operations during which a job can be aborted at once."""

STATS_GRACE_S: Final = 1.0
"""How much longer than its limit an engine may take to report that there is no reading, in seconds."""

CONTAINER_ENVIRONMENT: Final = {"PATH": CONTAINER_PATH, "LANG": ""}
"""What a plain process gets that a container is compared with: no locale, and none of the worker's search path."""

NO_OUTPUT: Final = OperationResult(0, 0)

_searching: Final = BoundedSemaphore(1)
"""Held by the job whose output is searched with the user's own expressions."""


class PreparedOperation(NamedTuple):
    """One operation of a script, ready to run."""

    call: Callable[[Container], OperationResult]
    """Runs the operation on a container."""
    waits: bool
    """Whether it only waits, so that an interrupt leaves nothing half created."""
    needs_check: bool
    """Whether to check its result even if the engine reports success."""


class UnusableResult(WeighbridgeError):
    """The engine ran an operation, but its result is not a success: `failure` is the failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class OperationRunner:
    """Runs the operations of one treatment's jobs. `workload` is None for life-cycle jobs.

    The caller runs `steps` one after the other. It passes a result to `check_result` if the step needs a check, or if
    the result has an exit code or an OOM kill.

    With `free` (a no-op run), nothing sleeps or is parsed. `operations` replace the jobs' script. `words` are the
    addresses of the services by their placeholders in commands; a job's container shares the volumes of the
    containers in `shares`. `report_progress` gets the progress of running steps.
    """

    def __init__(
        self,
        engine: Engine,
        treatment: Treatment,
        workload: Workload | None,
        *,
        free: bool = False,
        operations: Sequence[Operation] | None = None,
        words: Mapping[str, str] | None = None,
        shares: tuple[str, ...] = (),
        report_progress: Callable[[str], None] | None = None,
    ) -> None:
        self.engine = engine
        self.treatment = treatment
        self.shares = shares
        script = job_script(treatment) if operations is None else operations
        programs = workload.programs if workload is not None and has_no_images(engine) else {}
        self.script = Script([_resolve_command(operation, words or {}, programs) for operation in script])
        self._free = free
        self.swap_off = treatment.swap == "off" and not free
        """Whether swap must be off on the host while a job runs."""
        self._workload = workload
        self.settings = self._settings()
        self._params = rules_of(treatment).params
        steps = workload.steps(self._params) if workload is not None else ()
        self._parsed = frozenset(step.name for step in steps if step.parse)
        kinds = [operation.kind for operation in self.script.operations]
        self._stopped_before = [
            kind == "wait" and not {"stop", "kill"}.isdisjoint(kinds[:at]) for at, kind in enumerate(kinds)
        ]
        self._step_progress = None
        if workload is not None and report_progress is not None and not free:
            every_s = workload.progress_interval_s(self._params)
            if every_s is not None:
                self._step_progress = StepProgress(engine, workload, every_s, report_progress)
        for operation in self.script.operations:
            compile_patterns(operation.metrics)
        limits = [operation_limit_s(operation, treatment) for operation in self.script.operations]
        self._guest_step = [
            bool(operation.metrics or (operation.argv and workload is not None)) and not free
            for operation in self.script.operations
        ]
        self.steps = [
            PreparedOperation(
                self._call(operation, limit_s),
                waits=operation.kind in INTERRUPTIBLE and not free,
                needs_check=guest or (operation.kind == "commit" and not free),
            )
            for operation, limit_s, guest in zip(self.script.operations, limits, self._guest_step, strict=True)
        ]
        if treatment.cold != "none" and not free and operations is None:
            first = self.steps[0]
            self.steps[0] = first._replace(call=self._after_cooling(first.call))
        if treatment.cost and not free and operations is None:
            first = self.steps[0]
            self.steps[0] = first._replace(call=_counting_cost(first.call))
            last = self.steps[-1]
            self.steps[-1] = last._replace(call=self._with_cost(last.call), needs_check=True)
        self.watches = not free and any(
            one.kind == "stats" and one.seconds is not None for one in self.script.operations
        )
        """Whether jobs may leave streams of statistics for `stop_stats_streams` to end."""

    def check_result(self, container: Container, position: int, done: OperationResult, report: JobReport) -> None:
        """Raise `UnusableResult` if the result of the operation at `position` is a failure.

        Add the metrics and the raw output of a guest's successful step to `report`.
        """
        failure = self._find_failure(container, position, done, report)
        if failure is not None:
            raise UnusableResult(failure)
        if container.cost is not None:
            report.metrics = {**(report.metrics or {}), **container.cost}

    def _find_failure(
        self, container: Container, position: int, done: OperationResult, report: JobReport
    ) -> Failure | None:
        operation = self.script.operations[position]
        if self._guest_step[position]:
            return self._check_guest_result(container, operation, done, report)
        if operation.kind == "commit":
            return self._measure_image(container, done, report)
        ended_by_script = self._stopped_before[position] and done.exit_code in ENDED_BY_SIGNAL
        if done.oom_killed or (done.exit_code and not ended_by_script):
            printed = self._printed(container, done) if operation.kind == "wait" else done
            kind, text = _exit_problem(operation, done, printed)
            (stdout, cut_out), (stderr, cut_err) = (
                keep_ends(each, FAILED_OUTPUT_BYTES) for each in (printed.stdout, printed.stderr)
            )
            cut = printed.truncated or cut_out or cut_err
            output = (operation.name, stdout, stderr, done.exit_code or 0, cut)
            outputs = (output,) if stdout or stderr else ()
            ended = operation.kind == "wait"
            return Failure(kind, text, done.start_ns, done.end_ns, operation_ok=ended, outputs=outputs)
        return None

    def _printed(self, container: Container, done: OperationResult) -> OperationResult:
        """Return what the command of a container printed that has failed; nothing where the engine cannot tell."""
        try:
            return self.engine.logs(container, limit_bytes=OUTPUT_LIMIT_BYTES, timeout_s=self.treatment.timeout_s)
        except OperationFailed:
            return done

    def stop_stats_streams(self, container: Container, report: JobReport) -> str | None:
        """End the container's streams of statistics; return why one ended early, if any did."""
        problem = None
        for watch in container.watches:
            count, failure = watch.end()
            report.metrics = {**(report.metrics or {})}
            report.metrics[STATS_READINGS] = report.metrics.get(STATS_READINGS, 0) + count
            if failure is not None:
                problem = shorten(f"the stream of statistics broke off: {failure}", MAX_MESSAGE_CHARS)
        container.watches.clear()
        return problem

    def _measure_image(self, container: Container, done: OperationResult, report: JobReport) -> Failure | None:
        """Read the size of a committed image, outside of the stamps of committing it."""
        try:
            size = self.engine.committed_bytes(container, timeout_s=self.treatment.timeout_s)
        except OperationFailed as failure:
            text = shorten(f"the size of the image could not be read: {failure}", MAX_MESSAGE_CHARS)
            return Failure(failure.kind, text, done.start_ns, done.end_ns, operation_ok=True)
        if size is not None:
            report.metrics = {**(report.metrics or {}), COMMIT_BYTES: float(size)}
        return None

    def clean_up(self, container: Container) -> str | None:
        """Remove the container, if it exists; return the failure, if any."""
        try:
            self.engine.remove(container, timeout_s=CLEANUP_S)
        except OperationFailed as failure:
            return None if failure.kind == "not-found" else shorten(str(failure), MAX_MESSAGE_CHARS)
        finally:
            if container.cost_group is not None:
                container.cost_group.remove()
        return None

    def _settings(self) -> ContainerSettings:
        """Return the container's settings; for a guest, with the command of the container's main process."""
        settings = self.treatment.container
        if has_no_images(self.engine) and self.treatment.plain_environment == "container":
            settings = replace(settings, env={**CONTAINER_ENVIRONMENT, **settings.env})
        if self._workload is None:
            return settings
        own = [step.argv for step in self.script.operations if step.kind == "wait" and step.argv]
        return replace(settings, command=own[0] if own else IDLE_COMMAND)

    def _with_command(
        self, operation: Operation, make: Callable[[Container], OperationResult]
    ) -> Callable[[Container], OperationResult]:
        """Return a call that creates a container with the command of this operation, or with its default command."""
        settings = replace(self.settings, command=operation.argv) if operation.argv else self.settings

        def act(container: Container) -> OperationResult:
            container.settings = settings
            return make(container)

        return act

    def _call(self, operation: Operation, limit_s: float) -> Callable[[Container], OperationResult]:
        """Return a call that runs an operation on a container, with its arguments bound."""
        # Closures instead of `partial`: a call costs a third less.
        engine, kind = self.engine, operation.kind
        fresh = operation.fresh or self.treatment.drops_image
        verb = partial(engine.pull, fresh=fresh) if kind == "pull" else getattr(engine, kind, None)
        match kind:
            case "create" | "run":
                make = _with_timeout(verb, limit_s)
                if any(other.argv for other in self.script.operations if other.kind in ("create", "run")):
                    return self._with_command(operation, make)
                return make
            case "exec":
                return self._with_progress(
                    operation, lambda container: engine.exec(container, operation.argv, timeout_s=limit_s)
                )
            case "wait":
                return self._with_progress(operation, _with_timeout(verb, limit_s))
            case "kill":
                signal = operation.signal or "SIGKILL"
                return lambda container: engine.kill(container, signal, timeout_s=limit_s)
            case "stop":
                grace_s = 10.0 if operation.seconds is None else operation.seconds
                return lambda container: engine.stop(container, grace_s=grace_s, timeout_s=limit_s)
            case "stats" if operation.seconds is not None and not self._free:
                return partial(self._watch, operation.seconds, limit_s)
            case "logs":
                return lambda container: engine.logs(container, limit_bytes=OUTPUT_LIMIT_BYTES, timeout_s=limit_s)
            case "sleep" | "hold":
                return _skip_sleep if self._free else partial(_sleep, operation.seconds or 0.0)
        return _with_timeout(verb, limit_s)

    def _after_cooling(self, call: Callable[[Container], OperationResult]) -> Callable[[Container], OperationResult]:
        """Return the first operation of a job, with what makes it a cold start before it, outside of its stamps."""
        engine, treatment = self.engine, self.treatment
        # A job that pulls fetches the image itself.
        fetches = treatment.drops_image and not treatment.pulls_image

        def act(container: Container) -> OperationResult:
            if fetches:
                engine.pull(container, fresh=True, timeout_s=treatment.timeout_s)
            if treatment.drops_page_cache:
                drop_page_cache()
            return call(container)

        return act

    def _with_cost(self, call: Callable[[Container], OperationResult]) -> Callable[[Container], OperationResult]:
        """Return the last operation of a job, which also tells the job's cost, outside of its stamps."""
        engine = self.engine

        def act(container: Container) -> OperationResult:
            meter = engine.cost_meter(container)
            done = call(container)
            container.cost = meter()
            return done

        return act

    def _watch(self, interval_s: float, limit_s: float, container: Container) -> OperationResult:
        """Start a stream of a container's statistics, which lasts until its job ends; return the first reading."""
        watch = StatsStream(self.engine.watch(container, interval_s=interval_s, timeout_s=limit_s))
        container.watches.append(watch)
        # Engines have their own deadline; one that misses it must not block the slot.
        return watch.first(limit_s + STATS_GRACE_S)

    def _with_progress(
        self, operation: Operation, call: Callable[[Container], OperationResult]
    ) -> Callable[[Container], OperationResult]:
        """Return `call`, wrapped to report the progress of its step if the workload has progress."""
        follower = self._step_progress
        if follower is None:
            return call

        def act(container: Container) -> OperationResult:
            with follower.follow(container, operation.name):
                return call(container)

        return act

    def _check_guest_result(
        self, container: Container, operation: Operation, done: OperationResult, report: JobReport
    ) -> Failure | None:
        """Fetch and parse the output of a step; return the failure, if it is one."""
        stamps = (done.start_ns, done.end_ns)
        printed = done
        if operation.kind == "wait":
            try:
                printed = self.engine.logs(
                    container, limit_bytes=OUTPUT_LIMIT_BYTES, timeout_s=self.treatment.timeout_s
                )
            except OperationFailed as failure:
                if not done.exit_code:
                    return Failure("output", f"its output could not be read: {failure}", *stamps, operation_ok=True)
                printed = NO_OUTPUT
        code = done.exit_code or 0
        output = (operation.name, printed.stdout, printed.stderr, code, printed.truncated)
        if code or done.oom_killed:
            kind, text = _exit_problem(operation, done, printed)
            # For a workload's own fixed command, 127 means that the shell did not find the tool.
            kind = "command-not-found" if code == NOT_FOUND and kind == "exit-code" else kind
            return Failure(kind, text, *stamps, outputs=(output,))
        if not operation.metrics and (operation.name not in self._parsed or self._workload is None):
            report.outputs = [*(report.outputs or ()), output]
            return None
        if printed.truncated and OUTPUT_GAP.encode() not in printed.stdout + printed.stderr:
            text = "not all of its output could be read"
            return Failure("parse-error", text, *stamps, operation_ok=True, outputs=(output,))
        try:
            metrics = self._read_metrics(operation, printed, done)
        except ParseError as error:
            line = "" if operation.metrics else _error_line(printed)
            text = f"{error} (the tool printed: {line})" if line else str(error)
            return Failure(
                "parse-error", shorten(text, MAX_MESSAGE_CHARS), *stamps, operation_ok=True, outputs=(output,)
            )
        report.outputs = [*(report.outputs or ()), output]
        report.metrics = {**(report.metrics or {}), **metrics}
        return None

    def _read_metrics(
        self, operation: Operation, printed: OperationResult, done: OperationResult
    ) -> dict[str, float]:
        """Return the metrics in a step's output, and those that the kernel counted; raise `ParseError`."""
        counted = [one for one in operation.metrics if one.usage]
        if counted:
            found = self._usage(counted, done)
            rest = tuple(one for one in operation.metrics if not one.usage)
            return found | self._read_metrics(replace(operation, metrics=rest), printed, done) if rest else found
        if operation.metrics:
            # An expression of the user's can take its whole time limit: it must stop neither the other jobs nor,
            # with several at a time, whatever else needs a native thread.
            with _searching:
                read: dict[str, float] = gevent.get_hub().threadpool.apply(
                    read_metrics, (operation.metrics, printed.stdout, printed.stderr)
                )
            return read
        assert self._workload is not None
        parsed = self._workload.parse(printed.stdout.decode("utf-8", "replace"))
        # A number that no message can carry would block every later result.
        metrics = {name: float(value) for name, value in parsed.items()}
        self._workload.verify(self._params, metrics)
        return metrics

    def _usage(self, counted: Sequence[MetricSource], done: OperationResult) -> dict[str, float]:
        """Return the CPU time of an ended command, in seconds; raise `ParseError` where nobody knows it."""
        if done.cpu_s is None:
            name = self.engine.name
            text = f"metric {counted[0].name}: {name} does not tell the CPU time of a command; the engine native does"
            raise ParseError(text)
        user_s, system_s = done.cpu_s
        values = {"user": user_s, "system": system_s, "cpu": user_s + system_s}
        return {one.name: values[one.usage] for one in counted if one.usage}


def _with_timeout(verb: Any, limit_s: float) -> Callable[[Container], OperationResult]:
    def act(container: Container) -> OperationResult:
        done: OperationResult = verb(container, timeout_s=limit_s)
        return done

    return act


def _counting_cost(call: Callable[[Container], OperationResult]) -> Callable[[Container], OperationResult]:
    """Return the first operation of a job that tells its cost."""

    def act(container: Container) -> OperationResult:
        container.counts_cost = True
        return call(container)

    return act


def _sleep(seconds: float, _container: Container) -> OperationResult:
    start = monotonic_ns()
    gevent_sleep(seconds)
    return OperationResult(start, monotonic_ns())


def _skip_sleep(_container: Container) -> OperationResult:
    start = monotonic_ns()
    return OperationResult(start, monotonic_ns())


def has_no_images(engine: Engine) -> bool:
    """Return whether programs come from the host because the engine has no images."""
    return "image" in engine.inapplicable


def _resolve_command(operation: Operation, words: Mapping[str, str], programs: Mapping[str, str]) -> Operation:
    """Return an operation with the placeholders and programs of its command resolved for this host."""
    if not operation.argv or not (words or programs):
        return operation
    return replace(operation, argv=native_argv(fill_placeholders(operation.argv, words), programs))


def _exit_problem(operation: Operation, done: OperationResult, printed: OperationResult) -> tuple[str, str]:
    line = _error_line(printed)
    if done.oom_killed:
        return "oom-killed", f"{operation.name}: killed by the OOM killer (memory limit)" + (
            f": {line}" if line else ""
        )
    command = f" of {operation.argv[0]!r}" if operation.argv else ""
    return "exit-code", f"{operation.name}: exit code {done.exit_code}{command}" + (f": {line}" if line else "")


def _error_line(printed: OperationResult) -> str:
    """Return what most likely names the error: the first line that looks like one, and the last one.

    Lines on stderr come before those on stdout, where many tools print only a greeting.
    """
    errors, output = (
        [line.strip() for line in stream.decode("utf-8", "replace").splitlines() if line.strip()]
        for stream in (printed.stderr, printed.stdout)
    )
    matches = [line for line in (*errors, *output) if _ERROR_WORDS.search(line)]
    found = dict.fromkeys([*matches[:1], *(errors or output)[-1:]])
    return " / ".join(shorten(line, MAX_LINE_CHARS) for line in found)
