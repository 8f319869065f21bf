"""`bench-master certify`: what this machine can show, by runs of equal treatments against each other."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Annotated, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from bench_common.argument_types import duration, int_range
from bench_common.errors import ExitCode, InfrastructureError, UsageError
from bench_common.host_info import Fact
from bench_common.options import Option
from bench_common.streams import program_name, tell
from bench_features.certify.certificate import (
    DEFAULT_VALID_DAYS,
    Certificate,
    CertifiedRun,
    changed_properties,
    encode,
    kept_file,
    load,
    machine_of,
    save,
)
from bench_features.certify.findings import PROMISED, certify_runs
from bench_features.certify.page import markdown_lines, page_lines
from bench_features.certify.runs import NATIVE, Evidence, RunPlan, make_run, own_plan, plan_of
from bench_master.commands.run_signals import interruptible
from bench_master.formatting import format_span
from bench_master.progress_message import progress_message
from bench_master.terminal import text_output
from bench_master.terminal_options import DEFAULT_TERMINAL, TerminalOptions
from bench_master.verdicts.signed_rank import MIN_ROUNDS
from bench_master.worker_query import query_worker

DEFAULT_ROUNDS: Final = 10
MAX_ROUNDS: Final = 200

EPILOG: Final = """\
Each run has the same jobs twice in each round, in drawn order: whatever it finds between them is false. Together the
runs say how often words are false here, how small a difference a run shows, by measure and number of rounds, what a
place in a round does, and whether the probe of the hosts' speed explains anything.

  bench-master certify                             # five minutes, a short program that computes, as a plain process
  bench-master certify --budget 8h                 # a night: tighter bounds
  bench-master certify --engine docker             # the same program in containers
  bench-master certify -f app.yaml --engine crun   # the treatments of a scenario that have this engine
  bench-master certify --between                   # on another day: adds its runs, so that days are compared, too
  bench-master certify --show                      # the certificate of this machine, and whether it still holds

Run it on a machine as it is when it measures: what disturbs runs belongs in its certificate. The certificate is
kept for this user and machine in $XDG_DATA_HOME/weighbridge/certificates, or below ~/.local/share; a new one replaces
it. It is void when CPUs, memory, kernel, governor, virtualisation or Weighbridge change, or
after --valid days.
Ctrl-C ends the run that is being made; the runs before it are certified.

Exit codes: 0 ok, 1 equal treatments were called different more often than promised, beyond chance, or the shown
certificate is void, 2 usage error, 3 a run is incomplete, 130 interrupted (what was done is kept).
"""


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `certify`."""

    budget_s: Annotated[
        float,
        Option(
            "--budget TIME", "how long to make runs, such as 8h; one is made at least (default: 5m)", type=duration
        ),
    ] = 300.0
    file: Annotated[
        str | None, Option("-f, --file SCENARIO", "hold the treatments of this scenario against themselves")
    ] = None
    engine: Annotated[
        str | None, Option("--engine NAME", f"engine to certify (default: {NATIVE}, or the scenario's only one)")
    ] = None
    rounds: Annotated[
        int, Option("--rounds N", "rounds of each run (default: %(default)s)", type=int_range(MIN_ROUNDS, MAX_ROUNDS))
    ] = DEFAULT_ROUNDS
    between: Annotated[
        bool,
        Option("--between", "add the runs to the certificate that is kept: those of other days say how days differ"),
    ] = False
    valid: Annotated[
        int, Option("--valid DAYS", "for how many days it holds (default: %(default)s)", type=int_range(1, 3650))
    ] = DEFAULT_VALID_DAYS
    out: Annotated[Path | None, Option("--out FILE", "write the certificate to this file, too")] = None
    keep: Annotated[Path | None, Option("--keep DIR", "keep the runs' stats files in this new folder")] = None
    show: Annotated[bool, Option("--show", "print the certificate of this machine; make no run")] = False
    format: Annotated[Literal["text", "markdown", "json"], Option("--format", "format (default: text)")] = "text"
    quiet: bool
    """Say nothing of each run."""
    verbose: bool
    terminal: TerminalOptions = DEFAULT_TERMINAL


def run(options: Options) -> int:
    """Make the runs, keep their certificate and print it; return the exit code."""
    if options.show:
        return _show(options)
    plan = _plan(options)
    before = _to_be_continued(options, plan) if options.between else None
    made = Series(options, plan, before)
    code = ExitCode.OK
    try:
        with _folder(options.keep) as folder, interruptible(_CONSEQUENCE):
            made.until(time.monotonic() + options.budget_s, folder)
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except InfrastructureError as error:
        if not made.runs:
            raise
        tell(f"{program_name()}: {error}")
        code = ExitCode.INFRASTRUCTURE
    if not made.runs:
        tell("no run is complete, so there is nothing to certify")
        return int(code)
    certificate = made.certificate()
    path = kept_file(certificate.host, certificate.machine)
    save(certificate, path)
    if options.out is not None:
        save(certificate, options.out)
    _say(options, f"kept in {path}")
    _write(certificate, [], options)
    if code is ExitCode.OK and certificate.false_words.runs_low > PROMISED:
        tell(f"{program_name()}: equal treatments were called different more often than promised")
        code = ExitCode.THRESHOLD
    return int(code)


