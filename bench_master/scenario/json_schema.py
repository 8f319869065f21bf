"""The format of a scenario as JSON Schema, so that editors complete and check it while it is written."""

from __future__ import annotations

from typing import Any, Final

from bench_master.scenario.format import scenario_format
from bench_master.scenario.spelling_schema import with_old_spellings

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_OF_THE_USE: Final = ("description", "default")
"""What is said of a part where it is used, not where it is defined."""


def scenario_schema() -> dict[str, Any]:
    """Return the schema, draft 2020-12, generated from the table that the loader checks with.

    It knows the engines and workloads that are installed here. What relates one part of a scenario to another
    (whether an order of operations can work, say) only the loader sees.
    """
    definitions: dict[str, Any] = {}
    parts = scenario_format().scenario.schema()
    root = {key: _referring(value, definitions) for key, value in parts.items() if key != "title"}
    definitions["job"] = with_old_spellings(definitions["job"])
    return {
        "$schema": DIALECT,
        "title": "Weighbridge scenario",
        "description": "What to run, where, how often, in which order.",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _referring(part: Any, definitions: dict[str, Any]) -> Any:
    """Return a part of a schema with each titled part below it moved to `definitions` and referred to."""
    if isinstance(part, list):
        return [_referring(item, definitions) for item in part]
    if not isinstance(part, dict):
        return part
    title = part.get("title")
    inner = {key: _referring(value, definitions) for key, value in part.items()}
    if not isinstance(title, str):
        return inner
    name = "".join(letter if letter.isalnum() else "-" for letter in title).strip("-")
    definition = {key: value for key, value in inner.items() if key not in _OF_THE_USE}
    if definitions.setdefault(name, definition) != definition:
        raise ValueError(f"two parts of the format are both called '{title}'")
    return {"$ref": f"#/$defs/{name}"} | {key: inner[key] for key in _OF_THE_USE if key in inner}
