"""A picture: SVG of our own, in which every text is measured, so that none leaves the picture or covers another.

Widths are those of DejaVu Sans, of the common sans-serif fonts one of the widest: with another font a text is
narrower than its box. All text is hostile input: it is made one printable line and escaped.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias
from xml.sax.saxutils import escape, quoteattr

from bench_common.safe_text import one_line, shorten
from bench_master.reports.palette import Theme, colour

Anchor: TypeAlias = Literal["start", "middle", "end"]
Point: TypeAlias = tuple[float, float]

FONT: Final = "DejaVu Sans, Verdana, Liberation Sans, Arial, sans-serif"
TEXT_SIZE: Final = 12.0
LINE_HEIGHT: Final = 16.0
BOLD: Final = 1.27
"""How much wider bold letters are at most."""
LONGEST_TIP: Final = 300
"""Characters of the words of one mark: there are many marks, and names of a run may be long."""
LONGEST_WORDS: Final = 8_000
"""Characters of a caption, and of the data in words."""
NARROW: Final = 500
"""A picture of fewer pixels is for a telephone."""

_WIDTHS: Final = {
    letter: width
    for width, letters in {
        28: "'ijl", 30: "IJ", 32: " ,.", 34: "/:;\\|", 36: "f-", 40: "()[]t!", 42: "r", 46: '"',
        50: "*_`\u2020\u2013",
        53: "sz?", 56: "cL", 58: "Fk", 60: "vxyP", 63: "TYaoeESbdghnpqu", 64: "$0123456789{}\u00b5", 68: "KAV",
        69: "BRXZ", 73: "CU", 78: "HNDG&", 79: "OQ", 82: "w", 86: "#+<=>^~\u00d7\u00f7\u2192\u2264\u2265M", 97: "%m",
        100: "W@\u2026",
    }.items()
    for letter in letters
}  # fmt: skip
"""Hundredths of the font's size, rounded up to few classes."""
_UNSEEN: Final = 0.7
_OTHER: Final = 100
_WIDE: Final = 105


def text_width(text: str, size: float = TEXT_SIZE, *, bold: bool = False) -> float:
    """Return how wide a text is at most, in pixels."""
    return sum(map(_letter_width, text)) * size / 100 * (BOLD if bold else 1.0)


def _letter_width(letter: str) -> int:
    if letter in _WIDTHS or unicodedata.combining(letter):
        return _WIDTHS.get(letter, 0)
    return _WIDE if unicodedata.east_asian_width(letter) in "WF" or ord(letter) > 0xFFFF else _OTHER  # noqa: PLR2004


def cut_text(text: str, room: float, size: float = TEXT_SIZE, *, bold: bool = False) -> str:
    """Return a text that is at most `room` pixels wide; what is left out at its end is an ellipsis."""
    if text_width(text, size, bold=bold) <= room:
        return text
    # Of a very long text no more is looked at than could fit.
    text = text[: int(room / (size * 0.2)) + 1]
    while text and text_width(text + "\u2026", size, bold=bold) > room:
        text = text[:-1]
    return text.rstrip() + "\u2026" if text else ""


def wrap_text(text: str, room: float, size: float = TEXT_SIZE, *, lines: int = 40) -> list[str]:
    """Return a text in lines that are at most `room` pixels wide; a longer word is cut."""
    found, line = [], ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if text_width(longer, size) <= room:
            line = longer
            continue
        if line:
            found.append(line)
        line = cut_text(word, room, size)
        if len(found) >= lines:
            return found
    return [*found, line] if line else found


class Box(NamedTuple):
    """The box of a text, in pixels."""

    x0: float
    y0: float
    x1: float
    y1: float
    text: str

    def covers(self, other: Box) -> bool:
        """Return whether two boxes overlap."""
        return self.x0 < other.x1 and other.x0 < self.x1 and self.y0 < other.y1 and other.y0 < self.y1


class Frame(NamedTuple):
    """The rectangle that the data of a panel are drawn in; `bottom` is the larger y."""

    left: float
    right: float
    top: float
    bottom: float


