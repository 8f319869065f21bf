"""The engines that one run uses on this worker: each is opened once, by the first job that needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gevent.lock import RLock

from bench_common.engine_traits import engine_traits
from bench_common.errors import UsageError
from bench_common.layout import NO_LAYOUT, draw_layout
from bench_common.treatment import Treatment
from bench_worker.engines.base import Engine, EngineOptions
from bench_worker.engines.noop import NoopEngine
from bench_worker.pipe_channel import RunContext


class RunEngines:
    """Opens engines by name with `open_engine(name, options)`; `treatments` are all of the run, by index."""

    def __init__(
        self,
        context: RunContext,
        treatments: Mapping[int, Treatment],
        open_engine: Callable[[str, EngineOptions], Engine],
    ) -> None:
        self._context = context
        self._treatments = treatments
        self._open_engine = open_engine
        self._engines: dict[str, Engine] = {}
        self._layout = NO_LAYOUT
        self.opening = RLock()
        """Held while an engine is opened or a treatment prepared: other jobs wait for it."""

    def define(self, treatment: Treatment) -> None:
        """Let the open engine of a new treatment prepare itself for pulls, if its jobs pull."""
        if treatment.engine in self._engines and treatment.fetches_image:
            self._engines[treatment.engine].prepare_pulls()

    def begin_trial(self, treatment: Treatment, trial: int) -> None:
        """Let the processes of a trial have a layout of their own, if the treatment says so."""
        self._layout = NO_LAYOUT if treatment.layout_seed is None else draw_layout(treatment.layout_seed, trial)
        for engine in self._engines.values():
            engine.layout = self._layout

    def of(self, treatment: Treatment) -> Engine:
        """Return a treatment's engine; wait if a job is opening it.

        Raises `UsageError` for one that this worker does not allow, and what opening it raises.
        """
        with self.opening:
            name = NoopEngine.name if self._context.noop else treatment.engine
            if name not in self._engines:
                self._engines[name] = self._opened(name, treatment)
            return self._engines[name]

    def _opened(self, name: str, treatment: Treatment) -> Engine:
        if engine_traits(name).runs_on_host and not self._context.allow_native:
            raise UsageError(
                f"engine {name} runs programs on this host, which this worker does not allow: "
                "start it with --allow-native"
            )
        options = EngineOptions(
            run_id=self._context.run_id,
            worker_id=self._context.worker_id,
            slots=self._context.slots,
            timeout_s=treatment.timeout_s,
            allow_host_mounts=self._context.allow_host_mounts,
            allow_foreign=self._context.allow_foreign,
        )
        engine = NoopEngine(options) if self._context.noop else self._open_engine(name, options)
        engine.layout = self._layout
        if any(one.engine == name and one.fetches_image for one in self._treatments.values()):
            engine.prepare_pulls()
        return engine

    def release(self) -> None:
        """Remove what the engines keep for further jobs."""
        for engine in self._engines.values():
            engine.release()

    def close(self) -> None:
        """Close the engines."""
        for engine in self._engines.values():
            engine.close()
