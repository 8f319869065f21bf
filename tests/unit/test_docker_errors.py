"""From Docker's words to the kinds of failure, and what the kernel's log says of an out-of-memory kill."""

import os
from pathlib import Path

import pytest
import requests
from docker.errors import APIError

from bench_worker.engines.base import OperationFailed
from bench_worker.engines.docker import errors as docker_errors
from bench_worker.engines.docker.errors import docker_operation, exec_failure, failure_kind, root_cause
from bench_worker.engines.docker.http import DockerHttp

ENGINE = DockerHttp("unix:///nonexistent/docker.sock")
RUNTIME = "OCI runtime create failed: runc create failed: unable to start container process: "


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (404, "No such image: weighbridge/none:latest", "image-missing"),
        (404, "No such container: abc", "not-found"),
        (404, "network nonesuch not found", "not-found"),
        (409, 'Conflict. The container name "/x" is already in use by container "ab"', "conflict"),
        (500, "Container ab is not paused", "conflict"),
        (409, "removal of container ab is already in progress", "conflict"),
        (400, RUNTIME + 'exec: "nope": executable file not found in $PATH: unknown', "command-not-found"),
        (400, RUNTIME + 'exec: "/nope": stat /nope: no such file or directory: unknown', "command-not-found"),
        (400, RUNTIME + 'exec: "/etc/motd": permission denied: unknown', "not-executable"),
        (400, RUNTIME + "exec /a: exec format error", "not-executable"),
        (400, RUNTIME + 'exec: "/etc": is a directory: unknown', "not-executable"),
        (400, "Minimum memory limit allowed is 6MB", "refused"),
        (403, "authorization denied by plugin", "refused"),
        (501, "configured logging driver does not support reading", "unsupported"),
        (500, "mkdir /var/lib/docker/overlay2/x: no space left on device", "disk-full"),
        (500, "driver failed programming external connectivity", "engine"),
        (None, "", "engine"),
    ],
)
def test_each_answer_has_its_kind(status, message, kind):
    """The kind follows from what the engine said, and from the status where the words say nothing."""
    assert failure_kind(status, message) == kind


def test_a_failed_exec_is_told_from_a_command_that_failed():
    """127 from a shell is the command's own business; 126 with the runtime's words is a failure of the exec."""
    said = b'OCI runtime exec failed: exec failed: exec: "nope": executable file not found in $PATH: unknown\r\n'
    assert exec_failure(126, said) == "command-not-found"
    assert exec_failure(127, b"sh: nope: not found\n") is None
    assert exec_failure(0, said) is None


def api_error(status, explanation):
    response = requests.Response()
    response.status_code = status
    return APIError("x", response=response, explanation=explanation)


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (requests.ReadTimeout("slow"), "timeout", "no answer in 5 s"),
        (TimeoutError("late"), "timeout", "no answer in 5 s"),
        (
            requests.ConnectionError(ConnectionRefusedError(111, "Connection refused")),
            "unreachable",
            "Connection refused",
        ),
        (FileNotFoundError(2, "No such file or directory"), "unreachable", "No such file"),
        (api_error(404, "No such container: x"), "not-found", "No such container: x"),
        (api_error(404, "No such image: x"), "image-missing", "build-images"),
    ],
)
def test_whatever_breaks_inside_an_operation_becomes_its_failure(error, kind, text):
    """The kind is stable, the message is the engine's or the system's own, and the stamps are in order."""
    with pytest.raises(OperationFailed) as caught, docker_operation(ENGINE, 5):
        raise error
    assert caught.value.kind == kind
    assert text in str(caught.value)
    assert 0 < caught.value.start_ns <= caught.value.end_ns


def test_a_broken_connection_after_the_deadline_is_a_timeout():
    """requests reports a body that ran out of time as a broken connection; the clock knows better."""
    with pytest.raises(OperationFailed) as caught, docker_operation(ENGINE, 0.0):
        raise requests.ConnectionError("Read timed out.")
    assert caught.value.kind == "timeout"


def test_the_root_cause_is_what_the_system_said():
    """Layers of HTTP errors are taken off down to the errno's text."""
    inner = PermissionError(13, "Permission denied")
    middle = Exception("Connection aborted.", inner)
    assert root_cause(requests.ConnectionError(middle)) == "Permission denied"
    assert root_cause(ValueError("plain")) == "plain"


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

    monkeypatch.setattr(docker_errors, "KERNEL_LOG", str(log))
    monkeypatch.setattr(docker_errors.os, "read", read)
    assert docker_errors.kernel_log_has_oom_kill(MINE) is told


def test_a_log_that_cannot_be_read_tells_nothing(monkeypatch, tmp_path):
    """As to users who may not read it."""
    monkeypatch.setattr(docker_errors, "KERNEL_LOG", str(tmp_path / "none"))
    assert docker_errors.kernel_log_has_oom_kill(MINE) is False