class Picture:
    """Marks and texts of one chart at one width. `height` grows with `extend`; `title` and `caption` are text."""

    def __init__(self, name: str, width: int, theme: Theme = "page") -> None:
        self.name = name
        self.width = width
        self.theme: Theme = theme
        self.height = 0.0
        self.title = ""
        self.caption = ""
        self.description = ""
        """The data in words, for readers who see no picture; the caption if empty."""
        self.boxes: list[Box] = []
        self._items: list[str] = []

    @property
    def is_narrow(self) -> bool:
        """Return whether it is for a narrow screen."""
        return self.width < NARROW

    def extend(self, height: float) -> float:
        """Make room for so many pixels more at the bottom; return where they begin."""
        top, self.height = self.height, self.height + height
        return top

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: Anchor = "start",
        ink: str = "ink",
        size: float = TEXT_SIZE,
        bold: bool = False,
        room: float | None = None,
        unless_covered: bool = False,
        halo: bool = False,
    ) -> bool:
        """Write a text with its baseline at `y`; return whether it was written.

        It is moved so that it stays in the picture, and cut if it is wider than `room`. With `unless_covered` it is
        left out where it would cover another text. With `halo` a line behind it does not cross it out.
        """
        shown = cut_text(one_line(text), min(self.width - 2, room or self.width), size, bold=bold)
        width = text_width(shown, size, bold=bold)
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        left = min(max(left, 1.0), self.width - 1 - width)
        box = Box(left, y - size * 0.8, left + width, y + size * 0.25, shown)
        if not shown or (unless_covered and any(box.covers(other) for other in self.boxes)):
            return False
        self.boxes.append(box)
        # Anchored where it was asked for: with a narrower font it is still at its mark.
        at = {"start": left, "middle": left + width / 2, "end": left + width}[anchor]
        extra = "" if anchor == "start" else f' text-anchor="{anchor}"'
        extra += "" if size == TEXT_SIZE else f' font-size="{size:g}"'
        extra += ' font-weight="bold"' if bold else ""
        extra += f' stroke="{self._colour("ground")}" stroke-width="3" paint-order="stroke"' if halo else ""
        self._items.append(f'<text x="{at:.1f}" y="{y:.1f}" fill="{self._colour(ink)}"{extra}>{escape(shown)}</text>')
        return True

    def line(
        self, points: Iterable[Point], ink: str = "ink", *, width: float = 1.0, dash: str = "", tip: str = ""
    ) -> None:
        """Draw a line through points."""
        self._stroke(_path(points), ink, width, dash=dash, tip=tip)

    def steps(self, points: Sequence[Point], ink: str, *, width: float = 1.0, dash: str = "", tip: str = "") -> None:
        """Draw stairs through points: across, then up. Steps that are too small to be seen are drawn as one."""
        (x, y), parts = points[0], [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
        for place, (to_x, to_y) in enumerate(points[1:], 2):
            if abs(to_x - x) < _UNSEEN and abs(to_y - y) < _UNSEEN and place < len(points):
                continue
            parts.append(f"H{to_x:.1f}V{to_y:.1f}")
            x, y = to_x, to_y
        self._stroke("".join(parts), ink, width, dash=dash, tip=tip)

    def specks(self, points: Iterable[Point], ink: str, *, size: float = 2.6, opacity: float = 0.5) -> None:
        """Draw many small dots as one mark."""
        path = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
        self._stroke(path, ink, size, more=f' stroke-linecap="round" opacity="{opacity:g}"')

    def cross(self, x: float, y: float, ink: str, *, size: float = 4.0, tip: str = "") -> None:
        """Draw a cross: something that failed."""
        across = f"l{2 * size:.1f} {2 * size:.1f}m0 {-2 * size:.1f}l{-2 * size:.1f} {2 * size:.1f}"
        self._stroke(f"M{x - size:.1f} {y - size:.1f}{across}", ink, 2.0, tip=tip)

    def area(self, points: Iterable[Point], ink: str, *, opacity: float = 1.0, tip: str = "") -> None:
        """Fill the area within points."""
        self._add(f'path d="{_path(points)}Z" fill="{self._colour(ink)}" fill-opacity="{opacity:.3g}"', tip)

    def rect(
        self, x: float, y: float, width: float, height: float, ink: str, *, opacity: float = 1.0, tip: str = ""
    ) -> None:
        """Fill a rectangle, which is at least half of a pixel wide and high."""
        self._add(
            f'rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{max(height, 0.5):.1f}" '
            f'fill="{self._colour(ink)}" fill-opacity="{opacity:.3g}"',
            tip,
        )

    def mark(
        self, x: float, y: float, shape: int, ink: str, *, size: float = 4.0, hollow: bool = False, tip: str = ""
    ) -> None:
        """Draw one of the `SHAPES` around a point."""
        path, fill = _shape(SHAPES[shape % len(SHAPES)], x, y, size), self._colour("ground" if hollow else ink)
        self._add(f'path d="{path}" fill="{fill}" stroke="{self._colour(ink)}" stroke-width="1.5"', tip)

    def svg(self, *, standalone: bool = False) -> str:
        """Return the picture as SVG. If `standalone`, title and caption are written in it, as a file of its own."""
        body, height = self._with_caption() if standalone else (self._items, self.height)
        key = quoteattr(f"{self.name}-{self.width}")[1:-1]
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height:.0f}" '
            f'width="{self.width}" height="{height:.0f}" role="img" aria-labelledby="{key}-t {key}-d" '
            f'font-family="{FONT}" font-size="{TEXT_SIZE:g}">'
        )
        title = escape(shorten(one_line(self.title), LONGEST_TIP))
        description = escape(shorten(one_line(self.description or self.caption), LONGEST_WORDS))
        return (
            f'{head}<title id="{key}-t">{title}</title><desc id="{key}-d">{description}</desc>{"".join(body)}</svg>\n'
        )

    def _with_caption(self) -> tuple[list[str], float]:
        head, tail = Picture("", self.width, self.theme), Picture("", self.width, self.theme)
        head.text(8, 18, self.title, size=14, bold=True, room=self.width - 16)
        lines = wrap_text(shorten(one_line(self.caption), LONGEST_WORDS), self.width - 16, 11)
        for place, line in enumerate(lines):
            tail.text(8, 14 + place * 15, line, ink="muted", size=11)
        top, below = 28.0, 28.0 + self.height
        height = below + 15 * len(lines) + 12
        return [
            f'<rect width="{self.width}" height="{height:.0f}" fill="{self._colour("ground")}"/>',
            *head._items,
            f'<g transform="translate(0 {top:g})">',
            *self._items,
            f'</g><g transform="translate(0 {below:g})">',
            *tail._items,
            "</g>",
        ], height

    def _colour(self, name: str) -> str:
        return colour(name, self.theme)

    def _stroke(self, path: str, ink: str, width: float, *, dash: str = "", more: str = "", tip: str = "") -> None:
        if path:
            more += f' stroke-dasharray="{dash}"' if dash else ""
            self._add(f'path d="{path}" fill="none" stroke="{self._colour(ink)}" stroke-width="{width:g}"{more}', tip)

    def _add(self, element: str, tip: str) -> None:
        words = f"<title>{escape(shorten(one_line(tip), LONGEST_TIP))}</title></{element.partition(' ')[0]}>"
        self._items.append(f"<{element}>{words}" if tip else f"<{element}/>")


