"""``--list-engines``: which engines can be used on this machine, and why the others cannot."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

FLAG = "--list-engines"
HELP = "say which engines can be used here, and why the others cannot"


def configure(group: argparse._ArgumentGroup) -> None:
    """Take no arguments."""
    del group


def answer(arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Yield the fields of each engine's `EngineStatus`, by name."""
    from bench_worker.engines.registry import probe_all

    del arguments
    for status in probe_all():
        yield {**asdict(status), "details": dict(status.details)}
