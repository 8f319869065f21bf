"""A small image made without a registry, and the engine to run it: what the integration tests of engines share."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import uuid
from pathlib import Path

import pytest
from deadlines import ANSWER_S, LONG_END_S

from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import Container, EngineOptions
from bench_worker.engines.docker.engine import DockerEngine
from bench_worker.engines.docker.podman import PodmanEngine
from bench_worker.leases import RunLease

APPLETS = ("cat", "date", "dd", "echo", "env", "id", "kill", "ls", "sh", "sleep", "touch", "true")


def skip_or_fail(reason):
    """Fail in CI, skip elsewhere: a test that silently did not run proves nothing."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def require_docker():
    """Return the engine's status when one answers."""
    status = DockerEngine.probe()
    if not status.usable:
        skip_or_fail(f"{status.reason}; {status.advice}")
    return status


def require_podman():
    """Return the engine's status when Podman can be used."""
    status = PodmanEngine.probe()
    if not status.usable:
        skip_or_fail(f"{status.reason}; {status.advice}")
    return status


def busybox():
    """Return the path of a busybox that needs no libraries."""
    found = shutil.which("busybox")
    if found is None:
        skip_or_fail("there is no busybox to make an image of; apt-get install busybox-static")
    return Path(found)


def layer():
    """Return a tar archive: busybox, its applets as links, and a file that cannot be executed."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        archive.add(busybox(), "bin/busybox")
        for applet in APPLETS:
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        archive.addfile(tarfile.TarInfo("plain"), io.BytesIO())
    return content.getvalue()


class DockerBench:
    """An opened engine for one run, its image, and containers that are gone at the end."""

    def __init__(self, image, run_id=None, slots=20, kind=DockerEngine, **options):
        self.image = image
        self.run_id = run_id or f"test-{uuid.uuid4().hex[:12]}"
        self.engine = kind(EngineOptions(self.run_id, "w1", slots, **options))
        self.engine.open()
        self.client = self.engine._client
        assert self.engine.missing(ContainerSettings(image=image)) == []
        # Somebody may clean up this host meanwhile.
        self.lease = RunLease(self.run_id)
        self.lease.acquire()

    def container(self, *command, ticket=1, **settings):
        """Return a container, not made yet, with a name of its own."""
        given = {"image": self.image, "command": command or None, "network": "none", **settings}
        return Container(f"wb-{uuid.uuid4().hex[:12]}", ticket, ContainerSettings(**given))

    def made(self, *command, **settings):
        """Return a container that was created."""
        container = self.container(*command, **settings)
        self.engine.create(container, timeout_s=ANSWER_S)
        return container

    def running(self, *command, **settings):
        """Return a container that was created and started."""
        container = self.made(*command, **settings)
        self.engine.start(container, timeout_s=ANSWER_S)
        return container

    def close(self):
        """Remove what the run made, and the copy of the image in another store than Docker's."""
        for leftover in self.engine.leftovers(self.run_id):
            self.engine.discard(leftover)
        if self.engine.name == "podman":
            self.client.remove_image(self.image, force=True)
        self.engine.close()
        self.lease.release()


def import_image():
    """Make the image and return its name; the caller removes it."""
    require_docker()
    name = f"weighbridge-test/busybox:{uuid.uuid4().hex[:12]}"
    engine = DockerEngine(EngineOptions("", "", 1))
    engine.open()
    try:
        repository, _, tag = name.partition(":")
        engine._client.import_image_from_data(layer(), repository=repository, tag=tag)
    finally:
        engine.close()
    return name


def remove_image(name):
    """Remove an image that `import_image` made."""
    engine = DockerEngine(EngineOptions("", "", 1))
    engine.open()
    try:
        engine._client.remove_image(name, force=True)
    finally:
        engine.close()


def run_patched(file, folder, choice=""):
    """Run a file's tests in a process of their own that gevent has patched; return how it ended.

    Those marked `unpatched` are left out: the ones that call this, and those that a patched process has no part in.
    """
    code = "from gevent import monkey; monkey.patch_all(); import sys, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    command = [
        sys.executable,
        "-c",
        code,
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={folder}/patched",
        "-k",
        choice,
        "-m",
        "not slow and not unpatched",
    ]
    return subprocess.run([*command, file], capture_output=True, text=True, timeout=LONG_END_S, check=False)


def run_concurrently(work, count):
    """Call `work(index)` for each index at the same time; return the results in order, or raise the first error.

    Threads are real ones, or greenlets in a process that gevent has patched.
    """
    results, errors = [None] * count, []

    def one(index):
        try:
            results[index] = work(index)
        except Exception as error:  # noqa: BLE001  raised again below, where the test can see it
            errors.append(error)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
