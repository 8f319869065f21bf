"""Builds the source distribution and, from it, the wheel: the same commit gives the same bytes.

Called as ``python_packages.py SOURCE OUT`` with SOURCE_DATE_EPOCH set, by a Python that has setuptools. It calls the
hooks of PEP 517 itself, in this environment: no index is asked. setuptools takes the times of a wheel from
SOURCE_DATE_EPOCH; a source distribution keeps times, owners and an order of its own, so that one is packed again.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

LIMIT_S: Final = 300.0
"""Enough for a build on a slow machine (s)."""
_HOOK: Final = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


def build(source: Path, out: Path, epoch: int) -> tuple[Path, Path]:
    """Write both packages of the project in `source` into `out`; return the paths: source distribution, wheel.

    `source` is left as it was. `epoch` is the time of all files in them (seconds since 1970).
    """
    with tempfile.TemporaryDirectory(prefix="weighbridge-packages-") as name:
        work = Path(name)
        shutil.copytree(source, work / "source", symlinks=True)
        sdist = pack_again(_run_hook("build_sdist", work / "source", work), out, epoch)
        with tarfile.open(sdist) as archive:
            # The argument `filter` came with Python 3.11.4.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(work / "unpacked")  # noqa: S202  it was packed here
        (folder,) = (work / "unpacked").iterdir()
        wheel = _run_hook("build_wheel", folder, work)
        return sdist, Path(shutil.copy2(wheel, out / wheel.name))


def pack_again(sdist: Path, out: Path, epoch: int) -> Path:
    """Write the archive's files into `out` in the order of names, with one time and no owner; return its path."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            clean = tarfile.TarInfo(member.name)
            clean.type, clean.size, clean.mtime = member.type, member.size, epoch
            clean.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(clean, old.extractfile(member) if member.isfile() else None)
    target = out / sdist.name
    with target.open("wb") as stream, gzip.GzipFile("", "wb", fileobj=stream, mtime=epoch) as zipped:
        zipped.write(packed.getvalue())
    return target


def _run_hook(hook: str, folder: Path, work: Path) -> Path:
    """Run a hook of setuptools in a folder; return the file that it made."""
    made = work / hook
    made.mkdir()
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _HOOK, hook, str(made)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{hook} failed:\n{done.stdout}{done.stderr}")
    (path,) = made.iterdir()
    return path


if __name__ == "__main__":
    os.umask(0o022)  # setuptools keeps the modes of files, which the archive of a commit leaves to the umask
    for path in build(Path(sys.argv[1]), Path(sys.argv[2]), int(os.environ["SOURCE_DATE_EPOCH"])):
        print(path.name)
