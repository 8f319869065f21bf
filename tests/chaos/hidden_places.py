"""Places on a host in which a run's lease, processes or engine's state are out of sight of those outside.

Each is a command that others are started with: a service's private ``/tmp``, another ``/run``, a PID namespace, a
container that has the engine's socket, another user. What a run needs to work at all is in there, too: its programs,
its folder, and the engines' sockets.
"""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from busybox_image import skip_or_fail
from deadlines import END_S
from live_run import IMAGE
from places import ROOT

from bench_worker.owner import INITIAL_PID_NAMESPACE

USER, OTHER_USER = 61_001, 61_002
"""Users that no host has; they may use the Docker Engine, and read the programs of whoever runs the tests."""
FOREIGN = {"boot", "dev", "lost+found", "media", "mnt", "proc", "run", "srv", "sys", "tmp", "var"}
"""What a container does not get of the host's root."""

_HIDE = """
set -e
mount --make-rprivate /
while [ "$1" != -- ]; do
    hidden=$1 stage=$2 keep=$3
    shift 3
    mount -t tmpfs -o mode=1777 tmpfs "$stage"
    for path in $keep; do
        if [ -d "$path" ]; then
            mkdir -p "$stage${path#"$hidden"}"
        else
            mkdir -p "$(dirname "$stage${path#"$hidden"}")"
            : > "$stage${path#"$hidden"}"
        fi
        mount --rbind "$path" "$stage${path#"$hidden"}"
    done
    mount --rbind "$stage" "$hidden"
done
shift
exec "$@"
"""


def sockets():
    """Return where the sockets of engines are that a run may use."""
    podman = os.environ.get("CONTAINER_HOST", "").removeprefix("unix://")
    return [
        path
        for path in ("/run/docker.sock", "/run/containerd", "/run/docker", podman)
        if path and Path(path).exists()
    ]


def require_namespaces():
    """Skip, or fail in CI, where these places cannot be made, or what runs in them is not seen from here."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "mount"))):
        skip_or_fail("namespaces and other users take root and util-linux (apt-get install util-linux)")
    if Path("/proc/self/ns/pid").stat().st_ino != INITIAL_PID_NAMESPACE:
        skip_or_fail("in a container the processes of other containers are not seen")


def as_user(user):
    """Return the command that starts another one as a user."""
    group = Path("/run/docker.sock").stat().st_gid
    capability = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    return ("setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={group}", *capability, "--")


def hiding(folder, *directories, unshare=("--mount",)):
    """Return the command that starts another one with directories of its own in the place of these."""
    needed = [str(path) for path in (folder, ROOT, sys.prefix, sys.base_prefix)]
    words = []
    for number, directory in enumerate(directories):
        stage = folder / f"stage-{len(list(folder.glob('stage-*')))}-{number}"
        stage.mkdir()
        kept = [path for path in (*needed, *sockets()) if path.startswith(f"{directory}/")]
        words += [directory, str(stage), " ".join(dict.fromkeys(kept))]
    return ("unshare", *unshare, "sh", "-c", _HIDE, "sh", *words, "--")


def in_container(folder, name, environ):
    """Return the command that starts another one in a container that has the engines' sockets."""
    mounts = [f"/{path.name}:ro" for path in Path("/").iterdir() if path.is_dir() and not path.is_symlink()]
    mounts = [mount for mount in mounts if mount[1:-3] not in FOREIGN]
    needed = [str(path) for path in (ROOT, sys.prefix, sys.base_prefix)]
    mounts += [f"{path}:ro" for path in needed if path.split("/")[1] in FOREIGN]
    mounts += [str(folder), "/var/lib/weighbridge", *sockets()]
    volumes = [f"--volume={mount.removesuffix(':ro')}:{mount}" for mount in mounts]
    words = [f"--env={key}={value}" for key, value in environ.items()]
    fixed = ("--rm", "--network=host", f"--name={name}", f"--workdir={folder}")
    return ("docker", "run", *fixed, *volumes, *words, IMAGE)


class Place:
    """Where a run is, and by whom it is visited: the commands that start its programs, and a visitor's."""

    def __init__(self, name, engine):
        self.name = name
        rootless = engine in {"native", "docker"}
        self.user = USER if name == "two users" or (name == "private /tmp" and rootless) else 0
        self.visitor = OTHER_USER if name == "two users" else self.user

    def prefix(self, workspace):
        """Return the command that starts a program of the run."""
        hidden = {
            "private /tmp": ("/tmp", "/var/tmp"),
            "private /run": ("/run",),
            "both": ("/tmp", "/var/tmp", "/run"),
            "pid namespace": ("/tmp", "/var/tmp", "/run"),
        }
        if self.name == "container":
            return in_container(workspace.folder, self.container_of(workspace), workspace.environ)
        words = ()
        if self.name == "pid namespace":
            unshare = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
            words = hiding(workspace.folder, *hidden[self.name], unshare=unshare)
        elif self.name in hidden:
            words = hiding(workspace.folder, *hidden[self.name])
        return (*words, *(as_user(self.user) if self.user else ()))

    @staticmethod
    def container_of(workspace):
        """Return the name of the container in which a workspace's programs run."""
        return f"wb-place-{workspace.folder.parent.name}"


def give(folder, user):
    """Let a folder belong to a user."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)


def forget_users():
    """Delete what the users have of ours beside their folders."""
    for user in (USER, OTHER_USER):
        for parent in (Path("/tmp"), Path("/var/tmp")):
            for path in parent.glob(f"weighbridge*-{user}*"):
                if stat.S_ISDIR(path.lstat().st_mode):
                    shutil.rmtree(path, ignore_errors=True)


def remove_container(name):
    """Remove a container by force; a missing one is no error."""
    subprocess.run(["docker", "rm", "--force", name], capture_output=True, timeout=END_S, check=False)
