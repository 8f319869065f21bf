"""A fleet on this machine: blades that `script/testbed` builds, and inventories of them."""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from busybox_image import skip_or_fail
from deadlines import LONG_END_S
from places import ROOT

SCRIPT = ROOT / "script" / "testbed"
CACHE = ROOT / ".pytest_cache" / "testbed"
"""Wheels that were repacked: each testbed needs the same."""
OURS = object()
"""The key of the testbed itself."""


class Testbed:
    """Two blades, or what `words` say, in a folder of their own; `close` takes them away."""

    __test__ = False
    index = False
    """Whether the pip of a blade may ask its index, which is out of reach unless a test makes one."""

    def __init__(self, *words, limit_s=LONG_END_S):
        # Installing an SSH server opens a port of the machine: not on somebody's own, unasked.
        if shutil.which("sshd", path="/usr/sbin:/usr/bin:/usr/local/sbin") is None and os.environ.get("CI") != "true":
            skip_or_fail("sshd is missing: apt-get install openssh-server")
        self.folder = Path(tempfile.mkdtemp(prefix="wb-fleet-", dir="/tmp"))
        self.cache = CACHE
        # As the script makes its names: of the folder.
        self.tag = "wb" + hashlib.sha256(str((self.folder / "bed").resolve()).encode()).hexdigest()[:6]
        built = self.script("up", "--yes", *words, limit_s=limit_s)
        if built.returncode:
            self.close()
            skip_or_fail(f"the testbed cannot be built: {built.stderr.strip()}")
        self.subnet = (self.folder / "bed" / "subnet").read_text().strip()
        self.known_hosts = self.folder / "bed" / "known_hosts"
        self.key = self.folder / "bed" / "id_testbed"

    def script(self, *words, limit_s=LONG_END_S):
        """Run the script on this testbed."""
        return subprocess.run(
            [SCRIPT, *words],
            env={**os.environ, "WEIGHBRIDGE_TESTBED": str(self.folder / "bed")},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )

    def address(self, number):
        """Return where a blade is."""
        return f"{self.subnet}.{10 + number}"

    def ssh(self, host):
        """Return the words that begin a command on a virtual machine."""
        last = {"hypervisor": 101, "control": 102}[host]
        known = ("-o", f"UserKnownHostsFile={self.known_hosts}", "-o", "StrictHostKeyChecking=yes")
        return ["ssh", "-q", "-i", self.key, *known, "-o", "BatchMode=yes", f"root@{self.subnet}.{last}"]

    def home(self, number):
        """Return the home directory of a blade's root, as it is seen from here."""
        return self.folder / "bed" / f"blade-{number}" / "root"

    def inventory(self, path, *, key=OURS, **hosts):
        """Write an inventory: blade-1 and blade-2 as they are, with what `hosts` says (None: not at all)."""
        key = self.key if key is OURS else key
        kinds = {"blade_1": "bare-metal", "blade_2": "hypervisor"}
        given = {
            name: {"address": self.address(number), "environment": kind}
            for number, (name, kind) in enumerate(kinds.items(), start=1)
        }
        for name, more in hosts.items():
            given[name] = None if more is None else {**given.get(name, {}), **more}
        rows = {name.replace("_", "-"): row for name, row in given.items() if row is not None}
        defaults = {"user": "root", "index": self.index} | ({} if key is None else {"key": str(key)})
        path.write_text(json.dumps({"defaults": defaults, "hosts": rows}))
        return path

    def processes(self):
        """Return the command lines of all worker processes that were started on the blades."""
        spaces = set()
        for blade in (self.folder / "bed").glob("blade-*"):
            with contextlib.suppress(OSError):
                spaces.add(Path(f"/proc/{(blade / 'pid').read_text().strip()}/ns/net").readlink())
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                if "bench_worker" in words and (entry / "ns/net").readlink() in spaces:
                    found.append(words)
        return found

    def cut_connections(self, number):
        """Kill the SSH server's end of every connection to a blade; return how many there were."""
        space = Path(
            f"/proc/{(self.folder / 'bed' / f'blade-{number}' / 'pid').read_text().strip()}/ns/net"
        ).readlink()
        count = 0
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes()
                if words.startswith(b"sshd: root") and (entry / "ns/net").readlink() == space:
                    os.kill(int(entry.name), signal.SIGKILL)
                    count += 1
        return count

    def close(self, limit_s=LONG_END_S):
        """Take everything away."""
        self.script("down", limit_s=limit_s)
        shutil.rmtree(self.folder, ignore_errors=True)
