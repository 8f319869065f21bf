"""From what Docker says to the kinds of failure."""

import pytest
import requests
import urllib3
from docker.errors import APIError

from bench_worker.engines.base import OperationFailed
from bench_worker.engines.docker.errors import docker_operation, exec_failure, failure_kind, root_cause

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
        (urllib3.exceptions.ReadTimeoutError(None, "", "slow"), "timeout", "no answer in 5 s"),
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
    with pytest.raises(OperationFailed) as caught, docker_operation(5):
        raise error
    assert caught.value.kind == kind
    assert text in str(caught.value)
    assert 0 < caught.value.start_ns <= caught.value.end_ns


def test_a_broken_connection_after_the_deadline_is_a_timeout():
    """requests reports a body that ran out of time as a broken connection; the clock knows better."""
    with pytest.raises(OperationFailed) as caught, docker_operation(0.0):
        raise requests.ConnectionError("Read timed out.")
    assert caught.value.kind == "timeout"


def test_the_root_cause_is_what_the_system_said():
    """Layers of HTTP errors are taken off down to the errno's text."""
    inner = PermissionError(13, "Permission denied")
    middle = urllib3.exceptions.ProtocolError("Connection aborted.", inner)
    assert root_cause(requests.ConnectionError(middle)) == "Permission denied"
    assert root_cause(ValueError("plain")) == "plain"
