"""Bounds the archive of an image that an engine exports: one that answers without end fills no disk."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from bench_common.errors import InfrastructureError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

LARGEST_BYTES: Final = 64 << 30
"""The longest archive that is taken, whatever the engine says of the image."""
SIZE_FACTOR: Final = 4
SLACK_BYTES: Final = 1 << 30
"""An archive may have the image's size times `SIZE_FACTOR`, as some stores tell the compressed one, and so much."""
FREE_SHARE: Final = 0.9
"""How much of what is free on the disk an archive may take."""
LONGEST_S: Final = 3600.0
"""How long an export may last (s)."""


class EndlessArchive(InfrastructureError):
    """The archive of an image is longer, or takes longer, than it may."""


def bounded_archive(chunks: Iterable[bytes], facts: Mapping[str, Any], folder: Path | None = None) -> Iterator[bytes]:
    """Yield the pieces of an image's archive, at most as many as there may be; raise `EndlessArchive`.

    `facts` is what the engine tells of the image; `folder`, if any, is where the archive is kept.
    """
    size = facts.get("Size")
    size_bytes = size if isinstance(size, int) and size > 0 else 0
    limit_bytes = min(LARGEST_BYTES, SIZE_FACTOR * size_bytes + SLACK_BYTES)
    text = f"the image has {_in_mib(size_bytes)}, as the engine says, and its export more than"
    if folder is not None:
        free_bytes = shutil.disk_usage(folder).free
        if free_bytes * FREE_SHARE < limit_bytes:
            limit_bytes = int(free_bytes * FREE_SHARE)
            text = f"{folder} has {_in_mib(free_bytes)} free, and the export of the image needs more than"
    left_bytes, deadline = limit_bytes, monotonic() + LONGEST_S
    try:
        for chunk in chunks:
            left_bytes -= len(chunk)
            if left_bytes < 0:
                raise EndlessArchive(f"{text} {_in_mib(limit_bytes)}")
            if monotonic() > deadline:
                raise EndlessArchive(f"the export of the image did not end within {LONGEST_S:g} s")
            yield chunk
    finally:
        if isinstance(chunks, Generator):
            chunks.close()


def _in_mib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 20):,.0f} MiB"
