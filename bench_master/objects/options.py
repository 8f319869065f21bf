"""The options of the command line that override a scenario's jobs on object stores."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from bench_common.argument_types import InvalidValue, int_range
from bench_common.errors import UsageError
from bench_common.objects.rules import objects_job
from bench_common.units import parse_size
from bench_master.objects.keys import ObjectKeys

if TYPE_CHECKING:
    from bench_common.treatment import Treatment
    from bench_master.options.load import LoadOptions
    from bench_master.scenario import Scenario

MAX_CONTAINERS: Final = 10**6
MAX_BLOCK_BYTES: Final = 1 << 30
MAX_DELETE_AFTER_S: Final = 10 * 365 * 86_400


def add_object_options(group: argparse._ActionsContainer) -> None:
    """Add what overrides a scenario's jobs on object stores."""
    group.add_argument(
        "-c",
        "--container-count",
        type=int_range(1, MAX_CONTAINERS),
        metavar="N",
        help="containers (buckets) that the objects are spread over",
    )
    group.add_argument(
        "-b",
        "--block-size",
        type=_size,
        metavar="BYTES",
        help="how much of an object is sent or received at once, such as 64KiB",
    )
    group.add_argument("-p", "--policy", metavar="NAME", help="storage policy of new containers")
    group.add_argument(
        "--delete-after",
        type=int_range(0, MAX_DELETE_AFTER_S),
        metavar="SECONDS",
        help="after how many seconds the store deletes an object by itself; 0: never",
    )


def _size(text: str) -> int:
    try:
        size = int(text) if text.isascii() and text.isdigit() else parse_size(text)
    except ValueError as error:
        raise InvalidValue(str(error)) from error
    if not 1 <= size <= MAX_BLOCK_BYTES:
        raise InvalidValue(f"{text!r}: expected 1 to {MAX_BLOCK_BYTES} bytes")
    return size


def apply_object_options(scenario: Scenario, options: LoadOptions) -> Scenario:
    """Return the scenario with `-c`, `-b`, `-p` and `--delete-after` in its jobs on objects."""
    given = {
        "--container-count": ("containers", options.container_count),
        "--block-size": ("block_bytes", options.block_size),
        "--policy": ("policy", options.policy),
        "--delete-after": ("delete_after_s", options.delete_after),
    }
    wanted = {flag: pair for flag, pair in given.items() if pair[1] is not None}
    if not wanted:
        return scenario
    kind = ObjectKeys()
    if not any(map(kind.owns, scenario.treatments)):
        flag, (_, value) = next(iter(wanted.items()))
        raise UsageError(f"{flag} {value}: the scenario has no jobs on objects")
    changes: dict[str, object] = dict(wanted.values())
    if options.delete_after == 0:
        changes["delete_after_s"] = None

    def change(treatment: Treatment) -> Treatment:
        if not kind.owns(treatment):
            return treatment
        return msgspec.structs.replace(treatment, job=msgspec.structs.replace(objects_job(treatment), **changes))

    return replace(scenario, treatments=tuple(change(treatment) for treatment in scenario.treatments))
