"""What a fleet adds to sub-commands: `doctor` checks its hosts, `build-images` makes the image of a worker."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from bench_common.options import add_options
from bench_features.fleet.options import InventoryOptions
from bench_master.command_extension import CommandExtension

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence


class FleetDoctor(CommandExtension):
    """Checks the hosts of an inventory in the place of this machine, and compares them."""

    command = "doctor"
    Options = InventoryOptions

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the inventory."""
        hosts = parser.add_argument_group("hosts of an inventory (compared with each other, too)")
        add_options(hosts, InventoryOptions)

    def instead(self, options: Any) -> int | None:
        """Check the hosts, if there is an inventory."""
        if options.extensions.of(InventoryOptions).inventory is None:
            return None
        from bench_features.fleet.host_checks import check_fleet
        from bench_features.fleet.options import selected_inventory
        from bench_master.commands.doctor import scenario_needs
        from bench_master.options.engines import use_labels_of

        hosts = selected_inventory(options.extensions.of(InventoryOptions)).hosts
        # A scenario may name those of any host.
        use_labels_of(options.engine, [(f"host {host.name}", label) for host in hosts for label in host.engines])
        return check_fleet(options, scenario_needs(options.file))


class NoOptions(Struct, frozen=True):
    """No options."""


class WorkerImage(CommandExtension):
    """Packs this installation for the image of a worker, which the workers of a cluster run in."""

    command = "build-images"
    Options = NoOptions

    @contextmanager
    def query_flags(self, options: Any) -> Iterator[Sequence[str]]:
        """Yield the flags for that image, if it is wanted: a folder with the wheels of this installation."""
        import tempfile
        from pathlib import Path

        from bench_features.fleet.worker_image import IMAGE, write_context
        from bench_master.progress_message import progress_message

        if IMAGE not in (name.removeprefix("weighbridge/").removesuffix(":latest") for name in options.names):
            yield ()
            return
        with tempfile.TemporaryDirectory(prefix="weighbridge-image-") as folder:
            with progress_message("packing this installation"):
                write_context(Path(folder))
            yield (f"--image-context={IMAGE}={folder}",)


BUILD_IMAGES: Final = WorkerImage()
DOCTOR: Final = FleetDoctor()
