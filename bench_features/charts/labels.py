"""Names at the ends of lines, keys to marks, and which of many treatments have a colour.

A name at its line needs no key. Where there is no room for it, on a narrow screen say, a key above the panels has it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from bench_features.charts.layout import ChartSource, Style
from bench_features.charts.picture import LINE_HEIGHT, Frame, Picture, text_width

MOST_LINES: Final = 12
"""Lines of a panel that can be told apart; of more the first and the last keep their colour, the others are grey."""
GREY: Final = "muted"
_SIZE: Final = 11.0
_STEP: Final = 13.0
_MOST_ROOM: Final = 170.0


class EndLabel(NamedTuple):
    """A name that belongs to the end of a line."""

    y: float
    text: str
    hue: str


def panel_styles(source: ChartSource, treatments: Collection[int]) -> dict[int, Style]:
    """Return how each treatment of a panel is drawn: in its colour, or grey where there are too many."""
    styles = {place: source.styles[place] for place in treatments}
    names = list(dict.fromkeys(style.label for style in styles.values()))
    if len(names) <= MOST_LINES:
        return styles
    kept = (names[0], names[-1])
    return {
        place: style if style.label in kept else Style(style.label, GREY, style.shape, style.dash)
        for place, style in styles.items()
    }


def grey_first(treatments: Iterable[int], styles: dict[int, Style]) -> list[int]:
    """Return treatments in the order in which they are drawn: what has a colour is in front of what is grey."""
    return sorted(treatments, key=lambda place: styles[place].hue != GREY)


def grey_words(panels: Iterable[dict[int, Style]]) -> str:
    """Return a sentence for a caption on the treatments without a colour; nothing if all have theirs."""
    grey = any(style.hue == GREY for styles in panels for style in styles.values())
    return (
        f" Of more than {MOST_LINES} lines the first and the last have a colour; point at a grey one." if grey else ""
    )


def room_for_labels(picture: Picture, panels: Iterable[Sequence[str]], height: float) -> float:
    """Return the width that names at the right of panels take; 0 if they do not fit, so that a key is needed."""
    most = 0.0
    for names in panels:
        if picture.is_narrow or len(names) * _STEP > height + _STEP:
            return 0.0
        most = max([most, *(text_width(name, _SIZE) for name in names)])
    return min(most + 16.0, _MOST_ROOM)


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


def right_margin(room: float, narrow: float = 10.0) -> float:
    """Return the margin at the right of frames whose labels need so much room; `narrow` if there are none."""
    return room or narrow


def draw_key(picture: Picture, styles: Iterable[Style], *, lines: bool = False) -> None:
    """Write what each shape, dash and colour stands for, in as many lines as it takes; grey has no entry."""
    shown = [style for style in dict.fromkeys(styles) if style.hue != GREY]
    x, top = 8.0, picture.extend(LINE_HEIGHT + 6)
    for style in shown:
        mark = 30.0 if lines else 12.0
        room = picture.width - 16 - mark
        width = min(text_width(style.label), room) + mark + 20
        if x > 8 and x + width > picture.width - 8:  # noqa: PLR2004
            x, top = 8.0, picture.extend(LINE_HEIGHT)
        y = top + 14
        if lines:
            picture.line([(x, y - 4), (x + 24, y - 4)], style.hue, width=2, dash=style.dash)
        picture.mark(x + mark / 2 - 3, y - 4, style.shape, style.hue)
        picture.text(x + mark, y, style.label, ink=style.hue, room=room)
        x += width
