"""What the command line of `run-scenario` changes in a scenario: size, rate, limit, what is watched, seed."""

from __future__ import annotations

import argparse
import secrets
from dataclasses import replace

from bench_common.errors import UsageError
from bench_common.overhead import Overhead
from bench_common.treatment import OpenLoad, Treatment
from bench_common.units import parse_duration, parse_rate
from bench_master.scenario import Scenario
from bench_master.scenario.format import MAX_RATE_PER_S, OPEN_CONCURRENCY


def changed(scenario: Scenario, arguments: argparse.Namespace) -> Scenario:
    """Return the scenario with what the command line says in the place of its own."""
    scenario = _paced(_resized(scenario, arguments), arguments)
    if arguments.overhead and scenario.overhead is None:
        scenario = replace(scenario, overhead=Overhead())
    if arguments.skip_limit or arguments.noop:
        scenario = replace(scenario, limit=False)
    return scenario


def _resized(scenario: Scenario, arguments: argparse.Namespace) -> Scenario:
    """Return the scenario with `-o` or `-r` in the place of its own sizes."""
    count, seconds = arguments.operation_count, arguments.run_seconds
    if count is None and seconds is None:
        return scenario
    length = None if seconds is None else duration(seconds, "--run-seconds")
    if length is not None and length <= 0:
        raise UsageError(f"--run-seconds {seconds}: expected more than 0 seconds")

    def resize(treatment: Treatment) -> Treatment:
        return replace(treatment, iterations=None, operation_count=count, run_seconds=length)

    return replace(scenario, treatments=tuple(resize(treatment) for treatment in scenario.treatments))


def _paced(scenario: Scenario, arguments: argparse.Namespace) -> Scenario:
    """Return the scenario with `--rate` and `--arrivals` in the place of its own."""
    if arguments.rate is None and arguments.arrivals is None:
        return scenario
    rate = None
    if arguments.rate is not None:
        try:
            rate = parse_rate(arguments.rate)
        except ValueError as error:
            raise UsageError(f"--rate {arguments.rate}: {error}") from error
        if not 0 < rate <= MAX_RATE_PER_S:
            raise UsageError(f"--rate {arguments.rate}: expected more than 0 and at most {MAX_RATE_PER_S:g} a second")

    def pace(treatment: Treatment) -> Treatment:
        load = treatment.open_load
        if rate is None and load is None:
            raise UsageError(
                f"--arrivals {arguments.arrivals}: nothing arrives at a rate; give --rate, such as 200/s"
            )
        if treatment.iterations is not None:
            advice = "say how many jobs (-o) or how long (-r)"
            raise UsageError(f"--rate {arguments.rate}: the scenario counts iterations of a slot; {advice}")
        if load is None:
            assert rate is not None
            width = treatment.concurrency if treatment.concurrency > 1 else OPEN_CONCURRENCY
            load, treatment = OpenLoad(rate), replace(treatment, concurrency=width)
        paced = replace(load, rate_per_s=rate or load.rate_per_s, process=arguments.arrivals or load.process)
        return replace(treatment, open_load=paced)

    return replace(scenario, treatments=tuple(pace(treatment) for treatment in scenario.treatments))


def seed_of(scenario: Scenario, arguments: argparse.Namespace) -> int:
    """Return the seed that is given, else the scenario's, else one that is drawn."""
    if arguments.seed is not None:
        return int(arguments.seed)
    return scenario.seed if scenario.seed is not None else secrets.randbelow(1 << 31)


def duration(text: str, flag: str) -> float:
    """Return the seconds that a flag's text stands for; raise `UsageError` where it stands for none."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{flag} {text}: {error}") from error
