"""Puts a base system together with debootstrap, and keeps it as a tarball so that this happens once a machine.

The tarball lies in ``$XDG_CACHE_HOME/weighbridge`` (``~/.cache/weighbridge``) under a name made of everything that
went into it. It is written beside its place and renamed, with its SHA-256 next to it, so that a tarball that is
there is whole; one whose sum differs is made anew.

How this host's apt reaches its packages: mirrors, proxies and switches, so that a build can go the same way.

Everything but `read_host` is a pure function of text. Formats: sources.list(5) (both styles) and the output of
``apt-config dump``.

Decides which archive a base system is taken from: a pure choice from what the host has and can reach.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import tomllib
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from bench_common.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

LOCK_WAIT_S: Final = 900.0
"""How long to wait for another build on this machine."""
BOOTSTRAP_TIMEOUT_S: Final = 1200.0
"""A base system takes under a minute from a near mirror; after this it hangs."""
_LAST_LINES: Final = 15
_CHUNK: Final = 1 << 20


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of cached tarballs, whether or not it exists."""
    named = environment.get("XDG_CACHE_HOME", "")
    root = Path(named) if Path(named).is_absolute() else Path.home() / ".cache"
    return root / "weighbridge"


@contextlib.contextmanager
def build_lock(folder: Path, progress: Callable[[str], None], wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
    """Hold the machine's build lock; wait for another builder, at most `wait_s` seconds."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("a") as lock:
        deadline = time.monotonic() + wait_s
        told = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() >= deadline:
                    raise InfrastructureError(
                        f"another build of images has held {folder / 'build.lock'} for {wait_s:g} s; see what hangs"
                    ) from error
            if not told:
                progress("another build of images is under way on this machine; waiting for it")
                told = True
            time.sleep(0.2)
        yield


def tarball_path(folder: Path, source: BaseSource) -> Path:
    """Return where the tarball of `source` is kept; another source or another content is another name."""
    content = "\n".join([repr(source), os.uname().machine])
    return folder / f"base-{source.suite}-{hashlib.sha256(content.encode()).hexdigest()[:16]}.tar.gz"


def is_intact(tarball: Path) -> bool:
    """Say whether the tarball is there and is what its sum says."""
    try:
        expected = _sum_file(tarball).read_text(encoding="ascii").strip()
        return _sha256(tarball) == expected
    except (OSError, UnicodeDecodeError):
        return False


def base_tarball(folder: Path, source: BaseSource, progress: Callable[[str], None]) -> tuple[Path, bool]:
    """Return the tarball of `source` and whether it was there already; make it if need be.

    The caller holds `build_lock`. Raises `InfrastructureError` where debootstrap is missing, may not be run or
    fails.
    """
    tarball = tarball_path(folder, source)
    if is_intact(tarball):
        return tarball, True
    if tarball.exists():
        progress(f"{tarball} is damaged; making it anew")
    _require_debootstrap(source, progress)
    with _workspace(folder) as work:
        _bootstrap(source, work / "root", progress)
        partial = work / tarball.name
        _pack(work / "root", partial)
        partial_sum = _sum_file(partial)
        partial_sum.write_text(_sha256(partial) + "\n", encoding="ascii")
        tarball.unlink(missing_ok=True)
        partial_sum.replace(_sum_file(tarball))
        partial.replace(tarball)
    return tarball, False


def _require_debootstrap(source: BaseSource, progress: Callable[[str], None]) -> None:
    if os.geteuid() != 0:
        raise InfrastructureError(
            "no registry of images can be reached, and making a base image with debootstrap needs root: run "
            "`sudo bench-master build-images` once, or load an image named weighbridge/base"
        )
    needed = [] if shutil.which("debootstrap") else ["debootstrap"]
    if not Path(source.keyring).exists():
        needed.append(Path(source.keyring).stem)
    if not needed:
        return
    if not shutil.which("apt-get"):
        raise InfrastructureError(
            f"{' and '.join(needed)} missing and no apt-get here: install with this system's tool"
        )
    progress(f"installing {' and '.join(needed)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    _run_logged(["apt-get", "update", "-qq"], 300, progress, environment)
    _run_logged(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *needed], 600, progress, environment)


def _bootstrap(source: BaseSource, root: Path, progress: Callable[[str], None]) -> None:
    command = [
        "debootstrap",
        f"--variant={source.variant}",
        f"--include={','.join(source.include)}",
        f"--components={','.join(source.components)}",
        f"--keyring={source.keyring}",
        source.suite,
        str(root),
        source.mirror,
    ]
    _run_logged([*_private_mounts(), *command], BOOTSTRAP_TIMEOUT_S, _phase_reporter(progress), dict(os.environ))
    (root / "etc/apt/sources.list").write_text(source.sources_list, encoding="utf-8")
    (root / "etc/hostname").unlink(missing_ok=True)
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    for leftover in ("var/cache/apt/archives", "var/lib/apt/lists", "var/log", "debootstrap"):
        for path in sorted((root / leftover).rglob("*"), reverse=True):
            if path.is_file() and path.name != "lock":
                path.unlink()


def _private_mounts() -> list[str]:
    """Return a prefix that keeps debootstrap's mounts to itself, so that none outlives it."""
    prefix = ["unshare", "--mount"]
    try:
        allowed = subprocess.run([*prefix, "true"], capture_output=True, timeout=10, check=False).returncode == 0  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        allowed = False
    return prefix if allowed else []


def _phase_reporter(progress: Callable[[str], None]) -> Callable[[str], None]:
    """Return a reporter that shows the first of a run of debootstrap's lines that begin with the same word."""
    shown: set[str] = set()

    def report(line: str) -> None:
        words = line.removeprefix("I: ").split()
        if line.startswith(("W:", "E:")) or (line.startswith("I:") and words and words[0] not in shown):
            shown.add(words[0])
            progress(line.removeprefix("I: "))

    return report


def _run_logged(
    command: Sequence[str], limit_s: float, progress: Callable[[str], None], environment: dict[str, str]
) -> None:
    """Run a command, hand on each line it prints; raise with its last lines when it fails or takes too long."""
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(  # noqa: S603
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        errors="replace",
        start_new_session=True,  # so that everything it started can be ended with it
    ) as process:
        timed_out = threading.Event()
        overdue = threading.Timer(limit_s, _kill_on_timeout, [process, timed_out])
        overdue.start()
        try:
            for line in process.stdout or ():
                last.append(line.rstrip())
                progress(line.rstrip())
            process.wait()
        finally:
            overdue.cancel()
            _end(process)
    if process.returncode:
        how = f"did not end in {limit_s:g} s" if timed_out.is_set() else f"failed with exit code {process.returncode}"
        raise InfrastructureError(f"{' '.join(command)} {how}; last lines:\n" + "\n".join(last))


def _kill_on_timeout(process: subprocess.Popen[str], timed_out: threading.Event) -> None:
    timed_out.set()
    _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Kill the process and what it started; its session is its own."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _pack(root: Path, tarball: Path) -> None:
    compressor = "--use-compress-program=gzip -1n"
    command = ["tar", "--numeric-owner", "--one-file-system", compressor, "-cf", str(tarball), "-C", str(root), "."]
    _run_logged(command, 600, lambda _: None, dict(os.environ))


@contextlib.contextmanager
def _workspace(folder: Path) -> Iterator[Path]:
    """Give an empty folder and delete it afterwards, never through something that is still mounted in it."""
    work = Path(tempfile.mkdtemp(prefix="bootstrap-", dir=folder))
    try:
        yield work
    finally:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        points = [line.split()[4] for line in mounts]
        for point in sorted((point for point in points if point.startswith(f"{work}/")), reverse=True):
            _run_logged(["umount", point], 60, lambda _: None, dict(os.environ))
        shutil.rmtree(work)


def _sum_file(tarball: Path) -> Path:
    return tarball.with_name(f"{tarball.name}.sha256")


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


_PROXY_VARIABLES: Final = ("http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy")
_SWITCHES: Final = (
    "Acquire::Check-Valid-Until",
    "Acquire::Check-Date",
    "Acquire::ForceIPv4",
    "Acquire::Retries",
    "Acquire::http::Pipeline-Depth",
)
"""Settings that change whether packages can be fetched and that hold no secret and no path of the host."""
_DUMPED: Final = re.compile(r'^(?P<key>\S+) "(?P<value>.*)";$', re.MULTILINE)
_ONE_LINE: Final = re.compile(r"^deb\s+(?:\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)")


@dataclass(frozen=True, slots=True)
class AptArchive:
    """One binary archive of the host: `uri` as written, `suites` such as ``bookworm-updates``."""

    uri: str
    suites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HostApt:
    """What apt of this host uses. `distribution` and `codename` are those of os-release, lower case."""

    distribution: str
    codename: str
    archives: tuple[AptArchive, ...]
    proxies: Mapping[str, str]
    """Build arguments by name; the builder knows these names and keeps them out of the image."""
    options: tuple[str, ...]
    """Switches for apt-get, such as ``-oAcquire::Check-Date=false``."""

    def mirror_of(self, path_end: str) -> str | None:
        """Return the first mirror over http whose path ends so (``/debian``), without credentials."""
        for archive in self.archives:
            uri = without_credentials(archive.uri)
            if uri.startswith(("http://", "https://")) and urlsplit(uri).path.rstrip("/").endswith(path_end):
                return uri
        return None


def without_credentials(uri: str) -> str:
    """Return `uri` without user, password and trailing slash: what may be written into an image."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], path=parts.path.rstrip("/")))


def parse_archives(text: str, *, deb822: bool) -> list[AptArchive]:
    """Return the binary archives that a sources file names, in its order; disabled ones are left out."""
    return list(_stanzas(text)) if deb822 else list(_one_line_entries(text))


def _one_line_entries(text: str) -> Iterable[AptArchive]:
    for line in text.splitlines():
        match = _ONE_LINE.match(line.strip())
        if match:
            yield AptArchive(match["uri"], (match["suite"],))


def _stanzas(text: str) -> Iterable[AptArchive]:
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        key = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1].isspace():
                fields[key] = f"{fields.get(key, '')} {line.strip()}"
            elif ":" in line:
                key, _, value = line.partition(":")
                key = key.strip().lower()
                fields[key] = value.strip()
        enabled = fields.get("enabled", "yes").lower() not in {"no", "false", "off", "0"}
        if enabled and "deb" in fields.get("types", "").split():
            for uri in fields.get("uris", "").split():
                yield AptArchive(uri, tuple(fields.get("suites", "").split()))


def parse_apt_config(dump: str) -> dict[str, str]:
    """Return apt's settings by name from ``apt-config dump``; of a name given twice the last."""
    return {match["key"]: match["value"] for match in _DUMPED.finditer(dump)}


def proxy_arguments(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the proxies as build arguments: apt's own before the environment's, ``DIRECT`` meaning none."""
    proxies = {}
    for variable in _PROXY_VARIABLES:
        value = environment.get(variable) or environment.get(variable.upper())
        if value:
            proxies[variable] = value
    for scheme in ("http", "https"):
        value = settings.get(f"Acquire::{scheme}::Proxy") or settings.get(f"Acquire::{scheme}::proxy")
        if value and value.upper() == "DIRECT":
            proxies.pop(f"{scheme}_proxy", None)
        elif value:
            proxies[f"{scheme}_proxy"] = value
    return proxies


def apt_switches(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the switches that a build needs to fetch as the host does."""
    return tuple(
        f"-o{switch}={settings[switch]}" for switch in _SWITCHES if re.fullmatch(r"[\w.-]+", settings.get(switch, ""))
    )


def read_host(root: Path = Path("/")) -> HostApt:
    """Read this host's apt. A host without apt gives an empty description, not an error."""
    os_release = _fields(_text(root / "etc/os-release"))
    archives: list[AptArchive] = []
    lists = sorted((root / "etc/apt/sources.list.d").glob("*"))
    for path in [root / "etc/apt/sources.list", *lists]:
        if path.suffix in {".list", ".sources"}:
            archives += parse_archives(_text(path), deb822=path.suffix == ".sources")
    settings = parse_apt_config(_apt_config())
    return HostApt(
        distribution=os_release.get("ID", "").lower(),
        codename=os_release.get("VERSION_CODENAME", "").lower(),
        archives=tuple(archives),
        proxies=proxy_arguments(settings, os.environ),
        options=apt_switches(settings),
    )


def _apt_config() -> str:
    try:
        done = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, timeout=20, check=False)  # noqa: S607
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _fields(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


MIRROR_VARIABLE: Final = "WEIGHBRIDGE_MIRROR"
"""Environment variable that names a Debian mirror and overrides the host's own."""


@dataclass(frozen=True, slots=True)
class BaseSource:
    """Where debootstrap takes a base system from."""

    suite: str
    mirror: str
    components: tuple[str, ...]
    keyring: str
    variant: str
    include: tuple[str, ...]
    extra_lines: tuple[str, ...] = ()
    """Lines of sources.list beside the suite itself: security and point updates where the host has them."""

    def __str__(self) -> str:
        return f"debootstrap {self.variant} {self.suite} from {self.mirror}"

    @property
    def sources_list(self) -> str:
        """The image's sources.list."""
        components = " ".join(self.components)
        return "\n".join([f"deb {self.mirror} {self.suite} {components}", *self.extra_lines, ""])


def read_settings(folder: Path) -> dict[str, Any]:
    """Return the recipe's ``recipe.toml``."""
    return tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))


