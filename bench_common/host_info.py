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


OTHER_ENGINE: Final = "other_engine"
"""The detail that the user's own command asks another engine than this one."""
IMAGE_DETAIL: Final = "image "
"""What the details with digests of images begin with; the image's name follows."""
PROGRAM_DETAIL: Final = "program "
"""What the details with the paths of programs that jobs run on the host begin with; the command's name follows."""
DIGEST_DETAIL: Final = "sha256 "
"""What the details with the digests of these programs begin with."""
SIDE_DETAIL: Final = "side "
"""What the details begin with that tell what surrounds an engine's jobs; what it is follows, such as ``libc``."""
SEVERAL: Final = ", "
"""What separates the files, and the digests, that one command is on several PATHs."""
_DIGEST_CHARS: Final = 12


def short_digests(digests: str) -> str:
    """Return the beginning of a digest, or of each of several, as people are shown it."""
    return SEVERAL.join(digest[:_DIGEST_CHARS] for digest in digests.split(SEVERAL))


class EngineInfo(TypedDict, total=False):
    """The status of an engine on a host, see `bench_worker.engines.base.EngineStatus`."""

    name: ShortText
    usable: bool
    """Whether it can be used."""
    kind: ShortText
    """The engine that it is, where its name is a label."""
    version: ShortText
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
    boot_id: ShortText
    """The id of its boot; two workers with the same id share a clock."""
    version: ShortText
    """The version of Weighbridge there."""
    engines: Engines
    fingerprint: Fingerprint
    load: Annotated[float, Meta(ge=0, le=1e9)]
    """Its load average over the last minute."""
    clock: ClockInfo
    """How far the master's clock is ahead of its clock."""
    labels: Texts
    """Labels that the worker was started with."""
    allow_host_mounts: bool
    """Whether containers may mount directories of the host."""
    allow_foreign: bool
    """Whether containers may use volumes and networks that others made, and log drivers that write elsewhere."""
    allow_native: bool
    """Whether jobs may run programs of the host."""
    allow_swapoff: bool
    """Whether swap may be switched off."""
    allow_cold: bool
    """Whether the page cache may be dropped, and images be removed and fetched again, before a job."""
    page_cache: HostText
    """Why the page cache cannot be dropped all the same; empty where it can."""
    allow_host_settings: Names
    """Settings of the host's kernel that may be changed (`bench_common.host_settings`)."""
