"""The runs of a certificate: what they run, and how one is made, in a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import time
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from bench_common.engine_traits import engine_names
from bench_common.errors import UsageError, did_you_mean
from bench_features.certify.evidence import Evidence, read_evidence
from bench_master.analysis.trust import shared_labels
from bench_master.run_process import run_master
from bench_master.scenario.keys_run import label_text
from bench_master.scenario.load import load_scenario

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
