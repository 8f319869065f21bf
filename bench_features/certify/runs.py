"""The runs of a certificate: what they run, how one is made, in a process of its own, and what its stats file says.

In the file a treatment that ran twice is one treatment and its twin under a hidden label. Here the two get labels of
their own, and the run goes through the code that judges any other run, which then compares each with its twin.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from bench_common.engine_traits import engine_names
from bench_common.errors import InfrastructureError, UsageError, did_you_mean
from bench_common.host_info import Fact
from bench_common.stats.block_types import Header
from bench_common.stats.reader import StatsFile
from bench_common.thresholds import JOB_SERIES
from bench_features.certify.certificate import CertifiedRun, RunComparison, RunMeasure, RunSeries
from bench_master.analysis.claims import ClaimedMeasure
from bench_master.analysis.comparisons import build_verdicts
from bench_master.analysis.run_checks import Pair, RunChecks
from bench_master.analysis.trust import shared_labels
from bench_master.analysis.verdict_options import VerdictOptions
from bench_master.analysis.verdict_types import ComparisonReport
from bench_master.run_data.aggregate import SpeedReading
from bench_master.run_data.measured import MeasuredRun, MetricsLook, trial_values
from bench_master.run_data.trial_values import TrialTable
from bench_master.run_process import run_master
from bench_master.scenario.keys_run import label_text
from bench_master.scenario.load import load_scenario
from bench_master.scenario.model import originals
from bench_master.verdicts import diagnosis
from bench_master.verdicts.quantiles import enough_jobs
from bench_master.verdicts.signed_rank import estimate

NATIVE: Final = "native"
DEFAULT_NAME: Final = "equal treatments"
DEFAULT_COMMAND: Final = ("sh", "-c", "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done")
"""A program that computes for some milliseconds and does nothing else."""
DEFAULT_IMAGE: Final = "weighbridge/base"
DEFAULT_JOBS: Final = 20
"""Jobs of a trial: the fewest of which a 95th percentile can be told."""
_HIDDEN_VARIABLES: Final = ("WEIGHBRIDGE_ARCHIVE", "GITHUB_")
"""What the beginnings of variables are that would make a run archive itself or tell a pull request."""


class RunPlan(Struct, frozen=True):
    """What each run of a certificate runs."""

    reference: str | None
    """The scenario's file or name; None for the program of ours."""
    scenario: str
    jobs: str
    """What its jobs are, in words."""
    overrides: tuple[str, ...]
    """What is set in the scenario, as options of `run-scenario`."""
    document: dict[str, Any] | None
    """The scenario, where it is ours."""
    digest: str
    """Of all that decides what is run."""


def own_plan(engine: str, rounds: int) -> RunPlan:
    """Return the plan of a short program that computes, under one engine; raise `UsageError` for an unknown one."""
    if engine not in engine_names():
        hint = did_you_mean(engine, engine_names())
        raise UsageError(f"--engine {engine}: unknown engine{hint}; one of: {', '.join(engine_names())}")
    container: dict[str, Any] = {"command": list(DEFAULT_COMMAND)}
    job: dict[str, Any] = {"operations": ["create", "start", "wait", "remove"]}
    if engine != NATIVE:
        container |= {"image": DEFAULT_IMAGE, "network": "none"}
    document = {
        "name": DEFAULT_NAME,
        "engines": [engine],
        "container": container,
        "jobs": {"compute": job},
        "aa": engine,
        "repeats": rounds,
        "warmup": 1,
        "iterations": DEFAULT_JOBS,
    }
    jobs = f"`{shlex.join(DEFAULT_COMMAND)}` under {engine}"
    return RunPlan(None, DEFAULT_NAME, jobs, (), document, _digest(document))


