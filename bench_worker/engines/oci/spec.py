"""Writes the config.json of an OCI bundle from an image and a container's settings, and refuses impossible settings.

The defaults are those of an unprivileged container of Docker: capabilities, masked paths, devices. Docker's seccomp
and AppArmor profiles are missing: they belong to Docker and not to the runtime. Source: the `runtime specification
<https://github.com/opencontainers/runtime-spec>`_, config.md.
"""

from __future__ import annotations

import copy
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field

from bench_common.errors import did_you_mean
from bench_common.treatment import CAPABILITIES, CONTAINER_PATH
from bench_worker.engines.base import ImageUnavailable
from bench_worker.engines.output import parse_cpuset
from bench_worker.engines.results import raise_operation_failed
from bench_worker.engines.settings import (
    DEVICE_LIMITS,
    KNOWN_SOCKETS,
    MountRefused,
    directory_name,
    parse_ulimit,
    safe_host_directory,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from bench_common.treatment import ContainerSettings, Mount
    from bench_worker.engines.base import Engine
    from bench_worker.engines.oci.cgroups import Cgroups


SETTINGS: Final = frozenset(
    {"pids", "ulimits", "blkio_weight", *DEVICE_LIMITS, "read_only", "security_options", "cap_add", "cap_drop"}
)
"""The settings that confine a container."""

_ALL: Final = "ALL"
_UNLIMITED: Final = (1 << 64) - 1
"""How a config.json writes that there is no limit (RLIM_INFINITY)."""

_ENTRIES: Final = {
    "device_read_bps": "throttleReadBpsDevice",
    "device_write_bps": "throttleWriteBpsDevice",
    "device_read_iops": "throttleReadIOPSDevice",
    "device_write_iops": "throttleWriteIOPSDevice",
}


def device_numbers(path: str) -> tuple[int, int]:
    """Return the major and minor number of a block device of this host; raise `ValueError` where it is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  its number is wanted
    except OSError as error:
        raise ValueError(f"block device {path}: {error.strerror}") from error
    if not stat.S_ISBLK(found.st_mode):
        raise ValueError(f"{path} is no block device, so its rate cannot be limited")
    return os.major(found.st_rdev), os.minor(found.st_rdev)


def apply_limits(
    config: dict[str, Any],
    settings: ContainerSettings,
    numbers: Callable[[str], tuple[int, int]] = device_numbers,
) -> None:
    """Enter what is given into a config.json; raise `ValueError` for a device that is none (see `numbers`)."""
    process, linux = config["process"], config["linux"]
    if settings.ulimits:
        process["rlimits"] = _limits(process.get("rlimits") or (), settings.ulimits)
    if settings.read_only is not None:
        config["root"]["readonly"] = settings.read_only
    for option in settings.security_options:
        _set_security_option(process, linux, option)
    if settings.cap_add or settings.cap_drop:
        _set_capabilities(process, settings)
    resources = linux.setdefault("resources", {})
    if settings.pids is not None:
        resources["pids"] = {"limit": settings.pids}
    block: dict[str, Any] = {
        entry: [
            dict(zip(("major", "minor"), numbers(device), strict=True), rate=rate)
            for device, rate in getattr(settings, name).items()
        ]
        for name, entry in _ENTRIES.items()
        if getattr(settings, name)
    }
    if settings.blkio_weight is not None:
        block["weight"] = settings.blkio_weight
    if block:
        resources["blockIO"] = {**resources.get("blockIO", {}), **block}


def _limits(present: Any, given: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return limits as a config.json has them: those that are `present`, with the `given` ones in their place."""
    limits = {str(one["type"]): one for one in present}
    for name, text in given.items():
        soft, hard = (_UNLIMITED if limit < 0 else limit for limit in parse_ulimit(text))
        kind = f"RLIMIT_{name.upper()}"
        limits[kind] = {"type": kind, "soft": soft, "hard": hard}
    return list(limits.values())


def _set_capabilities(process: dict[str, Any], settings: ContainerSettings) -> None:
    """Take and give capabilities; a user that is not root has none at once, and may get what is in ``bounding``."""
    kinds = {kind: list(names) for kind, names in process.get("capabilities", {}).items()}
    added = [f"CAP_{name}" for name in settings.cap_add]
    dropped = {f"CAP_{name}" for name in (CAPABILITIES if _ALL in settings.cap_drop else settings.cap_drop)}
    for kind in ("bounding", "effective", "permitted"):
        kinds.setdefault(kind, [])
        if kind == "bounding" or not process.get("user", {}).get("uid", 0):
            kinds[kind] += [name for name in added if name not in kinds[kind]]
    taken = dropped - set(added)
    process["capabilities"] = {kind: [name for name in names if name not in taken] for kind, names in kinds.items()}


def _set_security_option(process: dict[str, Any], linux: dict[str, Any], option: str) -> None:
    if option == "no-new-privileges":
        process["noNewPrivileges"] = True
    elif option == "seccomp=unconfined":
        # There is none but in a bundle of the user's own.
        linux.pop("seccomp", None)
    elif option == "apparmor=unconfined":
        process.pop("apparmorProfile", None)
    else:
        raise ValueError(f"security option {option!r} has no entry in a config.json")


CPU_PERIOD_US: Final = 100_000
HOSTNAME: Final = "weighbridge"
"""What every container calls itself."""
NETWORKS: Final = ("none", "host")
"""``none`` has a loopback only and is the default: a runtime makes no network. ``host`` is the host's own."""

_CAPABILITIES: Final = [
    f"CAP_{name}"
    for name in (
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "NET_RAW",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    )
]
_MASKED: Final = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
]
_READ_ONLY: Final = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


