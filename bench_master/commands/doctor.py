"""`bench-master doctor`: is this machine fit to measure, and what to do if not.

What `doctor -i` does: looks at every host of an inventory, and at what tells them apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench_common.errors import ExitCode, InfrastructureError
from bench_master.commands.fleet_options import (
    FleetProgress,
    add_inventory_options,
    launch_spec,
    report_new_host_keys,
    selected_inventory,
)
from bench_master.fleet.fleet import Difference, Fleet, HostReport, differences
from bench_master.fleet.hosts import FleetHost, Inventory
from bench_master.formatting import plural
from bench_master.layout import WIDTH
from bench_master.run.sockets import Ports
from bench_master.worker_query import query_worker

QUERIES: Final = (("--doctor",), ("--fingerprint",), ("--list-engines",))
SEVERE_LEVELS: Final = ("problem", "warning")
MAX_FIELD: Final = 160
"""How much of a value is shown, in characters."""


def check_fleet(arguments: argparse.Namespace) -> int:
    """Look at every host, print what was found and what differs; return the exit code."""
    inventory = selected_inventory(arguments)
    errand = launch_spec(arguments, inventory)
    with Fleet(inventory, errand, FleetProgress(inventory, quiet=arguments.quiet)) as fleet:
        answers = fleet.ask(QUERIES)
    report_new_host_keys(errand.known_hosts, quiet=arguments.quiet)
    looks = [
        host_report(host, told)
        for host, told in _host_answers(inventory, answers)
        if not isinstance(told, InfrastructureError)
    ]
    failed = {
        host.name: str(told)
        for host, told in _host_answers(inventory, answers)
        if isinstance(told, InfrastructureError)
    }
    found = differences(looks)
    if arguments.format == "json":
        sys.stdout.write(json.dumps(_document(looks, failed, found), indent=2) + "\n")
    else:
        sys.stdout.write(render_fleet(looks, failed, found))
    unfit = any(finding["level"] == "problem" for look in looks for finding in look.findings)
    return int(ExitCode.INFRASTRUCTURE if unfit or failed else ExitCode.OK)


def host_report(host: FleetHost, told: Sequence[Sequence[Mapping[str, Any]]]) -> HostReport:
    """Return what a host told in answer to `QUERIES`."""
    findings, (place,), engines = told
    return HostReport(
        host.name,
        host.environment or str(place["environment"]),
        place["facts"],
        place.get("shown", {}),
        frozenset(place.get("identity", ())),
        {str(row["name"]): str(row.get("version", "")) for row in engines if row.get("usable")},
        findings,
        {str(row["name"]): str(row.get("reason", "")) for row in engines if not row.get("usable")},
    )


def render_fleet(looks: Sequence[HostReport], failed: Mapping[str, str], found: Sequence[Difference]) -> str:
    """Return hosts, what is grave about them, and what differs, in 80 columns."""
    lines: list[str] = []
    for name, reason in failed.items():
        lines += _wrap_fleet(f"{name}: cannot be looked at: {reason}", "")
    for look in looks:
        counts = Counter(finding["level"] for finding in look.findings)
        grave = ", ".join(plural(counts[level], level) for level in SEVERE_LEVELS if counts[level]) or "fit"
        lines.append(f"{look.host} ({look.environment}): {grave}")
        for level in SEVERE_LEVELS:
            for finding in look.findings:
                if finding["level"] == level:
                    lines += _wrap_fleet(f"{level} {finding['check']}: {finding['finding']}", "  ")
    lines.append("")
    if len(looks) > 1:
        lines.append("What differs between hosts" if found else "No property that was looked at differs.")
    for difference in found:
        lines += _wrap_fleet(f"{difference.level} {difference.name}: {difference.meaning}", "  ")
        for value, hosts in difference.values.items():
            shown = value if len(value) <= MAX_FIELD else value[: MAX_FIELD - 3] + "..."
            lines += _wrap_fleet(f"{', '.join(hosts)}: {shown}", "      ")
    return "\n".join(lines).rstrip() + "\n"


def _wrap_fleet(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)


def _host_answers(inventory: Inventory, answers: Mapping[str, Any]) -> list[tuple[FleetHost, Any]]:
    return [(host, answers[host.name]) for host in inventory.hosts]


def _document(looks: Sequence[HostReport], failed: Mapping[str, str], found: Sequence[Difference]) -> dict[str, Any]:
    hosts: dict[str, Any] = {
        look.host: {
            "environment": look.environment,
            "findings": list(look.findings),
            "facts": dict(look.facts),
            "engines": dict(look.engines),
        }
        for look in looks
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
HELP = "look whether this machine is fit to measure, and say what to do if not"

EPILOG: Final = """\
Each finding is a problem (this machine cannot measure until it is repaired), a warning (results will be noisier,
or comparable to fewer others, than they could be), a note (worth knowing), or ok. With -q only problems and
warnings are shown.

Exit codes: 0 fit to measure, warnings or not; 3 a problem was found, or the machine could not be looked at.
"""

LEVELS: Final = ("problem", "warning", "note", "ok")
LEVEL_WIDTH: Final = 8
CHECK_WIDTH: Final = 13


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.epilog = EPILOG
    add_inventory_options(
        parser.add_argument_group("hosts of an inventory, side by side: what differs, beside what is wrong"),
        required=False,
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="how to show it (default: text)")
    parser.add_argument(
        "--directory",
        action="append",
        default=[],
        metavar="DIR",
        help="a directory that stats files will go to; repeatable (default: the working and the temporary one)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Do it; return the exit code."""
    if arguments.inventory is not None:
        return check_fleet(arguments)
    ports = Ports()
    flags = ["--doctor"]
    for port in (ports.control, ports.results, ports.work):
        flags += ["--doctor-port", str(port)]
    for directory in arguments.directory:
        flags += ["--doctor-directory", directory]
    findings = query_worker(*flags)
    shown = LEVELS[:2] if arguments.quiet else LEVELS
    findings_shown = [finding for finding in findings if finding["level"] in shown]
    if arguments.format == "json":
        sys.stdout.write(json.dumps(findings_shown, indent=2) + "\n")
    else:
        sys.stdout.write(render(findings_shown, findings))
    unfit = any(finding["level"] == "problem" for finding in findings)
    return int(ExitCode.INFRASTRUCTURE if unfit else ExitCode.OK)


def render(shown: Sequence[Mapping[str, Any]], findings: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of the `shown` findings, gravest first, with a verdict on all `findings`; 80 columns."""
    lines = []
    for finding in sorted(shown, key=lambda finding: LEVELS.index(finding["level"])):
        head = f"{finding['level']:<{LEVEL_WIDTH}} {finding['check']:<{CHECK_WIDTH}} "
        indent = " " * len(head)
        lines += _wrap(finding["finding"], head, indent)
        if finding["advice"] and finding["level"] != "ok":
            lines += _wrap(finding["advice"], f"{indent}-> ", f"{indent}   ")
    counts = Counter(finding["level"] for finding in findings)
    if counts["problem"]:
        verdict = f"Not fit to measure: {plural(counts['problem'], 'problem')} to repair first."
    elif counts["warning"]:
        verdict = (
            f"Fit to measure, with {plural(counts['warning'], 'warning')}: results will be noisier than need be."
        )
    else:
        verdict = "Fit to measure."
    return "\n".join([*lines, "", *textwrap.wrap(verdict, WIDTH)] if lines else [verdict]) + "\n"


def _wrap(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False) or [first]
