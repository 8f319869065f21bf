"""Which object stores there are, by name: none is loaded for that, nor what a login needs."""

from __future__ import annotations

from typing import Final

from bench_common import registered

STORES_GROUP: Final = "weighbridge.stores"
"""The entry points of object stores."""


def store_names() -> tuple[str, ...]:
    """Return the sorted names of all installed stores."""
    return tuple(sorted({entry.name for entry in registered(STORES_GROUP)}))
