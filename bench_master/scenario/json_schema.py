"""The scenario format as JSON Schema, so that editors complete and check a scenario.

The schema is generated from the loader's table.
"""

from __future__ import annotations

from typing import Any, Final

from bench_master.scenario.format import scenario_format

SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_USE_SITE_KEYS: Final = ("description", "default")
"""Keys of a part that belong to its use, not to its definition."""


def scenario_schema() -> dict[str, Any]:
    """Return the schema, draft 2020-12, generated from the table that the loader checks with.

    It lists the engines and workloads that are installed here. Only the loader checks relations between parts, such
    as the order of operations.
    """
    definitions: dict[str, Any] = {}
    parts = scenario_format().scenario.schema()
    root = {key: _extract_definitions(value, definitions) for key, value in parts.items() if key != "title"}
    return {
        "$schema": SCHEMA_DIALECT,
        "title": "Weighbridge scenario",
        "description": "What to run, where, how often, in which order.",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _extract_definitions(part: Any, definitions: dict[str, Any]) -> Any:
    """Return a part of a schema with each titled part below it moved to `definitions` and referred to."""
    if isinstance(part, list):
        return [_extract_definitions(item, definitions) for item in part]
    if not isinstance(part, dict):
        return part
    title = part.get("title")
    inner = {key: _extract_definitions(value, definitions) for key, value in part.items()}
    if not isinstance(title, str):
        return inner
    name = "".join(letter if letter.isalnum() else "-" for letter in title).strip("-")
    definition = {key: value for key, value in inner.items() if key not in _USE_SITE_KEYS}
    if definitions.setdefault(name, definition) != definition:
        raise ValueError(f"two parts of the format have the title '{title}'")
    return {"$ref": f"#/$defs/{name}"} | {key: inner[key] for key in _USE_SITE_KEYS if key in inner}
