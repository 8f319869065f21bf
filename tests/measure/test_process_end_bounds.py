"""The bound of an end holds in a real run: a process's own clock and a witness's say when it really ended."""

import itertools
import sys

import numpy as np
import pytest
from attention import undisturbed
from deadlines import wait_until
from workspace import Workspace

from bench_common.records import BATCH_SAMPLES_SOURCE, Outcome
from bench_common.stats.reader import StatsFile

SCRIPT = """
import os, subprocess, sys, time
folder, ticket = sys.argv[1], os.environ["WEIGHBRIDGE_TICKET"]
# Without the job's labels and in a session of its own, so that it outlives the job.
witness = [sys.executable, "-I", "-S", sys.argv[2], str(os.getpid()), f"{folder}/{ticket}.seen"]
said = subprocess.Popen(witness, env={}, stdout=subprocess.PIPE, start_new_session=True).stdout
said.readline()
time.sleep(int(ticket) % 5 / 100)
own = os.open(f"{folder}/{ticket}.own", os.O_WRONLY | os.O_CREAT)
os.write(own, str(time.clock_gettime_ns(time.CLOCK_MONOTONIC)).encode())
os._exit(0)
"""

WITNESS = """
import os, select, sys, time
watched = os.pidfd_open(int(sys.argv[1]))
print(flush=True)
select.select([watched], [], [])
seen = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
with open(sys.argv[2] + ".part", "w") as out:
    out.write(str(seen))
os.rename(sys.argv[2] + ".part", sys.argv[2])
"""


LIMIT_S = 0.0002
"""A machine that wakes even a thread of real-time priority later than this may exceed what a bound allows for."""


@pytest.mark.parametrize("concurrency", [1, 6])
def test_a_process_ended_within_the_bound_of_its_stamp(tmp_path, concurrency):
    """It did not end later than stamped, nor earlier than the bound allows, alone and in a crowd."""
    rounds = itertools.count()

    def run_and_compare():
        folder = tmp_path / f"round-{next(rounds)}"
        folder.mkdir()
        compare_with_witness(folder, concurrency)

    undisturbed(run_and_compare, LIMIT_S, beside_load=True)


def compare_with_witness(folder, concurrency):
    """Run jobs of processes each of which has a witness, and compare what is recorded with what those saw."""
    result = folder / "told"
    result.mkdir()
    for name, text in (("script.py", SCRIPT), ("witness.py", WITNESS)):
        (folder / name).write_text(text)
    command = [sys.executable, "-I", "-S", *(str(folder / name) for name in ("script.py", "told", "witness.py"))]
    job = {"operations": ["run", "wait", "remove"], "container": {"command": command}}
    with Workspace(folder) as workspace:
        run = workspace.run(workspace.scenario(iterations=4, concurrency=concurrency, job=job))
    wait_until(lambda: len(list(result.glob("*.seen"))) == 4 * concurrency, what="a witness of every end")
    rows = np.concatenate(list(StatsFile(run.stats).iter_jobs()))
    operations = np.concatenate([block.body for block in StatsFile(run.stats).blocks({"operations"})])
    waits = operations[operations["operation"] == 1]
    waited = dict(zip(waits["ticket"].tolist(), (waits["start_ns"] + waits["duration_ns"]).tolist(), strict=True))
    assert (len(rows), set(rows["outcome"].tolist())) == (4 * concurrency, {Outcome.DONE})
    bounds = []
    for ticket, uncertainty_ns in zip(rows["ticket"].tolist(), rows["uncertainty_ns"].tolist(), strict=True):
        own_ns, seen_ns = (int((result / f"{ticket}.{name}").read_text()) for name in ("own", "seen"))
        # The process ended between its own last look at the clock and the moment at which the witness saw it.
        assert own_ns <= waited[ticket]
        assert waited[ticket] - uncertainty_ns <= seen_ns
        bounds.append((uncertainty_ns / 1e6, (seen_ns - waited[ticket]) / 1e6))
    sys.stdout.write(f"bound, and how much later the witness saw it, in ms: {sorted(bounds)}\n")
    batches = [body for body in run.blocks("samples") if body.source == BATCH_SAMPLES_SOURCE]
    assert sum(body.columns["wake_ups"].max() for body in batches) > 0, "late wake-ups were measured meanwhile"
