"""Puts the texts of a scenario into containers that have no call for it: as files of ours, mounted one by one.

The runtime makes the place in the container, and follows no link out of it, which nobody outside could do as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_worker.engines.host_network import HOST, LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.treatment import ContainerSettings


_HOSTS: Final = "/etc/hosts"


def with_names(settings: ContainerSettings, hostname: str, hosts: Path = Path(_HOSTS)) -> Mapping[str, str]:
    """Return a container's files, and in the host's network the host's names, in which its own is found, too.

    Docker does the same; there are servers that do not start where their own name is unknown.
    """
    if settings.network != HOST:
        return settings.files
    try:
        known = hosts.read_text(encoding="utf-8", errors="replace")
    except OSError:
        known = f"{LOOPBACK} localhost\n"
    return {_HOSTS: f"{known.rstrip()}\n{LOOPBACK} {hostname}\n", **settings.files}


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