def choose_source(
    settings: dict[str, Any], host: HostApt, *, override: str | None, answers: Callable[[str], bool]
) -> BaseSource:
    """Return the source of the base system.

    Debian's suite of the recipe from `override`, the host's own Debian mirror or the public one, the first that
    `answers` (it is asked for the URL of the suite's Release file); else, on Ubuntu, the host's own suite from the
    host's own mirror. Raises `InfrastructureError` that names what was tried.
    """
    debian = settings["debian"]
    candidates = [override] if override else [host.mirror_of("/debian"), debian["mirror"]]
    tried = list(dict.fromkeys(mirror.rstrip("/") for mirror in candidates if mirror))
    for mirror in tried:
        if answers(f"{mirror}/dists/{debian['suite']}/Release"):
            return _source(settings, debian, debian["suite"], mirror, _debian_extras(host, debian))
    own = host.mirror_of("/ubuntu")
    if not override and host.distribution == "ubuntu" and host.codename and own:
        if answers(f"{own}/dists/{host.codename}/Release"):
            ubuntu = settings["ubuntu"]
            extra = (f"deb {own} {host.codename}-updates {' '.join(ubuntu['components'])}",)
            return _source(settings, ubuntu, host.codename, own, extra)
        tried.append(own)
    raise InfrastructureError(
        f"no mirror of Debian {debian['suite']} answers (tried {', '.join(tried)}): check the network and the proxy, "
        f"or name a mirror, as in {MIRROR_VARIABLE}=http://mirror.example/debian"
    )


def _source(
    settings: dict[str, Any], distribution: dict[str, Any], suite: str, mirror: str, extra: tuple[str, ...]
) -> BaseSource:
    bootstrap = settings["debootstrap"]
    return BaseSource(
        suite=suite,
        mirror=mirror,
        components=tuple(distribution["components"]),
        keyring=distribution["keyring"],
        variant=bootstrap["variant"],
        include=tuple(bootstrap["include"]),
        extra_lines=extra,
    )


def _debian_extras(host: HostApt, debian: dict[str, Any]) -> tuple[str, ...]:
    """Return the lines for security updates, where the host itself takes them for the same suite."""
    security = host.mirror_of("/debian-security")
    suite = f"{debian['suite']}-security"
    if security and any(suite in archive.suites for archive in host.archives):
        return (f"deb {security} {suite} {' '.join(debian['components'])}",)
    return ()
