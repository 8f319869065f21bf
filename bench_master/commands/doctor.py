"""`bench-master doctor`: is this machine fit to measure, and what to do if not."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from bench_common.errors import ExitCode
from bench_master.commands.fleet_doctor import examine_fleet
from bench_master.commands.fleet_options import add_inventory
from bench_master.local_worker import ask_worker
from bench_master.run.endpoints import Ports

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
    add_inventory(
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
        return examine_fleet(arguments)
    ports = Ports()
    flags = ["--doctor"]
    for port in (ports.control, ports.results, ports.work):
        flags += ["--doctor-port", str(port)]
    for directory in arguments.directory:
        flags += ["--doctor-directory", directory]
    findings = ask_worker(*flags)
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
        lines += _wrapped(finding["finding"], head, indent)
        if finding["advice"] and finding["level"] != "ok":
            lines += _wrapped(finding["advice"], f"{indent}-> ", f"{indent}   ")
    counts = Counter(finding["level"] for finding in findings)
    if counts["problem"]:
        verdict = f"Not fit to measure: {_counted(counts['problem'], 'problem')} to repair first."
    elif counts["warning"]:
        verdict = (
            f"Fit to measure, with {_counted(counts['warning'], 'warning')}: results will be noisier than need be."
        )
    else:
        verdict = "Fit to measure."
    return "\n".join([*lines, "", *textwrap.wrap(verdict, WIDTH)] if lines else [verdict]) + "\n"


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False) or [first]


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
