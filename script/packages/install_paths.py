"""Installs a release in each way that docs/install.rst names, and prints how long each took and its size on disk.

Called as ``install_paths.py SOURCE DIST [--wheels FOLDER] [--only WAY...]`` with SOURCE on PYTHONPATH. Each way gets
a new home, so that no cache helps it, and has weighed a command in the end. The time of pip, pipx and uvx has the
download of what Weighbridge needs in it, unless --wheels names a folder that has it. What cannot be done here gets a
row with the reason, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from base_system import unpack
from environment import HOME, LIMIT_S, PYTHON

from bench_common.errors import InfrastructureError

WEIGH: Final = ("weigh", "-r", "3", "native", "--", "true")
SHOWN: Final = "3 done, 0 failed"


class NotHere(Exception):
    """A way cannot be gone on this machine, or failed; the text says why."""


@dataclass(frozen=True)
class Way:
    """What an installation needs: where things are, and a new home for it."""

    source: Path
    dist: Path
    wheels: Path | None
    home: Path

    def made(self, pattern: str) -> Path:
        """Return the one file of the release with such a name."""
        found = sorted(self.dist.glob(pattern))
        if len(found) != 1:
            raise NotHere(f"expected one {pattern} in {self.dist}, found {len(found)}")
        return found[0]

    def environment(self) -> dict[str, str]:
        """Return the environment of a user that has nothing yet."""
        kept = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("PYTHON", "PIPX_", "UV_", "XDG_")) and name != "VIRTUAL_ENV"
        }
        local = (
            {}
            if self.wheels is None
            else {
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(self.wheels),
                "UV_NO_INDEX": "1",
                "UV_FIND_LINKS": str(self.wheels),
            }
        )
        own = {
            "HOME": str(self.home),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIPX_DEFAULT_PYTHON": sys.executable,
            "UV_PYTHON": sys.executable,
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_NATIVE_TLS": "true",
        }
        return {**kept, **own, **local}

    def run(self, *words: str | Path, **more: str) -> str:
        """Run a program in the home; return what it prints, or raise `NotHere` with its last line."""
        environment: Mapping[str, str] = {**self.environment(), **more}
        try:
            done = subprocess.run(  # noqa: S603
                [str(word) for word in words],
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
                env=environment,
                cwd=self.home,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotHere(str(error)) from error
        if done.returncode:
            lines = (done.stdout + done.stderr).strip().splitlines() or [f"exit code {done.returncode}"]
            raise NotHere(f"{Path(words[0]).name}: {lines[-1]}")
        return done.stdout

    def timed(self, *words: str | Path) -> float:
        """Run a program; return how long it took in seconds."""
        began_s = time.monotonic()
        self.run(*words)
        return time.monotonic() - began_s

    def check(self, *words: str | Path) -> None:
        """Raise `NotHere` unless this command line weighs."""
        if SHOWN not in self.run(*words):
            raise NotHere(f"installed, and {' '.join(map(str, words[-6:]))} did not weigh")

    def installer(self, name: str) -> Path:
        """Install pipx or uv, which is no part of the time; return the folder of its programs."""
        venv = self.home / "installer"
        self.run(sys.executable, "-m", "venv", venv)
        pip = [venv / "bin" / "pip", "install", "--quiet", name]
        self.run(*pip, PIP_NO_INDEX="0", PIP_FIND_LINKS="")
        return venv / "bin"


def disk_bytes(*folders: Path) -> int:
    """Return the disk that folders take, each file counted once."""
    seen: dict[tuple[int, int], int] = {}
    for path in [path for folder in folders for path in folder.rglob("*")]:
        status = path.lstat()
        seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def with_pip(way: Way) -> tuple[float, int]:
    """Install with pip into a virtual environment, which is a part of the time."""
    wheel, venv = way.made("weighbridge-*.whl"), way.home / "venv"
    seconds = way.timed(sys.executable, "-m", "venv", venv)
    seconds += way.timed(venv / "bin" / "pip", "install", "--quiet", "--no-cache-dir", wheel)
    way.check(venv / "bin" / "weighbridge", *WEIGH)
    return seconds, disk_bytes(venv)


def with_pipx(way: Way) -> tuple[float, int]:
    """Install with pipx; on disk is also the pip that it brings for all its environments."""
    wheel, pipx = way.made("weighbridge-*.whl"), way.installer("pipx") / "pipx"
    seconds = way.timed(pipx, "install", wheel)
    way.check(way.home / ".local" / "bin" / "weighbridge", *WEIGH)
    return seconds, disk_bytes(way.home / ".local")


def with_uvx(way: Way) -> tuple[float, int]:
    """Run with uvx, which installs into its cache: the time has the weigh in it."""
    wheel, uvx = way.made("weighbridge-*.whl"), way.installer("uv") / "uvx"
    began_s = time.monotonic()
    way.check(uvx, "--from", wheel, "weighbridge", *WEIGH)
    return time.monotonic() - began_s, disk_bytes(way.home / ".cache")


def with_dpkg(way: Way) -> tuple[float, int]:
    """Install the Debian package in a root that has Debian's base system and its Python."""
    deb = way.made("weighbridge_*.deb")
    if os.geteuid() != 0:
        raise NotHere("a root to install into takes root")
    root = way.home / "root"
    root.mkdir()
    unpack(root, way.source, PYTHON, "libstdc++6")
    (root / "tmp" / deb.name).write_bytes(deb.read_bytes())
    spaces = ("unshare", "--pid", "--fork", "--kill-child", "--mount", f"--mount-proc={root}/proc", "chroot", root)
    seconds = way.timed(*spaces, "dpkg", "--install", f"/tmp/{deb.name}")  # noqa: S108  in the root
    way.check(*spaces, "env", "HOME=/root", "LC_ALL=C", "weighbridge", *WEIGH)
    return seconds, disk_bytes(root / HOME)


