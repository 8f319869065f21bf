"""Where the engines that drive an OCI runtime keep what they make, and what of it carries our labels.

Images are unpacked once, by digest. Each container has a directory of its own with its writable layer, its
config.json and what it printed; the labels are annotations of the config.json. A directory without them is not ours.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_common.errors import EngineUnavailable
from bench_worker.engines.base import RUN_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG: Final = "config.json"
STORE: Final = Path("/var/lib/weighbridge")
"""Below it are the unpacked images and the directories of the containers; it may be a mount of the disk to weigh."""
STATE_ROOT: Final = Path("/run/weighbridge/oci")
"""Below it each runtime has its private ``--root``; on memory, as the runtimes' own defaults are."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """A container's directory that carries our labels; `age_s` in seconds."""

    path: Path
    labels: Mapping[str, str]
    age_s: float


def make_private(path: Path) -> Path:
    """Make a directory for this user alone; raise `EngineUnavailable` when somebody else owns what is there."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise EngineUnavailable(f"cannot make {path}: {error.strerror}; it has to be on a writable disk") from error
    if found.st_uid != os.geteuid() or found.st_mode & 0o022 or not path.is_dir() or path.is_symlink():
        raise EngineUnavailable(f"{path} is not a directory of this user alone; remove it, or chown and chmod it")
    return path


def images() -> Path:
    """Return the directory of the unpacked images."""
    return STORE / "images"


def containers(engine: str) -> Path:
    """Return the directory below which an engine's containers have theirs."""
    return STORE / engine


def labelled(engine: str) -> list[Labelled]:
    """Return an engine's containers that carry our labels."""
    try:
        candidates = list(containers(engine).iterdir())
    except OSError:
        return []
    found = []
    for path in candidates:
        try:
            config: Any = json.loads((path / CONFIG).read_text(encoding="utf-8"))
            age_s = time.time() - path.stat().st_mtime
        except (OSError, ValueError):
            continue
        labels = config.get("annotations") if isinstance(config, dict) else None
        if isinstance(labels, dict) and isinstance(labels.get(RUN_LABEL), str):
            found.append(Labelled(path, labels, max(0.0, age_s)))
    return found


def delete(directory: Path) -> None:
    """Delete a directory with all that is in it; one that is gone is no error. Raises `OSError`."""
    with suppress(FileNotFoundError):
        shutil.rmtree(directory)
