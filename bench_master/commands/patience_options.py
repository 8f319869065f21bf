"""How long silence between master and workers is borne: for networks that are slow, that stutter, or that break."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Final

from bench_common.errors import UsageError
from bench_master.commands.load_options import duration
from bench_master.coordinator import Policy
from bench_master.run.outbound import HEARTBEAT_S, LEASE_S

DEFAULT: Final = Policy()
SHORTEST_S: Final = 0.5
"""Below this a host that is only busy would be taken for dead."""
BEATS: Final = 6
"""How many heartbeats there are in the time after which a silent worker is missed, at least."""


@dataclass(frozen=True, slots=True)
class Patience:
    """What a run is to bear, all in seconds; `heartbeat_s` is the time between two signs of life."""

    silence_s: float
    rejoin_s: float
    lease_s: float

    @property
    def heartbeat_s(self) -> float:
        """Short enough that some heartbeats may be lost before a worker is missed."""
        return min(HEARTBEAT_S, self.silence_s / BEATS)


def add_patience_options(parser: argparse._ActionsContainer) -> None:
    """Add the options to a group."""
    parser.add_argument(
        "--silence",
        metavar="TIME",
        help=f"how long a worker may be silent before its jobs are tried anew (default: {DEFAULT.silence_s:g}s)",
    )
    parser.add_argument(
        "--rejoin",
        metavar="TIME",
        help=f"how long it is awaited then before they are lost (default: {DEFAULT.rejoin_s:g}s)",
    )
    parser.add_argument(
        "--lease",
        metavar="TIME",
        help="how long a worker goes on without a word of its master before it cleans up "
        f"(default: {LEASE_S:g}s; no less than --silence)",
    )


def patience_of(silence: str | None, rejoin: str | None, lease: str | None) -> Patience:
    """Return what the options say; raise `UsageError` for what makes no sense."""
    silence_s = DEFAULT.silence_s if silence is None else duration(silence, "--silence")
    rejoin_s = DEFAULT.rejoin_s if rejoin is None else duration(rejoin, "--rejoin")
    lease_s = max(LEASE_S, silence_s) if lease is None else duration(lease, "--lease")
    for flag, text, seconds in (("--silence", silence, silence_s), ("--rejoin", rejoin, rejoin_s)):
        if seconds < SHORTEST_S:
            raise UsageError(f"{flag} {text}: expected {SHORTEST_S:g} s or more: a busy host is not a dead one")
    if lease_s < silence_s:
        raise UsageError(
            f"--lease {lease}: expected no less than --silence ({silence_s:g} s): workers would give up a master "
            "that still awaits them"
        )
    return Patience(silence_s, rejoin_s, lease_s)
