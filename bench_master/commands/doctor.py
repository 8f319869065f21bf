"""`bench-master doctor`: check whether this machine is fit to measure, or what a feature checks in its place."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Struct

from bench_common.cli import engine_option
from bench_common.engine_traits import EngineLabel, engine_traits, use_engine_labels
from bench_common.errors import ExitCode
from bench_common.job_rules import rules_of
from bench_common.options import Option, add_options
from bench_common.requirements import DoctorNeeds, KindNeed, kinds_for_worker, requirements_for_worker
from bench_master.command_extension import (
    NO_OPTIONS,
    CommandOptions,
    add_extensions,
    command_extensions,
    done_instead,
)
from bench_master.formatting import format_number, format_percent, page_width, plural
from bench_master.plan import needed_disk_bytes
from bench_master.progress_message import progress_message
from bench_master.scenario.dialects import load_scenario_or_definition
from bench_master.terminal import text_output
from bench_master.terminal_options import DEFAULT_TERMINAL, TerminalOptions
from bench_master.worker_query import query_worker

COMMAND: Final = "doctor"


class ScenarioNeeds(Struct, frozen=True):
    """What the treatments of a scenario need on the hosts that run them."""

    name: str
    engines: frozenset[str]
    """The engines of its treatments."""
    programs: frozenset[str]
    """The programs of its native jobs and their services, as they must be on PATH."""
    optional_programs: frozenset[str] = frozenset()
    """Those of optional jobs, which are skipped where one is missing."""
    kinds: tuple[KindNeed, ...] = ()
    """What kinds of jobs from packages need, such as stores."""
    on_host: DoctorNeeds = DoctorNeeds([], 0)
    """What its containers need of their engines, and its jobs of the disk."""

    @property
    def flags(self) -> tuple[str, ...]:
        """The arguments of `bench-worker` that say so."""
        return ("--doctor-needs", msgspec.json.encode(self.on_host).decode())


def scenario_needs(file: str | None) -> ScenarioNeeds | None:
    """Return what a scenario needs; None without one. Raises what reading a scenario raises."""
    if file is None:
        return None
    scenario = load_scenario_or_definition(file)
    native = [one for one in scenario.treatments if engine_traits(one.engine).runs_on_host]
    programs, optional = (
        {name for one in native if one.optional is wanted for name in rules_of(one).host_programs().values() if name}
        for wanted in (False, True)
    )
    engines = frozenset(one.engine for one in scenario.treatments if one.job.uses_engine)
    kinds = list[KindNeed]()
    for one in scenario.treatments:
        kinds += [need for need in kinds_for_worker([one], one.environment or "") if need not in kinds]
    environments = dict.fromkeys(treatment.environment or "" for treatment in scenario.treatments)
    required = [need for place in environments for need in requirements_for_worker(scenario.treatments, place)]
    on_host = DoctorNeeds(list(dict.fromkeys(required)), needed_disk_bytes(scenario))
    return ScenarioNeeds(
        scenario.name, engines, frozenset(programs), frozenset(optional - programs), tuple(kinds), on_host
    )


def needed_findings(
    findings: Sequence[Mapping[str, Any]], needs: ScenarioNeeds | None
) -> Sequence[Mapping[str, Any]]:
    """Return the findings for a scenario: without other engines and programs; what it lacks is a problem."""
    if needs is None:
        return findings
    found: list[Mapping[str, Any]] = []
    for finding in findings:
        check, text, value = str(finding["check"]), str(finding["finding"]), str(finding["value"])
        if check not in ("engine", "tools"):
            found.append(finding)
            continue
        # What is missing is the value of its finding; a program that is there is the first word, before its place.
        wanted = needs.engines if check == "engine" else needs.programs
        lacks = text.startswith(f"{value}: ") if check == "engine" else finding["level"] != "ok"
        names = {value, text.partition(":")[0]}
        if wanted & names:
            found.append({**finding, "level": "problem"} if lacks else finding)
        elif check == "tools" and needs.optional_programs & names:
            found.append(finding)
    return found


EPILOG: Final = """\
Each finding is a problem (this machine cannot measure until it is fixed), a warning (results are noisier or less
comparable than they could be), a note (worth knowing), or ok. With -q only problems and warnings are shown.

