"""`bench-master build-images`: build the images that scenarios use, with or without a registry."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Annotated, Any, Final

from msgspec import Struct

from bench_common.errors import ExitCode, UsageError
from bench_common.options import Option
from bench_common.safe_text import flat_line
from bench_master.command_extension import command_extensions
from bench_master.worker_query import query_worker

COMMAND: Final = "build-images"
_LIMIT_S: Final = 3600.0
"""Enough for a few images from a slow mirror; every step has its own, shorter limit."""


class Options(Struct, frozen=True, kw_only=True):
    """The command line of `build-images`."""

    names: Annotated[
        tuple[str, ...],
        Option(
            "NAME",
            "image to build, such as sysbench (default: all but those that are built on request only)",
            nargs="*",
        ),
    ]
    build_arg: Annotated[
        tuple[str, ...],
        Option(
            "--build-arg NAME=VALUE",
            "build argument of the Dockerfile, such as DISTRIBUTION=nixos/nix for blogbench; for one named image",
        ),
    ] = ()
    force: Annotated[bool, Option("--force", "rebuild the named images even if they are up to date")] = False
    dry_run: Annotated[bool, Option("--dry-run", "print what would be built, and build nothing")] = False
    quiet: bool
    verbose: bool
    """Print the output of the build steps."""


def run(options: Options) -> int:
    """Build the images; print one line for each."""
    for text in options.build_arg:
        name, equals, _ = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--build-arg {text}: expected NAME=VALUE, such as DISTRIBUTION=nixos/nix")
    if options.build_arg and len(options.names) != 1:
        raise UsageError("--build-arg applies to one image: name it, such as build-images blogbench")
    flags = ["--build-images", *(f"--image={name}" for name in options.names)]
    flags += [f"--image-arg={text}" for text in options.build_arg]
    flags += ["--image-force"] if options.force else []
    flags += ["--image-dry-run"] if options.dry_run else []
    flags += ["--verbose"] if options.verbose else []
    flags += ["--image-quiet"] if options.quiet else []
    with ExitStack() as stack:
        for extension in command_extensions(COMMAND):
            flags += stack.enter_context(extension.query_flags(options))
        for built in query_worker(*flags, timeout_s=_LIMIT_S, doing="building images"):
            if not options.quiet:
                sys.stdout.write(flat_line(format_result(built)) + "\n")
    return int(ExitCode.OK)


def format_result(built: dict[str, Any]) -> str:
    """Return a result as one line: image, action, size and time if known, source."""
    facts = [f"{built['size_bytes'] / 1e6:.0f} MB"] if built["size_bytes"] else []
    facts += [f"{built['seconds']:.1f} s"] if built["action"] == "built" else []
    return f"{built['image']:<24} {built['action']:<12} {', '.join([*facts, built['source']])}"
