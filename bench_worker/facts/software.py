"""Facts of the software that the worker itself runs on."""

from __future__ import annotations

import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Final

import zmq

from bench_common import __version__
from bench_worker.host.facts import Fact

if TYPE_CHECKING:
    from bench_worker.host_files import HostFiles

REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def _libraries() -> list[str]:
    """Return the names of the packages that Weighbridge itself stands on, as its metadata says."""
    try:
        required = requires("weighbridge") or []
    except PackageNotFoundError:  # a source tree that was never installed
        return []
    names = (REQUIREMENT.match(text) for text in required if "extra ==" not in text)
    return sorted(match[0] for match in names if match)


def _library(name: str) -> Fact:
    def read(_files: HostFiles) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    return Fact(f"package_{name}", f"release of the Python package {name}", read)


SOFTWARE_FACTS: Final = (
    Fact("weighbridge_version", "release of Weighbridge", lambda _: __version__),
    Fact("python_version", "release of Python", lambda _: platform.python_version()),
    Fact("python_implementation", "which Python", lambda _: sys.implementation.name),
    Fact("libc_version", "the C library", lambda _: " ".join(platform.libc_ver()).strip() or None),
    Fact("libzmq_version", "release of libzmq", lambda _: zmq.zmq_version()),
    *(_library(name) for name in _libraries()),
)
