"""Where the time of Podman's `kill` goes: a trace of its service, from the request to the reply.

It starts a service of Podman's API as the engine ``podman`` does, kills containers that sleep, and traces the
service (strace) meanwhile. For each kill it prints, in milliseconds since the request was read: when the runtime sent
SIGKILL, when the service read the exit status that the container's monitor had written, and when it replied. The last
time less the one before is what the service waits although it knows that the container has ended; how long after each
look at its database the next one came says how. strace makes all of it slower, and a busy machine makes it more so:
a pause between looks is the sleep of 250 ms and what comes on top.

    python benchmarks/podman_kill.py [--kills N] [--image NAME]

It takes root, podman and strace; where one is missing it says so, with exit code 3.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from common import parser_of

from bench_common.errors import EngineUnavailable
from bench_common.treatment import ContainerSettings
from bench_worker.engines.base import Container, EngineOptions
from bench_worker.engines.docker.podman import PROGRAM, PodmanEngine

UNAVAILABLE = 3
TIMEOUT_S = 60.0
PAUSE_S = 0.1
"""Looks at the database that are further apart have a sleep between them."""
TRACED = "read,kill,openat,write,pidfd_open"
DATABASE = re.compile(r"/(bolt_state|db)\.(db|sql)")
"""Podman's database: Bolt's up to Podman 4, SQLite's from Podman 5 on."""
LINE = re.compile(r"^\d+ +(\d+\.\d+) (.*)$")
"""A line of the trace: the process, seconds, and the call."""


def service_pid(name: str) -> int:
    """Return the process that serves Podman's API for this program."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            except OSError:
                continue
            if "system" in words and "service" in words and any(name in word for word in words):
                return int(entry.name)
    raise EngineUnavailable("the service of Podman's API is not to be seen from here")


def steps(trace: str, container: str) -> tuple[list[float], list[float]] | None:
    """Return the milliseconds of the steps of a kill, and those between looks at the database that are far apart.

    None where the trace has no whole kill.
    """
    request = signalled = known = looked = 0.0
    pauses: list[float] = []
    for found in map(LINE.match, trace.splitlines()):
        if found is None:
            continue
        seconds, call = float(found[1]), found[2]
        if container in call and "/kill" in call:
            request = seconds
        elif request and "SIGKILL" in call and "kill(" in call:
            signalled = seconds
        elif signalled and "openat(" in call and "/exits/" in call:
            known = looked = seconds
        elif known and "HTTP/1.1 204" in call:
            return [1000 * (at - request) for at in (signalled, known, seconds)], pauses
        elif known and "openat(" in call and DATABASE.search(call):
            if seconds - looked > PAUSE_S:
                pauses.append(1000 * (seconds - looked))
            looked = seconds
    return None


def main() -> int:
    """Trace some kills and print their steps; return the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--kills", type=int, default=10, metavar="N", help="containers to kill (default: 10)")
    parser.add_argument("--image", default="weighbridge/base", help="their image (default: %(default)s)")
    options = parser.parse_args()
    if shutil.which("strace") is None:
        sys.stderr.write("strace is missing: apt-get install strace\n")
        return UNAVAILABLE
    engine = PodmanEngine(EngineOptions(f"kill-{secrets.token_hex(4)}", "benchmark", 1))
    try:
        engine.open()
        lacking = engine.missing(ContainerSettings(image=options.image))
        if lacking:
            raise EngineUnavailable(lacking[0])
        served = service_pid(engine._address().removeprefix("unix://"))  # noqa: SLF001  whom to trace
    except EngineUnavailable as error:
        sys.stderr.write(f"{error}\n")
        return UNAVAILABLE
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"{version}, milliseconds since the request was read")
    print("  SIGKILL sent   exit known   replied   waited   pauses between looks at the database")
    waits = []
    settings = ContainerSettings(image=options.image, command=("sleep", "1000"), network="none")
    with tempfile.TemporaryDirectory() as folder:
        for ticket in range(options.kills):
            container = Container(f"wb-kill-{secrets.token_hex(4)}", ticket, settings)
            engine.run(container, timeout_s=TIMEOUT_S)
            path = Path(folder, "trace")
            argv = ["strace", "-f", "-ttt", "-s", "200", "-e", f"trace={TRACED}", "-p", str(served), "-o", str(path)]
            tracer = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
            while not traced_by(served):
                time.sleep(0.05)
            engine.kill(container, "SIGKILL", timeout_s=TIMEOUT_S)
            tracer.send_signal(signal.SIGINT)
            tracer.wait(TIMEOUT_S)
            found = steps(path.read_text(errors="replace"), str(container.handle))
            engine.remove(container, timeout_s=TIMEOUT_S)
            if found is not None:
                (sent, known, replied), pauses = found
                waits.append(replied - known)
                looks = " ".join(f"{pause:.0f}" for pause in pauses) or "-"
                print(f"  {sent:12.1f} {known:12.1f} {replied:9.1f} {waits[-1]:8.1f}   {looks}")
    engine.close()
    if not waits:
        sys.stderr.write("no kill was traced whole\n")
        return UNAVAILABLE
    print(f"waited: {min(waits):.0f} to {max(waits):.0f} ms, median {median(waits):.0f} ms")
    return 0


def traced_by(pid: int) -> int:
    """Return the process that traces another one; 0 for none."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("TracerPid:"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C")
    sys.exit(main())
