"""What surrounds a command besides its engine: variables, user, C library, limits, and the very file that runs.

Plain processes and containers are compared in the same environment. What cannot be made the same is told, and a
report names it beside the verdict. Of variables that images may use for secrets nothing is told.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench_common.host_info import DIGEST_DETAIL, PROGRAM_DETAIL, SIDE_DETAIL
from bench_worker.engines.image_programs import program_places
from bench_worker.program_digest import listening_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench_common.requirements import ImageProgram

NATIVE_LOCALE: Final = "C.UTF-8"
"""The locale of plain processes that run without containers beside them."""
_VARIABLE: Final = re.compile(r"PATH|LANG|LANGUAGE|LC_\w+|TZ|MALLOC_\w+|GLIBC_TUNABLES|LD_\w+|OMP_\w+|GO[A-Z]+")
"""The variables that decide how programs work."""
_MACHINE: Final = platform.machine()
_MUSL: Final = f"/lib/ld-musl-{_MACHINE}.so.1"
_GLIBC: Final = (f"/lib/{_MACHINE}-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6")
_GLIBC_VERSION: Final = re.compile(rb"GNU C Library [^\n]*version (\d+\.\d+)")
_OPEN_FILES: Final = re.compile(r"^Max open files +(\S+)", re.MULTILINE)
_NICE: Final = 16
"""The place of the priority in /proc/PID/stat behind the program's name, see proc(5)."""


def image_surroundings(
    config: Mapping[str, Any], wanted: ImageProgram, read: Callable[[str], bytes | None]
) -> dict[str, str]:
    """Return what surrounds the commands of an image of this ``Config``, as details of an engine's status.

    `read` returns the content of a file of the image, None where there is none.
    """
    variables = dict(str(item).partition("=")[::2] for item in config.get("Env") or ())
    found = {f"variable {name}": value for name, value in variables.items() if _VARIABLE.fullmatch(name) and value}
    user = str(config.get("User") or "root").partition(":")[0]
    found["user"] = "root" if user == "0" else user
    directory = str(config.get("WorkingDir") or "/")
    if wanted.directory is None and directory != "/":
        found["directory"] = directory
    if version := _libc(read):
        found["libc"] = version
    details = {f"{SIDE_DETAIL}{name}": value for name, value in found.items()}
    for place in program_places(wanted, config):
        content = read(place)
        if content is not None:
            details[f"{PROGRAM_DETAIL}{wanted.program}"] = place
            details[f"{DIGEST_DETAIL}{wanted.program}"] = hashlib.sha256(content).hexdigest()
            break
    return details


def _libc(read: Callable[[str], bytes | None]) -> str:
    for place in _GLIBC:
        if (content := read(place)) is not None and (version := _GLIBC_VERSION.search(content)):
            return f"glibc {version[1].decode()}"
    return "musl" if read(_MUSL) is not None else ""


def host_surroundings() -> dict[str, str]:
    """Return what surrounds the plain processes that this one starts, likewise."""
    user = os.geteuid()
    found = {
        "variable PATH": os.environ.get("PATH", os.defpath),
        "variable LANG": NATIVE_LOCALE,
        "user": str(user) if user else "root",
        "open files": str(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        "nice": str(os.getpriority(os.PRIO_PROCESS, 0)),
        "libc": " ".join(platform.libc_ver()).strip() or "musl",
    }
    return {f"{SIDE_DETAIL}{name}": value for name, value in found.items()}


def dockerd_surroundings(address: str, proc: Path = Path("/proc")) -> dict[str, str]:
    """Return what the containers of the Docker Engine at an address inherit from its daemon; empty where unknown."""
    program = listening_program(address)
    try:
        if not program or Path(program).readlink().name != "dockerd":
            return {}
        # It makes its containers through containerd, which may be a service of its own.
        named = [one.parent for one in proc.glob("[0-9]*/comm") if one.read_text() == "containerd\n"]
        maker = named[0] if len(named) == 1 else Path(program).parent
        files = _OPEN_FILES.search((maker / "limits").read_text())
        nice = (maker / "stat").read_text().rpartition(")")[2].split()[_NICE]
    except OSError:
        return {}
    return {f"{SIDE_DETAIL}nice": nice, **({f"{SIDE_DETAIL}open files": files[1]} if files else {})}
