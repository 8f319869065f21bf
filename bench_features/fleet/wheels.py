"""The wheels that a host needs to run a worker, made from this installation: so every host runs the same version.

Wheels are repacked from the installed files that pip lists in RECORD, which needs no network. For a host whose Python
is not binary-compatible with this one, those with compiled code come from a directory of wheels.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, EntryPoint, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import gevent
from msgspec import Struct

from bench_common import registered
from bench_common.errors import InfrastructureError
from bench_common.files import user_folder
from bench_common.safe_text import shorten

DISTRIBUTION: Final = "weighbridge"
PACKAGES: Final = (
    "bench_common",
    "bench_features",
    "bench_master",
    "bench_worker",
    "bench_workloads",
    "bench_scenarios",
    "bench_dockerfiles",
)
ENTRY_POINT_GROUPS: Final = (
    "baselines",
    "charts",
    "command_extensions",
    "commands",
    "comparisons",
    "dialects",
    "engines",
    "job_kinds",
    "launchers",
    "queries",
    "reports",
    "run_extensions",
    "stores",
    "workloads",
)
"""Entry points through which other packages extend this one; a worker may need those packages, too."""
OF_WORKERS: Final = ("pyinstrument",)
"""Packages of extras that a worker uses, too: they go to the hosts if they are installed here."""
CHOICE_TIMEOUT_S: Final = 60.0
"""Time limit for pip to choose the wheels for another platform (s)."""
PURE_TAG: Final = "any"
"""The platform tag of wheels without compiled code."""

_SKIPPED_FILES: Final = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"})
_ZIP_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_GLIBC: Final = re.compile(r"glibc 2\.([0-9]+)")
_MANYLINUX: Final = re.compile(r"manylinux_2_([0-9]+)_")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class PythonPlatform(Struct, frozen=True):
    """The properties of a Python that decide which wheels with compiled code it can use."""

    soabi: str
    """ABI of its extension modules, such as ``cpython-311-x86_64-linux-gnu``."""
    version: str
    """Major and minor version, such as ``3.11``."""
    machine: str
    """Processor architecture, as in ``uname -m``."""
    libc: str
    """C library, such as ``glibc 2.36``; empty for musl."""

    @classmethod
    def current(cls) -> PythonPlatform:
        """Return the platform of this interpreter."""
        libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else ""
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return cls(str(sysconfig.get_config_var("SOABI")), version, os.uname().machine, libc or "")

    def accepts(self, tag: str) -> bool:
        """Return whether a wheel that is installed here with this tag works on that platform."""
        platform = tag.rpartition("-")[2]
        if platform == PURE_TAG:
            return True
        here = PythonPlatform.current()
        if (self.soabi, self.machine) != (here.soabi, here.machine):
            return False
        needed = _MANYLINUX.match(platform)
        there = _GLIBC.fullmatch(self.libc)
        return self.libc == here.libc or bool(needed and there and int(needed[1]) <= int(there[1]))

    @property
    def platforms(self) -> list[str]:
        """The platform tags that pip may choose from, newest C library first."""
        found = _GLIBC.fullmatch(self.libc)
        if found is None:
            return [f"musllinux_1_2_{self.machine}", f"musllinux_1_1_{self.machine}"]
        tags = [f"manylinux_2_{minor}_{self.machine}" for minor in range(int(found[1]), 16, -1)]
        return [*tags, f"manylinux2014_{self.machine}"]


class Wheel(Struct, frozen=True):
    """A wheel on this disk."""

    path: Path
    sha256: str
    """Digest of its content, in hexadecimal."""
    size_bytes: int

    @property
    def name(self) -> str:
        """Its file name, from which pip reads distribution, version and tags."""
        return self.path.name


class WheelBundle(Struct, frozen=True):
    """All wheels for one platform; or those of this project, and what the host's own index has to add."""

    identity: str
    """Names this set of wheels; changes with any of them."""
    wheels: tuple[Wheel, ...]
    pins: tuple[str, ...] = ()
    """The requirements that pip gets from the host's own index, as ``NAME==VERSION``; none where all is sent."""


