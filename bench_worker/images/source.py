"""Decides which archive a base system is taken from: a pure choice from what the host has and can reach."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench_common.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bench_worker.images.apt import HostApt

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
