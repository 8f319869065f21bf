"""The JSON Schemas of the JSON report and of its verdicts, made from the declared types and their docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from types import ModuleType
from typing import Any, Final

import msgspec
from msgspec import Struct

from bench_master.analysis import report_types, verdict_types
from bench_master.analysis.document import FORMAT, VERSION
from bench_master.analysis.report_types import ReportDocument
from bench_master.analysis.verdict_types import VERDICTS_FORMAT, VERDICTS_VERSION, VerdictsReport
from bench_master.run_data import run_types, traced_types, transfer_types, treatment_types
from bench_master.verdicts import reasons

_MODULES: Final = (report_types, run_types, traced_types, transfer_types, treatment_types, verdict_types, reasons)
_PERCENTILE: Final = r"p\d{1,2}(\.\d+)?"
"""The names of the entries of inline fields, as a regular expression that ECMA-262 and Python read alike."""


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of what ``--format json`` prints."""
    return _schema(ReportDocument, FORMAT)


def verdicts_schema() -> dict[str, Any]:
    """Return the JSON Schema of what a JSON report has under ``verdicts``, and ``compare --format json`` prints."""
    return _schema(VerdictsReport, VERDICTS_FORMAT)


def _schema(kind: type[Any], title: str) -> dict[str, Any]:
    (root,), found = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    for module in _MODULES:
        descriptions = field_descriptions(module)
        for name, shape in found.items():
            declared = getattr(module, name, None)
            if isinstance(declared, type) and issubclass(declared, Struct) and declared.__module__ == module.__name__:
                _complete(shape, declared, descriptions.get(name, {}), finite=module is verdict_types)
    for name, constants in (
        ("ReportDocument", {"format": FORMAT, "version": VERSION}),
        ("VerdictsReport", {"format": VERDICTS_FORMAT, "version": VERDICTS_VERSION}),
    ):
        for key, value in constants.items() if name in found else ():
            found[name]["properties"][key]["const"] = value
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **root,
        "$defs": dict(found),
    }


def _complete(shape: dict[str, Any], kind: type[Struct], descriptions: dict[str, str], *, finite: bool) -> None:
    """Add to the schema of a class what `as_json` does with its fields, and what they mean."""
    properties = shape["properties"]
    # A field with a default is always written, too.
    required = list(properties)
    for name in kind.__struct_fields__:
        value = properties[name]
        if not finite:
            properties[name] = value = _or_null(value)
        if name in descriptions:
            value["description"] = descriptions[name]
        if name in getattr(kind, "OMIT_NONE", ()):
            required.remove(name)
        form = getattr(kind, "INLINE", {}).get(name)
        if form is not None:
            required.remove(name)
            del properties[name]
            pattern = f"^{form.format(_PERCENTILE)}$"
            shape.setdefault("patternProperties", {})[pattern] = {
                **value["additionalProperties"],
                "description": value.get("description", ""),
            }
    shape["required"] = required


def _or_null(shape: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value, in which any measure may be null: JSON has no numbers that are not finite."""
    if shape == {"type": "number"}:
        return {"type": ["number", "null"]}
    inner = {
        key: _or_null(shape[key]) for key in ("items", "additionalProperties") if isinstance(shape.get(key), dict)
    }
    return {**shape, **inner}


def field_descriptions(module: ModuleType) -> dict[str, dict[str, str]]:
    """Return, by class and field, the text below each field; Python itself does not keep it."""
    found: dict[str, dict[str, str]] = {}
    for kind in ast.parse(inspect.getsource(module)).body:
        if not isinstance(kind, ast.ClassDef):
            continue
        for field, text in zip(kind.body, kind.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(field.target, ast.Name):
                words = inspect.cleandoc(ast.literal_eval(text.value)).replace("\n", " ").replace("``", "`")
                found.setdefault(kind.name, {})[field.target.id] = re.sub(r"\bNone\b", "null", words)
    return found
