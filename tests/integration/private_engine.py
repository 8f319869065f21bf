"""A Docker Engine of a test's own, that it may kill, restart and starve without disturbing anybody."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import psutil
from busybox_image import import_image, skip_or_fail
from deadlines import ANSWER_S, END_S, wait_until
from places import ROOT

SCRIPT = ROOT / "script" / "docker-engine"


class PrivateEngine:
    """A daemon with its own data, socket and containerd, below a short path; `close` leaves nothing of it."""

    def __init__(self, folder, configuration=None):
        if os.geteuid() != 0 or shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            skip_or_fail("starting a Docker Engine takes root and dockerd (apt-get install docker.io)")
        self.folder = Path(folder)
        self.address = f"unix://{folder}/docker.sock"
        (self.folder / "daemon.json").write_text(json.dumps(configuration or {}))

    def start(self):
        """Start it; it answers when this returns."""
        done = self._script("start", "--yes")
        assert done.returncode == 0, done.stderr

    def stop(self):
        """End it as an administrator would: its containers end with it."""
        done = self._script("stop")
        assert done.returncode == 0, done.stderr

    def kill(self):
        """Kill the daemon; what it has started goes on."""
        daemon = psutil.Process(int((self.folder / "docker.pid").read_text()))
        daemon.kill()
        # It belongs to nobody here, and whoever collects it may take a while: a zombie is dead enough.
        wait_until(
            lambda: not daemon.is_running() or daemon.status() == psutil.STATUS_ZOMBIE, ANSWER_S, "the daemon's end"
        )

    def close(self):
        """End the daemon and all that it has started, and unmount what it has mounted."""
        self._script("stop")
        for process in psutil.process_iter(["cmdline"]):
            # containerd and its shims name the folder, and no process of anybody else does.
            if any(str(self.folder) in word for word in process.info["cmdline"] or ()) and process.pid != os.getpid():
                with contextlib.suppress(psutil.NoSuchProcess):
                    for child in process.children(recursive=True):
                        child.send_signal(signal.SIGKILL)
                    process.kill()
        points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for point in sorted((point for point in points if point.startswith(f"{self.folder}/")), reverse=True):
            subprocess.run(["umount", "-l", point], capture_output=True, timeout=END_S, check=False)

    def _script(self, *words):
        environ = {**os.environ, "WEIGHBRIDGE_ENGINE_HOME": str(self.folder)}
        return subprocess.run(
            [str(SCRIPT), *words], capture_output=True, text=True, timeout=END_S, check=False, env=environ
        )


@contextlib.contextmanager
def private_engine(monkeypatch, **configuration):
    """Give a started engine that DOCKER_HOST names meanwhile, and the name of an image that it has."""
    with tempfile.TemporaryDirectory(prefix="wb-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        engine = PrivateEngine(folder, configuration)
        monkeypatch.setenv("DOCKER_HOST", engine.address)
        try:
            engine.start()
            yield engine, import_image()
        finally:
            engine.close()