class ImageConfig(Struct, frozen=True):
    """What an image says of the containers made of it, as in the OCI image format's ``config`` object."""

    env: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    directory: str = "/"
    user: str = ""
    stop_signal: str = "SIGTERM"

    @classmethod
    def read(cls, config: Mapping[str, Any]) -> ImageConfig:
        """Read the ``Config`` of `docker image inspect`; what is missing there is the default."""
        return cls(
            env=tuple(config.get("Env") or ()),
            entrypoint=tuple(config.get("Entrypoint") or ()),
            command=tuple(config.get("Cmd") or ()),
            directory=str(config.get("WorkingDir") or "/"),
            user=str(config.get("User") or ""),
            stop_signal=str(config.get("StopSignal") or "SIGTERM"),
        )

    def argv(self, command: tuple[str, ...] | None) -> tuple[str, ...]:
        """Return what a container runs: the image's entry point, then the `command` given or the image's own."""
        return (*self.entrypoint, *(self.command if command is None else command))


class User(Struct, frozen=True):
    """Whom a container's command runs as."""

    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    home: str = "/root"


class HostContext(Struct, frozen=True):
    """What of a config.json depends on the host: paths, the version of its cgroups, and whether swap can be limited.

    `binds` are mounts in the form of the config.json, `annotations` the labels.
    """

    rootfs: str
    cgroups_path: str
    cgroup_v2: bool
    swap_limit: bool
    binds: Sequence[Mapping[str, Any]] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def read_user(text: str, passwd: str, group: str) -> User:
    """Return the user that an image's ``USER`` means: a name or number, and perhaps ``:`` and a group's.

    `passwd` and `group` are the texts of the files in its /etc. Raises `ValueError` for a name that is not there.
    """
    name, _, group_name = (text or "0").partition(":")
    accounts = [line.split(":") for line in passwd.splitlines() if line.count(":") >= 6]  # noqa: PLR2004  passwd(5)
    groups = [line.split(":") for line in group.splitlines() if line.count(":") >= 3]  # noqa: PLR2004  group(5)
    account = next((row for row in accounts if name in (row[0], row[2])), None)
    if account is None and not name.isdecimal():
        raise ValueError(f"the image runs as user {name!r}, and there is no such name in its /etc/passwd")
    uid, gid, home = (int(account[2]), int(account[3]), account[5]) if account else (int(name), 0, "/")
    if group_name:
        found = next((row for row in groups if group_name in (row[0], row[2])), None)
        if found is None and not group_name.isdecimal():
            raise ValueError(f"the image runs as group {group_name!r}, and there is no such name in its /etc/group")
        return User(uid, int(found[2]) if found else int(group_name), (), home)
    login = account[0] if account else None
    return User(uid, gid, tuple(int(row[2]) for row in groups if login in row[3].split(",")), home)


