"""Which engine the ``docker`` and ``podman`` commands of this user ask: Docker's context, Podman's connection."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from pathlib import Path
from typing import Final

DEFAULT_ENDPOINT: Final = "unix:///var/run/docker.sock"


def endpoint() -> str:
    """Return the engine's address: DOCKER_HOST; the usual socket; where that is absent, what ``docker ps`` asks.

    That is the user's context, or a rootless engine's socket. A context of another host is named in `other_engine`.
    """
    named = os.environ.get("DOCKER_HOST")
    if named or _is_there(DEFAULT_ENDPOINT):
        return named or DEFAULT_ENDPOINT
    runtime = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    candidates = (_context()[1], f"unix://{runtime}/docker.sock")
    return next((each for each in candidates if _is_there(each)), DEFAULT_ENDPOINT)


def other_engine(address: str) -> str:
    """Say that the ``docker`` command of this user asks another engine than that at `address`; else nothing."""
    if os.environ.get("DOCKER_HOST"):
        return ""
    name, host = _context()
    if not host or _path(host) == _path(address):
        return ""
    return f"`docker ps` shows another engine, {host} (context {name}); for that one: export DOCKER_HOST={host}"


def _context() -> tuple[str, str]:
    """Return the name and the address of the user's context; nothing for the usual one, or a damaged one."""
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    try:
        chosen = json.loads((folder / "config.json").read_text("utf-8")) if "DOCKER_CONTEXT" not in os.environ else {}
        name = os.environ.get("DOCKER_CONTEXT") or str(chosen.get("currentContext") or "")
        if name in ("", "default"):
            return "", ""
        place = folder / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
        return name, str(json.loads(place.read_text("utf-8"))["Endpoints"]["docker"]["Host"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError):
        return "", ""


def connection_address() -> str:
    """Return the address of the connection of Podman's own that CONTAINER_CONNECTION names; nothing without one.

    Without the variable Podman's command asks no service, whatever its default connection is. A connection that is
    not there is no address, and refused as such.
    """
    name = os.environ.get("CONTAINER_CONNECTION")
    if not name:
        return ""
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "containers"
    found: dict[str, str] = {}
    # Podman 4 writes the one, Podman 5 the other.
    for file, read, way, key in (
        ("containers.conf", tomllib.loads, ("engine", "service_destinations"), "uri"),
        ("podman-connections.json", json.loads, ("Connection", "Connections"), "URI"),
    ):
        try:
            place = read((folder / file).read_text("utf-8"))
            for word in way:
                place = place[word]
            found |= {each: place[each][key] for each in place}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return str(found.get(name, f"connection {name} of CONTAINER_CONNECTION"))


def _is_there(address: str) -> bool:
    return address.startswith("unix://") and Path(_path(address)).exists()


def _path(address: str) -> str:
    return os.path.realpath(address.removeprefix("unix://")) if address.startswith("unix://") else address