Exit codes: 0 fit to measure, with or without warnings; 3 there is a problem, or the check failed.
"""

LEVELS: Final = ("problem", "warning", "note", "ok")
LEVEL_WIDTH: Final = 8
CHECK_WIDTH: Final = 13


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `doctor`."""

    file: Annotated[
        str | None,
        Option(
            "-f, --file X.yaml",
            "check what this scenario needs (a file or a ready-made one): engines, programs, images, disk, stores",
        ),
    ] = None
    format: Annotated[Literal["text", "json"], Option("--format", "output format (default: text)")] = "text"
    directory: Annotated[
        tuple[str, ...],
        Option(
            "--directory DIR",
            "directory that stats files will go to; repeatable (default: the working and the temporary directory)",
        ),
    ] = ()
    ceiling: Annotated[
        bool,
        Option(
            "--ceiling",
            "also measure now, by no-op runs, how many jobs a second this program itself can do here, and keep it",
        ),
    ] = False
    engine: Annotated[
        tuple[EngineLabel, ...],
        engine_option(
            "also check an engine under a label, with another program or socket (with an inventory: on each host "
            "that has no such label of its own)"
        ),
    ] = ()
    quiet: bool
    """Show problems and warnings only."""
    extensions: CommandOptions = NO_OPTIONS
    terminal: TerminalOptions = DEFAULT_TERMINAL
    """How to show the findings on a terminal."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options, and those of features."""
    add_options(parser, Options)
    add_extensions(parser, COMMAND)


def run(options: Options) -> int:
    """Check and print the findings; return the exit code."""
    use_engine_labels(options.engine)
    code = done_instead(options, COMMAND)
    if code is not None:
        return code
    flags = ["--doctor"]
    for directory in options.directory:
        flags += ["--doctor-directory", directory]
    needs = scenario_needs(options.file)
    flags += worker_flags(options, needs)
    flags += [word for label in options.engine for word in ("--engine", str(label))]
    findings = needed_findings(query_worker(*flags, doing="checking this machine"), needs)
    if options.ceiling:
        findings = [*findings, *_ceilings()]
    shown = LEVELS[:2] if options.quiet else LEVELS
    findings_shown = [finding for finding in findings if finding["level"] in shown]
    if options.format == "json":
        sys.stdout.write(json.dumps(findings_shown, indent=2) + "\n")
    else:
        with text_output(options.terminal, paged=True) as out:
            out.write(render(findings_shown, findings))
    unfit = any(finding["level"] == "problem" for finding in findings)
    return int(ExitCode.INFRASTRUCTURE if unfit else ExitCode.OK)


def _ceilings() -> Iterator[dict[str, str]]:
    """Measure and keep what the harness itself can do on this machine; yield a finding on each ceiling."""
    from bench_master.run.ceilings import kept_here, measured_again, usual_setups

    with progress_message("measuring what this program itself can do"):
        found = list(measured_again(usual_setups(), kept_here()))
    for one in found:
        text = (
            f"{format_number(one.rate_per_s)} jobs/s is the most that this program itself can do ({one.setup.text})"
        )
        level, advice = "ok", ""
        if not one.neighbours.are_quiet:
            text += f", beside others with {format_percent(one.neighbours.others)} of the CPUs, so it may be more"
            level, advice = "warning", "measure it again while nothing else runs: a rate near it gets no verdict"
        yield {"check": "ceiling", "level": level, "value": str(one.rate_per_s), "finding": text, "advice": advice}


def worker_flags(options: Options, needs: ScenarioNeeds | None) -> list[str]:
    """Return the flags of the query that say what a scenario needs, and what features check."""
    wanted = list(needs.kinds) if needs is not None else []
    for extension in command_extensions(COMMAND):
        wanted += extension.needs(options)
    flags = [word for need in wanted for word in ("--doctor-jobs", msgspec.json.encode(need).decode())]
    return [*flags, *(needs.flags if needs is not None else ())]


def render(shown: Sequence[Mapping[str, Any]], findings: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the `shown` findings, most severe first, and a verdict on all `findings`."""
    lines = []
    for finding in sorted(shown, key=lambda finding: LEVELS.index(finding["level"])):
        head = f"{finding['level']:<{LEVEL_WIDTH}} {finding['check']:<{CHECK_WIDTH}} "
        indent = " " * len(head)
        lines += _wrap(finding["finding"], head, indent)
        if finding["advice"] and finding["level"] != "ok":
            lines += _wrap(finding["advice"], f"{indent}-> ", f"{indent}   ")
    counts = Counter(finding["level"] for finding in findings)
    if counts["problem"]:
        verdict = f"Not fit to measure: {plural(counts['problem'], 'problem')} to fix first."
    elif counts["warning"]:
        verdict = f"Fit to measure, with {plural(counts['warning'], 'warning')}: results will be noisier than needed."
    else:
        verdict = "Fit to measure."
    return "\n".join([*lines, "", *textwrap.wrap(verdict, page_width())] if lines else [verdict]) + "\n"


def _wrap(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(
        text, page_width(), initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
    ) or [first]
