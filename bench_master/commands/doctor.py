"""`bench-master doctor`: check whether this machine, or every host of an inventory, is fit to measure."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench_common.errors import ExitCode, InfrastructureError
from bench_common.safe_text import flat_line
from bench_master.commands.fleet_options import (
    FleetProgress,
    InventoryOptions,
    add_inventory_options,
    launch_spec,
    report_new_host_keys,
    selected_inventory,
)
from bench_master.fleet.fleet import Difference, Fleet, FleetHostReport, differences
from bench_master.fleet.hosts import FleetHost
from bench_master.formatting import WIDTH, plural
from bench_master.run.endpoints import Ports
from bench_master.worker_query import query_worker

QUERIES: Final = (("--doctor",), ("--fingerprint",), ("--list-engines",))
SEVERE_LEVELS: Final = ("problem", "warning")
MAX_FIELD: Final = 160
"""How much of a value is printed, in characters."""


def check_fleet(options: Options) -> int:
    """Check every host, print findings and differences; return the exit code."""
    inventory = selected_inventory(options.fleet)
    spec = launch_spec(options.fleet, inventory)
    with Fleet(inventory, spec, FleetProgress(inventory, quiet=options.quiet)) as fleet:
        results = fleet.query(QUERIES)
    report_new_host_keys(spec.known_hosts, quiet=options.quiet)
    reports: list[FleetHostReport] = []
    failed: dict[str, str] = {}
    for host in inventory.hosts:
        result = results[host.name]
        if isinstance(result, InfrastructureError):
            failed[host.name] = str(result)
        else:
            reports.append(host_report(host, result))
    found = differences(reports)
    if options.format == "json":
        sys.stdout.write(json.dumps(_document(reports, failed, found), indent=2) + "\n")
    else:
        sys.stdout.write(render_fleet(reports, failed, found))
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
    """Return the hosts with their problems and warnings, and how they differ, in 80 columns."""
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
            shown = value if len(value) <= MAX_FIELD else value[: MAX_FIELD - 3] + "..."
            lines += _wrap_fleet(f"{', '.join(hosts)}: {shown}", "      ")
    return "\n".join(lines).rstrip() + "\n"


def _wrap_fleet(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)


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


NAME = "doctor"
HELP = "check whether this machine is fit to measure, and advise what to fix"

EPILOG: Final = """\
Each finding is a problem (this machine cannot measure until it is fixed), a warning (results are noisier or less
comparable than they could be), a note (worth knowing), or ok. With -q only problems and warnings are shown.

Exit codes: 0 fit to measure, with or without warnings; 3 there is a problem, or the check failed.
"""

LEVELS: Final = ("problem", "warning", "note", "ok")
LEVEL_WIDTH: Final = 8
CHECK_WIDTH: Final = 13


@dataclass(frozen=True, slots=True)
class Options:
    """The command line of `doctor`."""

    fleet: InventoryOptions
    """The hosts to check; none: this machine."""
    directory: tuple[str, ...]
    """Directories for stats files, to check for space."""
    format: str
    """``text`` or ``json``."""
    quiet: bool
    """Show problems and warnings only."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = EPILOG
    add_inventory_options(
        parser.add_argument_group("hosts of an inventory (compared with each other, too)"),
        required=False,
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format (default: text)")
    parser.add_argument(
        "--directory",
        action="append",
        default=[],
        metavar="DIR",
        help="directory that stats files will go to; repeatable (default: the working and the temporary directory)",
    )


def run(options: Options) -> int:
    """Check and print the findings; return the exit code."""
    if options.fleet.inventory is not None:
        return check_fleet(options)
    ports = Ports()
    flags = ["--doctor"]
    for port in (ports.control, ports.results, ports.work):
        flags += ["--doctor-port", str(port)]
    for directory in options.directory:
        flags += ["--doctor-directory", directory]
    findings = query_worker(*flags)
    shown = LEVELS[:2] if options.quiet else LEVELS
    findings_shown = [finding for finding in findings if finding["level"] in shown]
    if options.format == "json":
        sys.stdout.write(json.dumps(findings_shown, indent=2) + "\n")
    else:
        sys.stdout.write(render(findings_shown, findings))
    unfit = any(finding["level"] == "problem" for finding in findings)
    return int(ExitCode.INFRASTRUCTURE if unfit else ExitCode.OK)


def render(shown: Sequence[Mapping[str, Any]], findings: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the `shown` findings, most severe first, and a verdict on all `findings`; 80 columns."""
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
    return "\n".join([*lines, "", *textwrap.wrap(verdict, WIDTH)] if lines else [verdict]) + "\n"


def _wrap(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False) or [first]
