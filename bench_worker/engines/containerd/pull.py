"""Pulls images into containerd, by its own command: the API of Debian's containerd has no call for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.containerd.api import SNAPSHOTTER
from bench_worker.engines.grpc import ERROR_KINDS

if TYPE_CHECKING:
    from bench_worker.engines.base import OperationResult
    from bench_worker.engines.containerd.api import ContainerdApi

_KINDS: Final = (
    (
        "image-missing",
        re.compile(r"not found|denied|authorization failed|no match for platform", re.IGNORECASE),
    ),
    *ERROR_KINDS,
    ("unreachable", re.compile(r"no such host|failed to do request", re.IGNORECASE)),
)
"""What `ctr` says of a registry."""


def pull_image(api: ContainerdApi, name: str, timeout_s: float) -> OperationResult:
    """Pull and unpack an image, called by its whole name; what is there already is not fetched.

    It lasts as long as ``ctr images pull`` runs. Raises `OperationFailed`.
    """
    ctr = CommandLine("ctr", ("--address", api.socket, "--namespace", api.namespace), _KINDS)
    sequence = ctr.sequence(timeout_s)
    sequence.run("images", "pull", "--snapshotter", SNAPSHOTTER, name)
    return sequence.result()
