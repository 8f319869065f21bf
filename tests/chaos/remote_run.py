"""Workers on blades that a hostile network, a reboot or a full disk is done to, each with its own key."""

import contextlib
import fcntl
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
from blades import Testbed
from deadlines import ANSWER_S, END_S, LONG_END_S, START_S, wait_until
from live_run import OverTcp, cmdline, is_running
from workspace import Program, Workspace, skip_or_fail

from bench_common.keys import KeyProvisioner

WIRE = Path(__file__).with_name("faulty_link.py")
KINDS = {1: "bare-metal", 2: "hypervisor"}
"""The environment of each blade."""
TINY = "/var/tmp/tiny"


class Blades(Testbed):
    """Two blades, the second at the end of a wire that can be harmed."""

    def __init__(self):
        super().__init__()
        self._is_whole = True
        try:
            self.wire = self._make_wire()
        except (OSError, subprocess.CalledProcessError) as error:
            self.close()
            skip_or_fail(f"no wire can be made: {error}")
        try:
            self._install()
        except BaseException:
            self.close()
            raise

    def _ip(self, *words):
        return subprocess.run(["ip", *words], capture_output=True, text=True, timeout=END_S, check=True).stdout

    def _make_wire(self):
        """Put a wire of ours in the place of the second blade's, with the same address."""
        blade, switch = f"{self.tag}-b2", f"{self.tag}-sw"
        mac = json.loads(self._ip("-n", blade, "-j", "link", "show", "eth0"))[0]["address"]
        self._ip("-n", blade, "link", "delete", "eth0")
        command = [sys.executable, str(WIRE), switch, "p2", blade, "eth0"]
        wire = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if wire.stdout.readline() != "ready\n":
            wire.wait(ANSWER_S)
            raise OSError("it ended at once; its last words are above")
        self._ip("-n", switch, "link", "set", "p2", "master", "br0", "up")
        self._ip("-n", blade, "link", "set", "eth0", "address", mac, "up")
        self._ip("-n", blade, "addr", "add", f"{self.subnet}.12/24", "dev", "eth0")
        self._ip("-n", blade, "route", "add", "default", "via", f"{self.subnet}.1")
        return wire

    def _install(self):
        """Have Weighbridge installed on the blades as a user would; their workers are started from there.

        That takes long, and is not what these tests are about: a testbed begins with what an earlier one installed.
        The program itself finds out whether that is exactly this version, and if not installs what differs.
        """
        folder = self.folder / "installing"
        folder.mkdir()
        kept = self.cache / "installed"
        kept.parent.mkdir(parents=True, exist_ok=True)
        with kept.with_suffix(".lock").open("w") as lock, Workspace(folder) as workspace:
            fcntl.flock(lock, fcntl.LOCK_EX)
            homes = [self.home(number) / ".local/share/weighbridge" for number in KINDS]
            for home in homes if kept.exists() else ():
                copy_tree(kept, home)
            workspace.environ["XDG_CACHE_HOME"] = str(self.cache)
            reach = ("-i", self.inventory(folder / "hosts.yaml"), "--known-hosts", self.known_hosts)
            for command in ("start", "stop"):
                ended = workspace.master("fleet", command, *reach, seconds=LONG_END_S)
                assert ended.status == 0, ended.out + ended.err
                if "installing" in ended.err:
                    shutil.rmtree(kept, ignore_errors=True)
            if not kept.exists():
                for part in ("venvs", "wheels"):
                    copy_tree(homes[0] / part, kept / part)

    def python(self, number):
        """Return the Python of a blade's own installation, as the blade sees it."""
        (found,) = self.home(number).glob(".local/share/weighbridge/venvs/*/bin/python")
        return f"/root/{found.relative_to(self.home(number))}"

    def inject_faults(self, **ways):
        """Say what frames ``to`` and ``from`` the second blade suffer; nothing at all mends the wire."""
        self.wire.stdin.write(json.dumps(ways) + "\n")
        self.wire.stdin.flush()
        assert self.wire.stdout.readline() == "done\n"

    def set_link(self, state):
        """Pull the second blade's cable out (``down``) or put it in again (``up``)."""
        self._ip("-n", f"{self.tag}-sw", "link", "set", "p2", state)

    def first_process(self, number):
        """Return the first process of a blade's own tree."""
        outer = int((self.folder / "bed" / f"blade-{number}" / "pid").read_text())
        return wait_until(lambda: psutil.Process(outer).children(), ANSWER_S, "the blade's first process")[0].pid

    def tiny_disk(self, number):
        """Mount a file system of 64 KiB in a blade; return where the blade has it, and where it is seen from here."""
        first = self.first_process(number)
        inside = ["nsenter", "-t", str(first), "-m", "--"]
        for command in (["mkdir", "-p", TINY], ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", TINY]):
            subprocess.run([*inside, *command], capture_output=True, timeout=END_S, check=True)
        return TINY, Path(f"/proc/{first}/root{TINY}")

    def cut_power(self, number):
        """Kill a blade with all that is in it."""
        self._is_whole = False
        with contextlib.suppress(psutil.NoSuchProcess):
            psutil.Process(int((self.folder / "bed" / f"blade-{number}" / "pid").read_text())).kill()

    def repair(self):
        """Let everything be as it was built."""
        self.set_link("up")
        self.inject_faults()
        if not self._is_whole:
            built = self.script("up", "--yes")
            assert built.returncode == 0, built.stderr
            self._is_whole = True

    def close(self):
        """Take everything away."""
        wire = getattr(self, "wire", None)
        if wire is not None:
            wire.stdin.close()
            wire.stdout.close()
            wire.wait(ANSWER_S)
        super().close()


def copy_tree(source, target):
    """Copy thousands of files, links as links: `cp` does so with a fraction of the processor time of `shutil`."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", source, target], timeout=END_S, check=True)


class RemoteRun(OverTcp):
    """A run whose workers are on the blades of a testbed, one on each, and whose master admits their keys."""

    def __init__(self, folder, scenario, *flags, blades, **environ):
        self.blades = blades
        self._programs = {}
        super().__init__(folder, scenario, *flags, workers=2, **environ)

    def launch(self, source, workers, flags):
        """Start the master where the blades reach it, and a worker on each of them."""
        provisioner = KeyProvisioner(self.folder / "keys")
        self.keys = {number: provisioner.key_file_to_deliver(f"blade-{number}") for number in KINDS}
        self.place = ("--zmq-bind-ip", f"{self.blades.subnet}.1", "--key-dir", self.folder / "keys")
        # A freshly built blade takes its time on a busy machine.
        return super().launch(source, workers, ["--worker-timeout", f"{START_S:g}s", *flags])

    @property
    def reach(self):
        """The flags of another master in this one's place."""
        names = ("--zmq-control-port", "--zmq-results-port", "--zmq-work-port")
        given = [word for pair in zip(names, self.ports, strict=True) for word in pair]
        return (*self.place, *given)

    def start_worker(self, number, **environ):
        """Start the worker of a blade, in all of its namespaces."""
        inside = ["nsenter", "-t", str(self.blades.first_process(number)), "-n", "-u", "-m", "-p", "--"]
        command = [self.blades.python(number), "-m", "bench_worker", "--zmq-host", f"{self.blades.subnet}.1"]
        command += ["--zmq-control-port", self.ports[0], "-c", 4, "--environment", KINDS[number]]
        command += ["--allow-native", "--key", self.keys[number], f"blade-{number}"]
        folder = self.folder / f"worker-{number}-{time.monotonic_ns()}"
        variables = {**self.workspace.environ, **environ}
        variables.pop("PYTHONPATH", None)
        made = Program((*inside, *command), folder, variables)
        self.workspace._programs.append(made)
        self._roots.append(psutil.Process(made.process.pid))
        self._programs[number] = made
        return made

    def worker(self, number):
        """Return all processes of a blade's worker, the jobs under way with them; not `nsenter`, which waits."""
        self.refresh()
        try:
            return psutil.Process(self._programs[number].process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def resume_worker(self, number):
        """Let a blade's worker go on; `nsenter` stops itself when what it waits for is stopped."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.signal([*self.worker(number), psutil.Process(self._programs[number].process.pid)], signal.SIGCONT)

    def jobs_on(self, number):
        """Return the jobs that run on a blade."""
        return [process for process in self.worker(number) if cmdline(process)[:1] == ["sleep"]]

    def dismiss_workers(self):
        """End the workers, which wait for a next run."""
        for number, program in self._programs.items():
            self.resume_worker(number)
            if program.process.poll() is None:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self.signal(psutil.Process(program.process.pid).children(), signal.SIGTERM)
        wait_until(
            lambda: not any(is_running(process) for process in self._roots[1:]), START_S, "the end of the workers"
        )