class Wheelhouse:
    """Builds each bundle once. `find_links` is a directory of wheels for hosts that cannot use ours."""

    def __init__(self, cache: Path, find_links: Path | None = None) -> None:
        self._cache = cache
        self._find_links = find_links
        self._bundles: dict[PythonPlatform, WheelBundle] = {}
        self._project: tuple[list[Wheel], list[str]] | None = None
        self._lock = threading.Lock()

    def bundle_for(self, target: PythonPlatform) -> WheelBundle:
        """Return what a host of this platform needs; raise `InfrastructureError` if a wheel is not available."""
        with self._lock:
            if target not in self._bundles:
                self._bundles[target] = self._collect_wheels(target)
            return self._bundles[target]

    def project_bundle_for(self, target: PythonPlatform) -> WheelBundle | None:
        """Return what no index has (this project, and packages that extend it), and exact requirements for the rest.

        None where a directory of wheels was named, in place of an index, and where an own package does not work on
        that platform.
        """
        if self._find_links is not None:
            return None
        with self._lock:
            if self._project is None:
                self._project = gevent.get_hub().threadpool.apply(self._pack_project)
            wheels, pins = self._project
        if not all(target.accepts(wheel.path.stem) for wheel in wheels):
            return None
        content = [*(f"{wheel.name} {wheel.sha256}" for wheel in wheels), *pins]
        return WheelBundle(_identity(target, ["index", *content]), tuple(wheels), tuple(pins))

    def _pack_project(self) -> tuple[list[Wheel], list[str]]:
        wheels, pins = [], []
        extending = {entry.dist.name for entry in _entries() if entry.dist is not None}
        for dist in required_distributions():
            if dist.name.lower() == DISTRIBUTION:
                wheels.append(self._pack_own(dist))
            elif dist.name in extending or dist.read_text("direct_url.json"):
                wheels.append(self._repack(dist, _tags(dist)))
            elif dist.name.lower() != "pip":
                pins.append(f"{dist.name}=={dist.version}")
        return sorted(wheels, key=lambda wheel: wheel.name), pins

    def _pack_own(self, dist: Distribution) -> Wheel:
        return self._store_wheel(_own_files(dist), f"{DISTRIBUTION}-{dist.version}", ("py3-none-any",))

    def _collect_wheels(self, target: PythonPlatform) -> WheelBundle:
        # Packing takes seconds of CPU time, in which connections to other hosts must not look dead.
        wheels, missing = gevent.get_hub().threadpool.apply(self._pack, (target,))
        if missing:
            wheels += self._choose(missing, target)
        if not any(wheel.name.startswith("pip-") for wheel in wheels):
            wheels.append(_bundled_pip())
        content = [f"{wheel.name} {wheel.sha256}" for wheel in sorted(wheels, key=lambda wheel: wheel.name)]
        return WheelBundle(_identity(target, content), tuple(sorted(wheels, key=lambda wheel: wheel.name)))

    def _pack(self, target: PythonPlatform) -> tuple[list[Wheel], list[Distribution]]:
        """Return wheels of the installed packages that work there, and the packages whose wheels do not."""
        wheels: list[Wheel] = []
        missing: list[Distribution] = []
        for dist in required_distributions():
            if dist.name.lower() == DISTRIBUTION:
                wheels.append(self._pack_own(dist))
                continue
            tags = _tags(dist)
            if any(target.accepts(tag) for tag in tags):
                wheels.append(self._repack(dist, tags))
            else:
                missing.append(dist)
        return wheels, missing

    def _repack(self, dist: Distribution, tags: tuple[str, ...]) -> Wheel:
        record = dist.read_text("RECORD")
        home = next((file.parts[0] for file in dist.files or () if file.parts[0].endswith(".dist-info")), None)
        url = json.loads(dist.read_text("direct_url.json") or "{}")
        if record is None or home is None or not tags or url.get("dir_info", {}).get("editable"):
            raise InfrastructureError(
                f"package {dist.name} was not installed from a wheel by pip, so it cannot be installed on other "
                "hosts; reinstall it with pip, not in editable mode"
            )
        stem = home.removesuffix(".dist-info")
        folder = self._cache / hashlib.sha256(record.encode()).hexdigest()[:16]
        stored = folder / _wheel_name(stem, tags)
        return _kept(stored) or self._store_wheel(_recorded_files(dist), stem, tags, folder)

    def _store_wheel(
        self,
        files: Iterable[tuple[str, bytes]],
        stem: str,
        tags: tuple[str, ...],
        folder: Path | None = None,
    ) -> Wheel:
        """Write a wheel, by default into a folder that is named after its content."""
        self._cache.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._cache, delete=False) as file:
            temporary = Path(file.name)
        try:
            _write_wheel(temporary, files, stem)
            place = (folder or self._cache / _sha256(temporary)[:16]) / _wheel_name(stem, tags)
            place.parent.mkdir(exist_ok=True)
            _digest_path(place).write_text(_sha256(temporary), encoding="ascii")
            temporary.replace(place)
        finally:
            temporary.unlink(missing_ok=True)
        return _wheel(place)

    def _choose(self, missing: list[Distribution], target: PythonPlatform) -> list[Wheel]:
        """Return the wheels of the directory that pip finds fit for that platform."""
        if self._find_links is None:
            raise _incompatible(target, "it needs others of packages with compiled code")
        pins = [f"{dist.name}=={dist.version}" for dist in missing]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--no-index", "--find-links", str(self._find_links)]
        command += ["--implementation", "cp", "--python-version", target.version]
        for platform in target.platforms:
            command += ["--platform", platform]
        with tempfile.TemporaryDirectory() as folder:
            try:
                done = subprocess.run(  # noqa: S603  our own interpreter
                    [*command, "--dest", folder, *pins],
                    capture_output=True,
                    text=True,
                    timeout=CHOICE_TIMEOUT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise _incompatible(target, f"pip did not finish within {CHOICE_TIMEOUT_S:g} s") from None
            if done.returncode != 0:
                last = " ".join(done.stderr.strip().splitlines()[-1:])
                raise _incompatible(target, f"{self._find_links} lacks some: {shorten(last, 600)}")
            return [_wheel(self._find_links / path.name) for path in sorted(Path(folder).iterdir())]


def _incompatible(target: PythonPlatform, reason: str) -> InfrastructureError:
    here = PythonPlatform.current()
    return InfrastructureError(
        f"its Python {target.version} ({target.machine}, {target.libc or 'musl'}) is not binary-compatible with this "
        f"one ({here.version}, {here.machine}, {here.libc}): {reason}; set 'python:' to a Python {here.version}, or "
        "give a directory of wheels with --wheelhouse"
    )


def wheel_cache() -> Path:
    """Return the folder in which this user's wheels are kept."""
    return user_folder("CACHE", ".cache") / "wheels"


def _identity(target: PythonPlatform, content: Sequence[str]) -> str:
    return hashlib.sha256("\n".join([target.soabi, *content]).encode()).hexdigest()[:16]


def _entries() -> list[EntryPoint]:
    return [entry for group in ENTRY_POINT_GROUPS for entry in registered(f"{DISTRIBUTION}.{group}")]


def required_distributions() -> list[Distribution]:
    """Return our distribution, those that extend it through entry points, and everything that they require."""
    names = [DISTRIBUTION, "pip", *OF_WORKERS, *(entry.dist.name for entry in _entries() if entry.dist is not None)]
    found: dict[str, Distribution] = {}
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform, or pip itself
        for requirement in found[name].requires or ():
            wanted = _NAME.match(requirement)
            if wanted is not None and "extra ==" not in requirement.replace("  ", " "):
                names.append(wanted[0])
    return [found[name] for name in sorted(found)]


def _own_files(dist: Distribution) -> Iterator[tuple[str, bytes]]:
    """Yield the files of this package as they are now, however it was installed."""
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        for root in spec.submodule_search_locations or () if spec is not None else ():
            for path in sorted(Path(root).rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                    yield f"{package}/{path.relative_to(root).as_posix()}", path.read_bytes()
    home = f"{DISTRIBUTION}-{dist.version}.dist-info"
    metadata = dist.read_text("METADATA") or dist.read_text("PKG-INFO") or ""
    yield f"{home}/METADATA", metadata.encode()
    yield f"{home}/entry_points.txt", (dist.read_text("entry_points.txt") or "").encode()
    yield f"{home}/WHEEL", b"Wheel-Version: 1.0\nGenerator: weighbridge\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _recorded_files(dist: Distribution) -> Iterator[tuple[str, bytes]]:
    for file in sorted(dist.files or (), key=str):
        inside = ".dist-info" in file.parts[0] and file.name in _SKIPPED_FILES
        if file.parts[0] in ("..", "/") or "__pycache__" in file.parts or inside:
            continue
        yield file.as_posix(), Path(str(file.locate())).read_bytes()


def _write_wheel(path: Path, files: Iterable[tuple[str, bytes]], stem: str) -> None:
    lines: list[str] = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in files:
            # The same content gives the same bytes, whenever it is packed.
            archive.writestr(_entry(name), content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            quoted = f'"{name}"' if "," in name else name
            lines.append(f"{quoted},sha256={digest},{len(content)}")
        record_name = f"{stem}.dist-info/RECORD"
        archive.writestr(_entry(record_name), "\n".join([*lines, f"{record_name},,", ""]))


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _ZIP_EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


def _tags(dist: Distribution) -> tuple[str, ...]:
    text = dist.read_text("WHEEL") or ""
    return tuple(line.removeprefix("Tag:").strip() for line in text.splitlines() if line.startswith("Tag:"))


def _wheel_name(stem: str, tags: tuple[str, ...]) -> str:
    """Return the file name of PEP 427, with the tags compressed as in PEP 425."""
    columns = zip(*(tag.split("-", 2) for tag in tags), strict=True)
    return f"{stem}-{'-'.join('.'.join(dict.fromkeys(column)) for column in columns)}.whl"


def _bundled_pip() -> Wheel:
    """Return the wheel that ensurepip installs; Debian's and Fedora's Python has it in its `WHEEL_PKG_DIR`."""
    spec = importlib.util.find_spec("ensurepip")
    roots = [Path(root, "_bundled") for root in spec.submodule_search_locations or ()] if spec is not None else []
    own = sysconfig.get_config_var("WHEEL_PKG_DIR")
    for root in [*roots, *([Path(own)] if own else [])]:
        for path in sorted(root.glob("pip-*.whl")):
            return _wheel(path)
    raise InfrastructureError("this installation has no pip to install on hosts with; install pip here")


def _digest_path(wheel: Path) -> Path:
    """Return the file with the digest of a wheel in the cache, as it was when it came there."""
    return wheel.with_name(f"{wheel.name}.sha256")


def _kept(path: Path) -> Wheel | None:
    """Return a wheel of the cache; None where there is none, or where it is not what was put there."""
    try:
        wheel, digest = _wheel(path), _digest_path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return wheel if wheel.sha256 == digest.strip() else None


def _wheel(path: Path) -> Wheel:
    return Wheel(path, _sha256(path), path.stat().st_size)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
