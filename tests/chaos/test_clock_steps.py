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
from live_run import NATIVE, LiveRun
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