def environment(image: ImageConfig, settings: ContainerSettings, home: str) -> list[str]:
    """Return a command's environment: the image's, then the settings', with PATH and HOME if neither has them."""
    merged = dict(item.partition("=")[::2] for item in image.env) | dict(settings.env)
    merged = {"PATH": CONTAINER_PATH, "HOME": home or "/", **merged}
    return [f"{name}={value}" for name, value in merged.items()]


def make_config(
    base: Mapping[str, Any], image: ImageConfig, settings: ContainerSettings, user: User, place: HostContext
) -> dict[str, Any]:
    """Return a config.json: `base` (empty, or the user's own) with all that settings and host decide filled in.

    Raises `ValueError` where a limit is for a block device that is none.
    """
    config = copy.deepcopy(dict(base)) or _default_config(image, user, place)
    process = config.setdefault("process", {})
    process.pop("consoleSize", None)
    process["terminal"] = False
    if base:
        if settings.command is not None:
            process["args"] = list(settings.command)
        process["env"] = [*process.get("env", ()), *(f"{name}={value}" for name, value in settings.env.items())]
    else:
        process["args"] = list(image.argv(settings.command))
        process["env"] = environment(image, settings, user.home)
    if settings.directory is not None:
        process["cwd"] = settings.directory
    config["root"] = {**config.get("root", {}), "path": place.rootfs}
    config["annotations"] = {**config.get("annotations", {}), **place.annotations}
    config["mounts"] = [*config.get("mounts", ()), *place.binds]
    linux = config.setdefault("linux", {})
    linux["cgroupsPath"] = place.cgroups_path
    if settings.network is not None or not base:
        _share_network(linux, settings.network)
    _limit(linux.setdefault("resources", {}), settings, swap_limit=place.swap_limit)
    apply_limits(config, settings)
    return config


def _share_network(linux: dict[str, Any], network: str | None) -> None:
    others = [item for item in linux.get("namespaces", ()) if item["type"] != "network"]
    linux["namespaces"] = others if network == "host" else [*others, {"type": "network"}]


def _limit(resources: dict[str, Any], settings: ContainerSettings, *, swap_limit: bool) -> None:
    if settings.memory_bytes is not None:
        memory = resources.setdefault("memory", {})
        memory["limit"] = settings.memory_bytes
        if swap_limit:
            # Memory and swap together: no swap.
            memory["swap"] = settings.memory_bytes
    if settings.cpus is not None or settings.cpuset is not None:
        cpu = resources.setdefault("cpu", {})
        if settings.cpus is not None:
            cpu |= {"quota": round(settings.cpus * CPU_PERIOD_US), "period": CPU_PERIOD_US}
        if settings.cpuset is not None:
            cpu["cpus"] = settings.cpuset


