"""What can happen to a run: the vocabulary that the shell speaks to the coordinator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker asks to join. `peer` is its address on the control socket, `identity` what its key proves (if any).

    `slots` is how many jobs it can run at once; `info` goes to the journal as it is (host, versions, engines).
    """

    peer: bytes
    worker_id: str
    environment: str
    slots: int
    identity: str | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    clock_known: bool = True
    """False where its clock must be compared with ours first."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A heartbeat of a member came in."""

    peer: bytes
    epoch: int
    clock_known: bool = True


@dataclass(frozen=True, slots=True)
class Gone:
    """A member is known to be dead: its agent said that the load process ended, or its process was reaped."""

    worker_id: str
    reason: str
    epoch: int | None = None
    """The epoch that ended; None where whatever it is at now has ended."""


@dataclass(slots=True)
class Finished:
    """A batch of results. `tickets` are plain ints; `batch` is the shell's own, handed back to be journalled.

    `aborted` of the jobs were called off, by us or by the worker on its own account.
    """

    epoch: int
    sequence: int
    tickets: Sequence[int]
    batch: object = None
    aborted: int = 0


@dataclass(frozen=True, slots=True)
class Packed:
    """A member holds the containers of a trial, and gives back the jobs that it has no room for.

    `fields` (containers, reason, full, hold_s, memory_before) go to the journal as they are.
    """

    epoch: int
    trial: int
    returned: Sequence[int]
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Swept:
    """A member has removed what the run left on its host."""

    peer: bytes
    epoch: int
    removed: int = 0
    failed: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """What a member said cannot be done, before anything ran: the run is called off."""

    reasons: Sequence[str]


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Ctrl-C: the first ends handing out, the second aborts what runs."""


@dataclass(frozen=True, slots=True)
class Absent:
    """The master did not run for so long, and heard nobody, whoever spoke."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; deadlines are looked at."""


Event: TypeAlias = Hello | Heard | Gone | Finished | Packed | Swept | Refused | Interrupt | Absent | Tick
