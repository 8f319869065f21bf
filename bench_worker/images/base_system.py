"""Puts a base system together with debootstrap, and keeps it as a tarball so that this happens once a machine.

The tarball lies in ``$XDG_CACHE_HOME/weighbridge`` (``~/.cache/weighbridge``) under a name made of everything that
went into it. It is written beside its place and renamed, with its SHA-256 next to it, so that a tarball that is
there is whole; one whose sum differs is made anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench_common.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench_worker.images.source import BaseSource

LOCK_WAIT_S: Final = 900.0
"""How long to wait for another build on this machine."""
BOOTSTRAP_LIMIT_S: Final = 1200.0
"""A base system takes under a minute from a near mirror; after this it hangs."""
_LAST_LINES: Final = 15
_CHUNK: Final = 1 << 20


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of cached tarballs, whether or not it exists."""
    named = environment.get("XDG_CACHE_HOME", "")
    root = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    return root / "weighbridge"


@contextlib.contextmanager
def only_builder(folder: Path, progress: Callable[[str], None], wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Hold the machine's build lock; wait for another builder, at most `wait_s` seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("a") as lock:
        deadline = time.monotonic() + wait_s
        told = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise InfrastructureError(
                        f"another build of images has held {folder / 'build.lock'} for {wait_s:g} s; see what hangs"
                    ) from error
            if not told:
                progress("another build of images is under way on this machine; waiting for it")
                told = True
            time.sleep(0.2)
        yield


def tarball_path(folder: Path, source: BaseSource) -> Path:
    """Return where the tarball of `source` is kept; another source or another content is another name."""
    content = "\n".join([repr(source), os.uname().machine])
    return folder / f"base-{source.suite}-{hashlib.sha256(content.encode()).hexdigest()[:16]}.tar.gz"


def whole(tarball: Path) -> bool:
    """Say whether the tarball is there and is what its sum says."""
    try:
        expected = _sum_file(tarball).read_text(encoding="ascii").strip()
        return _sha256(tarball) == expected
    except (OSError, UnicodeDecodeError):
        return False


def base_tarball(folder: Path, source: BaseSource, progress: Callable[[str], None]) -> tuple[Path, bool]:
    """Return the tarball of `source` and whether it was there already; make it if need be.

    The caller holds `only_builder`. Raises `InfrastructureError` where debootstrap is missing, may not be run or
    fails.
    """
    tarball = tarball_path(folder, source)
    if whole(tarball):
        return tarball, True
    if tarball.exists():
        progress(f"{tarball} is damaged; making it anew")
    _require_debootstrap(source, progress)
    with _workspace(folder) as work:
        _bootstrap(source, work / "root", progress)
        partial = work / tarball.name
        _pack(work / "root", partial)
        partial_sum = _sum_file(partial)
        partial_sum.write_text(_sha256(partial) + "\n", encoding="ascii")
        tarball.unlink(missing_ok=True)
        partial_sum.replace(_sum_file(tarball))
        partial.replace(tarball)
    return tarball, False


def _require_debootstrap(source: BaseSource, progress: Callable[[str], None]) -> None:
    if os.geteuid() != 0:
        raise InfrastructureError(
            "no registry of images can be reached, and making a base image with debootstrap needs root: run "
            "`sudo bench-master build-images` once, or load an image named weighbridge/base"
        )
    needed = [] if shutil.which("debootstrap") else ["debootstrap"]
    if not Path(source.keyring).exists():
        needed.append(Path(source.keyring).stem)
    if not needed:
        return
    if not shutil.which("apt-get"):
        raise InfrastructureError(
            f"{' and '.join(needed)} missing and no apt-get here: install with this system's tool"
        )
    progress(f"installing {' and '.join(needed)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _command(["apt-get", "update", "-qq"], 300, progress, environment)
    _command(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *needed], 600, progress, environment)


def _bootstrap(source: BaseSource, root: Path, progress: Callable[[str], None]) -> None:
    command = [
        "debootstrap",
        f"--variant={source.variant}",
        f"--include={','.join(source.include)}",
        f"--components={','.join(source.components)}",
        f"--keyring={source.keyring}",
        source.suite,
        str(root),
        source.mirror,
    ]
    _command([*_private_mounts(), *command], BOOTSTRAP_LIMIT_S, _phases(progress), dict(os.environ))
    (root / "etc/apt/sources.list").write_text(source.sources_list, encoding="utf-8")
    (root / "etc/hostname").unlink(missing_ok=True)
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    for leftover in ("var/cache/apt/archives", "var/lib/apt/lists", "var/log", "debootstrap"):
        for path in sorted((root / leftover).rglob("*"), reverse=True):
            if path.is_file() and path.name != "lock":
                path.unlink()


def _private_mounts() -> list[str]:
    """Return a prefix that keeps debootstrap's mounts to itself, so that none outlives it."""
    prefix = ["unshare", "--mount"]
    try:
        allowed = subprocess.run([*prefix, "true"], capture_output=True, timeout=10, check=False).returncode == 0  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        allowed = False
    return prefix if allowed else []


def _phases(progress: Callable[[str], None]) -> Callable[[str], None]:
    """Return a reporter that shows the first of a run of debootstrap's lines that begin with the same word."""
    shown: set[str] = set()

    def report(line: str) -> None:
        words = line.removeprefix("I: ").split()
        if line.startswith(("W:", "E:")) or (line.startswith("I:") and words and words[0] not in shown):
            shown.add(words[0])
            progress(line.removeprefix("I: "))

    return report


def _command(
    command: Sequence[str], limit_s: float, progress: Callable[[str], None], environment: dict[str, str]
) -> None:
    """Run a command, hand on each line it prints; raise with its last lines when it fails or takes too long."""
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        errors="replace",
        start_new_session=True,  # so that everything it started can be ended with it
    ) as process:
        timed_out = threading.Event()
        overdue = threading.Timer(limit_s, _expire, [process, timed_out])
        overdue.start()
        try:
            for line in process.stdout or ():
                last.append(line.rstrip())
                progress(line.rstrip())
            process.wait()
        finally:
            overdue.cancel()
            _end(process)
    if process.returncode:
        how = f"did not end in {limit_s:g} s" if timed_out.is_set() else f"failed with exit code {process.returncode}"
        raise InfrastructureError(f"{' '.join(command)} {how}; last lines:\n" + "\n".join(last))


def _expire(process: subprocess.Popen[str], timed_out: threading.Event) -> None:
    timed_out.set()
    _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill the process and what it started; its session is its own."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _pack(root: Path, tarball: Path) -> None:
    compressor = "--use-compress-program=gzip -1n"
    command = ["tar", "--numeric-owner", "--one-file-system", compressor, "-cf", str(tarball), "-C", str(root), "."]
    _command(command, 600, lambda _: None, dict(os.environ))


@contextlib.contextmanager
def _workspace(folder: Path) -> Iterator[Path]:
    """Give an empty folder and delete it afterwards, never through something that is still mounted in it."""
    work = Path(tempfile.mkdtemp(prefix="bootstrap-", dir=folder))
    try:
        yield work
    finally:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        points = [line.split()[4] for line in mounts]
        for point in sorted((point for point in points if point.startswith(f"{work}/")), reverse=True):
            _command(["umount", point], 60, lambda _: None, dict(os.environ))
        shutil.rmtree(work)


def _sum_file(tarball: Path) -> Path:
    return tarball.with_name(f"{tarball.name}.sha256")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