def _default_config(image: ImageConfig, user: User, place: HostContext) -> dict[str, Any]:
    kinds = ["pid", "ipc", "uts", "mount", *(["cgroup"] if place.cgroup_v2 else [])]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user.uid, "gid": user.gid, "additionalGids": list(user.groups)},
            "cwd": image.directory,
            "capabilities": {
                kind: _CAPABILITIES if user.uid == 0 or kind == "bounding" else []
                for kind in ("bounding", "effective", "permitted")
            },
            "noNewPrivileges": False,
        },
        "root": {"readonly": False},
        "hostname": HOSTNAME,
        "mounts": [
            _mount("/proc", "proc", "nosuid", "noexec", "nodev"),
            _mount("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
            _mount("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"),
            _mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
            _mount("/sys/fs/cgroup", "cgroup", "ro", "nosuid", "noexec", "nodev"),
            _mount("/dev/mqueue", "mqueue", "nosuid", "noexec", "nodev"),
            _mount("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),  # noqa: S108
        ],
        "linux": {
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "namespaces": [{"type": kind} for kind in kinds],
            "maskedPaths": _MASKED,
            "readonlyPaths": _READ_ONLY,
        },
    }


def _mount(target: str, kind: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": kind, "source": kind, "options": list(options)}


class UnsupportedSetting(ValueError):
    """A setting that an OCI runtime cannot fulfil; the message says which and why."""


def check_settings(
    engine: type[Engine],
    settings: ContainerSettings,
    cgroups: Cgroups,
    *,
    networks: Sequence[str] = NETWORKS,
) -> None:
    """Raise `UnsupportedSetting` for a setting that the engine would have to ignore on a host with these cgroups.

    `networks` are those that it has.
    """
    name = engine.name
    why = {**engine.unsupported_settings, **cgroups.unenforced}
    for setting in sorted(settings.non_default() - engine.inapplicable):
        if setting not in engine.settings or setting in cgroups.unenforced:
            reason = why.get(setting, "an OCI runtime has nothing of the kind")
            raise UnsupportedSetting(f"{name} cannot enforce {setting}={getattr(settings, setting)!r}: {reason}")
    if settings.network is not None and settings.network not in networks:
        known = " or ".join(map(repr, networks))
        hint = did_you_mean(settings.network, networks)
        raise UnsupportedSetting(f"network {settings.network!r}: {name} makes no networks{hint}; expected {known}")
    if settings.cpuset is not None:
        try:
            parse_cpuset(settings.cpuset)
        except ValueError as error:
            raise UnsupportedSetting(str(error)) from error


@contextmanager
def as_operation_failures(begun_ns: int) -> Iterator[None]:
    """Turn what is in the way of a container, or of its image, into the failure of the operation that wants it."""
    try:
        yield
    except ImageUnavailable as error:
        raise_operation_failed(error.kind, str(error), begun_ns)
    except (UnsupportedSetting, MountRefused) as error:
        raise_operation_failed("refused", str(error), begun_ns)


def make_volumes(settings: ContainerSettings, directory: Path) -> None:
    """Make the directories of a container's storage that is to live as long as it does; raise `OSError`."""
    for mount in settings.storage:
        if mount.kind != "tmpfs" and not mount.source:
            volume_path(mount, directory).mkdir(mode=0o755, parents=True)


def volume_path(mount: Mount, directory: Path) -> Path:
    """Return where below a container's own directory a volume without a name is."""
    return directory / "volumes" / directory_name(mount.target)


def bind_mount(mount: Mount, directory: Path, *, allow_host_mounts: bool) -> dict[str, Any]:
    """Return one piece of storage as a mount; a volume without a name is a directory below `directory`.

    Raises `UnsupportedSetting` and `MountRefused`.
    """
    mode = "ro" if mount.read_only else "rw"
    if mount.kind == "tmpfs":
        size = [f"size={mount.size_bytes}"] if mount.size_bytes else []
        options = [mode, "nosuid", "nodev", *size]
        return {"destination": mount.target, "type": "tmpfs", "source": "tmpfs", "options": options}
    if mount.kind not in {"volume", "host"}:
        raise UnsupportedSetting(
            f"storage of the kind {mount.kind!r} needs an engine with volumes; use a host directory"
        )
    if mount.kind == "volume" or not mount.source:
        if mount.source:
            raise UnsupportedSetting(
                f"volume {mount.source!r}: an OCI runtime knows no volumes by name; leave the name out for one "
                "that lives as long as the container, or mount a host directory"
            )
        source = str(volume_path(mount, directory))
    else:
        if not allow_host_mounts:
            raise MountRefused(
                f"host directory {mount.source} may not be mounted: this worker does not allow host mounts"
            )
        source = safe_host_directory(mount.source, KNOWN_SOCKETS)
    return {"destination": mount.target, "type": "bind", "source": source, "options": ["rbind", mode]}
