"""Where in an image the program of a command is looked up, and whether an unpacked image has it.

Only what is sure is said: a program behind an entry point, below a mount or in a kernel's file system may be there.
"""

from __future__ import annotations

import os
import posixpath
import stat
from typing import TYPE_CHECKING, Any, Final

from bench_common.errors import did_you_mean
from bench_common.safe_text import one_line
from bench_common.treatment import CONTAINER_PATH

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from bench_common.requirements import ImageProgram

_OF_KERNEL: Final = ("/proc", "/sys", "/dev")
"""What is mounted over these directories of every image."""
MOST_LINKS: Final = 40
"""How many symbolic links are followed in one path, as the kernel does (path_resolution(7))."""


def program_places(wanted: ImageProgram, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the absolute paths where an image of this ``Config`` may have a program; empty where nobody can know."""
    if config.get("Entrypoint") or ".." in wanted.program.split("/"):
        return ()
    if "/" in wanted.program:
        begins = wanted.directory or str(config.get("WorkingDir") or "/")
        places = [posixpath.normpath(posixpath.join("/", begins, wanted.program))]
    else:
        its = dict(str(item).partition("=")[::2] for item in config.get("Env") or ())
        search_path = wanted.search_path or its.get("PATH") or CONTAINER_PATH
        folders = [folder for folder in search_path.split(":") if folder]
        if not all(folder.startswith("/") for folder in folders):
            return ()
        places = [posixpath.normpath(posixpath.join(folder, wanted.program)) for folder in folders]
    hidden = (*_OF_KERNEL, *wanted.covered)
    if any(_is_below(place, cover) for place in places for cover in hidden):
        return ()
    return tuple(dict.fromkeys(places))


def _is_below(place: str, cover: str) -> bool:
    top = posixpath.normpath(cover)
    return place == top or place.startswith(top if top.endswith("/") else f"{top}/")


def absent_reason(image: str | None, wanted: ImageProgram, places: Sequence[str], names: Iterable[str] = ()) -> str:
    """Say that an image has no such program at any of these places; `names` are the programs that it has there."""
    shown, its = one_line(wanted.program), one_line(image or "")
    if "/" in wanted.program:
        at = "" if wanted.program == places[0] else f" ({one_line(places[0])})"
        return (
            f"image {its!r} has no program {shown!r}{at}: write the path that it has in the image, or mount it "
            f"(container.storage, --mount of weigh)"
        )
    folders = ":".join(posixpath.dirname(place) for place in places)
    return f"image {its!r} has no program {shown!r} in {one_line(folders)}{did_you_mean(wanted.program, names)}"


def find_in_root(place: str, *roots: Path) -> Path | None:
    """Return where a path of an unpacked image is, following links within it; None if it is absent, or a directory.

    The roots are those of its layers, the highest first. What cannot be read counts as there.
    """
    left = [part for part in reversed(place.split("/")) if part]
    at: list[str] = []
    links = 0
    while left:
        part = left.pop()
        if part in (".", ".."):
            del at[len(at) - (part == "..") :]
            continue
        path = _topmost(roots, *at, part)
        if path is None:
            return None
        try:
            mode = path.lstat().st_mode
            target = os.readlink(path) if stat.S_ISLNK(mode) else None  # noqa: PTH115
        except OSError:
            return path
        if target is None:
            at.append(part)
            if not left:
                return None if stat.S_ISDIR(mode) else path
            continue
        links += 1
        if links > MOST_LINKS:
            return None
        if target.startswith("/"):
            at.clear()
        left += [each for each in reversed(target.split("/")) if each]
    return None


def _topmost(roots: Iterable[Path], *parts: str) -> Path | None:
    """Return a path in the highest layer that has it; None where none has, or one says that it was removed."""
    for root in roots:
        path = root.joinpath(*parts)
        try:
            # What a higher layer has as a directory may be a link here, which would lead out of the image.
            if any(folder.is_symlink() for folder in path.parents if root in folder.parents):
                return None
            facts = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            return path
        is_whiteout = stat.S_ISCHR(facts.st_mode) and facts.st_rdev == 0
        return None if is_whiteout else path
    return None


def names_in_root(root: Path, places: Iterable[str]) -> list[str]:
    """Return the names beside these places in an unpacked image, sorted."""
    found: set[str] = set()
    for place in places:
        folder = root / posixpath.dirname(place).lstrip("/")
        try:
            # A link could lead to a directory of the host.
            if folder.resolve().is_relative_to(root.resolve()):
                found.update(each.name for each in folder.iterdir())
        except OSError:
            continue
    return sorted(found)
