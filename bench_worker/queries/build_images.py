"""``bench-worker --build-images``: make the images of this installation on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

FLAG = "--build-images"
HELP = "build the images that scenarios use (all, or each --image), and print what was done"


def configure(group: argparse._ArgumentGroup) -> None:
    """Add the arguments of this query."""
    group.add_argument("--image", dest="images", metavar="NAME", action="append", default=[], help="build this image")
    group.add_argument(
        "--image-arg", dest="image_args", metavar="NAME=VALUE", action="append", default=[], help="a build argument"
    )
    group.add_argument("--image-force", action="store_true", help="build them even if up to date")
    group.add_argument("--image-dry-run", action="store_true", help="say what would be built; build nothing")
    group.add_argument("--image-quiet", action="store_true", help="print no progress on stderr")


def answer(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield one object for each image: image, action, source, identity, size_bytes, seconds."""
    from bench_worker.engines.registry import open_image_store
    from bench_worker.images.base_image import cache_folder, host_arguments
    from bench_worker.images.build import (
        NAMESPACE,
        Builder,
        all_recipes,
        check_arguments,
        in_build_order,
    )

    known = all_recipes()
    recipes = in_build_order(arguments.images, known)
    given = dict(text.split("=", 1) for text in arguments.image_args)
    check_arguments(given, recipes)
    named = {name.removeprefix(NAMESPACE) for name in arguments.images} or set(known)
    store = open_image_store()
    try:
        builder = Builder(
            store=store,
            host_arguments=host_arguments(known["base"].folder),
            cache=cache_folder(),
            progress=_discard_progress if arguments.image_quiet else _print_progress,
            verbose=arguments.verbose,
            arguments=given,
        )
        built = builder.build_all(
            recipes, forced=named if arguments.image_force else (), dry_run=arguments.image_dry_run
        )
        for image in built:
            yield image.to_json()
    finally:
        store.close()


def _print_progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _discard_progress(line: str) -> None:
    del line
