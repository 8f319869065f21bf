"""What the harness itself can do on this host: its ceilings, measured and kept for a week.

A ceiling is the rate at which jobs that do nothing go the whole way of a run, or jobs of a kind from a package
against what answers at once: as many workers here, as many jobs in flight on each, as many operations a job, and the
same hand-out. It holds for one machine with one kernel, Python and version of Weighbridge; where any of them changed,
or a week is over, it is measured again. That takes some seconds: it is done when a run is over and its workers have
ended, and only where a rate is within reach of any ceiling.

What else runs on the machine makes a ceiling too low, never too high. So what others took of the CPUs is kept with
it: one that was measured while they were busy is told as such, and measured again after the next run that is near it.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
import numpy as np
from msgspec import Meta, Struct

from bench_common import __version__
from bench_common.engine_traits import baseline_engine
from bench_common.errors import InfrastructureError, StatsFileError
from bench_common.files import read_regular, user_folder
from bench_common.job_kind import kind_name
from bench_common.job_rules import rules_of
from bench_common.stats.reader import StatsFile
from bench_master.analysis.harness_limits import LIMIT
from bench_master.coordinator.messages import LogEvent
from bench_master.plan import allows_look_ahead, is_host_ceiling
from bench_master.run.harness_watch import Neighbours, NeighbourWatch
from bench_master.run_data.treatment_types import HARNESS_CEILING
from bench_master.run_process import run_process, tail
from bench_master.scenario.master_part import CeilingProbe, part_of

if TYPE_CHECKING:
    from bench_common.treatment import Treatment
    from bench_master.coordinator import Policy

log = logging.getLogger(__name__)

NOOP: Final = "no-op"
"""The kind of ceiling that jobs which execute nothing show."""
WITHIN_REACH_PER_S: Final = 500.0
"""A treatment with a lower rate is out of reach: no machine that runs tests in reasonable time has such a ceiling."""
MAX_AGE: Final = timedelta(days=7)
"""An older ceiling is measured again."""
MOST_MEASURED: Final = 3
"""So many ceilings are measured after a run at most; the next run measures others."""
JOBS: Final = 4000
"""No-op jobs in each trial where they may wait at a worker; others get trials of `TRIAL_TIME`."""
TRIAL_TIME: Final = "300ms"
REPEATS: Final = 3
TRIES: Final = 2
"""A ceiling is measured so often at most, until others leave the CPUs to it."""
TIMEOUT_S: Final = 60.0
"""How long measuring one may take."""
_MOST_KEPT: Final = 200
PROBE: Final = "WEIGHBRIDGE_CEILING_PROBE"
"""The variable of the environment of a run that measures a ceiling, and therefore none itself."""
_HIDDEN_VARIABLES: Final = ("WEIGHBRIDGE_", "GITHUB_")
"""What the beginnings of variables are that would make a run archive itself or tell a pull request."""

_Text = Annotated[str, Meta(max_length=1000)]
Machine: TypeAlias = dict[_Text, _Text]


class Setup(Struct, frozen=True, forbid_unknown_fields=True):
    """What a ceiling holds for."""

    kind: _Text
    """What the jobs do: ``no-op``, or what answers them at once."""
    workers: Annotated[int, Meta(ge=1)]
    concurrency: Annotated[int, Meta(ge=1)]
    """Jobs in flight on each."""
    operations: Annotated[int, Meta(ge=1)]
    look_ahead: bool
    """Whether jobs wait at a worker."""
    batch_size: int | None = None
    """Jobs in a message; None: by the rate."""

    @property
    def text(self) -> str:
        """It in words: ``no-op, 1 worker, 4 in flight, 3 operations``."""
        parts = [
            self.kind,
            f"{self.workers} worker{'s' if self.workers > 1 else ''}",
            f"{self.concurrency} in flight on each" if self.workers > 1 else f"{self.concurrency} in flight",
            f"{self.operations} operation{'s' if self.operations > 1 else ''} a job",
        ]
        parts += [] if self.look_ahead else ["jobs handed out one by one"]
        return ", ".join(parts)


class Ceiling(Struct, frozen=True, forbid_unknown_fields=True):
    """A ceiling that was measured."""

    setup: Setup
    rate_per_s: Annotated[float, Meta(gt=0, le=1e12)]
    """Jobs per second."""
    measured: datetime
    """When it was measured, with a time zone."""
    neighbours: Neighbours
    """What else the machine did meanwhile."""
    machine: Machine


class Measured(Struct, frozen=True):
    """What measuring a ceiling gave."""

    rate_per_s: float
    """Jobs per second."""
    neighbours: Neighbours
    """What else the machine did meanwhile."""


class _File(Struct, frozen=True):
    ceilings: list[Ceiling]


def machine() -> Machine:
    """Return what a ceiling depends on: the host, its processors and kernel, Python and Weighbridge."""
    return {
        "host": platform.node(),
        "cpu_model": _cpu_model(),
        "cpus": str(len(os.sched_getaffinity(0))),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "weighbridge": __version__,
    }


def _cpu_model() -> str:
    with suppress(OSError, StopIteration), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:  # noqa: PTH123
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.machine()


def ceilings_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Return this user's file of ceilings: in ``$XDG_CACHE_HOME/weighbridge``, else ``~/.cache/weighbridge``."""
    return user_folder("CACHE", ".cache", environment) / "ceilings.json"