_CONSEQUENCE: Final = "the run that is being made ends; the runs before it are certified"


def _plan(options: Options) -> RunPlan:
    if options.file is None:
        return own_plan(options.engine or NATIVE, options.rounds)
    return plan_of(options.file, options.engine, options.rounds)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Yield the folder of the runs' files: the one to keep, or one that is deleted."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="weighbridge-certify-") as name:
            yield Path(name)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"--keep {keep}: is there already, and not empty; name a new folder")
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--keep {keep}: {error.strerror}; name another folder") from error
    yield keep


class Series:
    """The runs that are made, after those of a certificate that they are added to."""

    def __init__(self, options: Options, plan: RunPlan, before: Certificate | None) -> None:
        self._options, self._plan, self._before = options, plan, before
        self._machine = None if before is None else before.machine
        self._last: Evidence | None = None
        self.runs: list[CertifiedRun] = []

    def until(self, deadline_s: float, folder: Path) -> None:
        """Make runs until the next one would end after the deadline, on the monotonic clock; one at least."""
        while not self.runs or time.monotonic() + mean(run.took_s for run in self.runs) <= deadline_s:
            number = len(self.runs) + 1
            with progress_message(f"run {number}, {format_span(max(0.0, deadline_s - time.monotonic()))} left"):
                found = make_run(self._plan, folder, number)
            machine = machine_of(found.fingerprint)
            if changed := changed_properties(machine if self._machine is None else self._machine, machine):
                raise InfrastructureError(f"the machine changed while it was certified: {'; '.join(changed)}")
            self._last, self._machine = found, machine
            self.runs.append(found.run)
            words = ", ".join(one.word for one in found.run.comparisons)
            left = format_span(max(0.0, deadline_s - time.monotonic()))
            _say(self._options, f"run {number}: {words}, {format_span(found.run.took_s)}; {left} left")

    def certificate(self) -> Certificate:
        """Return the certificate of all runs."""
        assert self._last is not None
        earlier = self._before.runs if self._before is not None else ()
        return certify_runs([*earlier, *self.runs], self._last, self._plan, self._options.valid)


def _kept() -> tuple[Path, Certificate | None, dict[str, Fact]]:
    """Return the certificate of this machine, its file, and what the machine is now."""
    (answer,) = query_worker("--fingerprint")
    machine = machine_of(answer["facts"])
    path = kept_file(str(answer["facts"].get("hostname") or "unknown"), machine)
    return path, load(path), machine


def _to_be_continued(options: Options, plan: RunPlan) -> Certificate | None:
    """Return the certificate that runs are added to; None to begin one. Raises `UsageError` where they do not fit."""
    path, found, machine = _kept()
    if found is None:
        _say(options, "this machine has no certificate yet: the runs begin one")
        return None
    if found.plan != plan.digest:
        raise UsageError(
            f"--between: {path} is of other runs ({found.jobs}, {found.rounds} rounds); ask for the same ones, or "
            "leave --between out to replace it"
        )
    if changed := changed_properties(found.machine, machine):
        raise UsageError(
            f"--between: the machine is not what it was: {'; '.join(changed)}; leave --between out to begin anew"
        )
    return found


def _show(options: Options) -> int:
    """Print the certificate that is kept; return 1 if it does not hold any more."""
    path, found, machine = _kept()
    if found is None:
        raise UsageError(f"{path}: this machine has no certificate; make one: bench-master certify")
    void = found.why_void(machine)
    if options.out is not None:
        save(found, options.out)
    _write(found, void, options)
    return int(ExitCode.THRESHOLD if void else ExitCode.OK)


def _write(certificate: Certificate, void: list[str], options: Options) -> None:
    if options.format == "json":
        shown = certificate if options.verbose else replace(certificate, runs=())
        sys.stdout.write(encode(shown).decode())
        return
    form = markdown_lines if options.format == "markdown" else page_lines
    text = "".join(f"{line}\n" for line in form(certificate, void, verbose=options.verbose))
    if options.format == "markdown":
        sys.stdout.write(text)
        return
    with text_output(options.terminal, paged=True) as out:
        out.write(text)


def _say(options: Options, text: str) -> None:
    if not options.quiet:
        tell(text)
