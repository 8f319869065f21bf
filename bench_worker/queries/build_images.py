"""`bench-worker --build-images`: build the images of this installation on this machine."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

FLAG = "--build-images"
HELP = "build the images that scenarios use: all, or each --image"


class Options(Struct, frozen=True):
    """The arguments of this query."""

    images: tuple[str, ...]
    """The images to build; empty: all."""
    image_args: tuple[str, ...]
    """Build arguments, as ``NAME=VALUE``."""
    image_contexts: tuple[str, ...]
    """Folders to build images from in place of their own, as ``NAME=FOLDER``."""
    image_force: bool
    image_dry_run: bool
    """Build nothing; report what would be built."""
    image_quiet: bool
    verbose: bool
    """Print the output of the build steps."""


def configure(group: argparse._ArgumentGroup) -> None:
    """Add the arguments of this query."""
    group.add_argument(
        "--image", dest="images", metavar="NAME", action="append", default=[], help="build this image; repeatable"
    )
    group.add_argument(
        "--image-arg",
        dest="image_args",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="build argument of the Dockerfile; repeatable",
    )
    group.add_argument(
        "--image-context",
        dest="image_contexts",
        metavar="NAME=FOLDER",
        action="append",
        default=[],
        help="build this image from a folder that has its Dockerfile and more; repeatable",
    )
    group.add_argument("--image-force", action="store_true", help="rebuild even images that are up to date")
    group.add_argument("--image-dry-run", action="store_true", help="report what would be built, and build nothing")
    group.add_argument("--image-quiet", action="store_true", help="print no progress of builds to stderr")


def run(options: Options) -> Iterator[dict[str, Any]]:
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
    for text in options.image_contexts:
        name, _, folder = text.partition("=")
        known[name] = replace(known[name], folder=Path(folder))
    recipes = in_build_order(options.images, known)
    given = dict(text.split("=", 1) for text in options.image_args)
    check_arguments(given, recipes)
    named = {name.removeprefix(NAMESPACE) for name in options.images} or set(known)
    store = open_image_store()
    try:
        builder = Builder(
            store=store,
            host_arguments=host_arguments(known["base"].folder),
            cache=cache_folder(),
            progress=_discard_progress if options.image_quiet else _print_progress,
            verbose=options.verbose,
            arguments=given,
        )
        built = builder.build_all(recipes, forced=named if options.image_force else (), dry_run=options.image_dry_run)
        for image in built:
            yield image.to_json()
    finally:
        store.close()


def _print_progress(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _discard_progress(line: str) -> None:
    del line
