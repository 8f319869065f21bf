"""What the image of a worker is built from: its Dockerfile, and wheels of this installation beside it.

The workers of a cluster run in this image. Its Python is the one of the base image, whatever Python runs here.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from bench_common.shipped import shipped_folder
from bench_features.fleet.wheels import PythonPlatform, Wheelhouse, wheel_cache

IMAGE: Final = "worker"
"""The recipe's name in ``dockerfiles``."""
_VERSION: Final = "3.11"
_LIBC: Final = "glibc 2.36"


def image_platform() -> PythonPlatform:
    """Return the platform of the image's Python: that of Debian 12, from which ``weighbridge/base`` is made."""
    machine = os.uname().machine
    return PythonPlatform(f"cpython-{_VERSION.replace('.', '')}-{machine}-linux-gnu", _VERSION, machine, _LIBC)


def write_context(folder: Path) -> None:
    """Write everything that the image is built from into `folder`; raise `InfrastructureError` if a wheel is missing.

    The same installation gives the same files.
    """
    recipe = shipped_folder("dockerfiles") / IMAGE
    shutil.copyfile(recipe / "Dockerfile", folder / "Dockerfile")
    (folder / "wheels").mkdir()
    for wheel in Wheelhouse(wheel_cache()).bundle_for(image_platform()).wheels:
        shutil.copyfile(wheel.path, folder / "wheels" / wheel.name)
