"""A clock that is set during a run, forward and back, falsifies nothing: durations come from another one."""

import contextlib
import mmap
import shutil
import struct
import subprocess
import time
from datetime import UTC, datetime, timedelta

import pytest
from deadlines import ANSWER_S, END_S, START_S, wait_until
from live_run import LIFE, NATIVE, LiveRun
from stub_stores import start_stub
from workspace import skip_or_fail

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long *offset;
static int (*really)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CLOCK_OFFSET_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    really = dlsym(RTLD_NEXT, "clock_gettime");
    if (file >= 0) {
        void *page = mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
        offset = page == MAP_FAILED ? 0 : page;
        close(file);
    }
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int status = really(clock, now);
    if (!status && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
    return status;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    int status = clock_gettime(CLOCK_REALTIME, &found);
    (void)zone;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return status;
}

time_t time(time_t *where) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (where) *where = found.tv_sec;
    return found.tv_sec;
}
"""
"""Stands between programs and the C library, and sets their calendar as an administrator would: for all at once."""

DAY_S = 86_400


class Calendar:
    """What programs with `environ` take for the time of day; `step` sets it."""

    def __init__(self, folder):
        compiler = shutil.which("cc") or skip_or_fail("the test compiles a library: apt-get install gcc libc6-dev")
        (folder / "shim.c").write_text(SHIM)
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", folder / "shim.so", folder / "shim.c", "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=END_S, check=False)
        if done.returncode:
            skip_or_fail(f"the C compiler failed: {done.stderr[:300]}")
        (folder / "offset").write_bytes(bytes(mmap.PAGESIZE))
        self._file = (folder / "offset").open("r+b")
        self._page = mmap.mmap(self._file.fileno(), mmap.PAGESIZE)
        self.environ = {"LD_PRELOAD": str(folder / "shim.so"), "CLOCK_OFFSET_FILE": str(folder / "offset")}

    def step(self, seconds):
        """Set the clock to so many seconds after the true time."""
        self._page[:8] = struct.pack("=q", seconds)

    def close(self):
        """Let go of the file."""
        self._page.close()
        self._file.close()


@pytest.fixture
def calendar(tmp_path):
    with contextlib.closing(Calendar(tmp_path)) as made:
        yield made


def test_a_clock_that_is_set_ends_and_falsifies_no_run(tmp_path, calendar):
    """Three days forward, then ten back, between the header and the footer: each job has its true duration."""
    began = time.monotonic()
    with LiveRun(tmp_path / "live", NATIVE | {"iterations": 10}, **calendar.environ) as live:
        live.wait_for_jobs(4)
        calendar.step(3 * DAY_S)
        live.wait_for_jobs(30)
        calendar.step(-7 * DAY_S)
        assert live.end() == 0, live.err
        lasted_s = time.monotonic() - began
        run = live.run
        document = run.document
        live.assert_clean()
    assert run.outcomes() == {"done": 80}
    assert not any(job["attempt"] for job in run.jobs)
    assert all(0.3 <= job["duration_s"] < lasted_s for job in run.jobs)
    starts = [job["start_s"] for job in run.jobs]
    assert 0 <= min(starts) <= max(starts) < lasted_s
    assert 0 < document["totals"]["duration_s"] < lasted_s
    assert 0 < document["totals"]["busy_s"] < lasted_s
    (host,) = document["hosts"]
    assert host["clock_checks"]["disagreements"] == []
    assert document["incomplete"] == []
    assert not [text for text in document["warnings"] if "clock" in text or "time window" in text]
    # That the clock was really set: the run ended a week before it began.
    ended = datetime.fromisoformat(document["run"]["ended"])
    assert ended < datetime.fromisoformat(document["run"]["created"]) - timedelta(days=6)
    assert ended < datetime.now(UTC) - timedelta(days=6)


def test_a_resumed_run_waits_for_the_workers_of_a_killed_master_whatever_the_calendar_says(tmp_path, calendar):
    """A clock that is set forward in between does not make the leases of the part before expire."""
    with LiveRun(tmp_path / "live", NATIVE, **calendar.environ) as live:
        live.wait_for_jobs(4)
        live.master.kill()
        live.master.wait(ANSWER_S)
        calendar.step(DAY_S)
        resumed = live.workspace.start("bench-master", "run-scenario", "--resume", live.stats, "--workers", 1)
        try:
            told = wait_until(
                lambda: "until then workers" in resumed.err or resumed.process.poll() is not None, START_S, "the wait"
            )
            assert told
            assert "until then workers of the earlier run may still be active" in resumed.err, resumed.err
        finally:
            resumed.process.kill()


def test_a_clock_that_is_set_changes_no_time_of_an_operation_on_an_object(tmp_path, calendar):
    """The kernel's stamps are of the calendar: where that is set, or is not the kernel's own, they are not used."""
    job = {"objects": {"sizes": 4096, "population": 20, "mix": {"read": 1}}}
    reads = {"engines": ["swift"], "repeats": 1, "concurrency": 4, "operation_count": 4000, "job": job}
    began = time.monotonic()
    with start_stub() as stub:
        login = {"ST_AUTH": stub.auth_url, "ST_USER": "user", "ST_KEY": "key"}
        with LiveRun(tmp_path / "live", reads, **login, **calendar.environ) as live:
            for count, days in ((200, 3), (1000, -7)):
                wait_until(lambda: stub.counts()["GET"] >= count, START_S, "reads")  # noqa: B023
                calendar.step(days * DAY_S)
            assert live.end() == 0, live.err
            lasted_s = time.monotonic() - began
            run = live.run
            live.assert_clean()
        assert stub.counts()["GET"] >= 4000
    assert run.outcomes() == {"done": 4000}
    assert all(0 < job["duration_s"] < lasted_s for job in run.jobs)
    assert sorted(job["duration_s"] for job in run.jobs)[3000] < 1


@pytest.mark.slow
def test_a_clock_that_is_set_ends_no_adaptive_run_and_uses_up_no_budget(tmp_path, calendar):
    """`--budget` is time that passed: with the clock a day ahead, then a week back, no round is left out."""
    job = {"operations": LIFE, "container": {"command": ["sleep", "0.05"]}}
    scenario = {"engines": ["native"], "matrix": {"container.env.NAME": ["one", "two"]}, "job": job, "iterations": 4}
    flags = ("--until", "verdict", "--max-rounds", "6", "--budget", "2h")
    with LiveRun(tmp_path / "live", scenario, *flags, **calendar.environ) as live:
        live.wait_for_jobs(4)
        calendar.step(DAY_S)
        live.wait_for_jobs(16)
        calendar.step(-7 * DAY_S)
        assert live.end() == 0, live.err
        run = live.run
        live.assert_clean()
    stopping = run.document["verdicts"]["design"]["stopping"]
    assert stopping["why"] in {"settled", "at-most"}, stopping
    looks = [event["rounds"] for event in run.blocks("event") if event["kind"] == "look"]
    assert looks == list(range(looks[0], looks[-1] + 1))
    assert run.outcomes() == {"done": 8 * looks[-1]}
    assert not any(job["attempt"] for job in run.jobs)
