"""What a Docker Engine can do here: whether it can be used, which limits hold, and what it lacks for a run."""

from __future__ import annotations

import io
import posixpath
import tarfile
import time
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_common.cost import CGROUP, UNTOLD, cost_metrics
from bench_common.errors import EngineUnavailable, InfrastructureError, did_you_mean
from bench_common.host_info import OTHER_ENGINE, SIDE_DETAIL
from bench_common.requirements import CAPABILITIES_WITHHELD, ENGINE_MANAGED_STORAGE
from bench_worker.engines import daemon_processes
from bench_worker.engines.base import PROBE_S, EngineStatus
from bench_worker.engines.cost_group import SYSTEMD, no_parent_reason
from bench_worker.engines.docker import http as docker_http
from bench_worker.engines.docker import settings as docker_settings
from bench_worker.engines.docker.context import endpoint, other_engine
from bench_worker.engines.docker.errors import IMAGE_ADVICE, call_errors, root_cause
from bench_worker.engines.docker.ownership import BORROWED_MODES, NETWORK_MODES, foreign_resources
from bench_worker.engines.image_programs import MOST_LINKS, absent_reason, program_places
from bench_worker.engines.surroundings import image_surroundings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench_common.requirements import ImageProgram
    from bench_common.treatment import ContainerSettings


_START = "start it (`systemctl start docker`, or `script/docker-engine start`), or point DOCKER_HOST at one that runs"
_ADVICE = (
    ("Permission denied", "run as root, or join the socket's group (`usermod -aG docker $USER`, then log in again)"),
    ("No such file or directory", f"install Docker (`apt-get install docker.io`) and {_START}"),
    ("Connection refused", _START),
    ("no answer in", "wait until the machine is less busy, or read the engine's log"),
)

_NEEDED: Final = {
    "memory_bytes": (("MemoryLimit",), "this host's kernel cannot limit memory"),
    "cpus": (("CpuCfsPeriod", "CpuCfsQuota"), "this host's kernel cannot limit CPU time (CFS quota)"),
    "cpuset": (("CPUSet",), "this host's kernel cannot pin a container to CPUs"),
}
"""What `docker info` must say for a setting to be more than a wish: Docker itself drops it with a warning only."""


FOREIGN: Final = {
    "rootfs": "it starts containers from images alone; use an OCI runtime",
    "snapshotter": "the engine has one storage driver for all; offer a second engine under a label (--engine)",
    "gvisor_platform": "it is an option of the runtime: register runsc with it and name that `runtime`",
}
"""Why settings are missing that no engine with this API has."""
_ABSENT: Final = {
    **FOREIGN,
    "files": "`docker create` has no option for it; the engine docker has a call",
}
"""Why settings are missing that an engine of this kind does not have."""


def failed_status(name: str, address: str, error: BaseException) -> EngineStatus:
    """Return the status of an engine that does not answer at `address`: why not, and what to do."""
    if isinstance(error, EngineUnavailable):
        reason, advice = str(error), "set DOCKER_HOST to a Docker Engine's socket, or unset it for the usual one"
    else:
        cause = root_cause(error)
        if isinstance(error, TimeoutError):
            cause += ", though something listens there"
        reason = f"no Docker Engine answers at {address}: {cause}"
        advice = other_engine(address) or next((text for sign, text in _ADVICE if sign in cause), _START)
    return EngineStatus(name, usable=False, endpoint=address, reason=reason, advice=advice)