SHAPES: Final[Sequence[str]] = ("circle", "square", "diamond", "triangle", "tent", "bar")
DASHES: Final = ("", "6 3", "2 2", "9 3 2 3", "12 4", "4 6")


def _path(points: Iterable[Point]) -> str:
    """Return a path through points, in few letters where it goes straight across or up."""
    parts: list[str] = []
    last = ("", "")
    for x, y in points:
        here = (f"{x:.1f}", f"{y:.1f}")
        if not parts:
            parts.append(f"M{here[0]} {here[1]}")
        elif here != last:
            letter = "V" if here[0] == last[0] else "H" if here[1] == last[1] else "L"
            if letter == "H" and parts[-1][0] == "H":
                parts.pop()
            parts.append({"V": f"V{here[1]}", "H": f"H{here[0]}", "L": f"L{here[0]} {here[1]}"}[letter])
        last = here
    return "".join(parts)


def _shape(shape: str, x: float, y: float, size: float) -> str:
    if shape == "circle":
        return (
            f"M{x - size:.1f} {y:.1f}a{size:g} {size:g} 0 1 0 {2 * size:g} 0a{size:g} {size:g} 0 1 0 {-2 * size:g} 0Z"
        )
    half = size * 0.9
    corners = {
        "square": ((-half, -half), (half, -half), (half, half), (-half, half)),
        "diamond": ((0, -size), (size, 0), (0, size), (-size, 0)),
        "triangle": ((0, -size), (size, half), (-size, half)),
        "tent": ((0, size), (size, -half), (-size, -half)),
        "bar": ((-size / 2, -size), (size / 2, -size), (size / 2, size), (-size / 2, size)),
    }[shape]
    return _path((x + dx, y + dy) for dx, dy in corners) + "Z"
