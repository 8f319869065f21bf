"""Loads files of other tools like scenarios, or writes them as commented scenario files.

A dialect is one tool, registered under ``weighbridge.dialects``: it recognises its files by their top-level keys and
translates them to a scenario's tree, which is then checked like any other. Every value keeps its place, so that the
scenario's own checks name a line of the file. What has another meaning here, or none, gives a note with its place;
decisions become comments in the written scenario.
"""

from __future__ import annotations

import re
import textwrap
from functools import cache
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from bench_common import load_entry, registered
from bench_common.errors import UsageError
from bench_common.safe_text import one_line
from bench_common.streams import tell
from bench_master.progress_message import progress_message
from bench_master.scenario.diagnostics import Diagnostics
from bench_master.scenario.load import TreeChange, parse_scenario, parse_tree
from bench_master.scenario.model import DefinitionFlags, Origin, TranslatedScenario
from bench_master.scenario.yaml_tree import ListNode, MappingNode, Node, read_source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from importlib.metadata import EntryPoint

    from bench_master.scenario.model import Scenario
    from bench_master.scenario.yaml_tree import Source

GROUP: Final = "weighbridge.dialects"
NO_FLAGS: Final = DefinitionFlags()


class Dialect(Struct, frozen=True):
    """One tool whose files are read."""

    origin: Origin
    """What its files are called."""
    recognises: Callable[[MappingNode], bool]
    """Whether a tree is one of its files."""
    translate: Callable[[MappingNode, Diagnostics, DefinitionFlags], TranslatedScenario]
    """Returns the tree as a scenario's; reports problems, and notes what cannot be carried over.

    Every scenario is shown to `recognises`, so it and its module load nothing that only this needs.
    """


@cache
def dialects() -> tuple[Dialect, ...]:
    """Return the registered dialects, by name; one that cannot be loaded is left out, and told on stderr."""
    return tuple(filter(None, map(_load, sorted(registered(GROUP), key=lambda point: point.name))))


def _load(point: EntryPoint) -> Dialect | None:
    try:
        dialect: Dialect = load_entry(point)
    except Exception as error:  # noqa: BLE001  a broken package must not stop those who write no such file
        tell(
            f"scenario files of {one_line(point.name)} ({one_line(point.value)}) are not understood: what reads them "
            f"cannot be loaded: {type(error).__name__}: {one_line(str(error))}; repair or uninstall that package"
        )
        return None
    return dialect


def origins() -> list[Origin]:
    """Return what the files of the registered dialects are called."""
    return [one.origin for one in dialects()]


def _dialect_of(root: MappingNode) -> Dialect | None:
    return next((dialect for dialect in dialects() if dialect.recognises(root)), None)


def load_scenario_or_definition(
    reference: str,
    overrides: Sequence[str] = (),
    flags: DefinitionFlags = NO_FLAGS,
    change: Callable[[Origin | None], TreeChange] | None = None,
) -> Scenario:
    """Return the scenario in a file, or the one that a file of another tool translates to.

    `overrides` are ``--set`` texts, applied after the translation; `flags` say how another tool's file is read.
    `change` returns what is changed after them in a file of that tool, or in a scenario. Raises
    `ScenarioError` with every problem, each at its place, and `UsageError` if there is no such file or a flag does
    not apply to it.
    """
    source = read_source(reference)
    lost: list[str] = []
    found: list[tuple[Dialect, TranslatedScenario]] = []

    def native(root: MappingNode, findings: Diagnostics) -> MappingNode:
        dialect = _dialect_of(root)
        if dialect is None or not dialect.origin.takes_flags:
            _check_flags(reference, flags, "in a scenario, " if dialect is None else "")
        if dialect is None:
            return root
        translated = dialect.translate(root, findings, flags)
        found.append((dialect, translated))
        lost.extend(findings.notes)
        return translated.root

    def changed(root: MappingNode, findings: Diagnostics) -> None:
        if change is not None:
            change(found[0][0].origin if found else None)(root, findings)

    with progress_message(f"reading the scenario {reference}"):
        scenario = parse_scenario(source, overrides, native, changed)
    for dialect, translated in found:
        scenario = replace(scenario, origin=dialect.origin, untranslated=tuple(lost), user_count=translated.users)
    return scenario


