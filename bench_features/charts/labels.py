"""Names at the ends of lines, and keys to marks.

A name at its line needs no key. Where there is no room for it, on a narrow screen say, a key above the panels has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from bench_common.safe_text import one_line
from bench_features.charts.layout import GREY, Panel, Style
from bench_features.charts.picture import LINE_HEIGHT, Frame, Picture, Point, text_width, wrap_text

_SIZE: Final = 11.0
_STEP: Final = 13.0
_MOST_ROOM: Final = 170.0


class EndLabel(NamedTuple):
    """A name that belongs to the end of a line."""

    y: float
    text: str
    hue: str


def room_for_labels(picture: Picture, panels: Sequence[Panel], height: float, *, lines: bool = False) -> float:
    """Return the width that names at the right of panels take; 0 if they do not fit: then the key is drawn."""
    names = [panel.names for panel in panels]
    if picture.is_narrow or max(map(len, names)) * _STEP > height + _STEP:
        draw_key(picture, [style for panel in panels for style in panel.styles.values()], lines=lines)
        return 0.0
    return min(max(text_width(name, _SIZE) for own in names for name in own) + 16.0, _MOST_ROOM)


def draw_end_labels(picture: Picture, frame: Frame, labels: Iterable[EndLabel]) -> None:
    """Write names at the right of a frame, each as near to the end of its line as the others allow."""
    ordered = sorted(labels)
    places: list[float] = []
    for label in ordered:
        places.append(max(label.y, places[-1] + _STEP if places else frame.top))
    lowest = frame.bottom
    for place in reversed(range(len(places))):
        places[place] = min(places[place], lowest)
        lowest = places[place] - _STEP
    for label, y in zip(ordered, places, strict=True):
        room = picture.width - frame.right - 10
        picture.text(frame.right + 8, y + 4, label.text, ink=label.hue, size=_SIZE, room=room)


class KeyEntry(NamedTuple):
    """A mark and what it stands for."""

    words: str
    ink: str
    mark: float
    """How wide the mark is."""
    draw: Callable[[float, float], None]
    """Draws the mark from this x on, with this y as the baseline of the words."""


def draw_entries(picture: Picture, entries: Iterable[KeyEntry]) -> None:
    """Write marks and what they stand for, in as many lines as it takes."""
    x, top = 8.0, picture.extend(LINE_HEIGHT + 6)
    for entry in entries:
        room = picture.width - 16 - entry.mark
        width = min(text_width(entry.words), room) + entry.mark + 20
        if x > 8 and x + width > picture.width - 8:  # noqa: PLR2004  the left edge
            x, top = 8.0, picture.extend(LINE_HEIGHT)
        entry.draw(x, top + 14)
        picture.text(x + entry.mark, top + 14, entry.words, ink=entry.ink, room=room)
        x += width


def draw_key(picture: Picture, styles: Iterable[Style], *, lines: bool = False) -> None:
    """Write what each shape, dash and colour stands for; grey has no entry."""
    mark = 30.0 if lines else 12.0

    def entry(style: Style) -> KeyEntry:
        def draw(x: float, y: float) -> None:
            if lines:
                picture.line([(x, y - 4), (x + 24, y - 4)], style.hue, width=2, dash=style.dash)
            picture.mark(x + mark / 2 - 3, y - 4, style.shape, style.hue)

        return KeyEntry(style.label, style.hue, mark, draw)

    draw_entries(picture, [entry(style) for style in dict.fromkeys(styles) if style.hue != GREY])


class Mark(NamedTuple):
    """A value on a line, in pixels."""

    x: float
    y: float
    bar: tuple[float, float] | None
    """The ends of its spread."""
    tip: str
    dash: str = ""
    """That of the bar."""
    specks: Sequence[Point] = ()
    """The single values."""


def draw_marks(picture: Picture, style: Style, marks: Sequence[Mark]) -> None:
    """Draw values with their spreads."""
    for mark in marks:
        if mark.bar is not None:
            picture.line([(mark.x, end) for end in mark.bar], style.hue, width=1.5, dash=mark.dash)
        picture.specks(mark.specks, style.hue, size=3.2, opacity=0.7)
        picture.mark(mark.x, mark.y, style.shape, style.hue, tip=mark.tip)


def draw_row_words(picture: Picture, frame: Frame, y: float, label: str, numbers: str, *, size: float = 12.0) -> None:
    """Write what a row is called at its left and its numbers at its right; on a narrow screen both above it.

    A label has two lines if one is too short: labels may differ at their ends alone.
    """
    if picture.is_narrow:
        # The lines behind it would cross it out.
        picture.rect(0, y - size - 11, picture.width, size + 2, "ground")
        picture.text(8, y - 12, f"{numbers} {label}", size=11.5)
        return
    room = frame.left - 14
    shown = one_line(label)
    lines = [shown] if text_width(shown) <= room else wrap_text(shown, room)
    lines = [lines[0], " ".join(lines[1:])] if lines[1:] else lines
    for line, below in zip(lines, (4,) if len(lines) == 1 else (-2, 13), strict=True):
        picture.text(frame.left - 10, y + below, line, anchor="end", room=room)
    picture.text(frame.right + 10, y + 4, numbers, size=size, room=picture.width - frame.right - 12)
