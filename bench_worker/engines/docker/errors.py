"""Why a Docker operation failed: the kind of failure beside the engine's own words, and out-of-memory kills.

A container's state reports an out-of-memory kill of its first process, and of no other. A command executed in it is
counted by its cgroup; where that is on another host only the engine's events report it.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import gevent

from bench_common.safe_text import shorten
from bench_worker.engines.base import OperationFailed
from bench_worker.engines.docker.http import DockerApiError, DockerHttp, TimedRequest
from bench_worker.engines.oci.cgroups import OomKillCounter, memory_directory
from bench_worker.engines.output import ERROR_CHARS
from bench_worker.http import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench_worker.engines.base import Container, OperationResult

ENGINE_AWAY: Final = re.compile(
    r"shutting down|error while dialing|failed to dial|the client connection is closing|containerd is not running|"
    r"failed to update store for object type|database not open",
    re.IGNORECASE,
)
"""How a daemon reports that it is ending, or that the containerd which it works with does not answer.

A Docker Engine answers requests until the last moment, when it has closed its databases already.
"""

_SERVICE_UNAVAILABLE = 503

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
"""Docker reports errors of the kernel or the runtime as text, with any status; the first match wins."""

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


def _loaded(module: str, name: str) -> tuple[type[Exception], ...]:
    """Return an exception of docker-py or of what it loads; none where it is not loaded, so that nobody raises it."""
    found = sys.modules.get(module)
    return () if found is None else (getattr(found, name),)


def call_errors(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return what a call of an engine raises when it gets no proper answer, through docker-py or not; and `more`."""
    return (*_loaded("docker.errors", "DockerException"), http.client.HTTPException, ProtocolError, OSError, *more)


KILLED_CODE: Final = 137
EVENT_TIMEOUT_S: Final = 1.5
"""How long the news of an out-of-memory kill may come after that of the exit: containerd sends them apart."""
_POLL_S: Final = 0.02
KERNEL_LOG: Final = "/dev/kmsg"
_RECORD_BYTES: Final = 8192
"""No record of the kernel's log is larger."""


def failure_kind(status: int | None, message: str) -> str:
    """Return the kind (see `OperationFailed`) of an answer with this HTTP status and the engine's message.

    A long message is judged by its beginning and its end: patterns search it, and the loop waits for them.
    """
    message = shorten(message, ERROR_CHARS)
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
def docker_operation(engine: DockerHttp, timeout_s: float) -> Iterator[TimedRequest]:
    """Give the requests of one operation, stamped and bounded by `timeout_s` in all.

    Raises `OperationFailed`, with the stamps, for whatever goes wrong, in calls of docker-py as well.
    """
    timed = TimedRequest(engine, timeout_s)
    try:
        yield timed
    except DockerApiError as error:
        raise _refusal(error.status, str(error), timed) from error
    except call_errors() as error:
        if isinstance(error, _loaded("docker.errors", "APIError")):
            explanation: Any = getattr(error, "explanation", None)
            raise _refusal(getattr(error, "status_code", None), str(explanation or error), timed) from error
        # Some layers report a read that ran out of time as a broken connection.
        late = isinstance(error, (TimeoutError, *_loaded("requests", "Timeout"))) or timed.expired()
        if late:
            raise operation_failed("timeout", f"the engine gave no answer in {timeout_s:g} s", timed) from error
        raise operation_failed("unreachable", f"{engine.address}: {root_cause(error)}", timed) from error


def _refusal(status: int | None, message: str, timed: TimedRequest) -> OperationFailed:
    """Return the failure of an operation to which the engine answered with an error."""
    away = status == _SERVICE_UNAVAILABLE and "swarm" not in message
    kind = "unreachable" if away or ENGINE_AWAY.search(message) else failure_kind(status, message)
    return operation_failed(kind, message, timed)


def operation_failed(kind: str, message: str, timed: TimedRequest) -> OperationFailed:
    """Return the failure of an operation with its stamps."""
    end_ns = timed.end_ns if kind not in {"timeout", "unreachable"} else timed.now_ns()
    if kind == "image-missing":
        message += f" ({IMAGE_ADVICE})"
    return OperationFailed(kind, message, start_ns=timed.start_ns, end_ns=end_ns)


def root_cause(error: BaseException) -> str:
    """Return the words of the operating system within an error of the HTTP layers, or the error's own."""
    seen: BaseException | None = error
    while seen is not None:
        if (
            isinstance(seen, OSError)
            and seen.strerror
            and not isinstance(seen, _loaded("requests", "RequestException"))
        ):
            return seen.strerror
        inner = [item for item in seen.args if isinstance(item, BaseException)]
        seen = seen.__cause__ or getattr(seen, "reason", None) or (inner[0] if inner else seen.__context__)
        if not isinstance(seen, BaseException):
            break
    return str(error)


def container_id(container: Container, timed: TimedRequest) -> str:
    """Return the engine's id of a container; raise the failure ``not-found`` where it was not made."""
    if not isinstance(container.handle, str):
        raise operation_failed("not-found", f"{container.name} does not exist", timed)
    return container.handle


def count_oom_kills(timed: TimedRequest, container: Container) -> OomKillCounter:
    """Begin to count what a container's memory limit kills, where it has one and its cgroup is on this host."""
    identity = container.handle
    known = container.settings.memory_bytes is None or container.memory_directory is not None
    if isinstance(identity, str) and not known:
        state = timed.get("containers", identity, "json")["State"]
        container.memory_directory = memory_directory(int(state["Pid"]), identity)
    return OomKillCounter(container.memory_directory)


def was_oom_killed(timed: TimedRequest, container: Container, done: OperationResult, kills: OomKillCounter) -> bool:
    """Say whether a command with this end was killed by its container's memory limit.

    Where the cgroup is on another host, Docker's events report it; Podman has none.
    """
    if kills.is_counted or done.exit_code != KILLED_CODE or container.settings.memory_bytes is None:
        return kills.explain(done)
    deadline = time.monotonic() + EVENT_TIMEOUT_S
    while not _events_have_oom(timed, str(container.handle)):
        if time.monotonic() >= deadline:
            return False
        gevent.sleep(_POLL_S)
    return True


def kernel_log_has_oom_kill(identity: str) -> bool:
    """Say whether the kernel's log has a kill by the memory limit of a container with this id.

    Docker itself misses one where the cgroup disappears before it looks. The log is that of this host, read without
    waiting (Documentation/ABI/testing/dev-kmsg); where it cannot be read nothing is known.
    """
    wanted = re.compile(rb"oom_memcg=[^,]*" + re.escape(identity.encode()))
    try:
        kernel_log = os.open(KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        while True:
            with suppress(BrokenPipeError):  # records were lost meanwhile: it goes on with the oldest there is
                record = os.read(kernel_log, _RECORD_BYTES)
                if not record or wanted.search(record):
                    return bool(record)
    except OSError:  # nothing more in it, as a rule
        return False
    finally:
        os.close(kernel_log)


def _events_have_oom(timed: TimedRequest, identity: str) -> bool:
    """Ask for the events until now: the answer ends at once, and is empty where there is none."""
    filters = json.dumps({"container": [identity], "event": ["oom"]})
    return bool(timed.read("GET", "events", since="0", until=f"{time.time():.9f}", filters=filters).strip())
