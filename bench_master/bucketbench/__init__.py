"""Loads bucketbench's benchmark definitions like scenarios, or writes them as commented scenario files.

`schema` reads a definition and `convert` translates it into a scenario's tree; this module is the entry point for
both kinds of file. Nothing else knows bucketbench, except the report format of that name.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench_common.errors import UsageError
from bench_common.safe_text import one_line
from bench_master.bucketbench.convert import DefinitionFlags, translate
from bench_master.bucketbench.schema import GRACE, is_definition
from bench_master.scenario.diagnostics import Diagnostics
from bench_master.scenario.load import parse_scenario, parse_tree
from bench_master.scenario.yaml_tree import ListNode, MappingNode, Node, read_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench_master.bucketbench.convert import TranslatedScenario
    from bench_master.scenario.model import Scenario

__all__ = ["DefinitionFlags", "load_scenario_or_definition", "scenario_text"]

WIDTH: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z/][A-Za-z0-9_./@+-]*(:[A-Za-z0-9_./@+-]+)*")
_YAML_KEYWORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
"""Words that some YAML readers do not read as text."""

NO_FLAGS: Final = DefinitionFlags()
BUCKETBENCH: Final = "bucketbench"


def render_scenario(native: TranslatedScenario, path: str, lost: Sequence[str]) -> str:
    """Return a translated definition as the text of a scenario; `lost` are the notes on what is missing in it."""
    lines = [*_comment(f"Converted from {path}, a bucketbench definition.", "")]
    if lost:
        lines += ["#", *_comment("Not carried over, or different from bucketbench:", "")]
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


def load_scenario_or_definition(
    reference: str, overrides: Sequence[str] = (), flags: DefinitionFlags = NO_FLAGS
) -> Scenario:
    """Return the scenario in a file, or the one that a bucketbench definition translates to.

    `overrides` are ``--set`` texts, applied after the translation; `flags` apply to definitions only. Raises
    `ScenarioError` with every problem, each at its place in the file, and `UsageError` if there is no such file or a
    flag does not apply to it.
    """
    source = read_source(reference)
    lost: list[str] = []
    dialect = ""

    def native(root: MappingNode, findings: Diagnostics) -> MappingNode:
        if not is_definition(root):
            _check_flags(reference, flags)
            return root
        nonlocal dialect
        dialect = BUCKETBENCH
        translated = translate(root, findings, flags).root
        lost.extend(findings.notes)
        return translated

    scenario = parse_scenario(source, overrides, dialect=native)
    return replace(scenario, dialect=dialect, untranslated=tuple(lost))


def _check_flags(reference: str, flags: DefinitionFlags) -> None:
    """Reject flags that do not apply to a scenario."""
    if flags.legacy:
        advice = "in a scenario, write `matrix: {concurrency: [1, 2, 4]}`"
        raise UsageError(f"{reference}: --legacy applies to bucketbench definitions only; {advice}")
    if flags.grace != GRACE:
        raise UsageError(
            f"{reference}: --stop-grace applies to bucketbench definitions only; write {{stop: {flags.grace}}}"
        )
    if flags.drivers:
        raise UsageError(
            f"{reference}: --drivers applies to bucketbench definitions only; a scenario lists its 'engines'"
        )


def scenario_text(reference: str, flags: DefinitionFlags = NO_FLAGS) -> tuple[str, tuple[str, ...]]:
    """Return a bucketbench definition as the text of a scenario, and the notes on what was not carried over.

    The text loads to the same treatments as `load_scenario_or_definition`. Raises `UsageError` if the file is not a
    definition.
    """
    source = read_source(reference)
    root = parse_tree(source)
    if not is_definition(root):
        raise UsageError(f"{reference}: not a bucketbench definition: it has neither 'drivers' nor 'commands'")
    findings = Diagnostics()
    native = translate(root, findings, flags)
    load_scenario_or_definition(reference, flags=flags)
    return render_scenario(native, source.path, findings.notes), tuple(findings.notes)
