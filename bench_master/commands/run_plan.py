"""One run of a plan: its parts are put together here, each with what it needs, and run.

`restore_options` gives a resumed run the options that its stats file keeps.
"""

from __future__ import annotations

import json
import logging
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, fields, replace

from bench_common.argument_types import CONTROL_PORT
from bench_common.clock import clock_id
from bench_common.engine_traits import EngineLabel, engine_labels, engine_traits
from bench_common.errors import UsageError, WeighbridgeError
from bench_common.files import real_path
from bench_common.keys import KeyPair
from bench_common.messages import RunSpec
from bench_common.options import options_of
from bench_common.records import KEEP_RUN_PREFIX
from bench_common.rendezvous import run_claim
from bench_common.secret import Secret
from bench_common.stats.block_types import StoredCertificate, as_stored
from bench_common.stats.reader import StatsFile, StatsWriter
from bench_common.streams import tell
from bench_master.analysis.document import build_document
from bench_master.analysis.early_stopping import take_look
from bench_master.cleanup_command import cleanup_advice
from bench_master.commands.run_signals import install_signal_handlers
from bench_master.coordinator import Coordinator, Policy
from bench_master.coordinator.policy import StoppingRule
from bench_master.formatting import plural
from bench_master.options.run import RunOptions
from bench_master.plan import Plan, host_notes, is_host_ceiling, look_ahead_note
from bench_master.progress import choose_view
from bench_master.progress_message import progress_message
from bench_master.run.dispatcher import Dispatcher
from bench_master.run.endpoints import Endpoints, describe_master
from bench_master.run.harness_watch import HarnessWatch
from bench_master.run.host_programs import check_programs
from bench_master.run.hosts import WorkerHosts
from bench_master.run.journal import Journal, build_header, operation_names
from bench_master.run.live_stats import LiveStats
from bench_master.run.local_workers import LocalWorkers
from bench_master.run.message_handler import MessageHandler, RunParts
from bench_master.run.preflight import PreflightCheck
from bench_master.run.profiles import Profiles
from bench_master.run.recorder import Recorder
from bench_master.run.remote_services import ServiceBroker
from bench_master.run.resume_state import ResumeState
from bench_master.run.session import RunResult, Session, SessionOptions
from bench_master.run.sockets import Sockets, load_keys, raise_fd_limit
from bench_master.run.started_workers import StartedWorkers
from bench_master.run_extension import run_extensions, scenario_change
from bench_master.scenario import Scenario
from bench_master.scenario.dialects import load_scenario_or_definition
from bench_master.scenario.load import caveats, parse_scenario
from bench_master.scenario.model import is_again
from bench_master.scenario.yaml_tree import Source
from bench_master.verdicts.stopping import Look
from bench_workloads.script import job_limit_s

if TYPE_CHECKING:
    from bench_master.coordinator.messages import RunStatus
    from bench_master.run.resume import ResumableRun
    from bench_master.run_extension import RunObserver

log = logging.getLogger(__name__)


