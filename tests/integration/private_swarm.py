"""A Docker Swarm of one node of a test's own, with the image of a worker, in a network of its own."""

import contextlib
import os
import subprocess
import tempfile

from cluster_master import require_worker_image
from deadlines import END_S
from private_engine import PrivateEngine


class PrivateSwarm:
    """An engine in swarm mode; `docker` runs its command, `left` says what workers have left in it."""

    def __init__(self, engine):
        self.engine = engine
        pid = (engine.folder / "docker.pid").read_text().strip()
        self.inside = ("nsenter", f"--net=/proc/{pid}/ns/net")
        self.environ = {"DOCKER_HOST": engine.address}
        subprocess.run([*self.inside, "ip", "link", "set", "lo", "up"], check=True, timeout=END_S)
        # An overlay network takes VXLAN, which not every kernel has: workers are in their node's network.
        self.docker("swarm", "init", "--advertise-addr", "127.0.0.1")
        (self.node,) = self.docker("node", "ls", "--format", "{{.Hostname}}").split()

    def docker(self, *words):
        """Run the user's `docker` on this engine; return what it prints."""
        return subprocess.run(
            ["docker", *words],
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            timeout=END_S,
            check=True,
        ).stdout

    def load(self, image):
        """Copy an image from the machine's engine."""
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as source:
            subprocess.run(
                ["docker", "load", "-q"],
                env={**os.environ, **self.environ},
                stdin=source.stdout,
                timeout=END_S,
                check=True,
                stdout=subprocess.DEVNULL,
            )

    def left(self):
        """Return what is there of workers: services, secrets and containers."""
        services = self.docker("service", "ls", "--format", "service {{.Name}}")
        secrets = self.docker("secret", "ls", "--format", "secret {{.Name}}")
        containers = self.docker("ps", "--all", "--format", "container {{.Names}}")
        return sorted((services + secrets + containers).splitlines())


@contextlib.contextmanager
def private_swarm():
    """Give a swarm that has the image of a worker."""
    image = require_worker_image()
    with tempfile.TemporaryDirectory(prefix="wb-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        engine = PrivateEngine(folder)
        try:
            engine.start()
            swarm = PrivateSwarm(engine)
            swarm.load(image)
            yield swarm
        finally:
            engine.close()
