"""What object stores add to sub-commands: `doctor` logs in to them, `cleanup-containers` deletes what runs left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Struct

from bench_common.errors import UsageError
from bench_common.options import Heading, Option
from bench_common.streams import program_name, tell
from bench_features.objects.master.store_options import STORE_OPTIONS, StoreFlags
from bench_master.command_extension import CommandExtension

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench_common.requirements import KindNeed

STORE_TIMEOUT_S: Final = 86_400.0
"""How long the clean-up of a store may take, in seconds: it may hold millions of objects, and shows its progress."""


class StoreChecks(Struct, frozen=True):
    """What `doctor` is asked of stores."""

    stores: Annotated[
        tuple[str, ...],
        Option(
            "--store STORE[:PROFILE]",
            "log in to an object store, such as swift or s3:lab (a profile of stores.yaml); repeatable",
        ),
    ] = ()
    credentials: Annotated[StoreFlags, Heading(STORE_OPTIONS)] = StoreFlags()
    """How to log in to those without a profile."""


class StoreDoctor(CommandExtension):
    """Checks that stores can be logged in to."""

    command = "doctor"
    Options = StoreChecks

    def prepare(self, options: Any) -> None:
        """Put how stores are reached into the environment, which the worker inherits."""
        options.extensions.of(StoreChecks).credentials.apply(quiet=options.quiet)

    def needs(self, options: Any) -> Sequence[KindNeed]:
        """Return a need of jobs on each store that is named."""
        import msgspec

        from bench_common.cli import check_choice
        from bench_common.requirements import KindNeed
        from bench_features.objects.common.job import Objects
        from bench_features.objects.common.store_names import store_names

        wanted = []
        for text in options.extensions.of(StoreChecks).stores:
            store, _, profile = text.partition(":")
            check_choice(store, store_names(), what="store")
            wanted.append(KindNeed(store, msgspec.to_builtins(Objects((), profile=profile))))
        return wanted


class StoreCleanupOptions(Struct, frozen=True):
    """What `cleanup-containers` is asked to delete in a store."""

    store: Annotated[
        str | None,
        Option(
            "--store PROFILE|URL",
            "list what runs left in an object store: that of a profile, or (a URL, swift or s3) with the login of "
            "the environment; --yes deletes it",
        ),
    ] = None
    base: Annotated[
        str | None,
        Option(
            "--base BASE",
            "with --store: also our objects in the containers of this base (the scenario's, or ssbench's)",
        ),
    ] = None
    yes: Annotated[bool, Option("--yes", "with --store: delete what is listed")] = False
    credentials: Annotated[StoreFlags, Heading(STORE_OPTIONS)] = StoreFlags()
    """How to log in to a store without a profile."""


class StoreCleanup(CommandExtension):
    """Cleans up a store in the place of this machine."""

    command = "cleanup-containers"
    Options = StoreCleanupOptions

    def prepare(self, options: Any) -> None:
        """Put how stores are reached into the environment, which the worker inherits."""
        own = options.extensions.of(StoreCleanupOptions)
        own.credentials.apply()
        if own.store is None and (own.base is not None or own.yes):
            raise UsageError(f"{'--yes' if own.yes else '--base'} is for --store PROFILE|URL, which says which store")

    def instead(self, options: Any) -> int | None:
        """List or delete what is in the store that is named."""
        from bench_master.commands.cleanup_containers import find_leftovers, print_leftovers

        own = options.extensions.of(StoreCleanupOptions)
        if own.store is None:
            return None
        query = ["--cleanup-store", f"--store={own.store}", *([f"--base={own.base}"] if own.base else [])]
        dry = not own.yes or options.dry_run
        rows = find_leftovers(options, query, dry=dry, timeout_s=STORE_TIMEOUT_S)
        code = print_leftovers(options, rows, contents)
        if not own.yes and any(row["verdict"] == "listed" for row in rows):
            tell(f"{program_name()}: nothing was deleted; repeat it with --yes to delete what is listed")
        return code


def contents(row: Mapping[str, Any]) -> str:
    """Return what is in a container, in words."""
    others = f" and {row['others']} that are not ours" if row["others"] else ""
    return f"{row['objects']} objects{others}"


DOCTOR: Final = StoreDoctor()
CLEANUP: Final = StoreCleanup()