class KeptCeilings:
    """The ceilings of a file. One home may serve several hosts, so it may have those of other machines, too."""

    def __init__(self, path: Path, here: Machine) -> None:
        self._path = path
        self._here = here
        self._found = self._read()

    def find(self, setup: Setup, now: datetime) -> Ceiling | None:
        """Return the ceiling of this machine as it is now; None where there is none, or an old one."""
        fitting = (one for one in self._found if one.setup == setup and one.machine == self._here)
        return next((one for one in fitting if timedelta(0) <= now - one.measured <= MAX_AGE), None)

    def keep(self, setup: Setup, measured: Measured, now: datetime) -> Ceiling:
        """Keep a new ceiling in place of an older one, and of those that this host had before it changed.

        The older one stays if the new one was measured beside busy neighbours and is no higher; return what is kept.
        """
        ceiling = Ceiling(setup, measured.rate_per_s, now, measured.neighbours, self._here)
        before = self.find(setup, now)
        if before is not None and not measured.neighbours.are_quiet and measured.rate_per_s <= before.rate_per_s:
            return before
        name = self._here["host"]
        others = [
            one
            for one in self._read()
            if (one.machine["host"] != name or one.machine == self._here)
            and (one.setup, one.machine) != (ceiling.setup, ceiling.machine)
        ]
        self._found = [ceiling, *others][:_MOST_KEPT]
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._path.parent, prefix=".ceilings-", delete=False) as file:
                file.write(msgspec.json.format(msgspec.json.encode(_File(self._found)), indent=1) + b"\n")
            Path(file.name).replace(self._path)
        except OSError as error:
            # It is measured again next time.
            log.warning("cannot keep the ceilings of this host in %s: %s", self._path, error.strerror)
        return ceiling

    def _read(self) -> list[Ceiling]:
        try:
            found = msgspec.json.decode(read_regular(self._path), type=_File).ceilings
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            log.warning("%s is not read, and the ceilings of this host are measured again: %s", self._path, error)
            return []
        return [one for one in found if one.measured.tzinfo is not None and "host" in one.machine]


def setup_of(
    treatment: Treatment, workers: int, *, look_ahead: bool = True, batch_size: int | None = None
) -> Setup | None:
    """Return what the ceiling of a treatment's jobs depends on; None where there is no such ceiling.

    There is none for guests, which measure themselves, for containers that are packed, and for host ceilings. Jobs
    that arrive at a rate are handed out before their instants: no more can arrive than with look-ahead.
    """
    probe = _probe_of(treatment)
    if probe is None or treatment.is_packing or is_host_ceiling(treatment.labels):
        return None
    operations = 1 if treatment.job.does_one_operation else len(rules_of(treatment).operations())
    return Setup(
        probe.kind,
        workers,
        treatment.concurrency,
        max(1, operations),
        treatment.open_load is not None or (look_ahead and allows_look_ahead(treatment)),
        batch_size,
    )


def _probe_of(treatment: Treatment) -> CeilingProbe | None:
    if kind_name(treatment.job) == "lifecycle":
        operations = max(1, len(rules_of(treatment).operations()))
        return noop_probe(operations)
    part = part_of(treatment)
    return None if part is None else part.ceiling(treatment)


