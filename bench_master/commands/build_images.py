"""`bench-master build-images`: the images that scenarios use, made on this machine, with or without a registry."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from bench_common.errors import ExitCode, UsageError
from bench_master.worker_query import query_worker

NAME = "build-images"
HELP = "build the images that scenarios use, from debootstrap where no registry can be reached"

_LIMIT_S: Final = 3600.0
"""A slow mirror and a few images; every step has a shorter limit of its own."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "names",
        metavar="NAME",
        nargs="*",
        help="an image, such as sysbench (default: all but those on request)",
    )
    parser.add_argument(
        "--build-arg",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an argument of the Dockerfile, such as DISTRIBUTION=nixos/nix for blogbench; name one image with it",
    )
    parser.add_argument("--force", action="store_true", help="build the named images even if they are up to date")
    parser.add_argument("--dry-run", action="store_true", help="say what would be built; build nothing")


def run(arguments: argparse.Namespace) -> int:
    """Have the images built; print one line for each."""
    for text in arguments.build_arg:
        name, equals, _ = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"--build-arg {text}: expected NAME=VALUE, such as DISTRIBUTION=nixos/nix")
    if arguments.build_arg and len(arguments.names) != 1:
        raise UsageError("--build-arg is for one image: name it, as in build-images blogbench")
    flags = ["--build-images", *(f"--image={name}" for name in arguments.names)]
    flags += [f"--image-arg={text}" for text in arguments.build_arg]
    flags += ["--image-force"] if arguments.force else []
    flags += ["--image-dry-run"] if arguments.dry_run else []
    flags += ["--verbose"] if arguments.verbose else []
    flags += ["--image-quiet"] if arguments.quiet else []
    for built in query_worker(*flags, timeout_s=_LIMIT_S):
        if not arguments.quiet:
            sys.stdout.write(format_result(built) + "\n")
    return int(ExitCode.OK)


def format_result(built: dict[str, Any]) -> str:
    """Return an answer of the worker as one line: image, what was done, size and time where known, source."""
    facts = [f"{built['size_bytes'] / 1e6:.0f} MB"] if built["size_bytes"] else []
    facts += [f"{built['seconds']:.1f} s"] if built["action"] == "built" else []
    return f"{built['image']:<24} {built['action']:<12} {', '.join([*facts, built['source']])}"