def plan_of(reference: str, engine: str | None, rounds: int) -> RunPlan:
    """Return the plan of a scenario whose treatments, or those of one engine, run twice in each round.

    Raises `ScenarioError` for one with errors, `UsageError` where it has several engines and none is named.
    """
    scenario = load_scenario(reference)
    every = [one.labels for one in scenario.treatments]
    engines = list(dict.fromkeys(label_text(labels["engine"]) for labels in every if "engine" in labels))
    if engine is not None and engine not in engines:
        hint = did_you_mean(engine, engines) or f"; it has {', '.join(engines)}"
        raise UsageError(f"--engine {engine}: {reference} has no such engine{hint}")
    if engine is not None:
        key, value = "engine", engine
    elif len(engines) > 1:
        raise UsageError(f"{reference}: has several engines; name the one to certify: --engine {engines[0]}")
    else:
        shared = shared_labels(every) or (every[0] if every else {})
        key, value = next(((key, label_text(one)) for key, one in shared.items()), ("", ""))
        if not key:
            raise UsageError(f"{reference}: no label is common to its treatments; name an engine with --engine")
    overrides = ["--set", f"repeats={rounds}", "--set", f"aa.{key}={value}"]
    overrides += ["--only", f"engine={engine}"] if engine is not None and len(engines) > 1 else []
    jobs = f"each treatment of {scenario.name} with {key}={value}"
    return RunPlan(reference, scenario.name, jobs, tuple(overrides), None, _digest([scenario.document, overrides]))


def _digest(what: object) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()


def make_run(plan: RunPlan, folder: Path, number: int) -> Evidence:
    """Make a run in a folder and return what it says; raise what `run_master` does."""
    file, log = folder / f"{number:04}.stats.gz", folder / f"{number:04}.log"
    reference = plan.reference
    if plan.document is not None:
        own = folder / "scenario.yaml"
        own.write_text(json.dumps(plan.document), encoding="utf-8")
        reference = str(own)
    words = ["run-scenario", "-f", str(reference), "--stats-file", str(file), "--workers", "1", *plan.overrides]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_HIDDEN_VARIABLES)}
    began_s = time.monotonic()
    with log.open("wb") as out:
        run_master(words, out, f"run {number} of the certificate", environ=environ)
    return read_evidence(file, time.monotonic() - began_s)


# -- what a run says -------------------------------------------------------------------------------------------------


TWIN: Final = "run"
"""The label that tells a treatment from its twin."""
FIRST: Final = "first"
SECOND: Final = "second"
PERCENTILES: Final = ("p50", "p95", "p99")
_FEWEST: Final = 2
"""Fewest rounds that have a spread."""


class Evidence(Struct, frozen=True):
    """What a stats file says."""

    run: CertifiedRun
    host: str
    fingerprint: Mapping[str, Fact]
    rounds: int
    margin: float


def read_evidence(path: Path, took_s: float) -> Evidence:
    """Read a run of equal treatments, which took so many seconds; raise `InfrastructureError` if it is none."""
    stats = StatsFile(path)
    twins = tell_apart(stats.header)
    run = MeasuredRun(stats)
    looks = {name: ClaimedMeasure(name) for name in _measure_names(stats.header, twins)}
    run.prepare({trial_values, MetricsLook, *looks.values()})
    trials = run.trials("worst")
    verdicts = build_verdicts(stats.header, run.sums, trials, VerdictOptions(baseline={TWIN: FIRST}))
    if verdicts is None or not run.is_whole:
        raise InfrastructureError(f"{path}: the run is not whole, or has no treatment that ran twice in each round")
    tables = {name: run.part(look).table(run.sums, "worst") for name, look in looks.items()}
    checks = RunChecks(run.sums, trials, twins, verdicts.family.margin, cancels=True)
    header, titles = stats.header, {stats.header.treatments[one.b].title: one.name for one in twins}
    (host, *_) = run.sums.hosts.values()
    fingerprint = host.fingerprint or {}
    record = CertifiedRun(
        run_id=str(header.run_id),
        began=str(header.created),
        boot_id=str(fingerprint.get("boot_id", "")),
        took_s=took_s,
        comparisons=tuple(_comparison(titles[one.b], one) for one in verdicts.comparisons),
        measures=tuple(measure for one in twins for measure in _measures(one, trials, tables)),
        series=tuple(_series(one, trials, checks, run) for one in twins),
    )
    return Evidence(
        run=record,
        host=str(fingerprint.get("hostname") or host.host or "this machine"),
        fingerprint=fingerprint,
        rounds=verdicts.design.rounds,
        margin=verdicts.family.margin,
    )