def status_from(
    name: str,
    address: str,
    info: Mapping[str, Any],
    swap_bytes: int,
    operations: frozenset[str],
    settings: frozenset[str],
    sys: Path | None = None,
) -> EngineStatus:
    """Return the status that `docker info` gives; `swap_bytes` is the host's swap space, 0 where there is none.

    `sys` is the host's ``/sys``, None where the engine is on another host.
    """
    unenforced = {
        setting: reason
        for setting, (switches, reason) in _NEEDED.items()
        if not all(info.get(switch) for switch in switches)
    }
    if swap_bytes and not info.get("SwapLimit") and "memory_bytes" not in unenforced:
        unenforced["memory_bytes"] = (
            "this host has swap and its kernel cannot limit it: a container would go on in swap, not at its limit "
            "(`swapoff -a`, or boot with swapaccount=1)"
        )
    unenforced |= {
        key: reason for key, reason in docker_settings.unenforced(info, sys=sys).items() if key in settings
    }
    details = {
        "storage_driver": str(info.get("Driver", "")),
        "log_driver": str(info.get("LoggingDriver", "")),
        "cgroup": f"v{info.get('CgroupVersion', '1')} ({info.get('CgroupDriver', '')})",
        "runtime": str(info.get("DefaultRuntime", "")),
        "runtimes": ", ".join(sorted(map(str, info.get("Runtimes") or ()))),
        "root": str(info.get("DockerRootDir", "")),
        "stop.grace_step_s": "1",
        "stats.interval_s": "1",
    }
    details[ENGINE_MANAGED_STORAGE] = "data containers, directories of their own"
    if sys is not None:
        details[CAPABILITIES_WITHHELD] = " ".join(
            daemon_processes.unavailable_capabilities(daemon_processes.MACHINE_CAPABILITIES)
        )
    no_group = no_parent_reason(info, here=sys is not None)
    details |= {f"{UNTOLD}{name}": no_group for name in cost_metrics(CGROUP) if no_group not in ("", SYSTEMD)}
    absent = {setting: reason for setting, reason in _ABSENT.items() if setting not in settings}
    details |= {f"setting.{setting}": reason for setting, reason in (absent | unenforced).items()}
    warnings = [str(warning) for warning in info.get("Warnings") or ()]
    if warnings:
        details["warnings"] = "; ".join(warnings)
    other = other_engine(address) if address == endpoint() else ""
    if other:
        details[OTHER_ENGINE] = other
    linux = info.get("OSType", "linux") == "linux"
    return EngineStatus(
        name=name,
        usable=linux,
        version=str(info.get("ServerVersion", "")),
        endpoint=address,
        reason="" if linux else f"it runs {info.get('OSType')} containers",
        advice="" if linux else "point DOCKER_HOST at an engine for Linux containers",
        operations=tuple(sorted(operations)),
        settings=tuple(sorted(settings - set(unenforced))),
        details=details,
    )


def probe_docker(
    name: str,
    address: str,
    operations: frozenset[str],
    settings: frozenset[str],
) -> EngineStatus:
    """Ask the engine at `address` about itself; never raises, within `PROBE_S`."""
    began = time.monotonic()
    try:
        engine = docker_http.connect(PROBE_S, address)
        try:
            timed = docker_http.TimedRequest(engine, PROBE_S - (time.monotonic() - began))
            # Not docker-py's call: a probe is bounded as a whole, not each wait for a piece of the answer.
            info = timed.get("info")
        finally:
            engine.close()
    except call_errors(EngineUnavailable, docker_http.DockerApiError) as error:
        return failed_status(name, address, error)
    here = docker_http.socket_path(address) is not None
    swap_bytes, sys = (_swap_bytes(), Path("/sys")) if here else (0, None)
    return status_from(name, address, info, swap_bytes, operations, settings, sys)


def _swap_bytes() -> int:
    with open("/proc/meminfo", encoding="ascii") as file:  # noqa: PTH123
        for line in file:
            name, _, value = line.partition(":")
            if name == "SwapTotal":
                return int(value.split()[0]) * 1024
    return 0


_BUILTIN_LOG_DRIVERS: Final = frozenset({"json-file", "local", "none", "k8s-file", "passthrough"})
"""Log drivers that an engine has without a plugin, be they listed or not."""


def forbidden_resources(engine: docker_http.TimedRequest, settings: ContainerSettings) -> list[str]:
    """Return which volumes and networks of these settings are there and not ours; raise `InfrastructureError`."""
    try:
        return foreign_resources(engine, settings)
    except call_errors(docker_http.DockerApiError) as error:
        raise InfrastructureError(f"the engine did not list what it has: {root_cause(error)}") from error


def missing_resources(engine: docker_http.TimedRequest, settings: ContainerSettings) -> list[str]:
    """Return what containers with these settings would lack, one reason each; raise `InfrastructureError`."""
    try:
        return [
            *_missing_image(engine, settings.image),
            *_missing_network(engine, settings.network),
            *_missing_log_driver(engine, settings.log_driver),
            *_missing_runtime(engine, settings.runtime),
        ]
    except call_errors(docker_http.DockerApiError) as error:
        raise InfrastructureError(f"the engine did not list what it has: {root_cause(error)}") from error


def image_digest(engine: docker_http.TimedRequest, image: str | None) -> str:
    """Return the id of an image without ``sha256:``; empty where it is not there; raise `InfrastructureError`."""
    if image is None:
        return ""
    try:
        found = engine.find_image(image)
    except call_errors(docker_http.DockerApiError) as error:
        raise InfrastructureError(f"the engine did not say what {image!r} is: {root_cause(error)}") from error
    return str((found or {}).get("Id", "")).rpartition(":")[2]


