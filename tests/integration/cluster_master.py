"""What tests of real clusters share: a worker's image, and a workspace with a master in the network of a cluster."""

import json
import subprocess

from deadlines import BUILD_S, END_S
from workspace import PROGRAMS, Workspace, free_ports, require_images

IMAGE = "weighbridge/worker"


def require_worker_image():
    """Have the image of a worker built from this installation, if the one that is there is another."""
    require_images("weighbridge/base").close()
    done = subprocess.run(
        [*PROGRAMS["bench-master"], "build-images", "worker"],
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return IMAGE


class ClusterMaster(Workspace):
    """Runs commands on the nodes of a cluster, in its network."""

    def __init__(self, folder, cluster, launcher, **settings):
        super().__init__(folder)
        self.environ |= cluster.environ
        self.cluster, self.launcher, self.settings = cluster, launcher, settings
        control, results, work = free_ports(3)
        self.control = ("--zmq-control-port", str(control))
        self.ports = (*self.control, "--zmq-results-port", str(results), "--zmq-work-port", str(work))
        self.inventory = self.write_inventory()

    def start(self, program, *words):
        """Start a program in the network of the cluster."""
        return super().start(program, *words, prefix=self.cluster.inside)

    def write_inventory(self, name="hosts.yaml", **host):
        """Write an inventory of one node, `n1`, that has the cluster's only node; return its path."""
        settings = {**self.settings, **host.pop("settings", {})}
        row = {"launcher": self.launcher, "address": self.cluster.node, "master": "127.0.0.1", "settings": settings}
        path = self.folder / name
        path.write_text(json.dumps({"hosts": {"n1": {**row, "environment": "bare-metal", **host}}}))
        return path

    def fleet(self, command, *words, status=0, inventory=None, seconds=END_S):
        """Run a command on the inventory; it must end with `status`."""
        ended = self.master("fleet", command, "-i", inventory or self.inventory, *words, seconds=seconds)
        assert ended.status == status, ended.err
        assert "Traceback" not in ended.err
        return ended

    def run_fleet(self, scenario, *flags, status=0, inventory=None):
        """Run a scenario on the cluster to its end."""
        reach = ("-i", inventory or self.inventory)
        return self.run(scenario, *reach, *self.ports, *flags, workers=0, status=status, seconds=END_S)

    def start_fleet_run(self, scenario, *flags):
        """Start a run on the cluster; return the program and where its stats file will be."""
        return self.start_run(scenario, "-i", self.inventory, *self.ports, *flags, workers=0)

    def secrets(self):
        """Return the secret keys of the master and of every worker."""
        keys = self.folder / "home/.config/weighbridge/keys"
        lines = [line for path in keys.glob("*.key") for line in path.read_text().splitlines()]
        return [line.partition(": ")[2] for line in lines if line.startswith("secret: ")]
