"""Finds a scenario's file and parses its YAML into text, lists and mappings, each with its place.

Scalars have no type yet: the shape that reads a value decides what ``no``, ``010`` or ``12:30`` means, so YAML 1.1
never guesses. PyYAML's own composer is not used: it silently keeps the last of two equal keys, recurses as deep as
the text does, and lets ten lines of aliases grow to gigabytes.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple, Protocol, TypeAlias

import yaml
from msgspec import Struct, field

from bench_common.errors import Problem, ScenarioError, UsageError, did_you_mean
from bench_common.files import STDIN, open_regular
from bench_common.shipped import shipped_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable


class SourceLocation(Struct, frozen=True):
    """Where something was written."""

    file: str
    """The file, or an argument of the command line such as ``--set repeats=9``."""
    line: int = 0
    """From 1; 0 in an argument."""
    column: int = 0
    """From 1."""

    def problem(self, message: str) -> Problem:
        """Return `message` as a problem at this place."""
        return Problem(self.file, self.line, self.column, message)


class ScalarNode(Struct, eq=False):
    """A scalar."""

    place: SourceLocation
    text: str
    plain: bool = True
    """Whether it was written without quotes."""

    @property
    def empty(self) -> bool:
        """Whether it is empty or YAML's null."""
        return self.plain and self.text in {"", "~", "null"}


class ListNode(Struct, eq=False):
    """A list."""

    place: SourceLocation
    items: list[Node] = field(default_factory=list)


class MappingNode(Struct, eq=False):
    """A mapping: values by key, and the place of each key."""

    place: SourceLocation
    values: dict[str, Node] = field(default_factory=dict)
    key_places: dict[str, SourceLocation] = field(default_factory=dict)

    def put(self, key: str, value: Node, place: SourceLocation) -> None:
        """Set a key and its place."""
        self.values[key] = value
        self.key_places[key] = place


Node: TypeAlias = ScalarNode | ListNode | MappingNode


def quote_node(node: Node) -> str:
    """Return a node for an error message, shortened to a readable length."""
    if isinstance(node, ListNode):
        return "a list" if node.items else "an empty list"
    if isinstance(node, MappingNode):
        return "a mapping"
    if node.plain and not node.text:
        return "nothing"
    text = node.text if len(node.text) <= 60 else node.text[:57] + "..."  # noqa: PLR2004  what fits on a line
    return repr(text)


MAX_DEPTH: Final = 24
MAX_NODES: Final = 50_000
"""The largest scenario, aliases expanded; useful ones have a few hundred nodes."""


class _Mark(Protocol):
    """A position in the text, from 0, as PyYAML's scanners report it."""

    @property
    def line(self) -> int: ...
    @property
    def column(self) -> int: ...