class PlanRunner:
    """Runs a plan under a policy, and saves it in `stats`.

    `slots` are those of each local worker, `started` the workers that a feature started. `past` is the run that
    this one resumes, in its own stats file. `observers` watch the run while it goes on.
    """

    def __init__(
        self,
        scenario: Scenario,
        plan: Plan,
        policy: Policy,
        options: RunOptions,
        *,
        slots: int,
        stats: Path,
        started: StartedWorkers,
        past: ResumableRun | None = None,
        observers: Sequence[RunObserver] = (),
    ) -> None:
        self._scenario = scenario
        self._plan = plan
        # A no-op run measures the harness, not a host.
        self._policy = replace(policy, speed_probe=scenario.speed_probe and not options.load.noop)
        self._options = options
        self._slots = slots
        self._stats = stats
        self._started = started
        self._resumed_run = past
        self._observers = observers
        self._run_id = (KEEP_RUN_PREFIX if options.load.keep else "") + secrets.token_hex(6)
        stored = [as_stored(one) for one in plan.treatments if one.job.population is not None]
        self._policy = replace(self._policy, cleanup_advice=cleanup_advice(self._run_label, stored))

    @property
    def _run_label(self) -> str:
        """What the workers know the run by."""
        return self._run_id if self._resumed_run is None else self._resumed_run.run_label

    def run(self) -> RunResult:
        """Run it to its end, and return how that was; signals are the session's from here on.

        The one place where the parts of a run are put together, each with all that it needs.
        """
        raise_fd_limit(self._policy.expected)
        if self._options.local_workers and self._resumed_run is None and not self._options.load.noop:
            check_programs(self._plan.treatments, self._environment())
        options, plan, past = self._options, self._plan, self._resumed_run
        network, noop = options.network, options.load.noop
        state = past.state if past is not None else ResumeState()
        make_live_stats = past.with_completed_trials(self._live_stats) if past is not None else self._live_stats
        bind_ip = _bind_ip(options)
        by_hand = self._workers_by_hand() > 0
        with (
            nullcontext() if past is not None else run_claim(self._run_id),
            Endpoints(bind_ip, network.ports, insecure=network.insecure, joinable=by_hand) as endpoints,
        ):
            only = self._started.names if self._started.names and not options.workers.expect else None
            key, allow_list = load_keys(endpoints, network.key_dir, insecure=network.insecure, only=only)
            local_workers = self._local_workers(endpoints, key)
            sockets = Sockets(endpoints, master_key=key, allow_list=allow_list, local_keys=local_workers.keys)
            hosts = WorkerHosts(clock_id())
            coordinator = self._coordinator(state)
            profiles = Profiles(self._stats) if options.output.profile else None
            dispatcher = Dispatcher(
                plan,
                coordinator.roster,
                hosts,
                sockets,
                local_workers,
                profiles,
                self._run_spec(),
                self._credentials(endpoints),
            )
            recorder = Recorder(
                make_live_stats(None),
                choose_view(options.output.progress, sys.stderr, quiet=options.quiet, color=options.terminal.color),
                hosts,
                dispatcher.take_arrival_times,
                warnings=state.warnings,
                remarks=[*state.remarks, *self._remarks()],
                watch=HarnessWatch(local_workers.pids) if self._is_local and not noop else None,
            )
            parts = RunParts(
                plan=plan,
                noop=noop,
                coordinator=coordinator,
                sockets=sockets,
                hosts=hosts,
                preflight=PreflightCheck(() if noop else plan.treatments, dispatcher.ask, monotonic),
                dispatcher=dispatcher,
                services=ServiceBroker(plan.treatments, coordinator.roster, recorder.remark),
                recorder=recorder,
                local_workers=local_workers,
                profiles=profiles,
            )
            session = Session(
                parts,
                SessionOptions(
                    self._scenario.sampling_interval_s,
                    past.state if past is not None else None,
                    started=self._started,
                    by_hand=self._workers_by_hand(),
                    disk_wait_s=self._policy.disk_wait_s,
                ),
                make_live_stats=make_live_stats,
                open_journal=partial(self._open_journal, hosts),
                judge=self._judge,
                before_end=partial(self._before_end, recorder),
            )
            if profiles is not None:
                profiles.start()
            sockets.open(MessageHandler(parts, session))
            try:
                local_workers.start()
                # The first trial draws from it; workers take longer to start than it takes to load.
                import numpy.random  # noqa: F401

                self._start_observers(parts, session)
                self._print_start_instructions(endpoints)
                install_signal_handlers(session)
                result = session.run()
                if profiles is not None and result.stats is not None:
                    with progress_message("writing the profiles"):
                        result.profiles = profiles.finish()
                return result
            finally:
                sockets.close()

    def _start_observers(self, parts: RunParts, session: Session) -> None:
        if self._observers:
            from bench_master.run.watched_run import watched_run

            run = watched_run(self._scenario.name, parts, session)
            for observer in self._observers:
                observer.start(run)

    def _before_end(self, recorder: Recorder, status: RunStatus, reasons: Sequence[str]) -> None:
        """Do what comes after the measured trials while events can be recorded: traced trials, and observers."""
        if self._scenario.explain and status == "complete" and not self._options.load.noop:
            from bench_master.run.explain import trace_treatments

            treatments = [
                one for one in self._plan.treatments if not (is_again(one.labels) or is_host_ceiling(one.labels))
            ]
            recorder.view.notify(
                f"measured; tracing a few jobs of {plural(len(treatments), 'treatment')} (--explain)"
            )
            elsewhere = self._policy.expected > self._options.local_workers
            for event in trace_treatments(
                treatments, self._options.workers, self._placed_labels(), elsewhere=elsewhere
            ):
                recorder.note(event)
        self._note_ceilings(recorder, status)
        for observer in self._observers:
            observer.finish(status, reasons)

    @property
    def _is_local(self) -> bool:
        """Whether all workers of the run are started by this process on its own host."""
        return self._policy.expected == self._options.local_workers

    def _note_ceilings(self, recorder: Recorder, status: RunStatus) -> None:
        """Record what the harness itself can do here; measure what is within reach of a rate and not known yet.

        The workers have ended by now, so it disturbs nothing.
        """
        if not self._is_local or recorder.journal is None:
            return
        from bench_master.run.ceilings import ceiling_events

        # A no-op run shows a ceiling itself, and who interrupts a run does not want to wait.
        rates = {} if self._options.load.noop or status != "complete" else recorder.live_stats.rates()
        treatments = [one for one in self._plan.treatments if not is_again(one.labels)]
        for event in ceiling_events(treatments, self._policy, rates, recorder.view.notify):
            recorder.note(event)

    def _coordinator(self, state: ResumeState) -> Coordinator:
        plan = self._plan
        # A no-op run has no services that could be on another host.
        treatments = (
            [replace(one, placement={}) for one in plan.treatments] if self._options.load.noop else plan.treatments
        )
        return Coordinator(
            treatments,
            [trial for trial in plan.trials if trial.index not in state.finished_trials],
            replace(self._policy, settle_s=self._scenario.settle_s, stopping=self._stopping(state)),
            job_limit_s=job_limit_s,
            first_epoch=secrets.randbits(31) << 16,
            seed=plan.seed,
            first_job=state.first_job,
            numbers=state.numbers,
            now=monotonic(),
        )

    def _stopping(self, state: ResumeState) -> StoppingRule | None:
        """Return how the run goes on until its verdicts are settled; None for a fixed number of rounds."""
        rule = self._scenario.until_verdict
        if rule is None:
            return None
        return StoppingRule(
            at_most=rule.at_most,
            budget_s=rule.budget_s,
            spent_s=state.previous_parts_ns / 1e9,
            last=state.last_look,
            warmup=max(self._scenario.warmup),
            treatments=len(self._scenario.treatments),
            settled=frozenset(state.settled),
        )

    def _judge(self, stats: Path, rounds: int) -> Look | str:
        """Judge the comparisons by a stats file that is being written, as its report would; or return why not."""
        try:
            file = StatsFile(stats)
            verdicts = build_document(file, options=replace(self._options.verdicts, look=rounds)).verdicts
            return take_look(verdicts, file.header, rounds)
        except WeighbridgeError as error:
            return str(error)
        except Exception as error:
            # The run is worth more than a look: it goes on to its last round.
            log.exception("a look failed")
            return f"{type(error).__name__}: {error}"

    def _certificates(self, hosts: WorkerHosts) -> list[StoredCertificate]:
        """Return what is known of the hosts from runs of equal treatments; a no-op run does not run on them."""
        if self._options.load.noop:
            return []
        fingerprints = {host.name: host.info.get("fingerprint", {}) for _, host in hosts}
        return [one for extension in run_extensions().values() for one in extension.certificates(fingerprints)]

    def _credentials(self, endpoints: Endpoints) -> dict[str, Secret]:
        """Return what the command line says of credentials, for workers that this process does not start.

        Raises `UsageError` where others could read it on its way.
        """
        if self._policy.expected <= self._options.local_workers:
            return {}
        encrypted = endpoints.bind_ip is None or endpoints.curve
        found: dict[str, Secret] = {}
        for extension in run_extensions().values():
            found |= extension.credentials(self._options, encrypted=encrypted)
        return found

    def _run_spec(self) -> RunSpec:
        load = self._options.load
        timeouts = self._options.timeouts
        # A no-op run has no engine that could be watched.
        overhead = None if load.noop else self._scenario.overhead
        engines = sorted({one.job.cost_name(one.engine) for one in self._plan.treatments})
        return RunSpec(
            run_id=self._run_label,
            master=describe_master(),
            noop=load.noop,
            heartbeat_s=timeouts.heartbeat_interval_s,
            lease_s=timeouts.lease_s,
            keep=load.keep,
            profile=self._options.output.profile,
            sampling_s=self._scenario.sampling_interval_s,
            overhead=overhead.worker_settings(engines) if overhead is not None else None,
        )

    def _remarks(self) -> list[str]:
        off = "look-ahead is off (--no-look-ahead)"
        note = look_ahead_note(self._plan.treatments) if self._policy.look_ahead else off
        done = [] if self._options.load.noop else host_notes(self._plan.treatments)
        return [*([note] if note else []), *done, *self._scenario.untranslated, *caveats(self._plan.treatments)]

    def _live_stats(self, planned: int | None) -> LiveStats:
        treatments = self._plan.treatments
        return LiveStats(
            [treatment.title for treatment in treatments],
            [operation_names(treatment) for treatment in treatments],
            self._plan.trials,
            scenario=self._scenario.name,
            planned=planned,
            started_ns=monotonic_ns(),
            noop=self._options.load.noop,
            optional=[treatment.index for treatment in treatments if treatment.optional],
            alternatives=[treatment.index for treatment in treatments if treatment.job.does_one_operation],
        )

    def _open_journal(
        self, hosts: WorkerHosts, environments: Sequence[str], trial_jobs: Sequence[int | None], **callbacks: Any
    ) -> Journal:
        argv = ["bench-master", *sys.argv[1:]]
        if self._resumed_run is not None:
            self._resumed_run.check_workers(environments)
            writer, shift_ns = self._resumed_run.writer(argv)
            return Journal(writer, shift_ns=shift_ns, patience_s=self._policy.disk_wait_s, **callbacks)
        self._stats.parent.mkdir(parents=True, exist_ok=True)
        header = build_header(
            self._scenario,
            self._plan,
            run_id=self._run_id,
            argv=argv,
            noop=self._options.load.noop,
            environments=environments,
            options=stored_options(self._options),
            trial_jobs=trial_jobs,
            certificates=self._certificates(hosts),
        )
        writer = StatsWriter(self._stats)
        writer.put("header", header)
        # No job is sent before this: whenever the master is killed, what it was running can be read and resumed.
        writer.sync()
        return Journal(writer, patience_s=self._policy.disk_wait_s, **callbacks)

    def _local_workers(self, endpoints: Endpoints, key: KeyPair | None) -> LocalWorkers:
        workers = self._options.workers
        return LocalWorkers(
            self._options.local_workers,
            control=endpoints.local_control,
            directory=endpoints.directory,
            slots=self._slots,
            environment=self._environment(),
            engines=self._engines(),
            master_public=key.public if key is not None else None,
            verbose=self._options.verbose,
            allow_swapoff=workers.allow_swapoff,
            allow_cold=workers.allow_cold,
            allow_host_settings=workers.allow_host_settings,
            allow_foreign=workers.allow_host_mounts,
            labels=self._placed_labels(),
        )

    def _placed_labels(self) -> list[EngineLabel]:
        """Return the labels of the plan's engines, with their places on this host."""
        used = [label for label in engine_labels() if label.label in self._engines()]
        for label in used:
            if not label.place and self._options.local_workers and not self._options.load.noop:
                raise UsageError(
                    f"engine {label.label!r} has no place for the workers of this host: --engine {label}:PLACE, with "
                    f"the program or address of a {label.kind}"
                )
        return [label for label in used if label.place]

    def _engines(self) -> set[str]:
        """Return the engines of the plan, which not every job has."""
        return {one.engine for one in self._plan.treatments if one.job.uses_engine}

    def _environment(self) -> str:
        """Return the environment of the workers of this machine: the one that is named, or the plan's only one."""
        if self._options.workers.environment:
            return self._options.workers.environment
        named = {treatment.environment for treatment in self._plan.treatments}
        only = named.pop() if len(named) == 1 else None
        return only or "local"

    def _print_start_instructions(self, endpoints: Endpoints) -> None:
        """Print how to start the workers that have to be started by hand, if any."""
        count = self._workers_by_hand()
        if not count or self._options.quiet:
            return
        host = ""
        if endpoints.bind_ip is not None:
            anywhere = endpoints.bind_ip in ("0.0.0.0", "::", "*")  # noqa: S104  compared only
            host = f" --zmq-host {'THIS-HOST' if anywhere else endpoints.bind_ip}"
        port = "" if endpoints.ports.control == CONTROL_PORT else f" --zmq-control-port {endpoints.ports.control}"
        key = " --key FILE" if endpoints.curve else " --insecure" if host else ""
        here = "" if self._options.local_workers else " (to use this machine, give --workers 1 instead)"
        if not host:
            here = " on this machine; for workers on others: --zmq-bind-ip 0.0.0.0, or -i HOSTS.yaml"
        on_host = any(engine_traits(treatment.engine).runs_on_host for treatment in self._plan.treatments)
        native = " --allow-native" if on_host and not self._options.load.noop else ""
        tell(f"waiting for {plural(count, 'worker')}: bench-worker{host}{port}{key}{native}{here}")

    def _workers_by_hand(self) -> int:
        """Return how many of the expected workers somebody else starts."""
        return self._policy.expected - self._options.local_workers - len(self._started.names)


