"""A long attack on one master with a running run: ``python tests/chaos/long_flood.py MINUTES PORT:FLOOD ...``.

PORT is ``control``, ``results`` or ``work``, FLOOD a name of `flood.FLOODS`. It prints the master's memory every ten
seconds, and how the run ended.
"""

import sys
import tempfile
import time
from pathlib import Path

import psutil

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "integration"), str(TESTS / "chaos")]

from deadlines import LONG_TEST_S  # noqa: E402
from live_run import OverTcp  # noqa: E402
from test_floods import flooded, scenario  # noqa: E402
from test_hostile_sockets import highest  # noqa: E402


def say(text):
    """Print a line at once."""
    print(text, flush=True)  # noqa: T201


def attack(minutes, floods):
    """Attack one master for so long; print what becomes of it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        OverTcp(Path(folder) / "live", scenario(minutes * 60)) as live,
    ):
        live.join("-c", 4, "--environment", "local", "solo")
        live.wait_for_jobs()
        began = time.monotonic()
        with flooded(live, floods):
            while time.monotonic() - began < minutes * 60 and live.program.process.poll() is None:
                time.sleep(10)
                resident = live.master.memory_info().rss >> 20
                say(
                    f"{time.monotonic() - began:6.0f} s  {resident:4} MiB  {live.jobs_shown():5} jobs  "
                    f"load {psutil.getloadavg()[0]:.1f}"
                )
        if live.program.process.poll() is None:
            say(f"peak {highest(live.master) >> 20} MiB")
        status = live.end(seconds=LONG_TEST_S)
        retried = sum(bool(job["attempt"]) for job in live.run.jobs)
        say(f"exit code {status}, jobs {live.run.outcomes()}, {retried} retried")
        say("\n".join(line for line in live.err.splitlines() if "cut off" in line)[-1500:])


if __name__ == "__main__":
    attack(float(sys.argv[1]), [tuple(word.split(":")) for word in sys.argv[2:]])
