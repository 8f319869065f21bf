"""Podman's service of a user without rights who exists only in namespaces of the test: the host stays as it is."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import psutil
from busybox_image import require_podman, skip_or_fail
from deadlines import END_S, START_S, wait_until

USER = 61_004
"""Has no name outside of the namespaces."""
SUBORDINATE = 2_000_000_000
"""The first of the user's 65,536 user and group ids for containers."""


@contextlib.contextmanager
def rootless_podman():
    """Give the address of a running service; whatever it has started ends with it."""
    require_podman()
    if os.geteuid() != 0 or shutil.which("newuidmap") is None:
        skip_or_fail("a user without rights takes root and newuidmap (apt-get install uidmap)")
    folder = Path(tempfile.mkdtemp(prefix="wb-rootless-", dir="/tmp"))
    folder.chmod(0o755)
    home, run = folder / "home", folder / "run"
    for own in (home, run):
        own.mkdir(mode=0o700)
        os.chown(own, USER, USER)
    (folder / "passwd").write_text(f"{Path('/etc/passwd').read_text()}rootless:x:{USER}:{USER}::{home}:/bin/sh\n")
    (folder / "subids").write_text(f"rootless:{SUBORDINATE}:65536\n")
    names = (("passwd", "passwd"), ("subids", "subuid"), ("subids", "subgid"))
    mounts = " && ".join(f"mount --bind {folder}/{mine} /etc/{theirs}" for mine, theirs in names)
    address = f"unix://{run}/podman.sock"
    # crun refuses hybrid cgroups to a user without rights.
    service = f"podman --runtime runc --cgroup-manager cgroupfs system service --time 0 {address}"
    user = f"setpriv --reuid={USER} --regid={USER} --clear-groups"
    environ = f"env -i PATH={os.environ['PATH']} HOME={home} XDG_RUNTIME_DIR={run}"
    program = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c"]
    with (folder / "log").open("wb") as log:
        started = subprocess.Popen(
            [*program, f"{mounts} && exec {user} {environ} {service}"], cwd=home, stdout=log, stderr=log
        )
    try:
        wait_until((run / "podman.sock").is_socket, START_S, "the service's socket")
        yield address
    finally:
        # The first process of a PID namespace takes all others with it.
        for first in psutil.Process(started.pid).children():
            first.kill()
        started.wait(timeout=END_S)
        shutil.rmtree(folder, ignore_errors=True)
