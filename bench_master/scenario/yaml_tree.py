"""Makes a tree of a scenario's text, from YAML's events, and collects everything that is wrong with the YAML itself.

PyYAML's own composer is not used: it keeps the last of two equal keys in silence, recurses as deep as the text does,
and lets ten lines of aliases grow to gigabytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import yaml

from bench_common.errors import Problem
from bench_master.scenario.tree import Entries, Items, Leaf, Node, Place, quoted

MAX_DEPTH: Final = 24
MAX_NODES: Final = 50_000
"""How large a scenario may be once its aliases are followed; the largest useful ones have a few hundred nodes."""


class _Mark(Protocol):
    """A position in the text, from 0, as either of PyYAML's scanners gives it."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


class _Refused(Exception):
    """The text cannot be made sense of beyond this point."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


class _Extent(NamedTuple):
    """How large a node is with every alias followed: nodes in all, and levels."""

    weight: int = 1
    height: int = 1


class Composer:
    """Makes one tree of one text. `at` is the place of everything in it where the text has no lines of its own.

    `kind` is what messages call the text: a scenario, or another file that is written alike.
    """

    def __init__(self, text: str, file: str, at: Place | None = None, *, kind: str = "a scenario") -> None:
        self._kind = kind
        self._text = text
        self._file = file
        self._at = at
        self._anchors: dict[str, tuple[Node, _Extent] | None] = {}
        self.problems: list[Problem] = []

    def compose(self) -> Node | None:
        """Return the root, or None where the text is unusable or empty; `problems` then says why."""
        try:
            self._events = yaml.parse(self._text, Loader=yaml.SafeLoader)
            next(self._events)
            opening = next(self._events)
            if isinstance(opening, yaml.StreamEndEvent):
                return None
            root, _ = self._node(next(self._events), depth=0)
            next(self._events)
            after = next(self._events)
            if not isinstance(after, yaml.StreamEndEvent):
                self._complain(
                    after, f"a second document starts here; {self._kind} is one document: delete the `---`"
                )
        except _Refused as refused:
            self.problems.append(refused.problem)
            return None
        except yaml.MarkedYAMLError as error:
            self.problems.append(self._syntax_problem(error))
            return None
        except yaml.reader.ReaderError as error:
            self.problems.append(self._character_problem(error))
            return None
        else:
            return root

    def _node(self, event: yaml.Event, depth: int) -> tuple[Node, _Extent]:
        """Return the node that starts with `event`, and its extent."""
        place = self._place(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            aliased = self._alias(event, place)
            self._check_depth(depth + aliased[1].height, place)
            return aliased
        self._check_depth(depth, place)
        assert isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent))
        if event.tag is not None:
            self.problems.append(place.problem(f"tags have no meaning in {self._kind}: remove {event.tag!r}"))
        anchor = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        node: Node
        extent: _Extent
        if isinstance(event, yaml.ScalarEvent):
            node, extent = Leaf(place, self._whole(event.value, place), plain=event.style is None), _Extent()
        elif isinstance(event, yaml.SequenceStartEvent):
            node, extent = self._items(place, depth)
        else:
            node, extent = self._entries(place, depth)
        if anchor is not None:
            self._anchors[anchor] = node, extent
        return node, extent

    def _whole(self, text: str, place: Place) -> str:
        """Return a text with each pair of escapes as the one character that JSON means by it; half of one is none."""
        try:
            text.encode()
        except UnicodeEncodeError:
            pass
        else:
            return text
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self.problems.append(place.problem(f"{text!a} has half of a character in it: remove it"))
            return ""

    def _alias(self, event: yaml.AliasEvent, place: Place) -> tuple[Node, _Extent]:
        if event.anchor not in self._anchors:
            raise _Refused(place.problem(f"alias *{event.anchor} has no anchor &{event.anchor} before it"))
        anchored = self._anchors[event.anchor]
        if anchored is None:
            raise _Refused(place.problem(f"alias *{event.anchor} stands inside of its own anchor"))
        return anchored

    def _items(self, place: Place, depth: int) -> tuple[Items, _Extent]:
        node, extent = Items(place), _Extent()
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            item, size = self._node(event, depth + 1)
            extent = self._grown(extent, size, place)
            node.items.append(item)
        return node, extent

    def _entries(self, place: Place, depth: int) -> tuple[Entries, _Extent]:
        node, extent = Entries(place), _Extent()
        merged: list[Entries] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key, _ = self._node(event, depth + 1)
            value, size = self._node(next(self._events), depth + 1)
            extent = self._grown(extent, size, place)
            if not isinstance(key, Leaf):
                self.problems.append(key.place.problem(f"a key must be a word, not {quoted(key)}"))
            elif key.plain and key.text == "<<":
                merged += self._merge_sources(value)
            elif key.text in node.values:
                first = node.key_places[key.text]
                where = f" (first on line {first.line})" if first.line else ""
                self.problems.append(key.place.problem(f"key '{key.text}' is given twice{where}: remove one"))
            else:
                node.put(key.text, value, key.place)
        for source in merged:
            for name in source.values:
                if name not in node.values:
                    node.put(name, source.values[name], source.key_places[name])
        return node, extent

    def _merge_sources(self, value: Node) -> list[Entries]:
        sources = value.items if isinstance(value, Items) else [value]
        usable = [source for source in sources if isinstance(source, Entries)]
        if len(usable) < len(sources):
            self.problems.append(
                value.place.problem("`<<` merges mappings: write an alias of one, or a list of them")
            )
        return usable

    def _grown(self, extent: _Extent, by: _Extent, place: Place) -> _Extent:
        weight = extent.weight + by.weight
        if weight > MAX_NODES:
            raise _Refused(place.problem(f"more than {MAX_NODES} values (aliases followed); write less of it"))
        return _Extent(weight, max(extent.height, by.height + 1))

    def _check_depth(self, depth: int, place: Place) -> None:
        if depth > MAX_DEPTH:
            raise _Refused(place.problem(f"nested deeper than {MAX_DEPTH} levels; {self._kind} never needs that"))

    def _place(self, mark: _Mark | None) -> Place:
        if self._at is not None or mark is None:
            return self._at or Place(self._file, 1, 1)
        return Place(self._file, mark.line + 1, mark.column + 1)

    def _complain(self, event: yaml.Event, message: str) -> None:
        self.problems.append(self._place(event.start_mark).problem(message))

    def _syntax_problem(self, error: yaml.MarkedYAMLError) -> Problem:
        mark = error.problem_mark or error.context_mark
        place = self._place(mark)
        said = error.problem or "not YAML"
        if "'\\t'" in said:
            return place.problem("a tab where YAML wants spaces: indent with spaces")
        if "mapping values are not allowed" in said:
            said += " (a second ': ' on one line: indent, or quote the value)"
        context = f" {error.context}" if error.context else ""
        opening = error.context_mark
        if opening is not None and opening is not mark and ("flow" in context or "quoted" in context):
            said += f"; it opens on line {opening.line + 1}, column {opening.column + 1}"
        return place.problem(f"YAML syntax:{context and context + ','} {said}")

    def _character_problem(self, error: yaml.reader.ReaderError) -> Problem:
        before = self._text[: error.position]
        line = before.count("\n") + 1
        place = self._at or Place(self._file, line, error.position - (before.rfind("\n") + 1) + 1)
        return place.problem(f"character U+{error.character:04X} is not allowed in YAML: remove it")
