"""Makes the virtual environment that a Debian package and an image have in /opt/weighbridge.

It has the wheels of Weighbridge and of all that it needs, and the paths of the system that it gets to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

HOME: Final = "opt/weighbridge"
LIMIT_S: Final = 600.0
PROGRAMS: Final = ("weighbridge", "bench-master", "bench-worker")
"""What users get on their search path; programs of other packages stay out of their way."""
PYTHON: Final = f"python{sys.version_info[0]}.{sys.version_info[1]}"


def run(*words: str | Path, **environment: str) -> str:
    """Run a program and return what it prints; raise `SystemExit` with its message if it fails."""
    done = subprocess.run(  # noqa: S603
        [str(word) for word in words],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, **environment},
    )
    if done.returncode:
        raise SystemExit(f"{words[0]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def install(root: Path, wheels: Path, extras: str) -> None:
    """Make the virtual environment below `root`, with paths as they are after the installation."""
    home = root / HOME
    run(sys.executable, "-m", "venv", "--without-pip", home)
    (own,) = wheels.glob("weighbridge-*.whl")
    pip = ("-m", "pip", "--python", home / "bin" / "python", "--disable-pip-version-check")
    run(
        sys.executable,
        *pip,
        "install",
        "-q",
        "--no-compile",
        "--no-index",
        "--find-links",
        wheels,
        f"{own}[{extras}]",
    )
    for link in (home / "bin").glob("python*"):
        link.unlink()
    (home / "bin" / "python").symlink_to(f"/usr/bin/{PYTHON}")
    for name in ("python3", PYTHON):
        (home / "bin" / name).symlink_to("python")
    for script in (home / "bin").iterdir():
        if script.name.lower().startswith("activate"):
            script.unlink()
        elif not script.is_symlink() and script.read_bytes().startswith(b"#!"):
            script.write_bytes(script.read_bytes().replace(str(home).encode(), f"/{HOME}".encode()))
    write(home / "pyvenv.cfg", f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON[6:]}\n")
    for unwanted in home.rglob("direct_url.json"):  # the place of the wheel on the machine that built this
        unwanted.unlink()
