"""How text for people is shown: switches of several commands."""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class TerminalOptions(Struct, frozen=True):
    """How text for people is shown on a terminal."""

    color: str = "auto"
    """One of `bench_master.terminal.COLOR_MODES`."""
    no_pager: bool = False


DEFAULT_TERMINAL: Final = TerminalOptions()