def scenario_of(source: Source) -> Scenario:
    """Return the scenario that another tool's file of a known text translates to; raise `ScenarioError`."""

    def native(root: MappingNode, findings: Diagnostics) -> MappingNode:
        dialect = _dialect_of(root)
        return root if dialect is None else dialect.translate(root, findings, NO_FLAGS).root

    return parse_scenario(source, dialect=native)


def _check_flags(reference: str, flags: DefinitionFlags, where: str) -> None:
    """Reject flags that apply to files of some dialects only, and not to this one; `where` begins the advice."""
    only = " and ".join(one.origin.plural for one in dialects() if one.origin.takes_flags) or "files of other tools"
    if flags.legacy:
        advice = f"{where}write `matrix: {{concurrency: [1, 2, 4]}}`"
        raise UsageError(f"{reference}: --legacy applies to {only} only; {advice}")
    if flags.grace is not None:
        raise UsageError(f"{reference}: --stop-grace applies to {only} only; write {{stop: {flags.grace}}}")
    if flags.drivers:
        raise UsageError(f"{reference}: --drivers applies to {only} only; a scenario lists its 'engines'")


def scenario_text(reference: str, flags: DefinitionFlags = NO_FLAGS) -> tuple[str, tuple[str, ...]]:
    """Return a file of another tool as the text of a scenario, and the notes on what was not carried over.

    The text loads to the same treatments as `load_scenario_or_definition`. Raises `UsageError` for any other file.
    """
    source = read_source(reference)
    root = parse_tree(source)
    dialect = _dialect_of(root)
    if dialect is None:
        known = [f"{one.article} {one.tool} {one.noun}, which has {one.marks}" for one in origins()]
        raise UsageError(
            f"{reference}: neither {', nor '.join(known)}" if known else f"{reference}: no tool is known"
        )
    findings = Diagnostics()
    native = dialect.translate(root, findings, flags)
    load_scenario_or_definition(reference, flags=flags)
    return render_scenario(native, source.path, dialect.origin, findings.notes), tuple(findings.notes)


WIDTH: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./@+-]*(:[A-Za-z0-9_./@+-]+)*")
_YAML_KEYWORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Words that some YAML readers do not read as text."""


def render_scenario(native: TranslatedScenario, path: str, origin: Origin, lost: Sequence[str]) -> str:
    """Return a translated file as the text of a scenario; `lost` are the notes on what is missing in it."""
    lines = [*_comment(f"Converted from {path}, {origin.article} {origin.tool} {origin.noun}.", "")]
    if lost:
        lines += ["#", *_comment(f"Not carried over, or different from {origin.tool}:", "")]
        lines += [line for text in lost for line in _comment(text, "", bullet="- ")]
    for key in native.root.values:
        lines += ["", *_entry(native, native.root, key, "")]
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str, bullet: str = "") -> list[str]:
    first, rest = f"{indent}# {bullet}", f"{indent}# {' ' * len(bullet)}"
    # A path or a key can contain any character, even a line end.
    wrapper = textwrap.TextWrapper(WIDTH, first, rest, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(one_line(text))


def _entry(native: TranslatedScenario, node: MappingNode, key: str, indent: str) -> Iterator[str]:
    """Yield the lines of one key: a mapping as a block, anything else on one line if it fits."""
    comment = native.comments.get((id(node), key))
    if comment:
        yield from _comment(comment, indent)
    value = node.values[key]
    head = f"{indent}{_text(key)}:"
    if isinstance(value, MappingNode):
        yield head
        for inner in value.values:
            yield from _entry(native, value, inner, f"{indent}  ")
        return
    line = f"{head} {_flow(value)}"
    if isinstance(value, ListNode) and len(line) > WIDTH:
        yield head
        yield from (f"{indent}  - {_flow(item)}" for item in value.items)
    else:
        yield line


def _flow(node: Node) -> str:
    if isinstance(node, ListNode):
        return f"[{', '.join(map(_flow, node.items))}]"
    if isinstance(node, MappingNode):
        return f"{{{', '.join(f'{_text(key)}: {_flow(value)}' for key, value in node.values.items())}}}"
    return node.text if node.plain else _text(node.text)


def _text(text: str) -> str:
    """Return text as a scalar that every YAML reader reads as that text."""
    if _PLAIN.fullmatch(text) and text.lower() not in _YAML_KEYWORDS:
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    if letter.isprintable():
        return letter
    return f"\\u{ord(letter):04x}" if ord(letter) <= 0xFFFF else f"\\U{ord(letter):08x}"  # noqa: PLR2004
