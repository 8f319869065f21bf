"""What object stores add to runs: options that override a scenario's jobs on them, and how the stores are reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Struct

from bench_common.argument_types import InvalidValue, int_range
from bench_common.errors import UsageError
from bench_common.options import Option, add_options
from bench_common.secret import Secret
from bench_common.units import parse_size
from bench_features.objects.master.store_options import STORE_OPTIONS, StoreFlags
from bench_master.run_extension import OptionGroups, RunExtension

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import Treatment
    from bench_master.options.run import RunOptions
    from bench_master.scenario.model import Scenario

MAX_CONTAINERS: Final = 10**6
MAX_BLOCK_BYTES: Final = 1 << 30
MAX_DELETE_AFTER_S: Final = 10 * 365 * 86_400


class ObjectOptions(Struct, frozen=True):
    """What overrides a scenario's jobs on object stores; None leaves a value to the scenario."""

    container_count: Annotated[
        int | None,
        Option(
            "-c, --container-count N",
            "containers (buckets) that the objects are spread over",
            type=int_range(1, MAX_CONTAINERS),
        ),
    ] = None
    block_size: Annotated[
        int | None,
        Option(
            "-b, --block-size BYTES", "how much of an object is sent or received at once, such as 64KiB", type=_size
        ),
    ] = None
    policy: Annotated[str | None, Option("-p, --policy NAME", "storage policy of new containers")] = None
    delete_after: Annotated[
        int | None,
        Option(
            "--delete-after SECONDS",
            "after how many seconds the store deletes an object by itself; 0: never",
            type=int_range(0, MAX_DELETE_AFTER_S),
        ),
    ] = None


def _size(text: str) -> int:
    try:
        size = int(text) if text.isascii() and text.isdigit() else parse_size(text)
    except ValueError as error:
        raise InvalidValue(str(error)) from error
    if not 1 <= size <= MAX_BLOCK_BYTES:
        raise InvalidValue(f"{text!r}: expected 1 to {MAX_BLOCK_BYTES} bytes")
    return size


def apply_object_options(scenario: Scenario, options: ObjectOptions) -> Scenario:
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
    import msgspec

    from bench_features.objects.common.rules import objects_job
    from bench_features.objects.master.part import ObjectKeys

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

    return msgspec.structs.replace(scenario, treatments=tuple(change(treatment) for treatment in scenario.treatments))


class ObjectExtension(RunExtension):
    """Overrides a scenario's jobs on object stores."""

    Options = ObjectOptions
    keeps_options = True

    def add_options(self, groups: OptionGroups) -> None:
        """Add what overrides them."""
        add_options(groups.named("object stores (overrides the scenario)"), ObjectOptions)

    def change_scenario(self, scenario: Scenario, options: RunOptions) -> Scenario:
        """Return the scenario with these values in its jobs on objects."""
        return apply_object_options(scenario, options.extensions.of(ObjectOptions))


class StoreExtension(RunExtension):
    """Says how stores are reached."""

    Options = StoreFlags

    def add_options(self, groups: OptionGroups) -> None:
        """Add the login; a command without a scenario file has no jobs on objects."""
        if groups.takes_file:
            add_options(groups.named(STORE_OPTIONS), StoreFlags)

    def prepare(self, options: RunOptions) -> None:
        """Put the login into the environment, which local workers inherit."""
        options.extensions.of(StoreFlags).apply(quiet=options.quiet)

    def credentials(self, options: RunOptions, *, encrypted: bool) -> Mapping[str, Secret]:
        """Return what the command line says of them."""
        given = options.extensions.of(StoreFlags).variables
        if given and not encrypted:
            raise UsageError(
                "--insecure: credentials of a store go to other hosts over encrypted connections only: leave "
                "--insecure out (docs/security.rst), or set ST_*, OS_* or AWS_* or a profile on each host"
            )
        return {name: Secret(value) for name, value in given.items()}


OBJECTS: Final = ObjectExtension()
STORES: Final = StoreExtension()
