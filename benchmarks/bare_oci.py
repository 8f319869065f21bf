"""Clients of an OCI runtime's program that keep no record of anything, for ``life_cycles.py``.

The leanest makes a bundle for each container (a directory, an overlay over the unpacked image, a config.json), starts
the runtime for each step by posix_spawn, and learns of the container's end from a pidfd. The second has one bundle
for all of its containers, so each finds what the last one wrote: less than Weighbridge does, and what a benchmark of
a runtime alone may do. The third is the runtime's command in a shell loop, with one bundle. All have the
config.json and the root file system that Weighbridge uses, and wait until the kill has come to pass.

The runtime's own CPU time is that of the processes that were waited for: its commands, what they leave behind when
they detach, and the container's process.
"""

# ruff: noqa: PTH101, PTH102, PTH123  a path object takes longer than the call: the leanest client does without

from __future__ import annotations

import argparse
import ctypes
import os
import select
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bench_common.errors import WeighbridgeError
from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import RUN_LABEL, WORKER_LABEL, ImageUnavailable
from bench_worker.engines.oci.cgroups import Cgroups
from bench_worker.engines.oci.images import STORE, UnpackedImages, make_private
from bench_worker.engines.oci.mount_namespace import join_namespace, mount_overlay, new_namespace, unmount
from bench_worker.engines.oci.recipe import Recipe, make_recipe
from bench_worker.engines.oci.runtimes import CrunEngine, RuncEngine, YoukiEngine

COMMAND: Final = ("sleep", "600")
LABEL: Final = "weighbridge.benchmark"
ENGINES: Final = {engine.name: engine for engine in (CrunEngine, RuncEngine, YoukiEngine)}
STATE: Final = Path("/run/weighbridge-bare")
PR_SET_CHILD_SUBREAPER: Final = 36
DEATH_MS: Final = 10_000
SHELL_LOOP: Final = """
set -e
umount /sys/fs/cgroup/unified 2>/dev/null || true
mount -t overlay overlay -o "lowerdir=$LOWER,upperdir=$BUNDLE/upper,workdir=$BUNDLE/work" "$BUNDLE/rootfs"
for number in $(seq "$1"); do
    name=bare-$$-$number
    $RUNTIME run --detach --bundle "$BUNDLE" --pid-file "$BUNDLE/pid" "$name" </dev/null >/dev/null 2>&1
    read -r pid <"$BUNDLE/pid" || true
    $RUNTIME kill "$name" KILL 2>/dev/null
    while read -r _ _ state _ 2>/dev/null <"/proc/$pid/stat" && [ "$state" != Z ]; do :; done
    $RUNTIME delete --force "$name" 2>/dev/null
done
"""

_images = UnpackedImages()
_orphans = threading.Lock()
_loops = 0


