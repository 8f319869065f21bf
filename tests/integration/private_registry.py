"""A registry of a test's own on the loopback, with an image in it that nobody else has."""

import io
import os
import re
import shutil
import subprocess
import tarfile
import time
import urllib.request
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import docker
from busybox_image import layer, require_docker, skip_or_fail
from deadlines import ANSWER_S, START_S, wait_until
from workspace import free_ports

_LAYER_BYTES = 50_000

CONFIG = """
version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}/data}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@dataclass
class Registry:
    """A registry that answers at `address`; `image` is in it, and on this host only where it was pulled."""

    address: str
    image: str
    process: subprocess.Popen
    log: Path

    def layers_sent(self):
        """Return how many times the layer has been sent so far; a configuration is small."""
        sizes = re.findall(
            r'"GET /v2/bench/tiny/blobs/\S+ HTTP/1.1" 200 (\d+)', self.log.read_text("utf-8", "replace")
        )
        return sum(int(size) > _LAYER_BYTES for size in sizes)

    def end(self):
        """End it; nobody answers at its address any more."""
        self.process.kill()
        self.process.wait(ANSWER_S)


@contextmanager
def private_registry(folder):
    """Give a registry with an image in it; Docker takes one on the loopback for safe without TLS."""
    require_docker()
    program = _program()
    if program is None:
        skip_or_fail("there is no registry to pull from: script/test --all engines fetches one")
    [port] = free_ports(1)
    config, log = folder / "registry.yml", folder / "registry.log"
    config.write_text(CONFIG.format(folder=folder, port=port))
    with log.open("wb") as out:
        process = subprocess.Popen([program, "serve", str(config)], stdout=out, stderr=out, cwd=folder)
    registry = Registry(f"127.0.0.1:{port}", f"127.0.0.1:{port}/bench/tiny:{uuid.uuid4().hex[:12]}", process, log)
    try:
        wait_until(lambda: _answers(registry.address), ANSWER_S, "the registry's answer")
        _fill(registry.image)
        yield registry
    finally:
        registry.end()
        _forget(registry.image)


@cache
def _program():
    """Return the registry's program: the installed one, or that which `script/test --all engines` unpacked."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    unpacked = cache / "weighbridge" / "docker-registry" / "usr" / "bin"
    return shutil.which("docker-registry") or shutil.which("docker-registry", path=unpacked)


def _answers(address):
    try:
        with urllib.request.urlopen(f"http://{address}/v2/", timeout=ANSWER_S) as answer:
            return answer.status == 200
    except OSError:
        return False


def _fill(image):
    """Make an image with a layer that nobody else has, put it into the registry and take it off this host."""
    extra = io.BytesIO(layer())
    with tarfile.open(fileobj=extra, mode="a") as archive:
        content = uuid.uuid4().bytes * 4096
        entry = tarfile.TarInfo("unique")
        entry.size, entry.mtime = len(content), int(time.time())
        archive.addfile(entry, io.BytesIO(content))
    client = docker.APIClient(timeout=START_S)
    try:
        repository, _, tag = image.rpartition(":")
        client.import_image_from_data(extra.getvalue(), repository=repository, tag=tag)
        for message in client.push(repository, tag=tag, stream=True, decode=True):
            assert "error" not in message, message
    finally:
        client.close()
        _forget(image)


def _forget(image):
    client = docker.APIClient(timeout=START_S)
    try:
        client.remove_image(image, force=True)
    except docker.errors.ImageNotFound:
        pass
    finally:
        client.close()
