"""The colours of charts: one hue for each engine for ever, in two shades that can be read on their ground.

An engine names its hue among its traits, so that it has the same colour in every chart of every run. An engine that
names none gets one of the spare hues, by its name. Colour is never alone: shape, dash or a label say the same.
A page takes the colours from CSS variables; a chart for papers has them as literals.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias
from zlib import crc32

from bench_common.engine_traits import engine_traits

Theme: TypeAlias = Literal["page", "paper"]
"""``page``: colours are CSS variables; ``paper``: literals of the light ground."""


class Shades(NamedTuple):
    """A colour on each ground."""

    light: str
    dark: str


INKS: Final = {"ink": Shades("#1c2126", "#e6e9ed"), "muted": Shades("#57606a", "#9aa5b1")}
"""Colours of text and of marks that state no difference."""
RULES: Final = {"grid": Shades("#dfe3e8", "#2c333b"), "ground": Shades("#ffffff", "#14181d")}
"""Colours without a meaning."""
HUES: Final = {
    "blue": Shades("#0b5c8a", "#6cb8e6"),
    "vermilion": Shades("#b4480f", "#f0945f"),
    "purple": Shades("#8a3b8f", "#d69adb"),
    "green": Shades("#0b6e4f", "#4fc49a"),
    "ochre": Shades("#7d5e00", "#d9b23f"),
    "rose": Shades("#b02a5b", "#f28cb1"),
    "teal": Shades("#00686f", "#4cc3cc"),
    "indigo": Shades("#4a4bb0", "#a3a5f5"),
    "brown": Shades("#7a4a2a", "#cfa283"),
    "olive": Shades("#55690f", "#aec356"),
    "slate": Shades("#4d5b6b", "#a5b4c4"),
    "plum": Shades("#5e2b97", "#c3a6f2"),
    "fern": Shades("#2f6b1f", "#8ccf6f"),
}
SPARE_HUES: Final = ("slate", "plum", "fern")
"""Hues of engines that name none."""

_COLOURS: Final = INKS | RULES | HUES


def engine_hue(engine: str) -> str:
    """Return the hue of an engine, the same in every chart."""
    named = engine_traits(engine).hue
    return named if named in HUES else SPARE_HUES[(crc32(engine.encode("utf-8", "replace")) >> 8) % len(SPARE_HUES)]


def colour(name: str, theme: Theme) -> str:
    """Return a colour as the value of an SVG attribute."""
    return f"var(--{name})" if theme == "page" else _COLOURS[name].light


def css_variables(ground: Literal["light", "dark"]) -> str:
    """Return the declarations of all colours on a ground, for a rule of a style sheet."""
    return "".join(f"--{name}:{getattr(shades, ground)};" for name, shades in _COLOURS.items())
