"""The facts of a fingerprint, one module for each part of a host; each fact is a function of the host's files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench_worker.host_files import HostFiles

Value: TypeAlias = str | int | float


@dataclass(frozen=True, slots=True)
class Fact:
    """A named property of a host that can change what is measured on it.

    `read` returns None where the host does not tell. `unit` is ``B``, ``Hz``, ``ns`` or empty. `identity` facts tell
    hosts apart and differ between any two of them, so a difference in one is no confound.
    """

    name: str
    help: str
    read: Callable[[HostFiles], Value | None]
    unit: str = ""
    identity: bool = False


def file_fact(name: str, path: str, help: str) -> Fact:  # noqa: A002  `help` is what every registry here calls it
    """Return the fact that is a whole file's text."""
    return Fact(name, help, lambda files: files.text(path) or None)


def number_fact(name: str, path: str, help: str, unit: str = "") -> Fact:  # noqa: A002
    """Return the fact that is the whole number in a file."""
    return Fact(name, help, lambda files: whole_number(files.text(path)), unit)


def whole_number(text: str | None) -> int | None:
    """Return the whole number that `text` is, or None."""
    try:
        return int(text or "")
    except ValueError:
        return None


def chosen(text: str | None) -> str | None:
    """Return the word in brackets of a sysfs choice such as ``always [madvise] never``, or the text itself."""
    if text and "[" in text:
        return text.partition("[")[2].partition("]")[0]
    return text or None