@contextmanager
def _no_variables() -> Iterator[Mapping[str, str]]:
    yield {}


def noop_probe(operations: int) -> CeilingProbe:
    """Return jobs that do nothing; with ``--noop`` a sleep is as free as any operation."""
    keys = {"engines": [baseline_engine()], "job": {"operations": [{"sleep": "1ns"}] * operations}}
    return CeilingProbe(NOOP, keys, _no_variables, WITHIN_REACH_PER_S, JOBS)


def known_ceilings(
    setups: Mapping[int, Setup],
    rates: Mapping[int, float],
    kept: KeptCeilings,
    measure: Callable[[int], Measured],
    now: Callable[[], datetime],
    enough_per_s: Callable[[int], float] = lambda _: WITHIN_REACH_PER_S,
) -> dict[int, Ceiling]:
    """Return the ceilings of treatments, by index; those within reach of `rates` that are not kept are measured.

    One of a quiet machine holds for its week, unless real jobs exceeded it; one that was measured beside busy
    neighbours is measured again where it would refuse. `measure` takes a treatment and raises `InfrastructureError`
    where it cannot; that ceiling stays as it was known. `enough_per_s` is the least rate of a treatment that is
    within reach.
    """
    wanted = sorted(setups, key=lambda index: -rates.get(index, 0.0))
    tried: set[Setup] = set()
    found: dict[int, Ceiling] = {}
    for index in wanted:
        setup = setups[index]
        ceiling = kept.find(setup, now())
        if ceiling is None:
            enough = enough_per_s(index)
        else:
            enough = ceiling.rate_per_s * (1.0 if ceiling.neighbours.are_quiet else LIMIT)
        if rates.get(index, 0.0) > enough and setup not in tried and len(tried) < MOST_MEASURED:
            tried.add(setup)
            try:
                ceiling = kept.keep(setup, measure(index), now())
            except InfrastructureError as error:
                log.warning("%s", error)
        if ceiling is not None:
            found[index] = ceiling
    return dict(sorted(found.items()))


def measure_ceiling(setup: Setup, probe: CeilingProbe) -> Measured:
    """Return the jobs per second of a probe with this setup; raise `InfrastructureError` where it fails.

    They are those of its fastest trial: what else runs on the machine makes others slower. Beside busy neighbours it
    is measured once more; of two such the higher one counts.
    """
    found: list[Measured] = []
    while len(found) < TRIES and not (found and found[-1].neighbours.are_quiet):
        found.append(_measure_once(setup, probe))
    return max(found, key=lambda one: (one.neighbours.are_quiet, one.rate_per_s))


def _measure_once(setup: Setup, probe: CeilingProbe) -> Measured:
    with tempfile.TemporaryDirectory(prefix="weighbridge-ceiling-") as folder:
        scenario = Path(folder, "ceiling.yaml")
        scenario.write_text(json.dumps(_scenario(setup, probe)), "utf-8")
        command = [sys.executable, "-m", "bench_master", "-q", "run-scenario", "-f", str(scenario)]
        stats, log_file = Path(folder, "ceiling.stats.gz"), Path(folder, "log")
        command += ["-s", str(stats), "--no-report", "--workers", str(setup.workers)]
        command += ["--noop"] if probe.kind == NOOP else []
        command += [] if setup.look_ahead else ["--no-look-ahead"]
        command += [] if setup.batch_size is None else ["--batch-size", str(setup.batch_size)]
        hidden = (*_HIDDEN_VARIABLES, *probe.hidden)
        environment = {key: one for key, one in os.environ.items() if not key.startswith(hidden)}
        try:
            watch = NeighbourWatch()
            with probe.serving() as variables, log_file.open("wb") as out:
                status = run_process(
                    command, out, timeout_s=TIMEOUT_S, environ={**environment, **variables, PROBE: "1"}
                )
            if status:
                last = tail(log_file).rpartition("\n")[2].strip() or f"the run ended with exit code {status}"
                raise InfrastructureError(f"{_CANNOT}: {last}")
            neighbours = watch.end()
            rate = _fastest_trial(StatsFile(stats))
        except (OSError, ValueError, subprocess.TimeoutExpired, StatsFileError) as error:
            raise InfrastructureError(f"{_CANNOT}: {error}") from error
    if rate <= 0:
        raise InfrastructureError(f"{_CANNOT}: no job was done")
    return Measured(rate, neighbours)