def _bind_ip(options: RunOptions) -> str | None:
    given = (extension.bind_ip(options) for extension in run_extensions().values())
    return next((address for address in given if address is not None), options.network.bind_ip)


WORKER_OPTIONS: Final = ("local_workers", "expect", "environment")
"""The fields of `WorkerOptions` that a resumed run keeps unless they are given again."""

RERUN_BASELINE: Final = "rerun_baseline"
"""The option that keeps the path of an earlier run, whose treatments are part of the plan."""

STORED_LABELS: Final = "engine_labels"
"""The option that keeps which engine each label is."""

Group = TypeVar("Group", bound=Struct)


def stored_options(options: RunOptions) -> dict[str, Any]:
    """Return the options that the header of the stats file keeps."""
    workers = {name: getattr(options.workers, name) for name in WORKER_OPTIONS}
    workers["local_workers"] = options.local_workers
    earlier = options.rerun_baseline
    rerun = {RERUN_BASELINE: str(real_path(earlier))} if earlier is not None else {}
    # Where they are is for the owner of a worker to say, also when the run goes on.
    labels = {STORED_LABELS: [f"{one.label}={one.kind}" for one in engine_labels()]} if engine_labels() else {}
    kept = asdict(options.load)
    for extension in run_extensions().values():
        kept |= asdict(options.extensions.of(extension.Options)) if extension.keeps_options else {}
    return kept | asdict(options.timeouts) | workers | rerun | labels


