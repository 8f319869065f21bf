"""`bench-master doctor -i`: check whether the hosts of an inventory are fit to measure, and how they differ."""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from bench_common.engine_traits import EngineLabel, engine_kind, engine_labels
from bench_common.errors import ExitCode, InfrastructureError
from bench_common.safe_text import flat_line, shorten
from bench_features.fleet.fleet import Difference, Fleet, FleetHostReport, differences
from bench_features.fleet.hosts import FleetHost, Inventory
from bench_features.fleet.options import InventoryOptions, launch_spec, selected_inventory
from bench_features.fleet.progress import FleetProgress, report_new_host_keys
from bench_master.commands.doctor import Options, ScenarioNeeds, needed_findings, worker_flags
from bench_master.formatting import page_width, plural
from bench_master.terminal import text_output

QUERIES: Final = (("--doctor",), ("--fingerprint",), ("--list-engines",))
SEVERE_LEVELS: Final = ("problem", "warning")
MAX_FIELD: Final = 160
"""How much of a value is printed, in characters."""


def check_fleet(options: Options, needs: ScenarioNeeds | None = None) -> int:
    """Check every host, print findings and differences; return the exit code."""
    hosts = options.extensions.of(InventoryOptions)
    inventory = with_labels(selected_inventory(hosts), options.engine)
    spec = launch_spec(hosts, inventory)
    with Fleet(inventory, spec, FleetProgress(inventory, quiet=options.quiet)) as fleet:
        doctor = (*QUERIES[0], *worker_flags(options, needs))
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
            findings = [*needed_findings(report.findings, needs), *lacking_labels(host, needs)]
            reports.append(replace(report, findings=findings))
    found = differences(reports)
    if options.format == "json":
        sys.stdout.write(json.dumps(_document(reports, failed, found), indent=2) + "\n")
    else:
        with text_output(options.terminal, paged=True) as out:
            out.write(render_fleet(reports, failed, found))
    unfit = any(finding["level"] == "problem" for report in reports for finding in report.findings)
    return int(ExitCode.INFRASTRUCTURE if unfit or failed else ExitCode.OK)


def with_labels(inventory: Inventory, labels: Iterable[EngineLabel]) -> Inventory:
    """Return an inventory whose hosts have those of the labels, too, that have places and that they have not."""
    given = [label for label in labels if label.place]

    def extended(host: FleetHost) -> FleetHost:
        own = {label.label for label in host.engines}
        return replace(host, engines=(*host.engines, *(label for label in given if label.label not in own)))

    return replace(inventory, hosts=tuple(map(extended, inventory.hosts))) if given else inventory


def lacking_labels(host: FleetHost, needs: ScenarioNeeds | None) -> list[dict[str, Any]]:
    """Return a problem for each label of an engine that a scenario names and a host does not have."""
    own = {label.label for label in host.engines}
    wanted = set() if needs is None else needs.engines & {label.label for label in engine_labels()}
    return [
        {
            "check": "engine",
            "level": "problem",
            "finding": f"{name}: this host has no engine under this label",
            "value": name,
            "advice": f"add 'engines: {{{name}: {engine_kind(name)}:PLACE}}' to the host in the inventory",
        }
        for name in sorted(wanted - own)
    ]


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
