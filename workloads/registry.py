"""Finds the workloads that are installed, so that a third party adds one from its own package.

A workload registers itself under the entry-point group ``weighbridge.workloads``; its entry's name is its own
`name`. An entry that cannot be used is reported and left out: one broken package must not take the others away.
"""

from __future__ import annotations

import inspect
import logging
from functools import cache
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Final

from bench_common import load_entry, registered
from bench_common.errors import UsageError, did_you_mean
from bench_workloads.base import Workload

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench_common.treatment import Guest

GROUP: Final = "weighbridge.workloads"

_ATTRIBUTES: Final = ("name", "summary", "image", "binary", "parameters", "metrics")

_log = logging.getLogger(__name__)


def workload_classes() -> dict[str, type[Workload]]:
    """Return every usable workload's class by name, sorted; each entry that cannot be used is logged once."""
    usable, broken = _installed()
    for complaint in broken:
        _warn(complaint)
    return dict(usable)


def workload(name: str) -> Workload:
    """Return the workload called `name`.

    Raises `UsageError` with the nearest right spelling when there is none, or with the reason when its entry is
    registered and cannot be used.
    """
    usable, broken = _installed()
    if name in usable:
        return usable[name]()
    known = ", ".join(usable) or "(none is installed)"
    why = "".join(f"; {complaint}" for complaint in broken if f"'{name}'" in complaint)
    raise UsageError(f"unknown workload {name!r}{did_you_mean(name, usable)}; one of: {known}{why}")


def workload_of(job: Guest) -> Workload:
    """Return the workload of `job`, as the job configures it; raise `UsageError` as `workload` does."""
    return workload(job.workload).for_job(job)


@cache
def _warn(complaint: str) -> None:
    _log.warning("%s", complaint)


@cache
def _installed() -> tuple[dict[str, type[Workload]], tuple[str, ...]]:
    return load_entries(registered(GROUP))


def load_entries(entries: Iterable[EntryPoint]) -> tuple[dict[str, type[Workload]], tuple[str, ...]]:
    """Return the workloads of `entries` by name, and one complaint for each entry that cannot be used.

    Where two entries claim one name the first (by where it points) is used and the other complained about, so the
    result does not depend on the order in which packages are found.
    """
    usable: dict[str, type[Workload]] = {}
    broken: list[str] = []
    for entry in sorted(set(entries), key=lambda e: (e.name, e.value)):
        try:
            cls = load_entry(entry)
        except Exception as error:  # noqa: BLE001  a third party's module may raise anything; it is named and left out
            broken.append(
                f"workload {entry.name!r} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}"
            )
            continue
        flaw = _problem(entry.name, cls)
        if flaw is None and entry.name in usable:
            flaw = f"the name is taken by {usable[entry.name].__module__}"
        if flaw is None:
            usable[entry.name] = cls
        else:
            broken.append(f"workload {entry.name!r} ({entry.value}) cannot be used: {flaw}")
    return usable, tuple(broken)


def _problem(name: str, cls: object) -> str | None:
    if not (inspect.isclass(cls) and issubclass(cls, Workload)):
        return "it is not a subclass of bench_workloads.base.Workload"
    if inspect.isabstract(cls):
        return f"it lacks {', '.join(sorted(cls.__abstractmethods__))}"
    missing = [attribute for attribute in _ATTRIBUTES if not hasattr(cls, attribute)]
    if missing:
        return f"it lacks {', '.join(missing)}"
    if cls.name != name:
        return f"it calls itself {cls.name!r}"
    return None


def debian_packages() -> dict[str, str]:
    """Return the packages of Debian with the programs of workloads and services, where they are named differently."""
    named: dict[str, str] = {}
    for kind in workload_classes().values():
        named[kind.binary] = kind.package
        named |= {service.binary: service.package for service in kind.services}
    return {program: package for program, package in named.items() if package}
