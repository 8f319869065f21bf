"""What a worker reports about its host: declared types, checked in each message and in each stats file.

The values are plain maps, as they travel. A key that is not declared is dropped; a value of another type makes the
message or the block invalid.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias, TypedDict

from msgspec import Meta

MAX_FACTS: Final = 500
"""How many facts, engines, labels or details one map may have."""
MAX_FACT_CHARS: Final = 16_384
"""How long the text of one of them may be, in characters; kernel command lines and mount options are long."""
_INT64: Final = 1 << 63

HostText: TypeAlias = Annotated[str, Meta(max_length=MAX_FACT_CHARS)]
ShortText: TypeAlias = Annotated[str, Meta(max_length=1024)]
Number: TypeAlias = Annotated[int, Meta(ge=-_INT64, le=_INT64 - 1)]
Fact: TypeAlias = HostText | Number | float | bool | None
"""One property of a host. Facts are flat: no maps and no lists."""
Fingerprint: TypeAlias = Annotated[dict[ShortText, Fact], Meta(max_length=MAX_FACTS)]
"""The properties of a host by name."""
Texts: TypeAlias = Annotated[dict[ShortText, HostText], Meta(max_length=MAX_FACTS)]
Names: TypeAlias = Annotated[list[ShortText], Meta(max_length=MAX_FACTS)]


class EngineInfo(TypedDict, total=False):
    """The status of an engine on a host, see `bench_worker.engines.base.EngineStatus`."""

    name: ShortText
    """Its registered name."""
    usable: bool
    """Whether it can be used."""
    version: ShortText
    """Its version."""
    endpoint: HostText
    """The socket, program or directory that it works with."""
    reason: HostText
    """Why it cannot be used."""
    advice: HostText
    """What to install or start, so that it can be used."""
    operations: Names
    """The operations that it can do."""
    settings: Names
    """The settings that it enforces."""
    inapplicable: Names
    """The settings that have no meaning for it."""
    details: Texts
    """More facts, such as ``setting.NAME``: why it cannot enforce a setting."""
    runs_services: bool
    """Whether it can run services."""


Engines: TypeAlias = Annotated[dict[ShortText, EngineInfo], Meta(max_length=MAX_FACTS)]
"""The engines of a host by name."""


class ClockInfo(TypedDict):
    """A comparison of two monotonic clocks."""

    offset_ns: Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
    """How far the other clock is ahead."""
    uncertainty_ns: Annotated[int, Meta(ge=-1, le=1 << 62)]
    """By how much the offset may be wrong; -1 if unknown."""


class HostInfo(TypedDict, total=False):
    """What a hello says about the worker's host."""

    host: ShortText
    """The host's name."""
    boot_id: ShortText
    """The id of its boot; two workers with the same id share a clock."""
    version: ShortText
    """The version of Weighbridge there."""
    engines: Engines
    """Its engines."""
    fingerprint: Fingerprint
    """Its properties."""
    load: Annotated[float, Meta(ge=0, le=1e9)]
    """Its load average over the last minute."""
    clock: ClockInfo
    """How far the master's clock is ahead of its clock."""
    labels: Texts
    """Labels that the worker was started with."""
    allow_host_mounts: bool
    """Whether containers may mount directories of the host."""
    allow_native: bool
    """Whether jobs may run programs of the host."""
    allow_swapoff: bool
    """Whether swap may be switched off."""
