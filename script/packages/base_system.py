"""A root file system to install into: the base system of Weighbridge's images, with packages of its distribution."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from environment import run

from bench_worker.images.base_image import (
    BaseSource,
    base_tarball,
    build_lock,
    cache_folder,
    choose_source,
    host_arguments,
)


def unpack(root: Path, source: Path, *packages: str) -> BaseSource:
    """Unpack the base system into the empty folder `root` as root, and install packages; return where it is from.

    SOURCE is the clone's files. `SystemExit` names a package that the distribution does not have.
    """
    recipe = source / "dockerfiles" / "base"
    base = choose_source(recipe)
    with build_lock(cache_folder(), tell):
        tarball, _ = base_tarball(cache_folder(), recipe, base, tell)
    run("tar", "--numeric-owner", "-xzf", tarball, "-C", root)
    arguments = host_arguments(recipe)
    apt = ["chroot", root, "apt-get", "-qq", *arguments.pop("APT_OPTIONS", "").split()]
    variables = {**arguments, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    resolver = root / "etc" / "resolv.conf"
    shutil.copyfile("/etc/resolv.conf", resolver)
    run(*apt, "update", **variables)
    for package in packages:
        if not run("chroot", root, "apt-cache", "pkgnames", package).strip():
            raise SystemExit(
                f"the base system, {base.suite}, has no {package}: run with PYTHON= the Python that it has"
            )
    run(*apt, "install", "--yes", "--no-install-recommends", *packages, **variables)
    resolver.unlink()
    return base


def tell(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr)
