"""Runs of two builds in drawn pairs: one run a build, which of the two is first drawn by a seed."""

from __future__ import annotations

from typing import Final

from bench_master.commands import CommandEntry

ALTERNATE: Final = CommandEntry(
    "run two builds in drawn pairs, one run each, and compare them by the pair",
    "bench_features.alternate.alternate",
)
