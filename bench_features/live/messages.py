"""What the master and the process of its live page send to each other, over sockets that keep messages whole."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import msgspec

ASK_INTERVAL_S: Final = 1.0
"""How often the page's process asks for a snapshot while somebody looks."""
LEAST_INTERVAL_S: Final = 0.9
"""The master ignores what it is asked sooner."""
NICENESS: Final = 10
"""The priority of the page's process: everything else on the machine runs first."""
MAX_MESSAGE: Final = 128 * 1024
"""Bytes of one message."""


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """The first message to the page's process."""

    token: str
    """The secret of the printed address."""
    cookie: str
    """The name of the cookie that a reader gets for it."""
    host: str
    """The IP address at which the process listens."""
    control: bool
    """Whether readers may stop the run."""
    version: str
    light: str
    """The page's colours on a light ground, as declarations of CSS."""
    dark: str
    """The same on a dark ground."""


class Plan(msgspec.Struct, frozen=True, tag=True):
    """What does not change during a run."""

    body: dict[str, Any]
    """See `bench_features.live.snapshot.plan_message`."""


class State(msgspec.Struct, frozen=True, tag=True):
    """The run at one instant."""

    body: dict[str, Any]
    """See `bench_features.live.snapshot.snapshot_message`."""
    stats: str = ""
    """The stats file that is being written, for the process alone; empty before there is one."""
    margin: float | None = None
    """How large a difference counts; None: the default."""


class Ended(msgspec.Struct, frozen=True, tag=True):
    """The run is over; nothing follows."""

    status: str
    """``complete``, ``incomplete``, ``interrupted`` or ``refused``."""
    line: str
    """How it ended, in one line."""
    reasons: list[str]
    """Why it is not complete."""
    answer: str = ""
    """The sentence at the top of its report; empty where nobody looked."""


class Ask(msgspec.Struct, frozen=True, tag=True):
    """Somebody looks: send a snapshot."""

    plan: bool = False


class ViewerCount(msgspec.Struct, frozen=True, tag=True):
    """The number of viewers has changed."""

    viewers: int
    """How many there are now."""


class StopRun(msgspec.Struct, frozen=True, tag=True):
    """A reader has asked, and confirmed, to stop the run."""

    who: str
    """The reader: the address of the browser, and the number of its session."""


ToPage: TypeAlias = Welcome | Plan | State | Ended
ToMaster: TypeAlias = Ask | ViewerCount | StopRun

encode: Final = msgspec.msgpack.Encoder().encode
to_page: Final = msgspec.msgpack.Decoder(ToPage).decode
to_master: Final = msgspec.msgpack.Decoder(ToMaster).decode
