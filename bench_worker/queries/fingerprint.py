"""`bench-worker --fingerprint`: what kind of place this is, as one JSON object."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

FLAG = "--fingerprint"
HELP = "print the properties of this host that may explain a result, and the environment that it seems to be"


def configure(group: argparse._ArgumentGroup) -> None:
    """Add nothing: the question has no arguments."""
    del group


def answer(arguments: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """Yield one object: the facts by name, as values and as shown, which tell hosts apart, and the environment."""
    from bench_worker.host.fingerprint import FACTS, fingerprint, format_fact, guess_environment

    del arguments
    facts = fingerprint()
    yield {
        "environment": guess_environment(),
        "facts": facts,
        "shown": {name: format_fact(name, value) for name, value in facts.items()},
        "identity": [name for name in facts if FACTS[name].identity],
    }