class Client:
    """The life cycles of one runtime."""

    def __init__(self, program: str, home: Path, root: Path, recipe: Recipe) -> None:
        self.program = program
        self.home = home
        self.root = root
        self.recipe = recipe
        thread: list[int] = []
        maker = threading.Thread(target=lambda: thread.append(new_namespace()))
        maker.start()
        maker.join()
        [self._namespace] = thread
        self._nothing = os.open(os.devnull, os.O_RDWR)
        self._env = dict(os.environ)

    def with_own_bundles(self, count: int) -> None:
        """Make a bundle for each container."""
        join_namespace(self._namespace)
        thread = threading.get_ident()
        with adopting():
            for number in range(count):
                name = f"bare-{thread}-{number}"
                bundle = self.make_bundle(name)
                self.life(name, bundle)
                unmount(f"{bundle}/rootfs")
                shutil.rmtree(bundle)

    def with_one_bundle(self, count: int) -> None:
        """Make one bundle for all containers of this thread."""
        join_namespace(self._namespace)
        thread = threading.get_ident()
        bundle = self.make_bundle(f"bare-{thread}")
        with adopting():
            for number in range(count):
                self.life(f"bare-{thread}-{number}", bundle)
        unmount(f"{bundle}/rootfs")
        shutil.rmtree(bundle)

    def in_a_shell(self, count: int) -> None:
        """Run the commands in a shell, which has a mount namespace of its own."""
        bundle = self.make_bundle(f"bare-{threading.get_ident()}", mount=False)
        names = {"BUNDLE": bundle, "LOWER": self.recipe.lower, "RUNTIME": f"{self.program} --root {self.root}"}
        words = ["unshare", "--mount", "bash", "-c", SHELL_LOOP, "loop", str(count)]
        subprocess.run(words, env={**os.environ, **names}, check=True)
        shutil.rmtree(bundle)

    def make_bundle(self, name: str, *, mount: bool = True) -> str:
        """Return the directory of a new bundle."""
        bundle = f"{self.home}/{name}"
        for path in (bundle, f"{bundle}/rootfs", f"{bundle}/upper", f"{bundle}/work"):
            os.mkdir(path)
        os.chmod(f"{bundle}/upper", self.recipe.root_mode)
        if mount:
            where = {"upper": f"{bundle}/upper", "work": f"{bundle}/work"}
            mount_overlay(f"{bundle}/rootfs", lower=self.recipe.lower, **where)
        with open(f"{bundle}/config.json", "w") as file:
            file.write(self.recipe.config(name, "0"))
        return bundle

    def life(self, name: str, bundle: str) -> None:
        """Run, kill, wait until it is dead, delete."""
        pid_file = f"{bundle}/pid"
        self.call("run", "--detach", "--bundle", bundle, "--pid-file", pid_file, name)
        with open(pid_file) as file:
            pid = int(file.read())
        pidfd = os.pidfd_open(pid)
        try:
            self.call("kill", name, "KILL")
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if not poll.poll(DEATH_MS):
                raise TimeoutError(f"{name} did not die")
        finally:
            os.close(pidfd)
        with suppress(ChildProcessError):  # it may still be a child of the process that started it
            os.waitpid(pid, 0)
        self.call("delete", "--force", name)

    def call(self, *words: str) -> None:
        """Run one command of the runtime to its end."""
        streams = [(os.POSIX_SPAWN_DUP2, self._nothing, number) for number in range(3)]
        argv = [self.program, "--root", str(self.root), *words]
        pid = os.posix_spawn(self.program, argv, self._env, file_actions=streams)
        _, status = os.waitpid(pid, 0)
        if status:
            raise RuntimeError(f"{' '.join(argv)}: exit code {os.waitstatus_to_exitcode(status)}")


@contextmanager
def adopting() -> Iterator[None]:
    """Inherit the processes that commands leave behind; the last loop that ends reaps those that are dead."""
    global _loops  # noqa: PLW0603  of all threads
    with _orphans:
        _loops += 1
        adopt(orphans=True)
    try:
        yield
    finally:
        with _orphans:
            _loops -= 1
            if not _loops:
                adopt(orphans=False)
                with suppress(ChildProcessError):
                    while os.waitpid(-1, os.WNOHANG)[0]:
                        pass


def adopt(*, orphans: bool) -> None:
    """Have orphans below this process become its children, or no longer."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0)


def clients(engine: str, options: argparse.Namespace) -> dict[str, Callable[[int], None]] | str:
    """Return the loops by the clients' names, the leanest first; or why there are none."""
    runtime = ENGINES[engine]
    status = runtime.probe()
    if not status.usable:
        return f"{status.reason} ({status.advice})"
    labels = {RUN_LABEL: f"benchmark-{options.mark}", WORKER_LABEL: "bare"}
    settings = ContainerSettings(image=options.image, command=COMMAND, network="none")
    try:
        home = make_private(home_of(engine, options))
        image = _images.get(options.image, {LABEL: options.mark})
    except (ImageUnavailable, WeighbridgeError) as error:
        return str(error)
    recipe = make_recipe(settings, image, Cgroups.detect(), home, labels, allow_host_mounts=False)
    client = Client(status.endpoint, home, STATE / engine, recipe)
    return {
        f"bare {engine}": client.with_own_bundles,
        f"{engine}, one bundle": client.with_one_bundle,
        f"{engine} in a shell": client.in_a_shell,
    }


def home_of(engine: str, options: argparse.Namespace) -> Path:
    """Return the directory of the bundles, on the disk that Weighbridge uses."""
    return STORE / f"bare-{options.mark}" / engine


def clean_up(engine: str, options: argparse.Namespace) -> None:
    """Delete what containers are left, and all directories."""
    program: Any = shutil.which(engine)
    root = STATE / engine
    for container in root.iterdir() if root.is_dir() else ():
        if container.name.startswith("bare-"):
            subprocess.run([program, "--root", str(root), "delete", "--force", container.name], check=False)
    shutil.rmtree(home_of(engine, options).parent, ignore_errors=True)
