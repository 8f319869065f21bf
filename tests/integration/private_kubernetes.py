"""A Kubernetes of one node of a test's own, from `script/kubernetes`, with the image of a worker."""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from attention import undisturbed
from busybox_image import skip_or_fail
from cluster_master import require_worker_image
from deadlines import END_S, LONG_END_S
from places import ROOT

SCRIPT = ROOT / "script" / "kubernetes"
IMAGE = "weighbridge/worker:test"
"""Not `latest`: Kubernetes pulls an image of that name whenever a pod starts."""


class PrivateKubernetes:
    """A started cluster; `kubectl` runs its command, `left` says what workers have left in it."""

    node = "node-1"

    def __init__(self, folder):
        self.folder = folder
        lines = _script("env", folder).splitlines()
        given = {name: shlex.split(value)[0] for name, _, value in (line.partition("=") for line in lines)}
        self.inside = tuple(given.pop("ENTER").split())
        self.environ = given

    def kubectl(self, *words, stdin=""):
        """Run kubectl as the cluster's administrator; return what it prints."""
        return subprocess.run(
            [*self.inside, "kubectl", *words],
            env={**os.environ, **self.environ},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=END_S,
            check=True,
        ).stdout

    def apply(self, *objects):
        """Create objects, or change them."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def cut_node(self):
        """Kill the node with its pods at once; the control plane, which is none of it, goes on."""
        _script("cut", self.folder)

    def revive_node(self):
        """Start the node again, and wait until pods can run on it."""
        _script("revive", self.folder)

    def left(self):
        """Return what is there of workers, in every namespace."""
        words = ["--all-namespaces", "--selector", "weighbridge.worker", "--output", "name"]
        return self.kubectl("get", "job,daemonset,pod,secret", *words).split()


def _script(*words, seconds=LONG_END_S):
    done = subprocess.run(
        [str(SCRIPT), *map(str, words)], capture_output=True, text=True, timeout=seconds, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def private_kubernetes():
    """Give a cluster that has the image of a worker."""
    version = SCRIPT.read_text().partition("\nversion=")[2].splitlines()[0]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weighbridge" / "kubernetes"
    if not (cache / version / "kubelet").exists():
        skip_or_fail("Kubernetes is not built: script/kubernetes build (about 10 minutes of CPU time, once)")
    if os.geteuid() != 0 or shutil.which("containerd") is None:
        skip_or_fail("a private Kubernetes takes root and containerd; `script/engines containerd`")
    subprocess.run(["docker", "tag", require_worker_image(), IMAGE], check=True, timeout=END_S)
    with contextlib.ExitStack() as clusters:
        # On a machine under load a node was not ready in all that time, once.
        folder = undisturbed(lambda: clusters.enter_context(_started()), attempts=2)
        cluster = PrivateKubernetes(folder)
        _script("load", folder, IMAGE)
        clusters.callback(subprocess.run, ["docker", "rmi", IMAGE], capture_output=True, timeout=END_S, check=False)
        yield cluster


@contextlib.contextmanager
def _started():
    """Start a cluster in a folder of its own; what it says when it cannot be is in the error."""
    folder = Path(tempfile.mkdtemp(prefix="wb-k8s-", dir="/tmp"))
    try:
        try:
            _script("start", folder)
        except AssertionError as error:
            logs = (f"{log.name}:\n{log.read_text(errors='replace')[-2000:]}" for log in folder.glob("*.log"))
            raise AssertionError("\n".join((str(error), *logs))) from error
        yield folder
    finally:
        subprocess.run([str(SCRIPT), "stop", folder], capture_output=True, timeout=END_S, check=False)
        shutil.rmtree(folder, ignore_errors=True)
