"""What object stores add to runs: options that override a scenario's jobs on them, and how the stores are reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Struct

from bench_common.argument_types import InvalidValue, int_range
from bench_common.errors import UsageError
from bench_common.options import Option, add_options
from bench_common.secret import Secret
from bench_common.units import format_duration, parse_size
from bench_features.objects.master.store_options import STORE_OPTIONS, StoreFlags
from bench_master.run_extension import OptionGroups, RunExtension
from bench_master.scenario.overrides import jobs_of, node_of, refuse_varied, set_path
from bench_master.scenario.yaml_tree import MappingNode, SourceLocation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_master.options.run import RunOptions
    from bench_master.scenario.diagnostics import Diagnostics

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


def change_objects(options: ObjectOptions, root: MappingNode, findings: Diagnostics) -> None:
    """Put `-c`, `-b`, `-p` and `--delete-after` into the jobs on objects of a scenario's tree."""
    after = options.delete_after
    given = (
        ("--container-count", "containers.count", options.container_count),
        ("--block-size", "block", options.block_size),
        ("--policy", "containers.policy", options.policy),
        ("--delete-after", "delete_after", format_duration(after) if after else after),
    )
    jobs = [job for job in jobs_of(root) if "objects" in job.values]
    for flag, name, value in given:
        if value is None:
            continue
        place, key = SourceLocation(f"{flag} {value}"), f"objects.{name}"
        if not jobs:
            findings.add(place, "the scenario has no jobs on objects")
        refuse_varied(root, key, value, place, findings)
        for job in jobs:
            own = job.values["objects"]
            if value == 0 and isinstance(own, MappingNode):  # never: as without the key
                own.values.pop(name, None)
            else:
                set_path(job, key, node_of(value, place), place, findings)


class ObjectExtension(RunExtension):
    """Overrides a scenario's jobs on object stores."""

    Options = ObjectOptions
    keeps_options = True

    def add_options(self, groups: OptionGroups) -> None:
        """Add what overrides them; a command without a scenario file has no jobs on objects."""
        if groups.takes_file:
            add_options(groups.named("object stores (overrides the scenario)"), ObjectOptions)

    def change_tree(self, options: RunOptions, root: MappingNode, findings: Diagnostics) -> None:
        """Put these values into the jobs on objects."""
        change_objects(options.extensions.of(ObjectOptions), root, findings)


class StoreExtension(RunExtension):
    """Says how stores are reached."""

    Options = StoreFlags

    def add_options(self, groups: OptionGroups) -> None:
        """Add the login, for the same commands."""
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
