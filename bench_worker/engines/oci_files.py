"""Puts the texts of a scenario into containers that have no call for it: as files of ours, mounted one by one.

The runtime makes the place in the container, and follows no link out of it, which nobody outside could do as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def write(files: Mapping[str, str], directory: Path) -> None:
    """Write texts below a container's own directory, readable by everybody in it; raise `OSError`."""
    if files:
        _folder(directory).mkdir(mode=0o755)
    for ordinal, text in enumerate(files.values()):
        path = _folder(directory) / str(ordinal)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)


def binds(files: Mapping[str, str], directory: Path) -> list[dict[str, Any]]:
    """Return the mounts that bring what `write` wrote to the paths that it is for."""
    return [
        {
            "destination": path,
            "type": "bind",
            "source": str(_folder(directory) / str(ordinal)),
            "options": ["bind", "rw"],
        }
        for ordinal, path in enumerate(files)
    ]


def _folder(directory: Path) -> Path:
    return directory / "files"
