"""The certificate of a machine: what equal treatments show on it, so what its reports can be believed to show."""

from __future__ import annotations

from typing import Final

from bench_master.commands import CommandEntry

CERTIFY: Final = CommandEntry(
    "measure what this machine can show: equal treatments against each other, for minutes or a night",
    "bench_features.certify.certify",
)