def _fastest_trial(stats: StatsFile) -> float:
    """Return the jobs per second of the fastest trial of a run; 0 without one. Warm-up counts: it may be as fast."""
    jobs, begins, rates = Counter[int](), dict[int, int](), [0.0]
    for block in stats.blocks({"jobs", "event"}, by_column=True):
        if block.kind == "jobs":
            trials, counts = np.unique(block.body["trial"], return_counts=True)
            jobs.update(dict(zip(trials.tolist(), counts.tolist(), strict=True)))
        elif block.body["kind"] == "trial-begin":
            begins[block.body["trial"]] = block.body["at_ns"]
        elif block.body["kind"] == "trial-end":
            # All jobs of a trial are before its end.
            trial = block.body["trial"]
            rates.append(1e9 * jobs[trial] / max(1, block.body["at_ns"] - begins[trial]))
    return max(rates)


_CANNOT: Final = "the harness's own ceiling cannot be measured"


def _scenario(setup: Setup, probe: CeilingProbe) -> dict[str, Any]:
    """Return a scenario of a probe's jobs, as many at once and handed out in the same way."""
    length = {"operation_count": probe.jobs} if setup.look_ahead else {"run_seconds": TRIAL_TIME}
    sizes = {"repeats": REPEATS, "warmup": 1, "concurrency": setup.concurrency}
    return {"name": "harness-ceiling", **sizes, **probe.keys, **length}


def ceiling_events(
    treatments: Iterable[Treatment], policy: Policy, rates: Mapping[int, float], notify: Callable[[str], None]
) -> list[LogEvent]:
    """Return what the stats file says of the ceilings of treatments, all of whose workers ran on this host.

    Those within reach of `rates` (jobs per second by treatment) are measured, if none is kept; `notify` tells it.
    """
    workers, look_ahead, batch_size = policy.expected, policy.look_ahead, policy.batch_size
    if PROBE in os.environ:
        return []
    setups, probes = dict[int, Setup](), dict[int, CeilingProbe]()
    for one in treatments:
        setup = setup_of(one, workers, look_ahead=look_ahead, batch_size=batch_size)
        probe = _probe_of(one)
        if setup is not None and probe is not None:
            setups[one.index], probes[one.index] = setup, probe

    def measure(index: int) -> Measured:
        notify(f"measured; looking what the harness itself can do here ({setups[index].text})")
        return measure_ceiling(setups[index], probes[index])

    def enough_per_s(index: int) -> float:
        return probes[index].enough_per_s

    ceilings = known_ceilings(setups, rates, kept_here(), measure, present, enough_per_s) if setups else {}
    return [LogEvent(HARNESS_CEILING, _fields(index, ceiling)) for index, ceiling in ceilings.items()]


def _fields(index: int, ceiling: Ceiling) -> dict[str, Any]:
    return {
        "treatment": index,
        "ceiling": ceiling.setup.kind,
        "rate_per_s": ceiling.rate_per_s,
        "measured": ceiling.measured.astimezone(UTC).isoformat(timespec="seconds"),
        "setup": ceiling.setup.text,
        "others": ceiling.neighbours.others,
        "quiet": ceiling.neighbours.are_quiet,
    }


def kept_here() -> KeptCeilings:
    """Return the ceilings that are kept for this machine."""
    return KeptCeilings(ceilings_file(), machine())


def present() -> datetime:
    """Return the time, to the second."""
    return datetime.now(UTC).replace(microsecond=0)


def usual_setups() -> Sequence[Setup]:
    """Return the setups of most runs: a life cycle of three operations, one and 24 in flight."""
    return [Setup(NOOP, 1, concurrency, 3, look_ahead=True) for concurrency in (1, 24)]


def measured_again(setups: Iterable[Setup], kept: KeptCeilings) -> Iterable[Ceiling]:
    """Measure ceilings now, keep them, and yield each."""
    for setup in setups:
        yield kept.keep(setup, measure_ceiling(setup, noop_probe(setup.operations)), present())
