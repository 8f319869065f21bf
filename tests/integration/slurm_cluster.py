"""A real Slurm cluster on this machine, which `script/slurm` starts, and runs on its nodes."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time

import psutil
from busybox_image import skip_or_fail
from deadlines import BUILD_S, END_S, LONG_END_S, START_S, wait_until
from places import ROOT
from real_store import consecutive_ports
from workspace import Workspace, free_ports, has_started

SCRIPT = ROOT / "script" / "slurm"
NAP = {"operations": ["run", "wait", "remove"], "container": {"command": ["sleep", "0.05"]}}


class SlurmCluster:
    """A controller and so many nodes, in a folder and on ports of their own."""

    def __init__(self, nodes):
        self._folder = tempfile.TemporaryDirectory(prefix="wb-slurm-", dir="/tmp")
        self.nodes = nodes
        self.environ = {**os.environ, "WEIGHBRIDGE_SLURM": self._folder.name}
        for name in [name for name in self.environ if name.startswith(("SLURM_", "SBATCH_", "SQUEUE_"))]:
            del self.environ[name]

    def __enter__(self):
        started = self.script("start", "--yes", "--nodes", self.nodes, "--port", consecutive_ports(self.nodes + 1))
        if started.returncode:
            self.__exit__()
            skip_or_fail(f"script/slurm start: {started.stderr.strip()}")
        (line,) = self.script("env").stdout.splitlines()
        name, _, value = line.removeprefix("export ").partition("=")
        self.environ[name] = value
        return self

    def __exit__(self, *_):
        self.script("stop")
        self._folder.cleanup()

    def script(self, *words):
        """Run `script/slurm`; return the finished process."""
        return self.tool(SCRIPT, *words, seconds=BUILD_S)  # the first start on a machine installs Slurm

    def tool(self, *words, seconds=START_S):
        """Run a program of Slurm's; return the finished process."""
        return subprocess.run(
            [str(word) for word in words],
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def submit(self, node, command):
        """Submit a job that takes a whole node; return its number once it runs."""
        words = ("--parsable", "--exclusive", f"--nodelist={node}", "--output=/dev/null", f"--wrap={command}")
        done = self.tool("sbatch", *words)
        assert done.returncode == 0, done.stderr
        number = done.stdout.strip()
        wait_until(lambda: self.field(number, "%T") == "RUNNING", START_S, f"job {number} runs")
        return number

    def field(self, number, which):
        """Return what `squeue` prints of a job, also of one that has ended."""
        return self.tool(
            "squeue", "--noheader", "--states=all", f"--jobs={number}", f"--format={which}"
        ).stdout.strip()

    def queued(self, *names):
        """Return the states of the jobs of workers that have not left the queue, by their names."""
        wanted = f"--name={','.join(f'weighbridge-{name}' for name in names)}"
        rows = self.tool("squeue", "--noheader", wanted, "--format=%j %T").stdout.split()
        return dict(zip(rows[::2], rows[1::2], strict=True))

    def number_of(self, name):
        """Return the number of a worker's job that has not left the queue."""
        return self.tool("squeue", "--noheader", f"--name=weighbridge-{name}", "--format=%i").stdout.strip()


class SlurmMaster(Workspace):
    """Runs commands on nodes of a cluster, on ports of its own."""

    def __init__(self, folder, cluster):
        super().__init__(folder)
        self.cluster = cluster
        self.environ |= {"SLURM_CONF": cluster.environ["SLURM_CONF"]}
        control, results, work = free_ports(3)
        self.control = ("--zmq-control-port", control)
        self.ports = (*self.control, "--zmq-results-port", results, "--zmq-work-port", work)

    def inventory(self, **hosts):
        """Write an inventory of hosts, each with its settings; the workers run this installation."""
        common = {"launcher": "slurm", "python": sys.executable, "master": "127.0.0.1", "concurrency": 2}
        path = self.folder / f"hosts-{'-'.join(hosts)}.yaml"
        path.write_text(json.dumps({"defaults": common, "hosts": hosts}))
        return path

    def napping(self, jobs, **keys):
        """Write a scenario of so many short jobs."""
        return self.scenario(job=NAP, iterations=jobs, repeats=1, speed_probe=False, **keys)

    def start_on(self, inventory, scenario, *flags):
        """Start a run on an inventory; return the program and where its stats file will be."""
        flags = ("-i", inventory, *self.ports, "--worker-timeout", f"{START_S:g}s", *flags)
        return self.start_run(scenario, *flags, workers=0)

    def start_under_way(self, inventory, scenario, *flags):
        """Start a run, and wait until it has jobs in flight."""
        return self.await_begin(*self.start_on(inventory, scenario, *flags))

    def await_begin(self, program, stats):
        """Wait until a run has jobs in flight."""
        wait_until(lambda: has_started(stats) or program.process.poll() is not None, END_S, "the run's begin")
        assert program.process.poll() is None, program.err
        time.sleep(1)
        return program, stats

    def run_on(self, inventory, scenario, *flags):
        """Run a scenario on an inventory to its end."""
        return self.finish(*self.start_on(inventory, scenario, *flags), seconds=LONG_END_S)

    def fleet(self, command, inventory, *flags, status=0):
        """Run a command on an inventory; return its table, the cells of each worker by its name."""
        ended = self.master("fleet", command, "-i", inventory, *flags, seconds=LONG_END_S)
        assert ended.status == status, ended.err
        return {row.split("\t")[1]: row.split("\t") for row in ended.out.splitlines()[1:]}

    def left(self, *names):
        """Return what is left of workers: jobs, files beside their logs, processes."""
        directory = self.folder / "home/.local/share/weighbridge"
        files = [path.name for path in directory.glob("**/*") if path.is_file() and path.suffix != ".log"]
        return [*self.cluster.queued(*names), *files, *self.processes()]

    def processes(self):
        """Return the command lines of workers that have their key in this folder."""
        lines = []
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or ())
            if re.search(rf"bench_worker .*{re.escape(str(self.folder))}/", line):
                lines.append(line)
        return lines