class _ComposeError(Exception):
    """The text cannot be parsed beyond this point."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


class _NodeSize(NamedTuple):
    """The size of a node, aliases expanded."""

    weight: int = 1
    height: int = 1


class TreeComposer:
    """Parses one text into one tree.

    `at` is the place of everything in it if the text has no lines of its own; `kind` is what messages call the text.
    """

    def __init__(self, text: str, file: str, at: SourceLocation | None = None, *, kind: str = "a scenario") -> None:
        self._kind = kind
        self._text = text
        self._file = file
        self._at = at
        self._anchors: dict[str, tuple[Node, _NodeSize] | None] = {}
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
                self._add_problem(
                    after, f"a second document starts here; {self._kind} is a single document: delete the `---`"
                )
        except _ComposeError as refused:
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

    def _node(self, event: yaml.Event, depth: int) -> tuple[Node, _NodeSize]:
        """Return the node that starts with `event`, and its size."""
        place = self._place(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            aliased = self._alias(event, place)
            self._check_depth(depth + aliased[1].height, place)
            return aliased
        self._check_depth(depth, place)
        assert isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent))
        if event.tag is not None:
            self.problems.append(place.problem(f"{self._kind} has no tags: remove {event.tag!r}"))
        anchor = event.anchor
        if anchor is not None:
            self._anchors[anchor] = None
        node: Node
        extent: _NodeSize
        if isinstance(event, yaml.ScalarEvent):
            node, extent = (
                ScalarNode(place, self._join_surrogates(event.value, place), plain=event.style is None),
                _NodeSize(),
            )
        elif isinstance(event, yaml.SequenceStartEvent):
            node, extent = self._items(place, depth)
        else:
            node, extent = self._entries(place, depth)
        if anchor is not None:
            self._anchors[anchor] = node, extent
        return node, extent

    def _join_surrogates(self, text: str, place: SourceLocation) -> str:
        """Return a text with each surrogate pair joined into one character, as in JSON."""
        try:
            text.encode()
        except UnicodeEncodeError:
            pass
        else:
            return text
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self.problems.append(place.problem(f"{text!a} contains half of a surrogate pair: remove it"))
            return ""

    def _alias(self, event: yaml.AliasEvent, place: SourceLocation) -> tuple[Node, _NodeSize]:
        if event.anchor not in self._anchors:
            raise _ComposeError(place.problem(f"alias *{event.anchor} has no anchor &{event.anchor} before it"))
        anchored = self._anchors[event.anchor]
        if anchored is None:
            raise _ComposeError(place.problem(f"alias *{event.anchor} is inside its own anchor"))
        return anchored

    def _items(self, place: SourceLocation, depth: int) -> tuple[ListNode, _NodeSize]:
        node, extent = ListNode(place), _NodeSize()
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            item, size = self._node(event, depth + 1)
            extent = self._grow(extent, size, place)
            node.items.append(item)
        return node, extent

    def _entries(self, place: SourceLocation, depth: int) -> tuple[MappingNode, _NodeSize]:
        node, extent = MappingNode(place), _NodeSize()
        merged: list[MappingNode] = []
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key, _ = self._node(event, depth + 1)
            value, size = self._node(next(self._events), depth + 1)
            extent = self._grow(extent, size, place)
            if not isinstance(key, ScalarNode):
                self.problems.append(key.place.problem(f"a key must be a word, not {quote_node(key)}"))
            elif key.plain and key.text == "<<":
                merged += self._merge_sources(value)
            elif key.text in node.values:
                first = node.key_places[key.text]
                where = f" (first on line {first.line})" if first.line else ""
                self.problems.append(key.place.problem(f"key '{key.text}' appears twice{where}: remove one"))
            else:
                node.put(key.text, value, key.place)
        for source in merged:
            for name in source.values:
                if name not in node.values:
                    node.put(name, source.values[name], source.key_places[name])
        return node, extent

    def _merge_sources(self, value: Node) -> list[MappingNode]:
        sources = value.items if isinstance(value, ListNode) else [value]
        usable = [source for source in sources if isinstance(source, MappingNode)]
        if len(usable) < len(sources):
            self.problems.append(
                value.place.problem("`<<` merges mappings: write an alias of one, or a list of them")
            )
        return usable

    def _grow(self, extent: _NodeSize, by: _NodeSize, place: SourceLocation) -> _NodeSize:
        weight = extent.weight + by.weight
        if weight > MAX_NODES:
            raise _ComposeError(place.problem(f"more than {MAX_NODES} values with aliases expanded: shorten it"))
        return _NodeSize(weight, max(extent.height, by.height + 1))

    def _check_depth(self, depth: int, place: SourceLocation) -> None:
        if depth > MAX_DEPTH:
            raise _ComposeError(place.problem(f"nested deeper than {MAX_DEPTH} levels: flatten it"))

    def _place(self, mark: _Mark | None) -> SourceLocation:
        if self._at is not None or mark is None:
            return self._at or SourceLocation(self._file, 1, 1)
        return SourceLocation(self._file, mark.line + 1, mark.column + 1)

    def _add_problem(self, event: yaml.Event, message: str) -> None:
        self.problems.append(self._place(event.start_mark).problem(message))

    def _syntax_problem(self, error: yaml.MarkedYAMLError) -> Problem:
        mark = error.problem_mark or error.context_mark
        place = self._place(mark)
        problem = error.problem or "not YAML"
        if "'\\t'" in problem:
            return place.problem("a tab for indentation: YAML requires spaces")
        if "mapping values are not allowed" in problem:
            problem += " (a second ': ' on one line: indent it, or quote the value)"
        context = f" {error.context}" if error.context else ""
        opening = error.context_mark
        if opening is not None and opening is not mark and ("flow" in context or "quoted" in context):
            problem += f"; it opens on line {opening.line + 1}, column {opening.column + 1}"
        return place.problem(f"YAML syntax:{context and context + ','} {problem}")

    def _character_problem(self, error: yaml.reader.ReaderError) -> Problem:
        before = self._text[: error.position]
        line = before.count("\n") + 1
        place = self._at or SourceLocation(self._file, line, error.position - (before.rfind("\n") + 1) + 1)
        return place.problem(f"character U+{error.character:04X} is not allowed in YAML: remove it")


MAX_BYTES: Final = 1024**2
_SUFFIX: Final = ".yaml"


class Source(Struct, frozen=True):
    """The text of a scenario, and its path for messages."""

    path: str
    text: str


def builtin_scenarios() -> dict[str, Traversable]:
    """Return the ready-made scenarios by name, such as ``quickstart`` or ``study/sweep``."""
    return dict(sorted(_scenarios_under(shipped_folder("scenarios"), "")))


def _scenarios_under(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.name.startswith(("_", ".")):
            yield from _scenarios_under(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            yield prefix + entry.name.removesuffix(_SUFFIX), entry


def read_source(reference: str) -> Source:
    """Return the text of a file, or of the ready-made scenario of that name; ``-`` is standard input.

    Raises `UsageError` if neither exists, and `ScenarioError` if the file is not UTF-8 text.
    """
    if not reference:
        raise UsageError("'': expected the file or the name of a scenario")
    if reference == STDIN:
        return Source("<stdin>", _text("<stdin>", _read_once(sys.stdin.buffer)))
    path = Path(reference)
    shipped = builtin_scenarios()
    if (path.exists() or path.is_symlink()) and not path.is_dir():
        try:
            with open_regular(path) as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            raise UsageError(
                f"{reference}: cannot read the scenario: {error.strerror} (- reads standard input)"
            ) from error
        return Source(reference, _text(reference, content))
    if reference in shipped:
        found = shipped[reference]
        return Source(str(found), _text(str(found), found.read_bytes()))
    if path.is_dir():
        raise UsageError(f"{reference}: is a directory; name a scenario file in it, or a ready-made scenario")
    neighbours = [str(each) for each in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
    name = reference.removeprefix("scenarios/").removesuffix(_SUFFIX)
    hint = did_you_mean(reference, neighbours) or did_you_mean(name, shipped)
    raise UsageError(f"{reference}: no such file or ready-made scenario{hint}; see bench-master list scenarios")


@lru_cache(maxsize=1)
def _read_once(stream: BinaryIO) -> bytes:
    """Return what a stream has: a command may need it again, for the scenario's profiles or its conversion."""
    return stream.read(MAX_BYTES + 1)


def _text(path: str, content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise ScenarioError(
            [SourceLocation(path, 1, 1).problem(f"larger than {MAX_BYTES} bytes: this is not a scenario")]
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + 1
        message = f"byte 0x{content[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise ScenarioError([SourceLocation(path, line, column).problem(message)]) from error
