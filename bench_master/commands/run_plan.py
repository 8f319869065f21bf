"""One run of a plan: its endpoints, its session, the workers of this machine and its stats file, put together."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Any

from bench_common.cli import CONTROL_PORT
from bench_common.clock import clock_id
from bench_common.keys import KeyPair
from bench_common.records import KEEP_RUN_PREFIX
from bench_common.startup import limit_malloc_arenas
from bench_common.stats.reader import StatsWriter
from bench_master.commands.fleet_run import bind_ip_for
from bench_master.commands.run_options import parse_timeouts, stored_options
from bench_master.commands.run_signals import install_signal_handlers
from bench_master.coordinator import Policy
from bench_master.formatting import plural
from bench_master.plan import Plan, look_ahead_note
from bench_master.progress.choice import choose_view
from bench_master.run.journal import Journal, build_header, operation_names
from bench_master.run.live_stats import LiveStats
from bench_master.run.local_workers import LocalWorkers
from bench_master.run.profiles import Profiles
from bench_master.run.resume import ResumableRun
from bench_master.run.session import RunResult, Session, SessionOptions
from bench_master.run.sockets import Endpoints, Ports, Sockets, load_keys, raise_fd_limit
from bench_master.scenario import Scenario


class PlanRunner:
    """A plan that is to be run under a policy, and saved in `stats`.

    `slots` are those of each worker of this machine, `crew` the names of the workers of an inventory. `past` is the
    run that this one goes on with, in its own stats file.
    """

    def __init__(
        self,
        scenario: Scenario,
        plan: Plan,
        policy: Policy,
        arguments: argparse.Namespace,
        *,
        slots: int,
        stats: Path,
        crew: frozenset[str],
        past: ResumableRun | None = None,
    ) -> None:
        self._scenario = scenario
        self._plan = plan
        self._policy = policy
        self._arguments = arguments
        self._slots = slots
        self._stats = stats
        self._crew = crew
        self._resumed_run = past
        self._run_id = (KEEP_RUN_PREFIX if arguments.keep else "") + secrets.token_hex(6)

    def run(self) -> RunResult:
        """Run it to its end, and return how that was; signals are the session's from here on."""
        limit_malloc_arenas()
        arguments = self._arguments
        ports = Ports(arguments.zmq_control_port, arguments.zmq_results_port, arguments.zmq_work_port)
        with Endpoints(_bind_ip(arguments), ports, insecure=arguments.insecure, keys=bool(self._crew)) as endpoints:
            key, allow_list = load_keys(endpoints, arguments.key_dir, insecure=arguments.insecure)
            if allow_list is not None and self._crew and not arguments.expect:
                allow_list.only = self._crew
            session = self._session()
            board = Sockets(
                endpoints,
                on_control=session.message_handler.on_control,
                on_result=session.message_handler.on_results,
                master_key=key,
                allow_list=allow_list,
            )
            session.dispatcher.board = board
            if arguments.profile:
                # Before anybody can ask to be admitted: the welcome says whether there are profiles.
                session.dispatcher.profiles = Profiles(self._stats)
                session.dispatcher.profiles.start()
            raise_fd_limit(self._policy.expected)
            board.open()
            try:
                if arguments.workers:
                    session.dispatcher.local_workers = local = self._local_workers(endpoints, key)
                    board.local_keys = local.keys
                    local.start()
                self._print_start_instructions(endpoints)
                install_signal_handlers(session)
                result = session.run()
                if session.dispatcher.profiles is not None and result.stats is not None:
                    result.profiles = session.dispatcher.profiles.finish()
                return result
            finally:
                board.close()

    def _session(self) -> Session:
        arguments, past = self._arguments, self._resumed_run
        timeouts = parse_timeouts(arguments.heartbeat_timeout, arguments.reconnect_timeout, arguments.lease)
        look_ahead = self._policy.look_ahead
        note = look_ahead_note(self._plan.treatments) if look_ahead else "look-ahead is off, as asked for"
        options = SessionOptions(
            run_id=past.run_label if past is not None else self._run_id,
            noop=arguments.noop,
            keep=arguments.keep,
            standing=past.standing if past is not None else None,
            sampling_interval_s=self._scenario.sampling_interval_s,
            first_epoch=secrets.randbits(31) << 16,
            notes=(*((note,) if note else ()), *self._scenario.untranslated),
            overhead=self._scenario.overhead,
            lease_s=timeouts.lease_s,
            heartbeat_s=timeouts.heartbeat_s,
        )
        return Session(
            self._plan,
            self._policy,
            options,
            tally=past.counting(self._tally) if past is not None else self._tally,
            view=choose_view(arguments.progress, sys.stderr, quiet=arguments.quiet),
            open_journal=self._open_journal,
            local_boot_id=clock_id(),
        )

    def _tally(self, planned: int | None) -> LiveStats:
        treatments = self._plan.treatments
        return LiveStats(
            [treatment.title for treatment in treatments],
            [operation_names(treatment) for treatment in treatments],
            self._plan.trials,
            scenario=self._scenario.name,
            planned=planned,
            started_ns=monotonic_ns(),
            noop=self._arguments.noop,
        )

    def _open_journal(self, environments: Sequence[str], **callbacks: Any) -> Journal:
        argv = ["bench-master", *sys.argv[1:]]
        if self._resumed_run is not None:
            self._resumed_run.check_workers(environments)
            writer, shift_ns = self._resumed_run.writer(argv)
            return Journal(writer, shift_ns=shift_ns, **callbacks)
        self._stats.parent.mkdir(parents=True, exist_ok=True)
        header = build_header(
            self._scenario,
            self._plan,
            run_id=self._run_id,
            argv=argv,
            noop=self._arguments.noop,
            environments=environments,
            options=stored_options(self._arguments),
        )
        writer = StatsWriter(self._stats)
        writer.put("header", header)
        return Journal(writer, **callbacks)

    def _local_workers(self, endpoints: Endpoints, key: KeyPair | None) -> LocalWorkers:
        arguments = self._arguments
        return LocalWorkers(
            arguments.workers,
            control=endpoints.local_control,
            directory=endpoints.directory,
            slots=self._slots,
            environment=self._environment(),
            engines={treatment.engine for treatment in self._plan.treatments},
            master_public=key.public if key is not None else None,
            verbose=arguments.verbose,
            allow_swapoff=arguments.allow_swapoff,
        )

    def _environment(self) -> str:
        """Return the environment of the workers of this machine: the one that is named, or the plan's only one."""
        if self._arguments.environment:
            return str(self._arguments.environment)
        named = {treatment.environment for treatment in self._plan.treatments}
        only = named.pop() if len(named) == 1 else None
        return only or "local"

    def _print_start_instructions(self, endpoints: Endpoints) -> None:
        """Say how to start the workers that somebody has to start by hand, where there are to be any."""
        count = self._policy.expected - self._arguments.workers - len(self._crew)
        if not count or self._arguments.quiet:
            return
        host = "THIS-HOST" if endpoints.bind_ip in ("0.0.0.0", "::") else endpoints.bind_ip  # noqa: S104  compared only
        port = "" if endpoints.ports.control == CONTROL_PORT else f" --zmq-control-port {endpoints.ports.control}"
        key = " --key FILE" if endpoints.curve else ""
        here = "" if self._arguments.workers else " (to use this machine, give --workers 1 instead)"
        sys.stderr.write(f"waiting for {plural(count, 'worker')}: bench-worker --zmq-host {host}{port}{key}{here}\n")


def _bind_ip(arguments: argparse.Namespace) -> str | None:
    if arguments.inventory is not None:
        return bind_ip_for(arguments)
    if arguments.zmq_bind_ip:
        return str(arguments.zmq_bind_ip)
    return None if arguments.workers and not arguments.expect else "127.0.0.1"