def with_docker(way: Way) -> tuple[float, int]:
    """Load the image into the engine that docker reaches, and remove it."""
    archive = way.made("weighbridge-*-image-*.tar")
    name = f"weighbridge/weighbridge:{archive.name.split('-')[1]}"
    if way.run("docker", "image", "ls", "--quiet", "weighbridge/weighbridge").strip():
        raise NotHere("an image weighbridge/weighbridge is there already; docker image rm it")
    seconds = way.timed("docker", "load", "-i", archive)
    try:
        size = int(way.run("docker", "image", "inspect", "--format", "{{.Size}}", name))
        way.check("docker", "run", "--rm", name, *WEIGH)
    finally:
        way.run("docker", "image", "rm", "--force", name, "weighbridge/weighbridge:latest")
    return seconds, size


WAYS: Final[dict[str, Callable[[Way], tuple[float, int]]]] = {
    "pip": with_pip,
    "pipx": with_pipx,
    "uvx": with_uvx,
    "deb": with_dpkg,
    "image": with_docker,
}


def main() -> int:
    """Go the ways that the command line names; return the exit code: 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("dist", type=Path)
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("--only", nargs="+", choices=WAYS, default=[*WAYS])
    given = parser.parse_args()
    print(f"load {Path('/proc/loadavg').read_text('ascii').split()[0]} on {os.cpu_count()} CPUs before")
    print(f"{'way':8}{'time':>8}{'on disk':>12}")
    failed = False
    for name in given.only:
        with tempfile.TemporaryDirectory(prefix="weighbridge-way-") as home:
            try:
                seconds, size = WAYS[name](
                    Way(given.source.resolve(), given.dist.resolve(), given.wheels, Path(home))
                )
                print(f"{name:8}{seconds:6.1f} s{size / 1e6:9.0f} MB", flush=True)
            except (NotHere, InfrastructureError) as why:
                failed = True
                print(f"{name:8}{'-':>8}{'-':>12}  {why}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
