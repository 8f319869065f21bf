"""`bench-worker --fingerprint`: print the properties of this host as one JSON object."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

FLAG = "--fingerprint"
HELP = "print the properties of this host that may explain a result, and its detected environment"


class Options(Struct, frozen=True):
    """This query has no arguments."""


def run(options: Options) -> Iterable[dict[str, Any]]:
    """Yield one object: the facts as values and as text, which of them identify a host, and the environment."""
    from bench_worker.host.fingerprint import FACTS, fingerprint, format_fact, guess_environment

    del options
    facts = fingerprint()
    yield {
        "environment": guess_environment(),
        "facts": facts,
        "shown": {name: format_fact(name, value) for name, value in facts.items()},
        "identity": [name for name in facts if FACTS[name].identity],
    }
