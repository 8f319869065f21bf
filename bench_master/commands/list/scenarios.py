"""`bench-master list scenarios`: list the ready-made scenarios with what they take."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import asdict

from bench_common.errors import UsageError
from bench_common.options import add_options
from bench_master.formatting import choose_format, format_span, plural, tab_separated, wrap_last_column
from bench_master.options.list_format import ListFormat
from bench_master.plan import estimate_seconds, make_plan, needed_disk_bytes
from bench_master.progress_message import progress_message
from bench_master.scenario import builtin_scenarios, load_scenario
from bench_master.scenario.keys_run import SCALE
from bench_master.scenario.master_part import master_parts

if TYPE_CHECKING:
    from bench_master.scenario import Scenario


SMALL: Final = "small"
"""The profile that the ready-made scenarios have for a first look."""
COLUMNS: Final = ("SCENARIO", "TREATMENTS", "TIME", "SMALL", "DISK", "IMAGES", "DESCRIPTION")
"""The columns of the tab-separated list."""
TABLE: Final = ("SCENARIO", "TIME", "SMALL", "DISK", "DESCRIPTION")
"""The columns of the table on a terminal."""
WIDTH: Final = 74
"""Columns of the text below the table."""


def explanation() -> str:
    """Return what the columns mean, with what kinds of jobs assume of their times."""
    notes = "".join(f"; {part.time_note}" for part in master_parts().values() if part.time_note)
    beginning = f"Times are rough and for one worker{notes}. SMALL is the time with"
    return (
        f"{textwrap.fill(beginning, WIDTH)}\n--set {SCALE}={SMALL}. DISK is about what the jobs write, besides the "
        "images.\n'build-images' makes the images.\n"
    )


class Options(Struct, frozen=True):
    """The command line of `list scenarios`."""

    format: ListFormat = None


class Row(Struct, frozen=True):
    """What a scenario is and takes; None where it cannot be known."""

    scenario: str
    treatments: int | None
    """How many treatments it has."""
    seconds: float | None
    """About how long it takes with one worker (s)."""
    small_seconds: float | None
    """The same at the scale `SMALL`; None also where it has no such scale."""
    disk_bytes: int | None
    """About how much disk its jobs take at once, besides the images."""
    images: tuple[str, ...]
    """The images that it needs."""
    description: str
    """What it measures, or why it cannot be loaded."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    parser.epilog = explanation()
    add_options(parser, Options)


def run(options: Options) -> int:
    """Print the ready-made scenarios."""
    with progress_message("reading the ready-made scenarios"):
        rows = [_row(name) for name in builtin_scenarios()]
    chosen = choose_format(options.format)
    if chosen == "json":
        lines = [json.dumps([asdict(row) for row in rows], indent=2)]
    elif chosen == "table":
        lines = [*wrap_last_column(TABLE, [_table_cells(row) for row in rows]), "", *explanation().splitlines()]
    else:
        lines = tab_separated([COLUMNS, *(_all_cells(row) for row in rows)])
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _all_cells(row: Row) -> tuple[str, ...]:
    count = "-" if row.treatments is None else str(row.treatments)
    shown = format_span(_rough(row.seconds)), format_span(_rough(row.small_seconds)), _format_disk(row.disk_bytes)
    return row.scenario, count, *shown, " ".join(row.images) or "-", row.description


def _table_cells(row: Row) -> tuple[str, ...]:
    scenario, _, seconds, small, disk, images, description = _all_cells(row)
    if row.treatments is not None:
        needed = "no image" if images == "-" else f"images {images}"
        description += f" ({plural(row.treatments, 'treatment')}; {needed})"
    return scenario, seconds, small, disk, description


def _rough(seconds: float | None) -> float | None:
    """Return a duration that is an estimate: to two digits, to the minute, and from two hours on to ten of them."""
    if seconds is None:
        return None
    step_s = 600 if seconds >= 7200 else 60 if seconds >= 100 else 0  # noqa: PLR2004  two digits are left
    return round(seconds / step_s) * float(step_s) if step_s else float(f"{seconds:.2g}")


def _format_disk(size: int | None) -> str:
    if size is None:
        return "-"
    if size < 10**9:
        return f"{float(f'{size / 1e6:.2g}'):g}MB" if size else "0"
    return f"{float(f'{size / 1e9:.2g}'):g}GB"


def _row(name: str) -> Row:
    try:
        scenario = load_scenario(name)
        small = load_scenario(name, [f"{SCALE}={SMALL}"]) if SMALL in scenario.profiles else None
    except UsageError as error:
        # A scenario may need an engine or workload that is not installed; list the others nevertheless.
        return Row(name, None, None, None, None, (), f"cannot load: {str(error).splitlines()[0]}")
    return Row(
        name,
        len(scenario.treatments),
        _seconds(scenario),
        None if small is None else _seconds(small),
        needed_disk_bytes(scenario),
        needed_images(scenario),
        scenario.description,
    )


def _seconds(scenario: Scenario) -> float:
    plan = make_plan(scenario, seed=0)
    seconds, _ = estimate_seconds(plan, [1] * len(plan.treatments))
    return seconds


def needed_images(scenario: Scenario) -> tuple[str, ...]:
    """Return the images of a scenario's containers and services, without the name that ours begin with."""
    containers = [one for each in scenario.treatments for one in (each.container, *each.services.values())]
    return tuple(dict.fromkeys(one.image.removeprefix("weighbridge/") for one in containers if one.image))
