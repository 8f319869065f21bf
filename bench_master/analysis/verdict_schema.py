"""The JSON Schema of ``weighbridge-verdicts``, made from the declared types and the text below each field."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import msgspec

from bench_master.analysis import verdict_types
from bench_master.analysis.verdict_types import VERDICTS_FORMAT, VERDICTS_VERSION, VerdictsReport


def verdicts_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of what a JSON report has under ``verdicts``."""
    (root,), found = msgspec.json.schema_components([VerdictsReport], ref_template="#/$defs/{name}")
    descriptions = _field_descriptions()
    for name, shape in found.items():
        # A field with a default is always written, too.
        shape["required"] = list(shape["properties"])
        for field, text in descriptions.get(name, {}).items():
            shape["properties"][field]["description"] = text
    top = found["VerdictsReport"]["properties"]
    top["format"]["const"], top["version"]["const"] = VERDICTS_FORMAT, VERDICTS_VERSION
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": VERDICTS_FORMAT,
        **root,
        "$defs": dict(found),
    }


def _field_descriptions() -> dict[str, dict[str, str]]:
    """Return, by class and field, the text below each field; Python itself does not keep it."""
    found: dict[str, dict[str, str]] = {}
    for kind in ast.parse(inspect.getsource(verdict_types)).body:
        if not isinstance(kind, ast.ClassDef):
            continue
        for field, text in zip(kind.body, kind.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(field.target, ast.Name):
                words = inspect.cleandoc(ast.literal_eval(text.value)).replace("\n", " ").replace("``", "`")
                found.setdefault(kind.name, {})[field.target.id] = re.sub(r"\bNone\b", "null", words)
    return found
