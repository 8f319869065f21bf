"""`bench-master doctor`: check whether this machine, or every host of an inventory, is fit to measure."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from bench_common.cli import check_choice
from bench_common.engine_traits import engine_traits
from bench_common.errors import ExitCode, InfrastructureError
from bench_common.job_rules import rules_of
from bench_common.objects.access import store_names
from bench_common.objects.job import Objects
from bench_common.requirements import DoctorNeeds, KindNeed, kinds_for_worker, requirements_for_worker
from bench_common.safe_text import flat_line, shorten
from bench_master.fleet.fleet import Difference, Fleet, FleetHostReport, differences
from bench_master.fleet.hosts import FleetHost
from bench_master.fleet.progress import FleetProgress, report_new_host_keys
from bench_master.formatting import page_width, plural
from bench_master.options.fleet import (
    InventoryOptions,
    add_inventory_options,
    launch_spec,
    selected_inventory,
)
from bench_master.options.store import NO_STORE_FLAGS, STORE_OPTIONS, StoreFlags, add_store_options
from bench_master.plan import needed_disk_bytes
from bench_master.run.endpoints import Ports
from bench_master.scenario.dialects import load_scenario_or_definition
from bench_master.terminal import text_output
from bench_master.terminal_options import DEFAULT_TERMINAL, TerminalOptions
from bench_master.worker_query import query_worker

QUERIES: Final = (("--doctor",), ("--fingerprint",), ("--list-engines",))
SEVERE_LEVELS: Final = ("problem", "warning")
MAX_FIELD: Final = 160
"""How much of a value is printed, in characters."""


class ScenarioNeeds(Struct, frozen=True):
    """What the treatments of a scenario need on the hosts that run them."""

    name: str
    """The scenario."""
    engines: frozenset[str]
    """The engines of its treatments."""
    programs: frozenset[str]
    """The programs of its native jobs and their services, as they must be on PATH."""
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
    programs: set[str] = set()
    for treatment in scenario.treatments:
        if engine_traits(treatment.engine).runs_on_host:
            programs |= {*rules_of(treatment).host_programs().values()}
    engines = frozenset(one.engine for one in scenario.treatments if one.job.uses_engine)
    kinds = list[KindNeed]()
    for one in scenario.treatments:
        kinds += [need for need in kinds_for_worker([one], one.environment or "") if need not in kinds]
    environments = dict.fromkeys(treatment.environment or "" for treatment in scenario.treatments)
    required = [need for place in environments for need in requirements_for_worker(scenario.treatments, place)]
    on_host = DoctorNeeds(list(dict.fromkeys(required)), needed_disk_bytes(scenario))
    return ScenarioNeeds(scenario.name, engines, frozenset(programs - {""}), tuple(kinds), on_host)


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
        if wanted & {value, text.partition(":")[0]}:
            found.append({**finding, "level": "problem"} if lacks else finding)
    return found


def check_fleet(options: Options, needs: ScenarioNeeds | None = None) -> int:
    """Check every host, print findings and differences; return the exit code."""
    inventory = selected_inventory(options.fleet)
    spec = launch_spec(options.fleet, inventory)
    with Fleet(inventory, spec, FleetProgress(inventory, quiet=options.quiet)) as fleet:
        doctor = (*QUERIES[0], *_store_flags(options, needs), *(needs.flags if needs is not None else ()))
        results = fleet.query((doctor, *QUERIES[1:]))
    report_new_host_keys(spec.known_hosts, quiet=options.quiet)
    reports: list[FleetHostReport] = []
    failed: dict[str, str] = {}
    for host in inventory.hosts:
        result = results[host.name]
        if isinstance(result, InfrastructureError):
            failed[host.name] = str(result)
        else:
            report = host_report(host, result)
            reports.append(replace(report, findings=needed_findings(report.findings, needs)))
    found = differences(reports)
    if options.format == "json":
        sys.stdout.write(json.dumps(_document(reports, failed, found), indent=2) + "\n")
    else:
        with text_output(options.terminal, paged=True) as out:
            out.write(render_fleet(reports, failed, found))
    unfit = any(finding["level"] == "problem" for report in reports for finding in report.findings)
    return int(ExitCode.INFRASTRUCTURE if unfit or failed else ExitCode.OK)


def host_report(host: FleetHost, results: Sequence[Sequence[Mapping[str, Any]]]) -> FleetHostReport:
    """Return the report of a host from its results of `QUERIES`."""
    findings, (place,), engines = results
    return FleetHostReport(
        host.name,
        host.environment or str(place["environment"]),
        place["facts"],
        place.get("shown", {}),
        frozenset(place.get("identity", ())),
        {str(row["name"]): str(row.get("version", "")) for row in engines if row.get("usable")},
        findings,
        {str(row["name"]): str(row.get("reason", "")) for row in engines if not row.get("usable")},
    )


def render_fleet(reports: Sequence[FleetHostReport], failed: Mapping[str, str], found: Sequence[Difference]) -> str:
    """Return the hosts with their problems and warnings, and how they differ, as wide as the page."""
    lines: list[str] = []
    for name, reason in failed.items():
        lines += _wrap_fleet(f"{name}: check failed: {reason}", "")
    for report in reports:
        counts = Counter(finding["level"] for finding in report.findings)
        summary = ", ".join(plural(counts[level], level) for level in SEVERE_LEVELS if counts[level]) or "fit"
        lines.append(flat_line(f"{report.host} ({report.environment}): {summary}"))
        for level in SEVERE_LEVELS:
            for finding in report.findings:
                if finding["level"] == level:
                    lines += _wrap_fleet(f"{level} {finding['check']}: {finding['finding']}", "  ")
    lines.append("")
    if len(reports) > 1:
        lines.append("Differences between the hosts" if found else "No differences between the hosts.")
    for difference in found:
        lines += _wrap_fleet(f"{difference.level} {difference.name}: {difference.meaning}", "  ")
        for value, hosts in difference.values.items():
            lines += _wrap_fleet(f"{', '.join(hosts)}: {shorten(value, MAX_FIELD)}", "      ")
    return "\n".join(lines).rstrip() + "\n"


def _wrap_fleet(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, page_width(), initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
    )


def _document(
    reports: Sequence[FleetHostReport], failed: Mapping[str, str], found: Sequence[Difference]
) -> dict[str, Any]:
    hosts: dict[str, Any] = {
        report.host: {
            "environment": report.environment,
            "findings": list(report.findings),
            "facts": dict(report.facts),
            "engines": dict(report.engines),
        }
        for report in reports
    }
    rows = [
        {
            "name": difference.name,
            "level": difference.level,
            "meaning": difference.meaning,
            "within": list(difference.within),
            "values": {value: list(names) for value, names in difference.values.items()},
        }
        for difference in found
    ]
    return {"hosts": hosts, "failed": dict(failed), "differences": rows}


EPILOG: Final = """\
Each finding is a problem (this machine cannot measure until it is fixed), a warning (results are noisier or less
comparable than they could be), a note (worth knowing), or ok. With -q only problems and warnings are shown.

