"""Keeps the base image's root file system, made once a machine by ``dockerfiles/base/make-rootfs``.

The tarball lies in ``$XDG_CACHE_HOME/weighbridge`` (``~/.cache/weighbridge``) under a name made of everything that
goes into it, with its SHA-256 beside it; a tarball with another sum is made again. This module holds the lock, the
deadlines and the progress; the script knows apt, mirrors, proxies and debootstrap.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench_common.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

SCRIPT: Final = "make-rootfs"
LOCK_WAIT_S: Final = 900.0
"""How long to wait for another build on this machine."""
QUERY_TIMEOUT_S: Final = 120.0
"""Three mirrors may take 10 s each to answer, and apt 20 s to list them."""
BOOTSTRAP_TIMEOUT_S: Final = 1800.0
"""A base system takes under a minute from a near mirror; after this it hangs."""
_END_TIMEOUT_S: Final = 20.0
"""How long the script may take to delete its workspace before it is killed."""
_LAST_LINES: Final = 15
_SCRIPT_FAILED: Final = 3
"""The script's exit code when its last line says why and what to do."""


@dataclass(frozen=True, slots=True)
class BaseSource:
    """Where a base system comes from, as the script prints it."""

    text: str

    @property
    def suite(self) -> str:
        """The distribution's suite, such as ``bookworm``."""
        return self.text.split()[0]

    def __str__(self) -> str:
        suite, mirror, _, _, variant = self.text.splitlines()[0].split()
        return f"debootstrap {variant} {suite} from {mirror}"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of cached tarballs, whether or not it exists."""
    named = environment.get("XDG_CACHE_HOME", "")
    root = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    return root / "weighbridge"


@contextlib.contextmanager
def build_lock(folder: Path, progress: Callable[[str], None], wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Hold the machine's build lock; wait for another builder, at most `wait_s` seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("a") as lock:
        deadline = time.monotonic() + wait_s
        reported = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise InfrastructureError(
                        f"another build of images has held {folder / 'build.lock'} for {wait_s:g} s; see what hangs"
                    ) from error
            if not reported:
                progress("another build of images is running on this machine; waiting for it")
                reported = True
            time.sleep(0.2)
        yield


def host_arguments(recipe: Path) -> dict[str, str]:
    """Return the build arguments with which a build fetches packages as this host does: proxies and APT_OPTIONS.

    `recipe` is the folder of the base image. The builder knows the names of proxies and keeps them out of images.
    """
    lines = _run([*_script(recipe), "host"], QUERY_TIMEOUT_S, lambda _: None)
    return dict(line.split("=", 1) for line in lines)


def choose_source(recipe: Path) -> BaseSource:
    """Return where a base system would come from; raise `InfrastructureError` where no mirror answers."""
    return BaseSource("\n".join(_run([*_script(recipe), "source"], QUERY_TIMEOUT_S, lambda _: None)))


def tarball_path(folder: Path, recipe: Path, source: BaseSource) -> Path:
    """Return where the tarball is kept; another source, script or machine is another name."""
    content = "\0".join([source.text, (recipe / SCRIPT).read_text(encoding="utf-8"), os.uname().machine])
    return folder / f"base-{source.suite}-{hashlib.sha256(content.encode()).hexdigest()[:16]}.tar.gz"


def is_intact(tarball: Path) -> bool:
    """Say whether the tarball is there and has the checksum beside it."""
    try:
        expected = tarball.with_name(f"{tarball.name}.sha256").read_text(encoding="ascii").strip()
        with tarball.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == expected
    except (OSError, UnicodeDecodeError):
        return False


def base_tarball(
    folder: Path, recipe: Path, source: BaseSource, progress: Callable[[str], None]
) -> tuple[Path, bool]:
    """Return the tarball of `source` and whether it was there already; make it if need be.

    The caller holds `build_lock`. Raises `InfrastructureError` where debootstrap is missing, may not be run or
    fails.
    """
    tarball = tarball_path(folder, recipe, source)
    if is_intact(tarball):
        return tarball, True
    if tarball.exists():
        progress(f"{tarball} is damaged; making it again")
    _run([*_script(recipe), "make", str(tarball)], BOOTSTRAP_TIMEOUT_S, _phase_reporter(progress))
    return tarball, False


def _script(recipe: Path) -> list[str]:
    return ["bash", str(recipe / SCRIPT)]


def _phase_reporter(progress: Callable[[str], None]) -> Callable[[str], None]:
    """Return a reporter that shows the first of a run of debootstrap's lines that begin with the same word."""
    shown: set[str] = set()

    def report(line: str) -> None:
        words = line.removeprefix("I: ").split()
        if line.startswith(("W:", "E:")) or (line.startswith("I:") and words and words[0] not in shown):
            shown.add(words[0])
            progress(line.removeprefix("I: "))

    return report


def _run(command: Sequence[str], limit_s: float, progress: Callable[[str], None]) -> list[str]:
    """Run a command, report and return the lines it prints; raise when it fails or takes too long.

    However this ends, the command and what it started have ended, too.
    """
    lines: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # so that everything it started can be ended with it
    ) as process:
        timed_out = threading.Event()
        overdue = threading.Timer(limit_s, _end_overdue, [process, timed_out])
        overdue.start()
        try:
            for line in process.stdout or ():
                lines.append(line.rstrip())
                progress(line.rstrip())
            process.wait()
        finally:
            overdue.cancel()
            _end(process)
    if timed_out.is_set():
        raise InfrastructureError(
            f"{' '.join(command)} did not end within {limit_s:g} s; last lines:\n" + "\n".join(lines)
        )
    if process.returncode == _SCRIPT_FAILED and lines:
        raise InfrastructureError(lines[-1])
    if process.returncode:
        raise InfrastructureError(
            f"{' '.join(command)} failed with exit code {process.returncode}; last lines:\n" + "\n".join(lines)
        )
    return list(lines)


def _end_overdue(process: subprocess.Popen[str], timed_out: threading.Event) -> None:
    timed_out.set()
    _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and what it started, in its own session; it has some time to clean up."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + _END_TIMEOUT_S
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
