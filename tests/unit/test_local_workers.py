"""A local worker that does not join: its process, the cause, its log and what to do are told, whatever it was at."""

import re
import signal
import sys
from time import monotonic

import pytest
from deadlines import wait_until

from bench_common.activity import process_state
from bench_common.startup import (
    STAGE_ENGINES,
    STAGE_JOINING,
    STAGE_LEFTOVERS,
    STAGE_LOAD_PROCESS,
    STAGE_LOADING,
)
from bench_master.run import local_workers as module
from bench_master.run.local_workers import STAGE_EXAMINED, LocalWorker, LocalWorkers, WorkerStart


def start(**fields):
    return WorkerStart(**{"worker_id": "local-0", "pid": 7, "state": "S", "age_s": 31.4, "cpu_s": 1.25} | fields)


@pytest.mark.parametrize(
    ("fields", "is_now", "remedy"),
    [
        ({"stage": f"{STAGE_ENGINES}: docker"}, "process 7, alive)", "bench-master list engines"),
        ({"stage": STAGE_EXAMINED}, "it is looking for what the plan needs", "bench-master list engines"),
        ({"stage": STAGE_LEFTOVERS}, "it is removing what dead runs left", "cleanup-containers --dry-run"),
        ({"stage": STAGE_JOINING}, "it is asking its master to join", "start the run again with -v"),
        ({"stage": STAGE_LOADING}, "it is starting its load process", "--worker-timeout 5m"),
        ({"stage": STAGE_LOAD_PROCESS}, "it is waiting for its load process", "--worker-timeout 5m"),
        ({"stage": f"{STAGE_ENGINES}: docker", "state": "T"}, "alive, but stopped)", "kill -CONT 7"),
        ({"state": "R", "starved": True}, "got 1.2 s of CPU time", "this machine is too busy"),
        ({"state": "D"}, "alive, waiting for a disk)", "slow disk"),
        ({"state": "", "ended": "ended with exit code 0"}, "process 7, ended): it ended with exit code 0", "with -v"),
    ],
)
def test_a_worker_that_does_not_join_has_a_cause_and_a_remedy(fields, is_now, remedy):
    """In every stage and every state of its process."""
    told = start(**fields, log_tail="no such thing").explain("load average 9.0 on 2 CPUs")
    summary, _, rest = told.partition("; to do: ")
    assert is_now in summary
    assert summary.endswith("; load average 9.0 on 2 CPUs")
    assert remedy in rest
    assert rest.endswith("\nthe end of its log:\nno such thing")
    assert start(**fields).explain("").endswith("\nits log is empty")


def local_workers(tmp_path, program):
    """Return local workers of which the only one runs a program."""
    workers = LocalWorkers(0, control="", directory=tmp_path, slots=1, environment="local", engines=())
    workers._workers = [LocalWorker("local-0", [sys.executable, "-c", program], tmp_path / "local-0.log")]
    workers.start()
    return workers


def test_a_worker_that_ends_without_a_failure_is_told_too(tmp_path):
    """Exit code 0 before it joined is no success; its log has the reason."""
    workers = local_workers(tmp_path, "print('goodbye', flush=True)")
    wait_until(lambda: not workers.poll_deaths() and workers._workers[0].process is None)
    (told,) = workers.explain_starts(set())
    assert "ended): it ended with exit code 0 after " in told
    assert told.endswith("the end of its log:\ngoodbye")
    assert workers.explain_starts({"local-0"}) == []


def test_the_state_of_a_living_process_is_told(tmp_path, monkeypatch):
    """Stopped or not, what it printed, what it is at; and now and then while it starts."""
    workers = local_workers(tmp_path, "import time; print('hello', flush=True); time.sleep(60)")
    (worker,) = workers._workers
    try:
        wait_until(worker.log.read_text)
        worker.stage_file.write_text(f"{STAGE_ENGINES}: docker")
        worker.process.send_signal(signal.SIGSTOP)
        wait_until(lambda: process_state(worker.pid) == "T")
        (told,) = workers.explain_starts(set())
        assert re.search(rf"\(process {worker.pid}, alive, but stopped\) has not joined after \d+ s", told)
        assert "it is asking engines: docker" in told
        assert "hello" in told
        (examined,) = workers.starts(set(), {"local-0"})
        assert examined.stage == STAGE_EXAMINED
        assert workers.due_notices(set()) == []
        worker.started_at = monotonic() - module.NOTICE_INTERVAL_S - 1
        (notice,) = workers.due_notices(set())
        (taken_s,) = re.findall(r"has not joined after (\d+) s", notice)
        assert int(taken_s) >= 6
        assert workers.due_notices(set()) == []
    finally:
        worker.process.kill()
        worker.process.wait()
