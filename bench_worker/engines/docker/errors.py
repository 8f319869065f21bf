"""Says in Weighbridge's words why a Docker operation failed, and keeps the engine's own."""

from __future__ import annotations

import http.client
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import requests
import urllib3
from docker.errors import APIError, DockerException

from bench_worker.engines.base import OperationFailed
from bench_worker.engines.docker.http import DockerApiError, TimedRequest, endpoint, timed_request

if TYPE_CHECKING:
    from collections.abc import Iterator

KIND_PATTERNS = (
    ("disk-full", re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)),
    ("image-missing", re.compile(r"no such image|image .*not found", re.IGNORECASE)),
    ("not-executable", re.compile(r"exec.*(permission denied|exec format error|is a directory)", re.IGNORECASE)),
    ("command-not-found", re.compile(r"executable file .*not found|exec.*no such file or directory", re.IGNORECASE)),
    (
        "conflict",
        re.compile(
            r"is not paused|already paused|(is|container \S+) not running|already in (use|progress)|state improper",
            re.IGNORECASE,
        ),
    ),
    ("not-found", re.compile(r"unable to find network", re.IGNORECASE)),
    ("unsupported", re.compile(r"does not support|not supported|not implemented|not logging output", re.IGNORECASE)),
    (
        "refused",
        re.compile(r"CPUs are not available|no command (specified|or entrypoint)|setting rlimit", re.IGNORECASE),
    ),
)
"""Docker reports what the kernel or the runtime said as text, under whatever status it has; first match wins."""

_KIND_BY_STATUS = {
    400: "refused",
    401: "refused",
    403: "refused",
    404: "not-found",
    409: "conflict",
    501: "unsupported",
}

IMAGE_ADVICE = "`bench-master build-images` makes Weighbridge's own; any other has to be pulled first"

_RUNTIME_REFUSED = re.compile(rb"\A(OCI runtime exec failed: |Error: .*: OCI (permission denied|runtime ))")
"""How Docker's and Podman's words begin when the runtime failed an `exec`."""

_TIMEOUTS = (TimeoutError, requests.Timeout, urllib3.exceptions.TimeoutError)
_TRANSPORT = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    DockerException,
    http.client.HTTPException,
    OSError,
)


def failure_kind(status: int | None, message: str) -> str:
    """Return the kind (see `OperationFailed`) of an answer with this HTTP status and the engine's message."""
    for kind, pattern in KIND_PATTERNS:
        if pattern.search(message):
            return kind
    return _KIND_BY_STATUS.get(status or 0, "engine")


def exec_failure(exit_code: int, output: bytes) -> str | None:
    """Return the kind when it was the runtime that failed an `exec`, not the command; None when the command ran.

    Docker Engines before 23.0, and Podman, report it in the command's own output, with exit code 126 or 127, which a
    command may also have for reasons of its own.
    """
    if exit_code in {126, 127} and _RUNTIME_REFUSED.match(output):
        kind = failure_kind(None, output.decode("utf-8", "replace"))
        return kind if kind != "engine" else "command-not-found"
    return None


@contextmanager
def docker_operation(timeout_s: float, address: str | None = None) -> Iterator[TimedRequest]:
    """Stamp and bound the requests inside, all to `address` (None: that of the environment).

    Raises `OperationFailed`, with the stamps, for whatever goes wrong.
    """
    with timed_request(timeout_s) as made:
        try:
            yield made
        except _TIMEOUTS as error:
            raise operation_failed("timeout", f"the engine gave no answer in {timeout_s:g} s", made) from error
        except APIError as error:
            message = str(error.explanation or error)
            raise operation_failed(failure_kind(error.status_code, message), message, made) from error
        except DockerApiError as error:
            raise operation_failed(failure_kind(error.status, str(error)), str(error), made) from error
        except requests.HTTPError as error:
            message = _error_message(error.response)
            raise operation_failed(failure_kind(error.response.status_code, message), message, made) from error
        except _TRANSPORT as error:
            if made.expired():
                # Some layers report a read that ran out of time as a broken connection.
                raise operation_failed("timeout", f"the engine gave no answer in {timeout_s:g} s", made) from error
            raise operation_failed("unreachable", f"{address or endpoint()}: {root_cause(error)}", made) from error


def operation_failed(kind: str, message: str, made: TimedRequest) -> OperationFailed:
    """Return the failure of an operation whose requests `made` has timed."""
    end_ns = made.end_ns if kind not in {"timeout", "unreachable"} else made.now_ns()
    if kind == "image-missing":
        message += f" ({IMAGE_ADVICE})"
    return OperationFailed(kind, message, start_ns=made.start_ns, end_ns=end_ns)


def root_cause(error: BaseException) -> str:
    """Return the words of the operating system within an error of the HTTP layers, or the error's own."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror and not isinstance(seen, requests.RequestException):
            return seen.strerror
        inner = [item for item in seen.args if isinstance(item, BaseException)]
        seen = seen.__cause__ or getattr(seen, "reason", None) or (inner[0] if inner else seen.__context__)
        if not isinstance(seen, BaseException):
            break
    return str(error)


def raise_for_status(response: requests.Response) -> None:
    """Raise `requests.HTTPError` for an answer that is an error, once its text is read."""
    if not response.ok:
        _ = response.content
        response.raise_for_status()


def _error_message(response: requests.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, KeyError, TypeError, requests.RequestException):
        return f"HTTP status {response.status_code}"
