"""Somebody on the network does all that they can to a keyed run, on every port: it goes on to its right end."""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from deadlines import ANSWER_S, END_S, START_S, wait_until
from live_run import LIFE
from remote_run import Blades, RemoteRun
from test_hostile_sockets import highest

from bench_common.keys import KeyProvisioner
from bench_common.stats.reader import StatsFile

INTRUDER = Path(__file__).with_name("intruder.py")
JOBS = 180


def scenario(gone):
    """Return six trials of 30 jobs of a second, and less once a file `gone` says that the intruder is.

    So long the last third of them waits: the run is never over before.
    """
    wait = f"if [ $(wc -l < {gone}.n) -gt {JOBS * 2 // 3} ]; then until [ -e {gone} ]; do sleep 0.1; done; fi"
    nap = ["sh", "-c", f"[ -e {gone} ] && exit; echo >> {gone}.n; sleep 1; {wait}"]
    return {
        "engines": ["native"],
        "environments": ["bare-metal", "hypervisor"],
        "repeats": 3,
        "concurrency": 2,
        "iterations": 15,
        "timeout": "10m",
        "job": {"operations": LIFE, "container": {"command": nap}},
    }


SECONDS = 8
GROWN_BYTES = 96 << 20


@pytest.fixture(scope="module")
def blades():
    made = Blades()
    yield made
    made.close()


def epochs(stats):
    """Return the epochs of the workers, as nobody outside can know them: the worst case."""
    events = (block.body for block in StatsFile(stats).blocks({"event"}))
    return [event["epoch"] for event in events if event["kind"] == "worker-joined"]


def listening(run):
    """Return the ports at which something of the workers listens."""
    found = []
    for number in (1, 2):
        for process in run.worker(number):
            # A job's own process may be over by now.
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [one.laddr for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]
    return found


def test_an_intruder_gets_nothing_and_harms_nothing(tmp_path, blades):
    """No key, another's key, a listed key under another name; garbage, huge messages, hundreds of silent lines."""
    # It tests what an intruder can do, not how busy this machine is.
    gone = tmp_path / "gone"
    with RemoteRun(
        tmp_path / "live", scenario(gone), "--heartbeat-timeout", "20s", "--lease", "30s", blades=blades
    ) as run:
        mole = KeyProvisioner(tmp_path / "live" / "keys").key_file_to_deliver("mole")
        public = KeyProvisioner(tmp_path / "live" / "keys").master()[0].public.decode()
        run.start_worker(1)
        run.start_worker(2)
        wait_until(lambda: run.jobs_on(1) or run.jobs_on(2), START_S, "the first jobs")
        wait_until(lambda: run.stats.exists() and len(epochs(run.stats)) == 2, ANSWER_S, "the workers' epochs")
        before = highest(run.master)
        assert listening(run) == [], "there is nothing at a worker to knock at"
        control, results, lane = run.ports
        result = {
            "host": f"{blades.subnet}.1",
            "ports": {"control": control, "results": results, "lanes": [lane, lane + 1]},
            "master_public": public,
            "mole": str(mole),
            "victims": epochs(run.stats),
            "seconds": SECONDS,
            "patience": END_S / 2,
        }
        ended = subprocess.run(
            ["nsenter", f"--net=/run/netns/{blades.tag}-b1", sys.executable, INTRUDER],
            input=json.dumps(result) + "\n",
            env={**os.environ, "PYTHONPATH": f"{INTRUDER.parents[2]}:{INTRUDER.parents[1]}"},
            capture_output=True,
            text=True,
            timeout=END_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        found = json.loads(ended.stdout)
        assert run.program.process.poll() is None, "it was over before the intruder was"
        gone.touch()
        grown = highest(run.master) - before
        assert run.end() == 0, run.err
        assert not run.faults(), run.faults()
        assert run.run.outcomes() == {"done": JOBS}
        assert not any(row["attempt"] for row in run.run.jobs)
        assert "was lost" not in run.err
        assert (found["stolen"], found["answered"], found["to_mole"]) == (0, 0, ["Dismiss"]), found
        assert found["opened"] >= 300, "some were open all the time"
        assert found["shut"] > 0, "silent connections are shut"
        assert grown < GROWN_BYTES, f"{grown >> 20} MiB"
        assert run.run.blocks("footer")[0].dropped_messages > 0
        assert found["forged"] > 0
        refusals = re.findall(r"refused a connection", run.err)
        assert 0 < len(refusals) <= 30, "refusals are logged, and rate-limited"
        assert len(run.err) < 20_000
        assert not [line for line in run.err.splitlines() if "internal error" in line]
        assert {host["worker_id"] for host in run.run.document["hosts"]} == {"blade-1", "blade-2"}
        run.dismiss_workers()
        run.assert_clean()
