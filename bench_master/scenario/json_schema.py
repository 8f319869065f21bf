"""The scenario format as JSON Schema, so that editors complete and check a scenario.

The schema is generated from the loader's table. The loader translates aliases first, so its table has only our names;
`with_aliases` adds the names that a tool uses for its tests and options.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from bench_master.scenario.format import job_keys, scenario_format
from bench_workloads.registry import workload_classes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_workloads.base import Workload

_TEST: Final = "^-*test$"
_HAS_TEST: Final[Mapping[str, Any]] = {"not": {"propertyNames": {"not": {"pattern": _TEST}}}}
"""A mapping has the key ``test``, with or without leading dashes."""
_PARAMS_HAVE_TEST: Final[Mapping[str, Any]] = {
    "properties": {"params": {"type": "object", **_HAS_TEST}},
    "required": ["params"],
}


def with_aliases(job: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a job with the tools' names for their tests and options."""
    classes = workload_classes()
    tests = {one.tool_test_name: one for one in classes.values() if one.tool_test_name}
    named = [_HAS_TEST, _PARAMS_HAVE_TEST]
    known = {"type": "string", "pattern": _test_names("|".join(map(re.escape, sorted(tests))))}
    return {
        **job,
        "properties": {**job["properties"], "workload": _allow_binaries(job["properties"]["workload"], tests)},
        "patternProperties": {_TEST: known},
        "allOf": [
            *(_rule(rule, classes, named) for rule in job["allOf"]),
            *(_require_test(binary, named) for binary in sorted({one.binary for one in tests.values()})),
        ],
    }


def _allow_binaries(shape: dict[str, Any], tests: Mapping[str, type[Workload]]) -> dict[str, Any]:
    return {**shape, "enum": [*shape["enum"], *sorted({one.binary for one in tests.values()})]}


def _require_test(binary: str, named: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the rule that a tool with several workloads requires a test."""
    return {"if": {"properties": {"workload": {"const": binary}}, "required": ["workload"]}, "then": {"anyOf": named}}


def _rule(rule: Any, classes: Mapping[str, type[Workload]], named: list[Mapping[str, Any]]) -> Any:
    """Return a rule of a job, extended so that a test can name the workload."""
    given = [{"required": ["workload"]}, *named]
    kinds = [{"required": [kind]} for kind in job_keys()]
    if rule == {"oneOf": kinds}:
        return {"oneOf": [{"anyOf": given} if kind == given[0] else kind for kind in kinds]}
    if rule == {"dependentRequired": {"params": ["workload"]}}:
        return {"if": {"required": ["params"]}, "then": {"anyOf": given}}
    if isinstance(rule, dict) and isinstance(rule.get("allOf"), list):
        return {"allOf": [_workload_rule(one, classes) for one in rule["allOf"]]}
    return rule


def _workload_rule(part: dict[str, Any], classes: Mapping[str, type[Workload]]) -> dict[str, Any]:
    """Return the rule of one workload's parameters under all of its names."""
    name = part["if"]["properties"]["workload"]["const"]
    one = classes[name]
    params = part["then"]["properties"]["params"]
    old = {_pattern(own): shape for own, shape in params["properties"].items()}
    for word, own in one.tool_option_names.items():
        old[_pattern(word)] = params["properties"][own]
    for word, (harmless, why) in one.obsolete_options.items():
        # YAML 1.1 reads ``on`` as true, and so may an editor.
        old[_pattern(word)] = {"enum": [harmless, True], "description": why}
    for word, meanings in one.legacy_option_values.items():
        if word != "test":
            old[_pattern(word)] = {"enum": [*meanings, True, False]}
    when = [part["if"]]
    properties = params["properties"]
    if one.tool_test_name:
        is_test = {"type": "string", "pattern": _test_names(re.escape(one.tool_test_name))}
        valued = {"patternProperties": {_TEST: is_test}}
        inner = {"type": "object", **_HAS_TEST, **valued}
        when += [{**_HAS_TEST, **valued}, {"properties": {"params": inner}, "required": ["params"]}]
        if "test" not in properties:
            old[_TEST] = is_test
        else:
            properties = {**properties, "test": {"anyOf": [properties["test"], is_test]}}
            old.pop(_pattern("test"))
    then = {**params, "properties": properties, "patternProperties": old}
    return {"if": {"anyOf": when}, "then": {"properties": {"params": then}}}


def _pattern(name: str) -> str:
    """Return the pattern of a parameter's names: with leading dashes, and dashes for underscores."""
    return f"^-*{'[-_]'.join(re.escape(word) for word in re.split('[-_]', name))}$"


def _test_names(tests: str) -> str:
    """Return the pattern of a test's names: alone, or as the file of its script."""
    return rf"^(.*/)?({tests})(\.lua)?$"


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
    definitions["job"] = with_aliases(definitions["job"])
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
