"""`bench-worker --list-engines`: list the engines that are usable on this machine, and why the others are not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

FLAG = "--list-engines"
HELP = "list the engines that are usable on this machine, and why the others are not"


class Options(Struct, frozen=True):
    """This query has no arguments."""


def run(options: Options) -> Iterable[dict[str, Any]]:
    """Yield the fields of each engine's `EngineStatus`, by name."""
    from bench_worker.engines.registry import probe_all

    del options
    for status in probe_all():
        yield {**asdict(status), "details": dict(status.details)}
