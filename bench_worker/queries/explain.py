"""`bench-worker --explain FILE`: trace a few jobs of each treatment, and print where their time goes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from msgspec import Struct

from bench_common.options import Option

FLAG = "--explain"
HELP = "trace a few jobs of each treatment of --explain-plan, and print where their time goes"


class Options(Struct, frozen=True, kw_only=True):
    """The arguments of this query."""

    explain_plan: Annotated[
        Path | None, Option("--explain-plan FILE", "with --explain: the treatments, as bench-master writes them")
    ] = None
    allow_swapoff: bool
    """Whether swap may be switched off."""
    allow_cold: bool
    """Whether the page cache may be dropped, and images be removed."""
    allow_host_mounts: bool
    """Whether containers may use what is somebody else's on this host."""
    allow_host_settings: tuple[str, ...]
    """Settings of the kernel that may be changed."""


def run(options: Options) -> Iterable[dict[str, Any]]:
    """Yield an object for each treatment."""
    import msgspec

    from bench_common.errors import UsageError
    from bench_common.messages import WORK, DefineTreatment
    from bench_worker.explain.traced_trial import trace_all
    from bench_worker.pipe_channel import RunContext

    if options.explain_plan is None:
        raise UsageError("--explain: needs --explain-plan FILE")
    try:
        frames = msgspec.msgpack.decode(options.explain_plan.read_bytes(), type=list[bytes])
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"--explain-plan {options.explain_plan}: cannot be read: {error}") from error
    messages = [WORK.decode(frame) for frame in frames]
    allowed = partial(
        RunContext,
        allow_host_mounts=True,  # the plan is this user's own
        allow_foreign=options.allow_host_mounts,
        allow_native=True,
        allow_swapoff=options.allow_swapoff,
        allow_cold=options.allow_cold,
        allow_host_settings=options.allow_host_settings,
    )
    yield from trace_all([one.treatment for one in messages if isinstance(one, DefineTreatment)], allowed)
