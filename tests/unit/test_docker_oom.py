"""What the kernel's log says of a container that ran out of memory."""

import os
from pathlib import Path

import pytest

from bench_worker.engines.docker import oom as docker_oom

MINE, OTHER = "5a70e157", "660c8649"
KILL = b"6,99,1,-;oom-kill:constraint=%b,cpuset=%b,oom_memcg=/docker/%b,task_memcg=/docker/%b,task=sh,pid=7"


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (KILL % (b"CONSTRAINT_MEMCG", b"x", MINE.encode(), MINE.encode()), True),
        (KILL % (b"CONSTRAINT_MEMCG", b"x", OTHER.encode(), OTHER.encode()), False),
        # The whole host was short of memory: its own limit was not to blame.
        (b"6,99,1,-;oom-kill:constraint=CONSTRAINT_NONE,cpuset=%b,global_oom" % MINE.encode(), False),
        (b"", False),
    ],
)
def test_only_a_kill_by_its_own_limit_counts(monkeypatch, tmp_path, record, told):
    """Records are read to the last one, which nobody waits for; one that was overwritten ends nothing."""
    answers = iter([b"6,98,1,-;eth0: link up", BrokenPipeError(), record, BlockingIOError()])

    log, real = tmp_path / "kmsg", os.read
    log.touch()

    def read(descriptor, size):
        # Native threads that other tests have left in this process go on reading pipes of their own.
        if Path(f"/proc/self/fd/{descriptor}").readlink() != log:
            return real(descriptor, size)
        answer = next(answers)
        if isinstance(answer, bytes):
            return answer
        raise answer

    monkeypatch.setattr(docker_oom, "KERNEL_LOG", str(log))
    monkeypatch.setattr(docker_oom.os, "read", read)
    assert docker_oom.kernel_log_has_oom_kill(MINE) is told


def test_a_log_that_cannot_be_read_tells_nothing(monkeypatch, tmp_path):
    """As to users who may not read it."""
    monkeypatch.setattr(docker_oom, "KERNEL_LOG", str(tmp_path / "none"))
    assert docker_oom.kernel_log_has_oom_kill(MINE) is False
