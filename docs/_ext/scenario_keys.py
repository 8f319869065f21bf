"""The reference of scenario keys, from the JSON schema that editors check scenarios with: an anchor for each key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rst_text import heading, indented, plain

from bench_master.scenario import scenario_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PATTERNS = (("ns)?)", "duration"), ("KiB", "size"), ("second|minute", "rate"))
"""What values are, by a part of the pattern that they must match."""
_NO_MATRIX = ("cell", "matrix")
"""Definitions whose keys are those of others, written with dots."""


def pages() -> dict[str, str]:
    """Return what the page includes by its path below docs/generated."""
    schema = scenario_schema()
    parts = [
        heading("At the top level"),
        *_keys(schema, ""),
    ]
    for name, part in schema["$defs"].items():
        if name in _NO_MATRIX:
            continue
        keys = list(_keys(part, name))
        if keys or {"anyOf", "items", "additionalProperties"} & set(part):
            parts += [f".. _part-{name}:", heading(_title(part, name)), *(keys or [_shape(part)])]
    parts += [
        ".. _part-matrix:",
        heading("In a matrix"),
        "Each of these keys takes a list of values there:",
        ", ".join(f"``{key}``" for key in sorted(schema["$defs"]["matrix"]["properties"])) + ".",
        ".. _part-cell:",
        "A cell of a matrix (an entry of the baseline, of the A/A check) takes one value for each.",
    ]
    return {"scenario-keys.txt": "\n\n".join(parts) + "\n"}


def _title(part: Mapping[str, Any], name: str) -> str:
    title = str(part.get("title", name))
    return title[:1].upper() + title[1:]


def _keys(part: Mapping[str, Any], parent: str) -> Iterator[str]:
    required = part.get("required", ())
    for key, value in part.get("properties", {}).items():
        lines = [plain(value.get("description", "")).rstrip(".")]
        if lines[0]:
            lines[0] = f"{lines[0][:1].upper()}{lines[0][1:]}."
        facts = [f"Type: {_shape(value)}"]
        if "default" in value:
            facts.append(f"default ``{_written(value['default'])}``")
        if key in required:
            facts.append("required")
        name = key_name(parent, key)
        text = "\n".join([*filter(None, lines), "", f"{'; '.join(facts)}."])
        yield f".. scenario-key:: {name}\n\n{indented(text)}"


def key_name(part: str, key: str) -> str:
    """Return how a key is called: alone at the top level, else behind its part, such as ``container.image``."""
    return f"{part.replace('--', '-')}.{key}" if part else key


def _written(value: Any) -> str:
    """Return a default as it is written in YAML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_written(one)}" for key, one in value.items()) + "}"
    return str(value)


def _shape(part: Mapping[str, Any]) -> str:
    """Return in a few words what a value is."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return f":ref:`{name} <part-{name}>`"
    if "const" in part:
        return f"``{part['const']}``"
    if "enum" in part:
        return "one of " + ", ".join(f"``{_written(one)}``" for one in part["enum"])
    if "anyOf" in part or "oneOf" in part:
        return _alternatives(part.get("anyOf") or part["oneOf"])
    kind = part.get("type")
    if isinstance(kind, list):
        return "text"  # the loader keeps text as it was written, so that any scalar is text
    if kind == "array":
        return f"list, each {_shape(part['items'])}" if "items" in part else "list"
    if kind == "object":
        values = part.get("additionalProperties")
        return f"mapping of names, each to {_shape(values)}" if isinstance(values, dict) else "mapping"
    if kind in ("integer", "number"):
        return ("whole number" if kind == "integer" else "number") + _bounds(part)
    if kind == "string":
        return next((word for sign, word in _PATTERNS if sign in part.get("pattern", "")), "text")
    return {"boolean": "``true`` or ``false``", "null": "``null``"}.get(str(kind), "value")


def _alternatives(parts: list[Mapping[str, Any]]) -> str:
    """Return alternatives once each; where text is one of them, other scalars are texts, too."""
    shapes = list(dict.fromkeys(_shape(part) for part in parts))
    words = {"duration", "size", "rate"} & set(shapes)
    if words:
        shapes = [one for one in shapes if "number" not in one]
    elif "text" in shapes:
        shapes = [one for one in shapes if "number" not in one and one not in ("``true`` or ``false``", "``null``")]
    return " or ".join(shapes)


def _bounds(part: Mapping[str, Any]) -> str:
    low, high = part.get("minimum"), part.get("maximum")
    if "exclusiveMinimum" in part:
        low_text = f"above {part['exclusiveMinimum']:g}"
    else:
        low_text = f"from {low:,}" if low is not None else ""
    high_text = f"to {high:,}" if high is not None else ""
    words = " ".join(filter(None, (low_text, high_text)))
    return f" {words}" if words else ""
