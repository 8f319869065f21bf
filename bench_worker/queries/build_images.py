"""`bench-worker --build-images`: build the images of this installation on this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from bench_common.options import Option

FLAG = "--build-images"
HELP = "build the images that scenarios use: all, or each --image"


class Options(Struct, frozen=True, kw_only=True):
    """The arguments of this query."""

    images: Annotated[tuple[str, ...], Option("--image NAME", "build this image; repeatable")] = ()
    image_args: Annotated[
        tuple[str, ...], Option("--image-arg NAME=VALUE", "build argument of the Dockerfile; repeatable")
    ] = ()
    image_contexts: Annotated[
        tuple[str, ...],
        Option(
            "--image-context NAME=FOLDER",
            "build this image from a folder that has its Dockerfile and more; repeatable",
        ),
    ] = ()
    image_force: Annotated[bool, Option("--image-force", "rebuild even images that are up to date")] = False
    image_dry_run: Annotated[bool, Option("--image-dry-run", "report what would be built, and build nothing")] = False
    image_quiet: Annotated[bool, Option("--image-quiet", "print no progress of builds to stderr")] = False
    verbose: bool
    """Print the output of the build steps."""


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