def absent_program(
    engine: docker_http.TimedRequest, image: str, wanted: ImageProgram, labels: Mapping[str, str]
) -> str:
    """Say that an image has no such program; empty where it has, or nobody can know.

    The engine is asked of a container that is made for that, with these labels, and never started. What goes wrong
    then, as with a full disk, the jobs tell: they are failed for it.
    """
    try:
        places = program_places(wanted, _config(engine, image))
        if not places:
            return ""
        with _never_started(engine, image, wanted, labels) as identity:
            found = any(engine.has("containers", identity, "archive", path=place) for place in places)
    except call_errors(docker_http.DockerApiError):
        return ""
    return "" if found else absent_reason(image, wanted, places)


def surroundings(
    engine: docker_http.TimedRequest, image: str, wanted: ImageProgram, labels: Mapping[str, str]
) -> dict[str, str]:
    """Return what surrounds commands in an image, asked likewise; empty where the engine does not say it."""
    try:
        with _never_started(engine, image, wanted, labels) as identity:
            found = image_surroundings(_config(engine, image), wanted, partial(_content, engine, identity))
            # Podman gives its containers limits of its own.
            limits = engine.get("containers", identity, "json")["HostConfig"].get("Ulimits") or ()
            files = {f"{SIDE_DETAIL}open files": str(one["Soft"]) for one in limits if one["Name"] == _OPEN_FILES}
            return {**found, **files}
    except call_errors(docker_http.DockerApiError, tarfile.TarError):
        return {}


def _config(engine: docker_http.TimedRequest, image: str) -> Mapping[str, Any]:
    return (engine.find_image(image) or {}).get("Config") or {}


_OPEN_FILES: Final = "RLIMIT_NOFILE"


@contextmanager
def _never_started(
    engine: docker_http.TimedRequest, image: str, wanted: ImageProgram, labels: Mapping[str, str]
) -> Iterator[str]:
    body = {"Image": image, "Cmd": [wanted.program], "NetworkDisabled": True, "Labels": dict(labels)}
    identity = str(engine.post("containers", "create", body=body)["Id"])
    try:
        yield identity
    finally:
        engine.delete("containers", identity, v="true", force="true")


def _content(engine: docker_http.TimedRequest, container: str, place: str) -> bytes | None:
    """Return the content of a file of a container, behind links; None where there is none."""
    for _ in range(MOST_LINKS):
        try:
            archive = engine.read("GET", "containers", container, "archive", path=place)
        except docker_http.DockerApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return None
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            member = files.next()
            if member is None or not member.issym():
                content = files.extractfile(member) if member is not None else None
                return None if content is None else content.read()
        place = posixpath.normpath(posixpath.join(posixpath.dirname(place), member.linkname))
    return None


def _missing_image(engine: docker_http.TimedRequest, image: str | None) -> list[str]:
    if image is None:
        return []
    if engine.find_image(image) is None:
        return [f"image {image!r} is not on this host ({IMAGE_ADVICE})"]
    return []


def _missing_network(engine: docker_http.TimedRequest, network: str | None) -> list[str]:
    if network is None or network in NETWORK_MODES or network.startswith(BORROWED_MODES):
        return []
    # Requested by name, too, not only searched in the list: a network may be named by its id.
    if engine.find("networks", network) is None:
        names = sorted(str(item["Name"]) for item in engine.get("networks"))
        return [f"there is no network {network!r}{did_you_mean(network, names)}; there are {', '.join(names)}"]
    return []


def _missing_log_driver(engine: docker_http.TimedRequest, driver: str | None) -> list[str]:
    if driver is None or driver in _BUILTIN_LOG_DRIVERS:
        return []
    plugins: dict[str, Any] = engine.get("info").get("Plugins") or {}
    known = sorted(map(str, plugins.get("Log") or ()))
    # A plugin for logs that was installed is listed by its own command only; its name has a tag.
    if not known or driver in known or ":" in driver:
        return []
    return [f"there is no log driver {driver!r}{did_you_mean(driver, known)}; there are {', '.join(known)}"]


def _missing_runtime(engine: docker_http.TimedRequest, runtime: str | None) -> list[str]:
    # A shim of containerd's may be named without being registered.
    if runtime is None or runtime.startswith("io.containerd."):
        return []
    known = sorted(map(str, engine.get("info").get("Runtimes") or ()))
    if runtime in known:
        return []
    advice = (
        f'register it in /etc/docker/daemon.json ("runtimes": {{"{runtime}": {{"path": ...}}}}) and reload the daemon'
    )
    there = ", ".join(known)
    return [f"no runtime {runtime!r} is registered{did_you_mean(runtime, known)}; there are {there} ({advice})"]
