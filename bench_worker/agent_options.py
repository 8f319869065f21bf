"""How an agent is to serve, apart from the agent: known before what it takes to serve is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench_common.keys import WorkerKey


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """How the agent was started. `once`: end with the first run; `patience_s`: end after so long without a master.

    `engines` are those that it has to offer, None for every one that it finds. `address` is where other hosts reach
    this one (an IP address), None: to be found out.
    """

    control: str
    worker_id: str
    environment: str
    slots: int
    key: WorkerKey | None = None
    labels: dict[str, str] = field(default_factory=dict)
    once: bool = False
    patience_s: float | None = None
    allow_host_mounts: bool = False
    allow_swapoff: bool = False
    engines: tuple[str, ...] | None = None
    address: str | None = None