def tell_apart(header: Header) -> list[Pair]:
    """Give each treatment that ran twice, and its twin, a label by which they are compared; return them."""
    found = []
    treatments = list(header.treatments)
    for again, first in originals(one.labels for one in treatments).items():
        kept = treatments[first].labels
        title = " ".join(f"{key}={label_text(value)}" for key, value in kept.items())
        for place, side in ((first, FIRST), (again, SECOND)):
            labels = {**kept, TWIN: side}
            treatments[place] = replace(treatments[place], labels=labels, title=f"{title} {TWIN}={side}")
        found.append(Pair(first, again, title, ""))
    header.treatments = treatments
    return found


def _comparison(title: str, one: ComparisonReport) -> RunComparison:
    found = any("carry-over" in (flag.kind, *flag.also) for flag in one.flags)
    ends = (one.ratio, one.low, one.high) if one.scale == "ratio" else (None, None, None)
    return RunComparison(title, one.measure, one.verdict, *ends, carry_over=found)


# -- measures --------------------------------------------------------------------------------------------------------


def _measure_names(header: Header, twins: Sequence[Pair]) -> list[str]:
    """Return the percentiles of the job and of each operation of the treatments that ran twice, each once."""
    treatments = header.treatments
    series = dict.fromkeys(name for one in twins for name in (JOB_SERIES, *treatments[one.a].operation_names))
    return [f"{name}.{field}" for name in series for field in PERCENTILES]


def _measures(twins: Pair, trials: TrialTable, tables: Mapping[str, TrialTable]) -> Iterator[RunMeasure]:
    """Yield the measures of a treatment, its primary one first."""
    yielded = set[str]()
    for table in (trials, *tables.values()):
        measure = table.measures.get(twins.a)
        if measure is None or measure.name in yielded:
            continue
        fewest = min(table.fewest_jobs(twins.a), table.fewest_jobs(twins.b))
        if measure.q is not None and not enough_jobs(fewest, measure.q):
            continue
        sides = table.sides(twins.a, twins.b)
        a, b = sides.a.values, sides.b.values
        known = np.isfinite(a) & np.isfinite(b) & (a > 0.0) & (b > 0.0)
        if known.sum() < _FEWEST:
            continue
        first, second = np.log(a[known]), np.log(b[known])
        yielded.add(measure.name)
        yield RunMeasure(
            treatment=twins.name,
            measure=measure.name,
            unit=measure.unit,
            rounds=int(known.sum()),
            estimate=estimate(second - first),
            sd=float((second - first).std(ddof=1)),
            level=float(np.median(np.concatenate((first, second)))),
        )


# -- order and probe ------------------------------------------------------------------------------------------------


def _series(twins: Pair, trials: TrialTable, checks: RunChecks, run: MeasuredRun) -> RunSeries:
    first, second = trials.rounds[twins.a], trials.rounds[twins.b]
    both = [
        (first[block], second[block])
        for block in sorted(first.keys() & second.keys())
        if all(0.0 < side[block].value < math.inf for side in (first, second))
    ]
    differences = np.array([math.log(b.value / a.value) for a, b in both])
    later = np.array([1.0 if b.trial > a.trial else -1.0 for a, b in both])
    carried = diagnosis.carry_over(*checks.after(twins))
    correlation, count = probe_correlation(
        [(a.trial, b.trial) for a, b in both], differences.tolist(), *run.sums.speeds.values()
    )
    return RunSeries(
        treatment=twins.name,
        place=estimate(differences * later) if both else None,
        carry_over=None if carried is None else carried.shift,
        probe_correlation=correlation,
        probe_rounds=count,
    )


def probe_correlation(
    trials: Sequence[tuple[int, int]], differences: Sequence[float], *readings: Sequence[SpeedReading]
) -> tuple[float | None, int]:
    """Return how the rounds' differences go with those of the host's speed, and the number of rounds.

    `trials` are the two of each round; the speed was read before each of them. Through the origin: under equal
    treatments each round's signs are a coin's, on both sides at once, so that nothing is centred.
    """
    speeds = {one.trial: math.log(one.wall_ns) for own in readings for one in own}
    known = [
        (difference, speeds[b] - speeds[a])
        for (a, b), difference in zip(trials, differences, strict=True)
        if a in speeds and b in speeds
    ]
    if len(known) < _FEWEST:
        return None, 0
    own, probe = np.array(known).T
    size = math.sqrt(float((own**2).sum() * (probe**2).sum()))
    return (float((own * probe).sum()) / size if size else None), len(known)
