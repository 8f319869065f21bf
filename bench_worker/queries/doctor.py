"""`bench-worker --doctor`: check whether this machine is fit to measure; one finding a line."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bench_common.errors import WeighbridgeError
from bench_common.options import Option
from bench_common.requirements import DoctorNeeds, Requirement

if TYPE_CHECKING:
    from bench_worker.doctor.base import Finding

FLAG = "--doctor"
HELP = "check whether this machine is fit to measure"


class Options(Struct, frozen=True):
    """The arguments of this query."""

    doctor_directory: Annotated[
        tuple[str, ...],
        Option(
            "--doctor-directory DIR",
            "with --doctor: directory that runs write to (default: the working and the temporary directory)",
        ),
    ] = ()
    doctor_jobs: Annotated[
        tuple[str, ...],
        Option("--doctor-jobs JSON", "with --doctor: jobs of a kind from a package, to check what they need"),
    ] = ()
    doctor_needs: Annotated[str | None, Option("--doctor-needs JSON", argparse.SUPPRESS)] = None
    """What a scenario needs, as JSON of `DoctorNeeds`; None without one."""


def run(options: Options) -> Iterable[dict[str, Any]]:
    """Yield every finding."""
    from bench_worker.doctor import capture, run_checks
    from bench_worker.host.procfs import LiveHostFiles

    host = capture(LiveHostFiles(), time.sleep, directories=options.doctor_directory)
    if options.doctor_needs is not None:
        needs = msgspec.json.decode(options.doctor_needs, type=DoctorNeeds)
        host = replace(
            host,
            requirements=len(needs.requirements),
            missing=partial(_find_missing, needs.requirements),
            needed_bytes=needs.disk_bytes,
        )
    for finding in (*run_checks(host), *_kind_findings(options.doctor_jobs)):
        yield finding.to_json()


def _find_missing(requirements: Sequence[Requirement], usable: Sequence[str]) -> list[str]:
    """Return what these engines lack; an engine that cannot be used has a finding of its own."""
    from bench_worker.engines.registry import open_engine
    from bench_worker.preflight import PreflightChecker

    checker = PreflightChecker("doctor", open_engine)  # as local workers
    try:
        missing = checker.find_missing(need for need in requirements if need.engine in usable)
        return [*missing, *checker.forbidden]
    finally:
        checker.close()


def _kind_findings(needs: Iterable[str]) -> Iterable[Finding]:
    if not needs:
        return
    from bench_common.requirements import KindNeed
    from bench_worker.doctor.base import Finding, Level
    from bench_worker.host_part import find_problems, host_part, read_need

    for text in needs:
        need = msgspec.json.decode(text, type=KindNeed)
        problems = find_problems([need], os.environ)
        try:
            job = read_need(need)
            part = host_part(job)
        except WeighbridgeError:  # it is among the problems
            part = None
        if part is None:
            yield from (Finding("jobs", Level.PROBLEM, problem, value=need.engine) for problem in problems)
            continue
        what = part.short(need.engine, job)
        for problem in problems:
            yield Finding(part.check, Level.PROBLEM, problem, part.advice, what)
        if not problems:
            yield Finding(part.check, Level.OK, f"{part.check} {what} {part.fine}", value=what)