Exit codes: 0 fit to measure, with or without warnings; 3 there is a problem, or the check failed.
"""

LEVELS: Final = ("problem", "warning", "note", "ok")
LEVEL_WIDTH: Final = 8
CHECK_WIDTH: Final = 13


class Options(Struct, frozen=True):
    """The command line of `doctor`."""

    fleet: InventoryOptions
    """The hosts to check; none: this machine."""
    file: str | None
    """A scenario: check what it needs; None: what any scenario may need."""
    directory: tuple[str, ...]
    """Directories for stats files, to check for space."""
    format: str
    """``text`` or ``json``."""
    quiet: bool
    """Show problems and warnings only."""
    stores: tuple[str, ...] = ()
    """Object stores to log in to, as ``STORE`` or ``STORE:PROFILE``."""
    credentials: StoreFlags = NO_STORE_FLAGS
    """How to log in to those without a profile."""
    terminal: TerminalOptions = DEFAULT_TERMINAL
    """How to show the findings on a terminal."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = EPILOG
    add_inventory_options(
        parser.add_argument_group("hosts of an inventory (compared with each other, too)"),
        required=False,
    )
    parser.add_argument(
        "-f",
        "--file",
        metavar="X.yaml",
        help="check what this scenario needs (a file or a ready-made one): engines, programs, images, disk, stores",
    )
    parser.add_argument(
        "--store",
        dest="stores",
        action="append",
        default=[],
        metavar="STORE[:PROFILE]",
        help="log in to an object store, such as swift or s3:lab (a profile of stores.yaml); repeatable",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format (default: text)")
    parser.add_argument(
        "--directory",
        action="append",
        default=[],
        metavar="DIR",
        help="directory that stats files will go to; repeatable (default: the working and the temporary directory)",
    )
    add_store_options(parser.add_argument_group(STORE_OPTIONS))


def run(options: Options) -> int:
    """Check and print the findings; return the exit code."""
    options.credentials.apply(quiet=options.quiet)
    if options.fleet.inventory is not None:
        return check_fleet(options, scenario_needs(options.file))
    ports = Ports()
    flags = ["--doctor"]
    for port in (ports.control, ports.results, ports.work):
        flags += ["--doctor-port", str(port)]
    for directory in options.directory:
        flags += ["--doctor-directory", directory]
    needs = scenario_needs(options.file)
    flags += _store_flags(options, needs)
    flags += needs.flags if needs is not None else ()
    findings = needed_findings(query_worker(*flags, doing="checking this machine"), needs)
    shown = LEVELS[:2] if options.quiet else LEVELS
    findings_shown = [finding for finding in findings if finding["level"] in shown]
    if options.format == "json":
        sys.stdout.write(json.dumps(findings_shown, indent=2) + "\n")
    else:
        with text_output(options.terminal, paged=True) as out:
            out.write(render(findings_shown, findings))
    unfit = any(finding["level"] == "problem" for finding in findings)
    return int(ExitCode.INFRASTRUCTURE if unfit else ExitCode.OK)


def _store_flags(options: Options, needs: ScenarioNeeds | None) -> list[str]:
    """Return the flags of the query for the stores that are named, and those of the scenario."""
    wanted = list(needs.kinds) if needs is not None else []
    for text in options.stores:
        store, _, profile = text.partition(":")
        wanted.append(
            KindNeed(
                check_choice(store, store_names(), what="store"), msgspec.to_builtins(Objects((), profile=profile))
            )
        )
    return [word for need in wanted for word in ("--doctor-store", msgspec.json.encode(need).decode())]


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