def restore_options(options: RunOptions, past: ResumableRun) -> RunOptions:
    """Return the options that the run started with; raise `UsageError` if others are given now."""
    path = past.stats.path
    stored = {**past.header.options, "seed": past.header.seed, "noop": past.header.noop}
    load = _restore_group(options.load, stored, path)
    timeouts = _restore_group(options.timeouts, stored, path)
    if options.set and options.file is None:
        raise UsageError(f"--set {options.set[0]}: {path} continues with its own scenario: leave it out")
    saved = options.output.stats_file
    if saved is not None and real_path(saved) != real_path(path):
        raise UsageError(f"--stats-file {saved}: a resumed run continues in {path}: leave it out")
    extensions = options.extensions
    for extension in run_extensions().values():
        if extension.keeps_options:
            extensions = extensions.replaced(_restore_group(extensions.of(extension.Options), stored, path))
    workers = options.workers
    if workers.local_workers is None and workers.expect is None:
        workers = replace(workers, local_workers=stored.get("local_workers") or 0, expect=stored.get("expect"))
    if workers.environment is None:
        workers = replace(workers, environment=stored.get("environment"))
    earlier = Path(stored[RERUN_BASELINE]) if RERUN_BASELINE in stored else None
    if options.rerun_baseline is not None and (earlier is None or real_path(options.rerun_baseline) != earlier):
        raise UsageError(f"--rerun-baseline: {path} started with another value and continues with it: leave it out")
    definition = replace(options.definition, overhead=load.overhead)
    restored = replace(
        options, load=load, timeouts=timeouts, workers=workers, definition=definition, extensions=extensions
    )
    return replace(restored, rerun_baseline=earlier)


def _restore_group(group: Group, stored: Mapping[str, Any], path: Path) -> Group:
    """Return a group with the values in `stored`; raise `UsageError` for a given value that differs."""
    values: dict[str, Any] = {}
    for field in fields(group):
        value = stored.get(field.name, field.default)
        # A stats file has lists for tuples.
        values[field.name] = value = tuple(value) if isinstance(value, list) else value
        given = getattr(group, field.name)
        # A default that is given is equal to it; one that is not given is the default itself.
        if given is not field.default and given != value:
            options = options_of(field.type)
            flag = options[0].flags[-1] if options else "--only"
            raise UsageError(f"{flag}: {path} started with another value and continues with it: leave it out")
    return replace(group, **values)


def resumed_scenario(options: RunOptions, past: ResumableRun) -> Scenario:
    """Return the given scenario, else the one that the stats file holds, overrides applied."""
    if options.file is not None:
        change = partial(scenario_change, options)
        return load_scenario_or_definition(options.file, options.set, options.definition, change)
    stored = past.header.scenario
    return parse_scenario(Source(str(stored.path), json.dumps(stored.document)), change=scenario_change(options))
