"""The head of a stats file: everything that makes a run repeatable, known before its first job."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from bench_common import __version__
from bench_common.clock import clock_id
from bench_common.stats.reader import FORMAT, VERSION
from bench_common.treatment import Treatment
from bench_master.plan import Plan
from bench_master.scenario import Scenario
from workloads.script import metrics_of, script_of


def operation_names(treatment: Treatment) -> tuple[str, ...]:
    """Return what a treatment's operations are called, by position."""
    return tuple(operation.name for operation in script_of(treatment))


def versions() -> dict[str, str]:
    """Return the versions of this program and of what it runs on."""
    return {"weighbridge": __version__, "python": platform.python_version()}


def read_clock() -> dict[str, Any]:
    """Return what ties instants of this boot to the calendar."""
    return {"unix_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns(), "boot_id": clock_id()}


def build_header(
    scenario: Scenario,
    plan: Plan,
    *,
    run_id: str,
    argv: Sequence[str],
    noop: bool,
    environments: Sequence[str],
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the header block of a run that begins now, with workers in `environments`.

    `options` are those of the command line that a resumed run must have again.
    """
    # Where the scenario leaves the environment open, the workers that came are what a treatment ran in.
    anywhere = "+".join(sorted(set(environments)))
    return {
        "format": FORMAT,
        "version": VERSION,
        "run_id": run_id,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "clock": read_clock(),
        "scenario": {
            "name": scenario.name,
            "description": scenario.description,
            "path": str(scenario.path),
            "text": scenario.text,
            "document": scenario.document,
            "notes": list(scenario.notes),
            "scale": scenario.scale,
        },
        "published": scenario.published,
        "thresholds": list(scenario.thresholds),
        "order": plan.order,
        "seed": plan.seed,
        "argv": list(argv),
        "versions": versions(),
        "options": dict(options),
        "noop": noop,
        "sampling_interval_s": scenario.sampling_interval_s,
        "overhead": None if scenario.overhead is None or noop else scenario.overhead.for_header(),
        "treatments": [_treatment(treatment, anywhere) for treatment in plan.treatments],
        "trials": [[trial.treatment, trial.block, trial.warmup] for trial in plan.trials],
    }


def _treatment(treatment: Treatment, anywhere: str) -> dict[str, Any]:
    return {
        **treatment.to_wire(),
        "labels": {"environment": treatment.environment or anywhere, **treatment.labels},
        "title": treatment.title,
        "operation_names": list(operation_names(treatment)),
        "metrics": metrics_of(treatment),
    }
