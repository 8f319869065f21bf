"""How this host's apt reaches its packages: mirrors, proxies and switches, so that a build can go the same way.

Everything but `read_host` is a pure function of text. Formats: sources.list(5) (both styles) and the output of
``apt-config dump``.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
class Archive:
    """One binary archive of the host: `uri` as written, `suites` such as ``bookworm-updates``."""

    uri: str
    suites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HostApt:
    """What apt of this host uses. `distribution` and `codename` are those of os-release, lower case."""

    distribution: str
    codename: str
    archives: tuple[Archive, ...]
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


def archives_in(text: str, *, deb822: bool) -> list[Archive]:
    """Return the binary archives that a sources file names, in its order; disabled ones are left out."""
    return list(_stanzas(text)) if deb822 else list(_one_line_entries(text))


def _one_line_entries(text: str) -> Iterable[Archive]:
    for line in text.splitlines():
        match = _ONE_LINE.match(line.strip())
        if match:
            yield Archive(match["uri"], (match["suite"],))


def _stanzas(text: str) -> Iterable[Archive]:
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
                yield Archive(uri, tuple(fields.get("suites", "").split()))


def settings_in(dump: str) -> dict[str, str]:
    """Return apt's settings by name from ``apt-config dump``; of a name given twice the last."""
    return {match["key"]: match["value"] for match in _DUMPED.finditer(dump)}


def proxies_from(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
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


def options_from(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the switches that a build needs to fetch as the host does."""
    return tuple(
        f"-o{switch}={settings[switch]}" for switch in _SWITCHES if re.fullmatch(r"[\w.-]+", settings.get(switch, ""))
    )


def read_host(root: Path = Path("/")) -> HostApt:
    """Read this host's apt. A host without apt gives an empty description, not an error."""
    os_release = _fields(_text(root / "etc/os-release"))
    archives: list[Archive] = []
    lists = sorted((root / "etc/apt/sources.list.d").glob("*"))
    for path in [root / "etc/apt/sources.list", *lists]:
        if path.suffix in {".list", ".sources"}:
            archives += archives_in(_text(path), deb822=path.suffix == ".sources")
    settings = settings_in(_apt_config())
    return HostApt(
        distribution=os_release.get("ID", "").lower(),
        codename=os_release.get("VERSION_CODENAME", "").lower(),
        archives=tuple(archives),
        proxies=proxies_from(settings, os.environ),
        options=options_from(settings),
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
