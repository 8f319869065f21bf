"""What a job is on the wire: msgspec checks it where it is received."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from bench_common.job_kind import TAG, Job


class Dice(Job, Struct, frozen=True, forbid_unknown_fields=True, tag_field=TAG, tag="dice"):
    """Throws `count` dice of so many `sides`."""

    uses_engine = False

    count: Annotated[int, Meta(ge=1, le=100)] = 2
    sides: Annotated[int, Meta(ge=2, le=1000)] = 6
