"""Applies profiles and ``--set key=value`` to the tree, before it is checked.

So every check covers them, and a problem names the argument as its place.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from bench_common.errors import did_you_mean
from bench_master.scenario.format import TRIAL_SIZE_KEYS
from bench_master.scenario.keys_run import FULL, PROFILES, SCALE
from bench_master.scenario.yaml_tree import (
    ListNode,
    MappingNode,
    Node,
    ScalarNode,
    SourceLocation,
    TreeComposer,
    quote_node,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench_master.scenario.diagnostics import Diagnostics

_KEYS_WITH_DOTS: Final = frozenset({"env", "log_options", "params", "matrix"})
"""Mappings with dots in their keys: the rest of a path after one of these is a single key."""

_NAMED: Final = 3
"""How many keys of a profile a note names; the plan has their values."""


def apply_all(root: MappingNode, overrides: Sequence[str], findings: Diagnostics) -> str:
    """Apply the profile, then ``--set``, which overrides it; return the scale."""
    scaling = [text for text in overrides if text.partition("=")[0].strip().partition(".")[0] in {SCALE, PROFILES}]
    apply_overrides(root, scaling, findings)
    scale = apply_profile(root, findings)
    apply_overrides(root, [text for text in overrides if text not in scaling], findings)
    return scale


def apply_profile(root: MappingNode, findings: Diagnostics) -> str:
    """Apply the profile that ``scale`` names, if any, as ``--set`` would apply each of its keys; return the scale.

    The scale is added to the scenario's name unless the profile sets the name: a report must not pass a small run off
    as the full one.
    """
    scale = root.values.get(SCALE)
    if not isinstance(scale, ScalarNode) or scale.text in (FULL, ""):
        return FULL
    profiles = root.values.get(PROFILES)
    known = profiles.values if isinstance(profiles, MappingNode) else {}
    profile = known.get(scale.text)
    if profile is None:
        there = did_you_mean(scale.text, [*known, FULL]) or f"; the profiles are: {', '.join([*known, FULL])}"
        findings.add(scale.place, f"the scenario has no profile {quote_node(scale)}{there}", deep=True)
    if not isinstance(profile, MappingNode):
        return FULL
    for key, value in profile.values.items():
        if key in {SCALE, PROFILES}:
            findings.add(profile.key_places[key], f"a profile cannot set '{key}': remove it", deep=True)
        else:
            set_path(root, key, value, profile.key_places[key], findings)
    name = root.values.get("name")
    if "name" not in profile.values and isinstance(name, ScalarNode):
        root.values["name"] = ScalarNode(name.place, f"{name.text} ({scale.text})", plain=False)
    names = list(profile.values)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED + 1 else ""
    shown = ", ".join(names[:_NAMED] if more else names)
    findings.note(f"scale {scale.text}: the profile sets {shown or 'nothing'}{more}")
    return scale.text


def apply_overrides(root: MappingNode, overrides: Iterable[str], findings: Diagnostics) -> None:
    """Apply ``--set`` texts such as ``jobs.cpu.params.time=5s``; the value is YAML."""
    for text in overrides:
        place = SourceLocation(f"--set {text}")
        path, equals, written = text.partition("=")
        if not equals or not path.strip():
            findings.add(place, "expected key=value, such as --set repeats=9 or --set jobs.cpu.params.time=5s")
            continue
        composer = TreeComposer(written, place.file, at=place)
        value = composer.compose()
        for problem in composer.problems:
            findings.add(place, problem.message)
        if not composer.problems:
            set_path(root, path.strip(), value or ScalarNode(place, ""), place, findings)


def set_everywhere(root: MappingNode, key: str, value: Any, place: SourceLocation, findings: Diagnostics) -> None:
    """Set a run key for the whole scenario; it replaces the key, and those that exclude it, in every job too."""
    excluded = _excluded_keys(key)
    for job in jobs_of(root):
        for name in excluded:
            job.values.pop(name, None)
    refuse_varied(root, key, value, place, findings)
    _set_key(root, key, node_of(value, place), place)


def jobs_of(root: MappingNode) -> list[MappingNode]:
    """Return the jobs that the tree has, whether it has one or several."""
    jobs = root.values.get("jobs")
    found = [root.values.get("job"), *(jobs.values.values() if isinstance(jobs, MappingNode) else ())]
    return [job for job in found if isinstance(job, MappingNode)]


def refuse_varied(root: MappingNode, key: str, value: Any, place: SourceLocation, findings: Diagnostics) -> None:
    """Report that a matrix varies a key that is to be set to one value, or one that this would exclude."""
    keys = _excluded_keys(key)
    for owner in (root, *jobs_of(root)):
        matrix = owner.values.get("matrix")
        if not isinstance(matrix, MappingNode):
            continue
        listed = matrix.values.get("include")
        entries = listed.items if isinstance(listed, ListNode) else ()
        included = {name for entry in entries if isinstance(entry, MappingNode) for name in entry.values}
        for name in keys:
            if name in matrix.values:
                findings.add(place, f"the matrix varies '{name}'; use --set 'matrix.{key}=[{value}]' instead")
            elif name in included:
                text = f"the matrix's 'include' varies '{name}'; use --set 'matrix.include=[...]' instead"
                findings.add(place, text)


def node_of(value: Any, place: SourceLocation) -> Node:
    """Return plain data as a part of a tree, all of it at one place."""
    return TreeComposer(json.dumps(value), place.file, at=place).compose() or ScalarNode(place, "")


def set_path(root: MappingNode, path: str, value: Node, place: SourceLocation, findings: Diagnostics) -> None:
    """Set the value at a dotted path, creating missing mappings on the way; `place` is that of the override."""
    node: Node = root
    left, walked = path, ""
    while True:
        if isinstance(node, MappingNode):
            key, left = _next_key(node, left, walked)
            walked = key
            if not left:
                _set_key(node, key, value, place)
                return
            if key not in node.values and node is root.values.get("jobs"):
                # A path into an unknown job is a misspelt label; a whole new job is set as `jobs.label={...}`.
                there = did_you_mean(key, node.values) or f"; the jobs are: {', '.join(node.values)}"
                findings.add(place, f"no job '{key}'{there}")
                return
            if key not in node.values:
                node.put(key, MappingNode(place), place)
            node = node.values[key]
        elif isinstance(node, ListNode):
            index, _, left = left.partition(".")
            count = len(node.items)
            if not index.isdecimal() or int(index) > count - bool(left):
                last = f"0 to {count - 1}, or {count} to add one" if count else "0 to add one"
                findings.add(place, f"'{index}' is not a position in '{walked}'; expected {last}")
                return
            if not left:
                node.items[int(index) : int(index) + 1] = [value]
                return
            node = node.items[int(index)]
            walked = "entry" if walked in {"include", "exclude"} else index
        else:
            findings.add(place, f"'{walked}' is {quote_node(node)} and has no key '{left}'")
            return


def _next_key(node: MappingNode, path: str, parent: str) -> tuple[str, str]:
    """Split the next key off a path. Keys may contain dots, so the longest existing one matches first."""
    for key in sorted(node.values, key=len, reverse=True):
        if path == key or path.startswith(f"{key}."):
            return key, path[len(key) + 1 :]
    first, _, rest = path.partition(".")
    listed = parent == "matrix" and first in {"include", "exclude"}
    if (parent in _KEYS_WITH_DOTS or parent == "entry") and not listed:
        return path, ""
    return first, rest


def _set_key(node: MappingNode, key: str, value: Node, place: SourceLocation) -> None:
    for name in _excluded_keys(key):
        node.values.pop(name, None)
    node.put(key, value, place)


def _excluded_keys(key: str) -> tuple[str, ...]:
    """Return the keys that setting `key` removes: itself, and those that exclude it."""
    return TRIAL_SIZE_KEYS if key in TRIAL_SIZE_KEYS else (key,)
