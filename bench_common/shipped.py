"""Finds the files that come with Weighbridge beside its code: the one place that knows where they are.

``scenarios`` and ``dockerfiles`` at the top of the repository are installed as packages of data, below names that no
other project has. In a clone links of these names lead to the folders, so an editable installation, a clone and a
wheel are read alike.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

_PACKAGES: Final = {"scenarios": "bench_scenarios", "dockerfiles": "bench_dockerfiles"}


def shipped_folder(name: Literal["scenarios", "dockerfiles"]) -> Path:
    """Return the folder of the ready-made scenarios, or that of the recipes of images."""
    return Path(str(files(_PACKAGES[name])))
